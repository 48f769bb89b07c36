"""From labelled sets to a routing profile: `python -m bench.routing_tuning`.

    python -m bench.routing_tuning --sets bench/routing-tuning.toml --root ../shared/data \
        --out daemon/capd/adapters/model/routing_profile.json --vectors FILE --encoders FOLDER

A list of sets (TOML, `[[sets]]`) names catalogues and rows. Weights are fitted to all of them
together. The bars (thresholds of the probability) are chosen by predictions for rows that the fit
did not see. The rows are divided into folds, and each fold in turn is left out of the fit. A row
is in the fold of its label, so all rows of a capability are left out together; a row that wants
nothing is in the fold of its text. Rows under `fitted_only` are in every fit and judge nothing.
The same figures are given for folds that leave out whole writers. A row that follows another
message is not used here.

The encoder's changes (`python -m bench.adapter`) and the projection
(`bench/routing_projection.py`) are learnt first, from the sets with `teaches`. The weights are
fitted to what an encoder and a projection say of each row that were learnt without the row's fold;
otherwise they would trust these too much. Those that ship are learnt from all rows. With the same
encoders, two runs write the same.
"""

import argparse
import hashlib
import sys
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec
import numpy as np
from bench.routing_projection import Lessons, learnt

from capd.adapters.model.minilm import MODEL
from capd.adapters.routing_files import background_messages, profile_text
from capd.core.errors import CapdError
from capd.core.routing import gates
from capd.core.routing.calibration import (
    PENALTY,
    TuningSet,
    fitted,
    meaning,
    named,
    probabilities,
)
from capd.core.routing.evidence import EvidenceIndex
from capd.core.routing.gates import RoutingProfile
from capd.core.routing.passages import Passages
from capd.core.routing.projection import Projection
from capd.core.routing.scorers import background_of, described_all, texts_of
from capd.evaluation import datasets
from capd.evaluation.datasets import BadDataError, Part, Row, Selection
from capd.evaluation.route import known_rows, without_near_copies
from capd.evaluation.vectors import Vectorizer
from capd_protos.types import CapabilitySpec, Decision

if TYPE_CHECKING:
    import numpy.typing as npt

    Flags = npt.NDArray[np.bool_]
    Numbers = npt.NDArray[np.float64]

FOLDS = 5
WRITER_FOLDS = 7
"""The number of groups that writers are put into, by their names."""
UNJUDGED = -1
"""The fold of rows that are in every fit and judge nothing."""
MOST_FALSE, MOST_WRONG = 0.042, 0.022
"""The most false and wrong activations that the bars may allow, as means over the sets. Of our own
rows that want nothing, half are mentions, refusals and complaints, and one in ten is long. Both
are harder than chatter. Without the long ones, .038 was the limit."""
MOST_LOST = 0.02
"""The share of the messages for which the bar of suggestions may hide the right capability, where
no set has a `least_found`."""
SUGGEST_EACH = 0.02
LOWEST_HIT = 0.06
"""`discover` shows capabilities above this score. Of rows that want something, .06 have their
capability below it; of rows that want nothing, .40 to .52 are shown anything. With .01 in its
place, these would be .02 and .70 to .74."""
PRIORS = {"files": 2.0, "session": 1.0, "project": 1.0}
"""From `bench/routing_priors.py`: the largest that do no harm with another project's listing."""
_THRESHOLDS = tuple(round(0.3 + 0.05 * step, 2) for step in range(14))
_ACTIVATE_AT = (0.0, *(round(0.5 + 0.02 * step, 2) for step in range(24)))
_SUGGEST_GRID = tuple(round(0.01 * step, 2) for step in range(60, 0, -1))


class SetSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One set of the list.

    Paths are relative to `--root`; those that begin with a dot, to the folder of the list.
    """

    name: str
    data: tuple[str, ...]
    fitted_only: tuple[str, ...] = ()
    """Files of rows that are in every fit and judge nothing."""
    tap: str = ""
    overlays: tuple[str, ...] = ()
    catalogue: str = ""
    catalogue_set: str = ""
    """The part of the catalogue to take; empty for all of it."""
    set: str = ""
    """The part of the data to take; empty for all of it."""
    triggers_from: tuple[str, ...] = ()
    split: str = ""
    part: Part = "all"
    importance: float = 1.0
    """The weight of the set; 0 for one that is judged but not fitted to."""
    skip_near_copies: float = float("inf")
    """Rows with at least this cosine with a trigger are left out: they say little of new ones."""
    least_found: float = 0.0
    """Share of messages for which a right one must be activated or suggested; 0 asks for none."""
    least_correct: float = 0.0
    """Of a set that is neither fitted to nor held out: the least *correct* that the thresholds must
    leave. 0 for every other set."""
    teaches: bool = False
    """Whether the encoder and the projection learn from its phrases and the rows that judge."""


class _SetList(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    sets: tuple[SetSpec, ...]


class Fold(NamedTuple):
    """The rows that are left out, to be judged: `writer0` to `writer6`, `label0` to `label4`."""

    kind: Literal["writer", "label"]
    number: int

    def __str__(self) -> str:
        return f"{self.kind}{self.number}"

    def holds_out(self, capability: str) -> bool:
        """Return whether a capability is held out, with all its phrases."""
        return self.kind == "label" and label_fold(capability) == self.number


def all_folds() -> list[Fold]:
    """Return every fold."""
    writers = [Fold("writer", number) for number in range(WRITER_FOLDS)]
    return [*writers, *(Fold("label", number) for number in range(FOLDS))]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A set with its evidence, and the fold of each row."""

    spec: SetSpec
    capabilities: tuple[CapabilitySpec, ...]
    rows: tuple[Row, ...]
    compared: tuple[str, ...]
    """The part of each row that is compared with the triggers."""
    tuning: TuningSet
    folds: "npt.NDArray[np.intp]"
    """The fold of each row by its label."""
    writers: "npt.NDArray[np.intp]"
    """The fold of each row by its writer; by label where rows have none."""
    has_writers: bool = False

    @property
    def judged(self) -> "Flags":
        """Return for each row whether it is judged."""
        flags: Flags = self.folds != UNJUDGED
        return flags

    def by(self, kind: Literal["writer", "label"]) -> "npt.NDArray[np.intp]":
        """Return the fold of each row, of one kind."""
        return self.folds if kind == "label" else self.writers


@dataclass(frozen=True, slots=True)
class Teaching:
    """A catalog and its labelled messages, as texts."""

    phrases: tuple[tuple[str, ...], ...]
    """The phrases of each capability; its description where it has none."""
    messages: tuple[str, ...]
    accepted: "Flags"
    """Messages x (capabilities + none): which answers are right."""
    is_learnt: "Flags"
    """Which capabilities are learnt from; the others are held out."""


class Encoders:
    """The encoders, each learnt without one fold, and the vectors that they compute."""

    def __init__(self, folder: Path | None, plain: Vectorizer) -> None:
        """Create it.

        Args:
            folder: what `python -m bench.adapter` wrote; None for the unchanged encoder, always.
            plain: the vectors by the unchanged encoder.
        """
        self._folder = folder
        self._plain = plain
        self._opened: tuple[str, Vectorizer] = ("", plain)

    @property
    def adapter(self) -> bytes:
        """The changes to the encoder that ship; empty for none."""
        return b"" if self._folder is None else adapter_file(self._folder, None).read_bytes()

    def without(self, fold: Fold | None) -> Vectorizer:
        """Return the vectors by the encoder that was learnt without `fold`.

        Raises:
            OSError: there is no file of this encoder.
        """
        if self._folder is None:
            return self._plain
        file = adapter_file(self._folder, fold)
        if self._opened[0] != str(file):
            # Only one is kept open: each has the vectors of all texts in memory.
            opened = Vectorizer(file.with_suffix(".vectors"), adapter=file.read_bytes())
            self._opened = (str(file), opened)
        return self._opened[1]


def adapter_file(folder: Path, fold: Fold | None) -> Path:
    """Return the file of the encoder that was learnt without `fold`."""
    return folder / f"{fold or 'all'}.bin"


