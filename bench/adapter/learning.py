"""Learns an adapter from the sets that also teach the projection (`bench/routing_projection.py`).

Each step takes a catalog in turn, some of its messages or phrases, and a few phrases of each
capability. Their vectors are computed by the changed layers. The loss is that of the routing
decision: a softmax over capabilities (the log-mean-exp of the cosines with their phrases) and
"none". A phrase that is taken as a message is not compared with itself. Besides the changes, a
direction for "none", its bias and two factors are learnt.

A long message teaches by its ends alone (`Passages.ends`). In the daemon, the part that decides is
chosen by weights, and weights are fitted after the vectors are known.

Which maps, how many layers and which rank was chosen on two folds. Three layers are better than
one or two, and the maps of the inner layer help beside `query` and `value`. Ranks of 4, 8 and 16
lie within the noise.

Samples and the start come from seeded generators and torch has one thread, so that two runs on one
machine learn the same bytes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import torch  # pyright: ignore[reportMissingImports]
from bench.adapter.encoder import (
    DIMENSIONS,
    FIRST,
    LAYERS,
    Adapter,
    AdapterError,
    Encoder,
    Part,
    Place,
    Texts,
)
from bench.routing_projection import PENALTY, shares
from bench.routing_projection import RATE as HEAD_RATE
from bench.routing_tuning import (
    FOLDS,
    WRITER_FOLDS,
    Prepared,
    _message,
    label_fold,
)

from capd.adapters.routing_files import background_messages
from capd.core.routing import scorers

if TYPE_CHECKING:
    import numpy.typing as npt

    Rows = npt.NDArray[np.intp]
    Flags = npt.NDArray[np.bool_]

WIDTH = 4 * DIMENSIONS
"""Of the inner layer."""
CHANGED: dict[Part, tuple[int, int]] = {
    "query": (DIMENSIONS, DIMENSIONS),
    "value": (DIMENSIONS, DIMENSIONS),
    "intermediate": (DIMENSIONS, WIDTH),
    "output": (WIDTH, DIMENSIONS),
}
"""The maps that change in each of the layers 3 to 5, with the sizes of what goes in and out."""
RANK = 8
RATE = 2e-3
STEPS = 200
WARM_STEPS = 20
"""The rate of the changes rises for so many steps: their first slopes are of an unlearnt "none"."""
MESSAGES = 96
"""How many messages a step takes."""
PHRASES, MOST_PHRASES = 6, 200
"""How many phrases of each capability a step compares them with, and how many of all: a larger
catalog has fewer of each."""
_SCALE = 10.0
"""Weights of none are learnt in units of this, so that all parameters change at one pace."""
_OUT = -1e9


class Fold(NamedTuple):
    """The rows that are left out, to be judged: `writer0` to `writer6`, `label0` to `label4`."""

    kind: Literal["writer", "label"]
    number: int

    def __str__(self) -> str:
        return f"{self.kind}{self.number}"

    def of(self, one: Prepared) -> "Rows":
        """Return the folds of a set's rows."""
        return one.writers if self.kind == "writer" else one.folds

    def holds_out(self, capability: str) -> bool:
        """Say whether a capability is held out, with all its phrases."""
        return self.kind == "label" and label_fold(capability) == self.number


def fold_named(name: str) -> Fold:
    """Return the fold of a name.

    Raises:
        AdapterError: there is no such fold.
    """
    folds = [*(Fold("writer", at) for at in range(WRITER_FOLDS))]
    folds += [Fold("label", at) for at in range(FOLDS)]
    for fold in folds:
        if str(fold) == name:
            return fold
    raise AdapterError(f"there is no fold {name}: choose one of {', '.join(map(str, folds))}")


@dataclass(frozen=True, slots=True)
class Lessons:
    """A catalog and its labelled messages, as rows of `Texts`."""

    phrases: "tuple[Rows, ...]"
    """The phrases of each capability that is learnt from."""
    messages: "Rows"
    accepted: "Flags"
    """Messages x (these capabilities + none): which answers are right."""
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
    """Messages x (capabilities + none)."""
    has_none: bool


def phrases_of(one: Prepared) -> list[list[str]]:
    """Return the phrases of each capability of a set; its description where it has none."""
    described = scorers.described_all(one.capabilities, {})
    return [list(dict.fromkeys(each.triggers or (each.description,))) for each in described]


def messages_of(one: Prepared) -> list[str]:
    """Return what each row of a set is compared by: of a long message, its ends."""
    compared = [_message(row) for row in one.rows]
    return ["" if each is None else each.ends for each in compared]


def texts_of(sets: Sequence[Prepared]) -> list[str]:
    """Return every text that any fold of the sets learns from or is judged by."""
    texts = [text for one in sets for each in one.capabilities for text in scorers.texts_of(each)]
    texts += [text for one in sets for phrases in phrases_of(one) for text in phrases]
    return [*texts, *background_messages(), *(text for one in sets for text in messages_of(one))]


def lessons_of(sets: Sequence[Prepared], fold: Fold | None, texts: Texts) -> list[Lessons]:
    """Return what teaches an adapter that is judged by `fold`; None leaves nothing out.

    As `bench.routing_tuning` for the projection: rows under `fitted_only` teach nothing, and with
    a fold of labels neither the phrases nor the messages of its capabilities teach.
    """
    lessons = []
    for one in sets:
        names = [str(each.id.name) for each in one.capabilities]
        is_learnt = np.array([fold is None or not fold.holds_out(name) for name in names])
        accepted = one.tuning.accepted
        taught = one.judged & ~accepted[:, :-1][:, ~is_learnt].any(axis=1)
        if fold is not None:
            taught &= fold.of(one) != fold.number
        rows = np.array([texts.row_of[text] for text in messages_of(one)])
        phrases = [
            np.array([texts.row_of[text] for text in each])
            for each, is_kept in zip(phrases_of(one), is_learnt, strict=True)
            if is_kept
        ]
        lessons.append(
            Lessons(
                tuple(phrases),
                rows[taught],
                accepted[taught][:, np.append(is_learnt, True)],
                max(1, min(PHRASES, MOST_PHRASES // len(names))),
            )
        )
    return lessons


def learnt(
    lessons: Sequence[Lessons],
    texts: Texts,
    encoder: Encoder,
    *,
    fold: Fold | None,
    steps: int,
    report: Callable[[int, float], None],
) -> Adapter:
    """Return the adapter that these catalogs teach.

    `fold` is what they leave out. `report` is called with each step and its loss.
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
    return Adapter(
        {
            place: (down.detach().half().numpy(), up.detach().half().numpy())
            for place, (down, up) in parameters.changes.items()
        },
        parameters.none.detach().numpy() * np.float32(_SCALE),
        "" if fold is None else str(fold),
    )


class _Parameters:
    """Everything that is learnt."""

    def __init__(self) -> None:
        random = torch.Generator().manual_seed(0)
        # `up` begins as 0, so that the first step has the vectors of the model as it is.
        self.changes: dict[Place, tuple[torch.Tensor, torch.Tensor]] = {
            (layer, part): (
                (torch.randn(size, RANK, generator=random) / size**0.5).requires_grad_(),
                torch.zeros(RANK, out).requires_grad_(),
            )
            for layer in range(FIRST, LAYERS)
            for part, (size, out) in CHANGED.items()
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
