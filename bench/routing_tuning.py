"""From labelled sets to a routing profile: `python -m bench.routing_tuning`.

    python -m bench.routing_tuning --sets bench/routing-tuning.toml --root ../shared/data \
        --out daemon/capd/adapters/model/routing_profile.json --vectors FILE

A list of sets (TOML, `[[sets]]`) names catalogues and rows. Weights are fitted to all of them
together; the bars are chosen on predictions for rows that the fit did not see. A row's fold
is that of its label, so a capability is never tuned on what it is judged by, and of its text
where nothing is wanted. Rows under `fitted_only` are in every fit and judge nothing. The same
figures are given for folds that hold out whole writers. A row that follows another message is left
out: it is judged together with that.

The projection (`bench/routing_projection.py`) is learnt first, from the sets with `teaches`. Of
each row, the weights see what a projection says that was learnt without the row's fold: else they
would trust it too much. The one that ships is learnt from all rows. Two runs write the same.
"""

import argparse
import hashlib
import sys
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

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
"""Writers are put into as many groups, by their names."""
UNJUDGED = -1
"""The fold of rows that are fitted to and judge nothing."""
MOST_FALSE, MOST_WRONG = 0.042, 0.022
"""Mean false and wrong activation over the sets that the bars may cost. Of our own rows that want
nothing, half are mentions, refusals and complaints, and one in ten is long. Both are harder than
chatter. Without the long ones, .038 was the limit."""
MOST_LOST = 0.02
"""Of messages for which a right one could be shown, what the bar of suggestions may cost where
no set says how many must be found."""
SUGGEST_EACH = 0.02
LOWEST_HIT = 0.06
"""Of rows that want something, .06 have their capability below it (.02 below .01); of rows that
want nothing, .40 to .52 are shown anything (.70 to .74)."""
PRIORS = {"files": 2.0, "session": 1.0, "project": 1.0}
"""From `bench/routing_priors.py`: the largest that costs nothing where the listing is another's."""
_THRESHOLDS = tuple(round(0.3 + 0.05 * step, 2) for step in range(14))
_ACTIVATE_AT = (0.0, *(round(0.5 + 0.02 * step, 2) for step in range(24)))
_SUGGEST_GRID = tuple(round(0.01 * step, 2) for step in range(60, 0, -1))


class SetSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One set of the list; paths are relative to its root, those with a dot first to the list."""

    name: str
    data: tuple[str, ...]
    fitted_only: tuple[str, ...] = ()
    """Rows that every fit sees, and that judge nothing."""
    tap: str = ""
    overlays: tuple[str, ...] = ()
    catalogue: str = ""
    catalogue_set: str = ""
    """The part of the catalogue that is meant; empty for all of it."""
    set: str = ""
    """The part of the data that is meant; empty for all of it."""
    triggers_from: tuple[str, ...] = ()
    split: str = ""
    part: Part = "all"
    importance: float = 1.0
    """0 for a set that is judged and not fitted to."""
    skip_near_copies: float = float("inf")
    """Cosine with a trigger from which a row says nothing of rows to come."""
    least_found: float = 0.0
    """Share of messages for which a right one must be activated or suggested; 0 asks for none."""
    least_correct: float = 0.0
    """Of a set that is neither fitted to nor held out: the least *correct* that the thresholds must
    leave. 0 for every other set."""
    teaches: bool = False
    """Whether the projection is learnt from its phrases and from the rows that judge."""


class _SetList(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    sets: tuple[SetSpec, ...]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A set with its evidence, and the fold of each row."""

    spec: SetSpec
    capabilities: tuple[CapabilitySpec, ...]
    rows: tuple[Row, ...]
    tuning: TuningSet
    folds: "npt.NDArray[np.intp]"
    """By label."""
    writers: "npt.NDArray[np.intp]"
    """By groups of writers, where the rows have one."""
    has_writers: bool = False

    @property
    def judged(self) -> "Flags":
        """Return which rows are judged."""
        flags: Flags = self.folds != UNJUDGED
        return flags