class TunedSet(msgspec.Struct, frozen=True):
    """The profile's results on rows that the fit did not use."""

    name: str
    wanted: int
    unwanted: int
    measures: dict[str, float]
    """With whole capabilities held out."""
    by_writer: dict[str, float]
    """With whole writers held out; with folds by label where the rows have no writer."""


class Tuned(msgspec.Struct, frozen=True):
    """The profile, and how it was fitted."""

    profile: RoutingProfile
    sets: tuple[TunedSet, ...]
    guards: dict[str, dict[str, float]] = {}
    """The results on sets that are neither fitted to nor held out, by name."""


def read_list(file: Path) -> tuple[SetSpec, ...]:
    """Return the sets of a list.

    Raises:
        BadDataError: it cannot be read.
    """
    try:
        return msgspec.convert(tomllib.loads(file.read_text(encoding="utf-8")), _SetList).sets
    except (OSError, ValueError, msgspec.ValidationError) as error:
        raise BadDataError(f"{file}: {error}") from None


def prepared(spec: SetSpec, root: Path, beside: Path, vectorizer: Vectorizer) -> Prepared:
    """Return a set with the evidence of each of its rows.

    Raises:
        BadDataError: a file cannot be read.
    """

    def place(path: str) -> Path:
        return (beside if path.startswith(".") else root) / path

    if spec.tap:
        overlays = [place(each) for each in spec.overlays]
        capabilities = datasets.tap(place(spec.tap), overlays=overlays)
    else:
        capabilities = datasets.catalogue(
            place(spec.catalogue) if spec.catalogue else None,
            [place(each) for each in spec.triggers_from],
            spec.catalogue_set,
        )
    chosen = Selection(split=spec.split, set=spec.set, part=spec.part)
    rows = chosen.rows(place(each) for each in spec.data)
    rows = [
        row
        for row in known_rows(rows, capabilities, skip_unknown=True)
        if _message(row) and not row.before
    ]
    rows = without_near_copies(rows, capabilities, vectorizer, spec.skip_near_copies)
    files = [place(each) for each in spec.fitted_only]
    more = [row for row in Selection().rows(files) if _message(row)]
    tuning, compared = tuning_set(capabilities, [*rows, *more], vectorizer, spec.importance)
    unjudged = np.full(len(more), UNJUDGED, np.intp)
    return Prepared(
        spec,
        tuple(capabilities),
        (*rows, *more),
        compared,
        tuning,
        np.concatenate([_folds(rows), unjudged]),
        np.concatenate([_writer_folds(rows), unjudged]),
        _have_writers(rows),
    )


def teaching(one: Prepared, fold: Fold | None) -> Teaching:
    """Return what to learn from in a set, without the rows of `fold`; None leaves nothing out.

    Rows under `fitted_only` are not learnt from. A fold of labels also leaves out the phrases of
    its capabilities.
    """
    names = [str(each.id.name) for each in one.capabilities]
    is_learnt = np.array([fold is None or not fold.holds_out(name) for name in names])
    accepted = one.tuning.accepted
    is_taught = one.judged & ~accepted[:, :-1][:, ~is_learnt].any(axis=1)
    if fold is not None:
        is_taught &= one.by(fold.kind) != fold.number
    return Teaching(
        tuple(
            tuple(dict.fromkeys(each.triggers or (each.description,)))
            for each in described_all(one.capabilities, {})
        ),
        tuple(text for text, counts in zip(one.compared, is_taught, strict=True) if counts),
        accepted[is_taught],
        is_learnt,
    )


