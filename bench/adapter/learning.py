"""Learns an adapter from the sets that also teach the projection (`bench/routing_projection.py`).

Each step takes a catalog in turn, some of its messages or phrases, and a few phrases of each
capability. Their vectors are computed by the changed layers. The loss is that of the routing
decision: a softmax over capabilities (the log-mean-exp of the cosines with their phrases) and
"none", which stands for a message that wants no capability. A phrase that is taken as a message is
not compared with itself. Besides the changes, a direction for "none", its bias and two factors are
learnt.

In the daemon, the part of a long message that decides is chosen by weights. These are fitted after
the vectors are known, so here another rule chooses the passage that teaches (`lessons_of`).

The maps, the number of layers and the rank were chosen on two folds. Three layers are better than
one or two, and the maps of the inner layer help in addition to `query` and `value`. The results for
ranks of 4, 8 and 16 differ by less than the noise.

Samples and the start come from seeded generators and torch has one thread, so that two runs on one
machine learn the same bytes.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch  # pyright: ignore[reportMissingImports]
from bench.adapter.encoder import DIMENSIONS, AdapterError, Encoder, Place, Texts, adapter_bytes
from bench.routing_projection import PENALTY, shares
from bench.routing_projection import RATE as HEAD_RATE
from bench.routing_tuning import Fold, Prepared, all_folds, parts_of, teaching

from capd.adapters.model import low_rank
from capd.adapters.model.low_rank import RANK
from capd.adapters.routing_files import background_messages
from capd.core.routing import scorers

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float32]
    Rows = npt.NDArray[np.intp]
    Flags = npt.NDArray[np.bool_]

RATE = 2e-3
STEPS = 400
WARM_STEPS = 20
"""For so many steps the learning rate of the changes rises: until then "none" is not learnt, and
gives wrong gradients."""
MESSAGES = 96
"""How many messages a step takes."""
PHRASES, MOST_PHRASES = 6, 200
"""How many phrases of each capability, and how many of all capabilities, a step compares its
messages with. From a large catalog it takes fewer phrases of each capability."""
_SCALE = 10.0
"""The weights of "none" are learnt in units of this, so that all parameters change at one pace."""
_OUT = -1e9


def fold_named(name: str) -> Fold | None:
    """Return the fold of a name; None for `all`, which leaves nothing out.

    Raises:
        AdapterError: there is no such fold.
    """
    folds = {"all": None, **{str(fold): fold for fold in all_folds()}}
    if name not in folds:
        raise AdapterError(f"there is no fold {name}: choose one of {', '.join(folds)}")
    return folds[name]


@dataclass(frozen=True, slots=True)
class Lessons:
    """A catalog and its labelled messages, as rows of `Texts`."""

    phrases: "tuple[Rows, ...]"
    """The phrases of each capability that is learnt from."""
    messages: "Rows"
    accepted: "Flags"
    """Messages x (these capabilities + "none"): which answers are right."""
    phrases_each: int


@dataclass(frozen=True, slots=True)
class Batch:
    """What one step sees."""

    messages: "Rows"
    phrases: "Rows"
    """The same number for each capability, one capability after the other."""
    is_same: "Flags"
    """Messages x phrases: a phrase that is the message itself."""
    accepted: "Flags"
    """Messages x (capabilities + "none"): which answers are right."""
    has_none: bool


def texts_of_sets(sets: Sequence[Prepared]) -> list[str]:
    """Return every text of the sets, including each part of each message."""
    texts = [text for one in sets for each in one.capabilities for text in scorers.texts_of(each)]
    texts += [text for one in sets for each in teaching(one, None).phrases for text in each]
    texts += background_messages()
    rows = [row for one in sets for row in one.rows]
    return list(dict.fromkeys((*texts, *(text for row in rows for text in parts_of(row)))))


def lessons_of(
    sets: Sequence[Prepared], fold: Fold | None, texts: Texts, unchanged: "Floats"
) -> list[Lessons]:
    """Return what teaches an encoder that is used for rows of `fold`; None leaves nothing out.

    A long message teaches twice: by its ends, and by one passage. If it wants something, that is
    the passage nearest to a phrase of what it wants; if it wants nothing, the one nearest to any
    phrase. `unchanged` has the vectors of `texts` by the model as it is, to find these passages.
    """
    lessons = []
    for one in sets:
        if not one.spec.teaches:
            continue
        taught = teaching(one, fold)
        kept = [
            each for each, is_kept in zip(taught.phrases, taught.is_learnt, strict=True) if is_kept
        ]
        accepted = taught.accepted[:, np.append(taught.is_learnt, True)]
        row_of = texts.row_of
        phrases = [np.array([row_of[text] for text in each]) for each in kept]
        divided = {
            row_of[ends]: [row_of[text] for text in passages]
            for ends, *passages in map(parts_of, one.rows)
            if passages
        }
        rows = [row_of[text] for text in taught.messages]
        messages, of = _with_passages(rows, divided, phrases, accepted, unchanged)
        lessons.append(
            Lessons(
                tuple(phrases),
                messages,
                accepted[of],
                max(1, min(PHRASES, MOST_PHRASES // len(kept))),
            )
        )
    return lessons


def _with_passages(
    messages: Sequence[int],
    divided: Mapping[int, Sequence[int]],
    phrases: "Sequence[Rows]",
    accepted: "Flags",
    unchanged: "Floats",
) -> "tuple[Rows, Rows]":
    """Return `messages` and the passages that teach, and to which message each belongs.

    `divided` has the passages of each long message. All are rows of `unchanged`.
    """
    compared = unchanged[np.concatenate(phrases)]
    owners = np.repeat(np.arange(len(phrases)), [len(each) for each in phrases])
    rows, of = list(messages), list(range(len(messages)))
    for at, message in enumerate(messages):
        passages = divided.get(message)
        if passages:
            wanted = accepted[at, owners]
            near = unchanged[passages] @ compared[wanted if wanted.any() else slice(None)].T
            rows.append(passages[int(near.max(axis=1).argmax())])
            of.append(at)
    return np.array(rows), np.array(of)


def learnt(
    lessons: Sequence[Lessons],
    texts: Texts,
    encoder: Encoder,
    *,
    steps: int,
    report: Callable[[int, float], None],
) -> bytes:
    """Return the content of the adapter's file that is learnt from `lessons`.

    `report` is called with each step and its loss.
    """
    random = np.random.default_rng(0)
    parameters = _Parameters()
    optimizer = torch.optim.Adam([{"params": parameters.heads}, {"params": parameters.low}])
    heads, low = optimizer.param_groups
    # Messages are taken twice as often as phrases.
    turns = [*((each, True) for each in (*lessons, *lessons)), *((each, False) for each in lessons)]
    for step in range(steps):
        each, of_messages = turns[step % len(turns)]
        value = parameters.loss(_batch(each, random, of_messages=of_messages), texts, encoder)
        optimizer.zero_grad()
        value.backward()
        falling = 0.5 * (1 + np.cos(np.pi * step / steps))
        heads["lr"] = HEAD_RATE * falling
        low["lr"] = RATE * falling * min(1, (step + 1) / WARM_STEPS)
        optimizer.step()
        report(step, value.item())
    return adapter_bytes(parameters.changes)


class _Parameters:
    """Everything that is learnt. Only the changes are saved: the rest is fitted anew afterwards."""

    def __init__(self) -> None:
        random = torch.Generator().manual_seed(0)
        # `up` begins as 0, so that the first step has the vectors of the model as it is.
        self.changes: dict[Place, tuple[torch.Tensor, torch.Tensor]] = {
            (layer, part): (
                (torch.randn(size, RANK, generator=random) / size**0.5).requires_grad_(),
                torch.zeros(RANK, out).requires_grad_(),
            )
            for layer, part, size, out in low_rank.changed_maps()
        }
        self.none = torch.zeros(DIMENSIONS, requires_grad=True)
        self._bias = torch.zeros((), requires_grad=True)
        self._log_sharpness = torch.tensor(float(np.log(8)), requires_grad=True)
        self._log_weight = torch.tensor(float(np.log(2)), requires_grad=True)
        self.heads = [self.none, self._bias, self._log_sharpness, self._log_weight]
        self.low = [each for pair in self.changes.values() for each in pair]

    def loss(self, batch: Batch, texts: Texts, encoder: Encoder) -> torch.Tensor:
        """Return the loss of a batch, with the penalty."""
        count = len(batch.messages)
        capabilities = batch.accepted.shape[1] - 1
        units = self._units(np.concatenate([batch.messages, batch.phrases]), texts, encoder)
        messages, phrases = units[:count], units[count:]
        is_same = torch.from_numpy(batch.is_same)
        scores = self._log_sharpness.exp() * (messages @ phrases.T)
        scores = scores.masked_fill(is_same, _OUT).view(count, capabilities, -1)
        compared = (~is_same).view(count, capabilities, -1).sum(2).clamp(min=1)
        pooled = torch.logsumexp(scores, 2) - compared.float().log()
        of_none = torch.full((count,), _OUT)
        if batch.has_none:
            of_none = _SCALE * (self._bias + messages @ self.none)
        logits = torch.cat([self._log_weight.exp() * pooled, of_none[:, None]], 1)
        likely = torch.log_softmax(logits, 1)
        right = likely.masked_fill(~torch.from_numpy(batch.accepted), _OUT)
        squares = sum((each**2).sum() for each in (self.none, *self.low))
        return PENALTY * squares - torch.logsumexp(right, 1).mean()

    def _units(self, rows: "Rows", texts: Texts, encoder: Encoder) -> torch.Tensor:
        """Return the vectors of `rows`, [rows, 384]; a text that occurs twice is computed once."""
        distinct, inverse = np.unique(rows, return_inverse=True)
        order = np.argsort(texts.lengths[distinct], kind="stable")
        place = np.empty(len(order), np.intp)
        place[order] = np.arange(len(order))
        units = encoder.vectors(*texts.packed(distinct[order]), self.changes)
        return units[torch.from_numpy(place[inverse])]


def _batch(lessons: Lessons, random: np.random.Generator, *, of_messages: bool) -> Batch:
    count, each = len(lessons.phrases), lessons.phrases_each
    phrases = np.concatenate(
        [random.choice(rows, each, replace=len(rows) < each) for rows in lessons.phrases]
    )
    if of_messages:
        share = shares(lessons.accepted)
        chosen = random.choice(len(share), MESSAGES, p=share)
        messages, accepted = lessons.messages[chosen], lessons.accepted[chosen]
        is_same = np.zeros((MESSAGES, len(phrases)), bool)
    else:
        capabilities = random.integers(count, size=MESSAGES)
        messages = np.array([random.choice(lessons.phrases[each]) for each in capabilities])
        accepted = np.zeros((MESSAGES, count + 1), bool)
        accepted[np.arange(MESSAGES), capabilities] = True
        is_same = messages[:, None] == phrases
    return Batch(messages, phrases, is_same, accepted, of_messages)