class TunedSet(msgspec.Struct, frozen=True):
    """The profile's results on rows that the fit did not use."""

    name: str
    wanted: int
    unwanted: int
    measures: dict[str, float]
    """Whole capabilities held out."""
    by_writer: dict[str, float]
    """Whole writers held out; by label where the rows have no writer."""


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
    tuning = tuning_set(capabilities, [*rows, *more], vectorizer, spec.importance)
    unjudged = np.full(len(more), UNJUDGED, np.intp)
    return Prepared(
        spec,
        tuple(capabilities),
        (*rows, *more),
        tuning,
        np.concatenate([_folds(rows), unjudged]),
        np.concatenate([_writer_folds(rows), unjudged]),
        _have_writers(rows),
    )


def tuning_set(
    capabilities: Sequence[CapabilitySpec],
    rows: Sequence[Row],
    vectorizer: Vectorizer,
    importance: float = 1.0,
    *,
    projection: Projection | None = None,
    choosing: "Numbers | None" = None,
) -> TuningSet:
    """Return the evidence of each row.

    Of a long message, that of the part which decides by the weights `choosing`, as in the daemon;
    without them, that of its ends.
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

    def decisive(parts: Sequence[str]) -> "tuple[Numbers, Numbers]":
        found = [index.found(text, vectors[text], len(parts)) for text in parts]
        rows = [
            (each.capabilities, np.concatenate([each.none, vectors[text].astype(np.float64)]))
            for each, text in zip(found, parts, strict=True)
        ]
        if choosing is None or len(rows) == 1:
            return rows[0]
        highest = [_highest(capabilities, none, choosing) for capabilities, none in rows]
        return rows[highest.index(max(highest))]

    found = [decisive(parts) for parts in messages]
    names = [id_.name for id_ in index.ids]
    accepted = np.array([[*(name in row.right for name in names), not row.right] for row in rows])
    return TuningSet(
        np.stack([capabilities for capabilities, _ in found]),
        np.stack([none for _, none in found]),
        accepted,
        importance,
    )


def _highest(capabilities: "Numbers", none: "Numbers", weights: "Numbers") -> float:
    """Return the probability of the best capability."""
    one = TuningSet(capabilities[np.newaxis], none[np.newaxis], np.zeros((1, 1), bool))
    return float(probabilities(one, weights)[0, :-1].max())


def projected(
    sets: Sequence[Prepared],
    folds: "Sequence[npt.NDArray[np.intp]]",
    vectorizer: Vectorizer,
    choosing: "Numbers | None" = None,
) -> list[TuningSet]:
    """Return the evidence of each row, by a projection that was learnt without the row's fold."""
    found: list[TuningSet | None] = [None for _ in sets]
    for fold in sorted({int(each) for some in folds for each in some} - {UNJUDGED}):
        projection = learnt(_lessons(sets, folds, fold, vectorizer))
        for at, (one, some) in enumerate(zip(sets, folds, strict=True)):
            # Rows that judge nothing teach nothing either: any of the projections will do.
            mine = (some == fold) | ((some == UNJUDGED) & (fold == 0))
            if not mine.any():
                continue
            rows = [row for row, is_mine in zip(one.rows, mine, strict=True) if is_mine]
            part = tuning_set(
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


def _lessons(
    sets: Sequence[Prepared],
    folds: "Sequence[npt.NDArray[np.intp]]",
    fold: int,
    vectorizer: Vectorizer,
) -> list[Lessons]:
    """Return what teaches a projection that is used for rows of `fold`; -1 leaves nothing out."""
    lessons = []
    for one, some in zip(sets, folds, strict=True):
        if not one.spec.teaches:
            continue
        names = [str(each.id.name) for each in one.capabilities]
        of_labels = some is one.folds
        is_learnt = np.array([not of_labels or label_fold(name) != fold for name in names])
        accepted = one.tuning.accepted
        held_out = accepted[:, :-1][:, ~is_learnt].any(axis=1)
        taught = (some != fold) & (some != UNJUDGED) & ~held_out
        phrases = [
            dict.fromkeys(each.triggers or (each.description,))
            for each in described_all(one.capabilities, {})
        ]
        lessons.append(
            Lessons(
                tuple(vectorizer.stacked(list(each)).astype(np.float64) for each in phrases),
                one.tuning.none[taught, -MODEL.dimensions :],
                accepted[taught],
                is_learnt,
            )
        )
    return lessons


def tuned(
    sets: Sequence[Prepared], vectorizer: Vectorizer | None = None, penalty: float = PENALTY
) -> Tuned:
    """Return the profile that fits `sets` best."""
    guards = [one for one in sets if one.spec.least_correct]
    sets = [one for one in sets if not one.spec.least_correct]
    by_label, by_group = [one.folds for one in sets], [one.writers for one in sets]
    plain = [one.tuning for one in sets]
    projection = choosing = None
    of_labels, of_writers = plain, plain
    if vectorizer is not None and any(one.spec.teaches for one in sets):
        sets, choosing = _divided(sets, vectorizer, penalty)
        projection = learnt(_lessons(sets, by_group, UNJUDGED - 1, vectorizer))
        of_labels = projected(sets, by_label, vectorizer, choosing)
        of_writers = projected(sets, by_group, vectorizer, choosing)
    weights = fitted(_fitted_to(of_writers), penalty)
    unseen = _unseen(of_labels, by_label, penalty, weights)
    by_writer = _unseen(of_writers, by_group, penalty, weights)
    kept: list[tuple[Prepared, TuningSet, Numbers]] = []
    for one in guards:
        whole = one.tuning
        if vectorizer is not None:
            whole = tuning_set(
                one.capabilities, one.rows, vectorizer, projection=projection, choosing=choosing
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


def _divided(
    sets: Sequence[Prepared], vectorizer: Vectorizer, penalty: float
) -> "tuple[list[Prepared], Numbers]":
    """Return the sets with the decisive part of each long message, and the weights that chose it.

    These weights, and the projection that they go with, are fitted to the ends of long messages.
    """
    by_group = [one.writers for one in sets]
    projection = learnt(_lessons(sets, by_group, UNJUDGED - 1, vectorizer))
    choosing = fitted(_fitted_to(projected(sets, by_group, vectorizer)), penalty)
    divided = []
    for one in sets:
        whole = tuning_set(
            one.capabilities, one.rows, vectorizer, projection=projection, choosing=choosing
        )
        # The evidence without a projection: of it, only the vectors of messages are used.
        none = np.concatenate(
            [one.tuning.none[:, : -MODEL.dimensions], whole.none[:, -MODEL.dimensions :]], axis=1
        )
        divided.append(replace(one, tuning=replace(one.tuning, none=none)))
    return divided, choosing


def _fitted_to(sets: Iterable[TuningSet]) -> list[TuningSet]:
    return [one for one in sets if one.importance > 0]


def _unseen(
    sets: Sequence[TuningSet],
    folds: "Sequence[npt.NDArray[np.intp]]",
    penalty: float,
    start: "Numbers",
) -> "list[Numbers]":
    """Return the probabilities of the judged rows, by weights that did not see their fold.

    Each search begins at `start`. There is one best set of weights, so it decides the time alone.
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
    """Return the decisions of a profile's thresholds on these probabilities."""
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
    """Return the bars at which right activations less wrong and false ones are most.

    Each of `guards`, a set with its evidence and probabilities, keeps its `least_correct`.
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
    """Return the highest bar for suggestions that still finds as many as is asked for."""
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
    """Return the mean of each measure over the sets, by their importance."""
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


def _parts(row: Row, *, is_divided: bool) -> tuple[str, ...]:
    message = _message(row) or Passages("")
    return message.each if is_divided else (message.ends,)


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
    parser.add_argument("--json", action="store_true", dest="as_json")
    options = parser.parse_args()
    try:
        vectorizer = Vectorizer(options.vectors)
        sets = [
            prepared(spec, options.root, options.sets.parent, vectorizer)
            for spec in read_list(options.sets)
        ]
        result = tuned(sets, vectorizer)
        options.out.write_bytes(profile_text(result.profile))
    except (CapdError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    print(msgspec.json.encode(result).decode() if options.as_json else table(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