def tuning_set(
    capabilities: Sequence[CapabilitySpec],
    rows: Sequence[Row],
    vectorizer: Vectorizer,
    importance: float = 1.0,
    *,
    projection: Projection | None = None,
    choosing: "Numbers | None" = None,
) -> tuple[TuningSet, tuple[str, ...]]:
    """Return the evidence of each row, and the part of it that is compared.

    Of a long message, it is the part that decides by the weights `choosing`, as in the daemon;
    without these weights, its two ends.
    """
    background = background_messages()
    texts = [text for each in capabilities for text in texts_of(each)]
    messages = [_parts(row, is_divided=choosing is not None) for row in rows]
    vectors = vectorizer.of([*texts, *background, *(text for each in messages for text in each)])
    index = EvidenceIndex(
        described_all(capabilities, vectors),
        background_of(background, vectors),
        projection=projection,
    )

    def decisive(parts: Sequence[str]) -> "tuple[Numbers, Numbers, str]":
        found = [index.found(text, vectors[text], len(parts)) for text in parts]
        rows = [
            (each.capabilities, np.concatenate([each.none, vectors[text].astype(np.float64)]), text)
            for each, text in zip(found, parts, strict=True)
        ]
        if choosing is None or len(rows) == 1:
            return rows[0]
        highest = [_highest(capabilities, none, choosing) for capabilities, none, _ in rows]
        return rows[highest.index(max(highest))]

    found = [decisive(parts) for parts in messages]
    names = [id_.name for id_ in index.ids]
    accepted = np.array([[*(name in row.right for name in names), not row.right] for row in rows])
    tuning = TuningSet(
        np.stack([capabilities for capabilities, _, _ in found]),
        np.stack([none for _, none, _ in found]),
        accepted,
        importance,
    )
    return tuning, tuple(text for _, _, text in found)


def _highest(capabilities: "Numbers", none: "Numbers", weights: "Numbers") -> float:
    """Return the probability of the best capability."""
    one = TuningSet(capabilities[np.newaxis], none[np.newaxis], np.zeros((1, 1), bool))
    return float(probabilities(one, weights)[0, :-1].max())


def projected(
    sets: Sequence[Prepared],
    kind: Literal["writer", "label"],
    encoders: Encoders,
    choosing: "Numbers | None" = None,
) -> list[TuningSet]:
    """Return the evidence of each row, by an encoder and a projection learnt without its fold."""
    found: list[TuningSet | None] = [None for _ in sets]
    folds = [one.by(kind) for one in sets]
    for number in sorted({int(each) for some in folds for each in some} - {UNJUDGED}):
        fold = Fold(kind, number)
        vectorizer = encoders.without(fold)
        projection = learnt(lessons_for(sets, fold, vectorizer))
        for at, (one, some) in enumerate(zip(sets, folds, strict=True)):
            # Nothing is learnt from rows that judge nothing: any of the projections will do.
            mine = (some == number) | ((some == UNJUDGED) & (number == 0))
            if not mine.any():
                continue
            rows = [row for row, is_mine in zip(one.rows, mine, strict=True) if is_mine]
            part, _ = tuning_set(
                one.capabilities, rows, vectorizer, projection=projection, choosing=choosing
            )
            into = found[at] or _empty(part, one.tuning)
            into.capabilities[mine] = part.capabilities
            into.none[mine] = part.none
            found[at] = into
    return [each or one.tuning for each, one in zip(found, sets, strict=True)]


def _empty(part: TuningSet, whole: TuningSet) -> TuningSet:
    count = len(whole.accepted)
    return TuningSet(
        np.zeros((count, *part.capabilities.shape[1:])),
        np.zeros((count, part.none.shape[1])),
        whole.accepted,
        whole.importance,
    )


def lessons_for(
    sets: Sequence[Prepared], fold: Fold | None, vectorizer: Vectorizer
) -> list[Lessons]:
    """Return what to learn a projection from, without the rows of `fold`; None for all rows."""
    lessons = []
    for one in sets:
        if not one.spec.teaches:
            continue
        taught = teaching(one, fold)
        lessons.append(
            Lessons(
                tuple(vectorizer.stacked(each).astype(np.float64) for each in taught.phrases),
                vectorizer.stacked(taught.messages).astype(np.float64),
                taught.accepted,
                taught.is_learnt,
            )
        )
    return lessons


def tuned(
    sets: Sequence[Prepared], encoders: Encoders | None = None, penalty: float = PENALTY
) -> Tuned:
    """Return the profile that fits `sets` best; without `encoders` it has no projection."""
    guards = [one for one in sets if one.spec.least_correct]
    sets = [one for one in sets if not one.spec.least_correct]
    by_label, by_group = [one.folds for one in sets], [one.writers for one in sets]
    plain = [one.tuning for one in sets]
    projection = choosing = None
    of_labels, of_writers = plain, plain
    if encoders is not None and any(one.spec.teaches for one in sets):
        sets, choosing = divided(sets, encoders, penalty)
        of_labels = projected(sets, "label", encoders, choosing)
        of_writers = projected(sets, "writer", encoders, choosing)
        projection = learnt(lessons_for(sets, None, encoders.without(None)))
    weights = fitted(_fitted_to(of_writers), penalty)
    unseen = _unseen(of_labels, by_label, penalty, weights)
    by_writer = _unseen(of_writers, by_group, penalty, weights)
    kept: list[tuple[Prepared, TuningSet, Numbers]] = []
    for one in guards:
        whole = one.tuning
        if encoders is not None:
            whole, _ = tuning_set(
                one.capabilities,
                one.rows,
                encoders.without(None),
                projection=projection,
                choosing=choosing,
            )
        kept.append((one, whole, probabilities(whole, weights)))
    bars = _bars(sets, unseen, kept)
    profile = replace(
        gates.MINILM_INT8,
        revision=MODEL.revision,
        scorer="evidence",
        threshold=bars.threshold,
        activate_at=bars.activate_at,
        margin=0.0,
        weights=named(weights, has_projection=projection is not None),
        meaning=meaning(weights, has_projection=projection is not None),
        projection=b"" if projection is None else projection.to_bytes(),
        adapter=_digest(b"" if encoders is None else encoders.adapter),
        suggest_at=_suggest_at(sets, unseen, bars),
        suggest_each=SUGGEST_EACH,
        lowest_hit=LOWEST_HIT,
        priors=PRIORS,
    )
    return Tuned(
        profile,
        tuple(
            TunedSet(
                one.spec.name,
                int((~_judged(one).accepted[:, -1]).sum()),
                int(_judged(one).accepted[:, -1].sum()),
                measures(_judged(one), found, profile),
                measures(_judged(one), others, profile),
            )
            for one, found, others in zip(sets, unseen, by_writer, strict=True)
        ),
        {one.spec.name: measures(whole, found, profile) for one, whole, found in kept},
    )


def divided(
    sets: Sequence[Prepared], encoders: Encoders, penalty: float
) -> "tuple[list[Prepared], Numbers]":
    """Return the sets with the decisive part of each long message, and the weights that chose it.

    These weights, and the projection that they go with, are fitted to the ends of long messages.
    """
    choosing = fitted(_fitted_to(projected(sets, "writer", encoders)), penalty)
    vectorizer = encoders.without(None)
    projection = learnt(lessons_for(sets, None, vectorizer))
    changed = []
    for one in sets:
        _, compared = tuning_set(
            one.capabilities, one.rows, vectorizer, projection=projection, choosing=choosing
        )
        changed.append(replace(one, compared=compared))
    return changed, choosing


def _digest(adapter: bytes) -> str:
    return hashlib.sha256(adapter).hexdigest() if adapter else ""


def _fitted_to(sets: Iterable[TuningSet]) -> list[TuningSet]:
    return [one for one in sets if one.importance > 0]


def _unseen(
    sets: Sequence[TuningSet],
    folds: "Sequence[npt.NDArray[np.intp]]",
    penalty: float,
    start: "Numbers",
) -> "list[Numbers]":
    """Return the probabilities of the judged rows, by weights that did not see their fold.

    Each search begins at `start`. As there is one best set of weights, this changes only the time.
    """
    unseen = [np.zeros(one.accepted.shape) for one in sets]
    for fold in sorted({int(each) for some in folds for each in some} - {UNJUDGED}):
        weights = fitted(
            _fitted_to(one.only(some != fold) for one, some in zip(sets, folds, strict=True)),
            penalty,
            start,
        )
        for one, some, into in zip(sets, folds, unseen, strict=True):
            held_out = some == fold
            if held_out.any():
                into[held_out] = probabilities(one.only(held_out), weights)
    return [into[some != UNJUDGED] for some, into in zip(folds, unseen, strict=True)]


def _judged(one: Prepared) -> TuningSet:
    return one.tuning.only(one.judged)


def measures(one: TuningSet, found: "Numbers", profile: RoutingProfile) -> dict[str, float]:
    """Return the shares of correct, wrong, found, ... decisions with a profile's thresholds."""
    wanted: Flags = ~one.accepted[:, -1]
    best = found[:, :-1].argmax(axis=1)
    is_on: Flags = np.logical_and(
        found[:, :-1].max(axis=1) >= profile.threshold, 1 - found[:, -1] >= profile.activate_at
    )
    is_right: Flags = one.accepted[np.arange(len(best)), best]
    is_plausible: Flags = 1 - found[:, -1] >= profile.suggest_at
    ranks = np.argsort(-found[:, :-1], axis=1, kind="stable")
    shown = np.take_along_axis(one.accepted, ranks[:, :3], axis=1) & (
        np.take_along_axis(found, ranks[:, :3], axis=1) >= profile.suggest_each
    )
    suggested: Flags = ~is_on & is_plausible
    right: Flags = np.logical_and(is_on, is_right)
    told: Flags = np.logical_and(suggested, shown.any(axis=1))
    values: dict[str, Flags] = {
        "correct": right[wanted],
        "wrong": np.logical_and(is_on, ~is_right)[wanted],
        "found": np.logical_or(right, told)[wanted],
        "false_activation": is_on[~wanted],
        "false_suggestion": suggested[~wanted],
    }
    for k in (1, 3, 5):
        hits = np.take_along_axis(one.accepted, ranks[:, :k], axis=1)
        values[f"recall@{k}"] = np.any(hits, axis=1)[wanted]
    return {name: round(float(each.mean()), 4) for name, each in values.items() if len(each)}


def table(result: Tuned) -> str:
    """Return a tuning as a person reads it."""
    profile = result.profile
    lines = [
        f"threshold {profile.threshold}, activate_at {profile.activate_at}",
        f"suggest_at {profile.suggest_at}",
        *(f"  {name:20} {weight:8.3f}" for name, weight in profile.weights.items()),
        "whole capabilities held out, then whole writers:",
    ]
    for one in result.sets:
        lines.append(f"  {one.name} ({one.wanted} + {one.unwanted})")
        lines += [
            "    " + "  ".join(f"{name} {value:.3f}" for name, value in figures.items())
            for figures in (one.measures, one.by_writer)
        ]
    for name, found in result.guards.items():
        lines.append(
            f"  {name}: " + "  ".join(f"{key} {value:.3f}" for key, value in found.items())
        )
    return "\n".join(lines)


def _bars(
    sets: Sequence[Prepared],
    unseen: "Sequence[Numbers]",
    guards: "Sequence[tuple[Prepared, TuningSet, Numbers]]" = (),
) -> RoutingProfile:
    """Return the bars with the most right activations less wrong and false ones.

    Each of `guards`, a set with its evidence and probabilities, must keep its `least_correct`.
    """
    best, gain = _with_bars(_THRESHOLDS[-1], _ACTIVATE_AT[-1]), float("-inf")
    for threshold in _THRESHOLDS:
        for activate_at in _ACTIVATE_AT:
            bars = _with_bars(threshold, activate_at)
            means = _means(sets, unseen, bars)
            right, wrong, false = (
                means.get(name, 0.0) for name in ("correct", "wrong", "false_activation")
            )
            is_kept = all(
                measures(whole, found, bars)["correct"] >= one.spec.least_correct
                for one, whole, found in guards
            )
            is_allowed = is_kept and false <= MOST_FALSE and wrong <= MOST_WRONG
            if right - wrong - false > gain and is_allowed:
                best, gain = bars, right - wrong - false
    return best


def _suggest_at(
    sets: Sequence[Prepared], unseen: "Sequence[Numbers]", bars: RoutingProfile
) -> float:
    """Return the highest bar for suggestions with which the sets keep their `least_found`."""
    asking = [
        ([one], [found], one.spec.least_found)
        for one, found in zip(sets, unseen, strict=True)
        if one.spec.least_found
    ]
    if not asking:
        most = _means(sets, unseen, replace(bars, suggest_at=0.0)).get("found", 0.0)
        asking = [(list(sets), list(unseen), most - MOST_LOST)]
    for bar in _SUGGEST_GRID:
        at_bar = replace(bars, suggest_at=bar)
        if all(
            _means(some, found, at_bar).get("found", 0.0) >= least for some, found, least in asking
        ):
            return bar
    return _SUGGEST_GRID[-1]


def _with_bars(threshold: float, activate_at: float) -> RoutingProfile:
    return replace(
        gates.MINILM_INT8,
        threshold=threshold,
        activate_at=activate_at,
        suggest_at=1.0,
        suggest_each=SUGGEST_EACH,
    )


def _means(
    sets: Sequence[Prepared], unseen: "Sequence[Numbers]", profile: RoutingProfile
) -> dict[str, float]:
    """Return the mean of each measure over the sets, weighted by their importance."""
    totals: dict[str, float] = {}
    weights: dict[str, float] = {}
    for one, found in zip(sets, unseen, strict=True):
        for name, value in measures(_judged(one), found, profile).items():
            totals[name] = totals.get(name, 0.0) + one.spec.importance * value
            weights[name] = weights.get(name, 0.0) + one.spec.importance
    return {name: totals[name] / weights[name] for name in totals if weights[name]}


def _message(row: Row) -> Passages | None:
    compared = gates.before_model(row.text, is_enabled=True)
    return None if isinstance(compared, Decision) else compared


def parts_of(row: Row) -> tuple[str, ...]:
    """Return the parts of a message: its ends, and the passages of a long one."""
    return (_message(row) or Passages("")).each


def _parts(row: Row, *, is_divided: bool) -> tuple[str, ...]:
    return parts_of(row) if is_divided else parts_of(row)[:1]


def _folds(rows: Sequence[Row]) -> "npt.NDArray[np.intp]":
    keys = (row.label if row.label is not None else f"none {row.text}" for row in rows)
    return np.array([label_fold(key) for key in keys])


def label_fold(label: str) -> int:
    """Return the fold of a capability."""
    return int(hashlib.sha256(label.encode()).hexdigest(), 16) % FOLDS


def _writer_folds(rows: Sequence[Row]) -> "npt.NDArray[np.intp]":
    if not _have_writers(rows):
        return _folds(rows)
    return np.array([writer_fold(row.writer) for row in rows])


def writer_fold(writer: str) -> int:
    """Return the fold of a writer."""
    return int(hashlib.sha256(writer.encode()).hexdigest(), 16) % WRITER_FOLDS


def _have_writers(rows: Sequence[Row]) -> bool:
    return len({row.writer for row in rows}) >= FOLDS


def main() -> int:
    """Fit a profile and write it."""
    parser = argparse.ArgumentParser(prog="python -m bench.routing_tuning", description=__doc__)
    parser.add_argument("--sets", type=Path, required=True, help="the list of sets (TOML)")
    parser.add_argument("--root", type=Path, required=True, help="what paths are relative to")
    parser.add_argument("--out", type=Path, required=True, help="the profile's file")
    parser.add_argument("--vectors", type=Path, help="a file that keeps vectors between runs")
    parser.add_argument("--encoders", type=Path, help="the folder of `bench.adapter`")
    parser.add_argument("--json", action="store_true", dest="as_json")
    options = parser.parse_args()
    try:
        vectorizer = Vectorizer(options.vectors)
        sets = [
            prepared(spec, options.root, options.sets.parent, vectorizer)
            for spec in read_list(options.sets)
        ]
        result = tuned(sets, Encoders(options.encoders, vectorizer))
        options.out.write_bytes(profile_text(result.profile))
    except (CapdError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    print(msgspec.json.encode(result).decode() if options.as_json else table(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
