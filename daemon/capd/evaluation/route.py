"""Measures routing: `capd eval route` decides with the same code as the daemon.

    correct            share of messages that want a capability: a right one is activated
    wrong              of those: a wrong one is activated
    abstention         of those: none is activated
    found              of those: a right one is activated or among the suggested
    recall@1, 3, 5     of those: a right one is among the best k
    false_activation   of messages that want none: one is activated
    false_suggestion   of those: one is suggested

Intervals are 95 %, from resampled rows with a fixed seed: equal data give equal figures.
"""

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from capd.adapters.routing_files import background_messages
from capd.core.routing import deciding, gates
from capd.core.routing.deciding import WHOLE_RULES, Circumstances, Comparison
from capd.core.routing.follow_ups import blended, is_elliptical
from capd.core.routing.gates import RoutingProfile
from capd.core.routing.learning import Learnt
from capd.core.routing.passages import Passages, passages_of
from capd.core.routing.scorers import texts_of
from capd.evaluation.datasets import BadDataError, Row
from capd.evaluation.vectors import Vectorizer
from capd_protos.types import CapabilitySpec, Decision, Score

if TYPE_CHECKING:
    from capd.evaluation.vectors import Vectors

SEED = 5
RESAMPLES = 1000
RECALLS = (1, 3, 5)
TIMED = 300

WANTED = ("correct", "wrong", "abstention", "found", *(f"recall@{k}" for k in RECALLS))
UNWANTED = ("false_activation", "false_suggestion")


class Measure(msgspec.Struct, frozen=True):
    """The share of rows for which a measure is true, and its 95 % interval."""

    mean: float
    low: float
    high: float


class Latency(msgspec.Struct, frozen=True):
    """The milliseconds from message to decision, embedding included: median and 99th percentile."""

    p50: float
    p99: float
    messages: int


class RouteReport(msgspec.Struct, frozen=True):
    """The measures of one run of `capd eval route`, and the data that they are from."""

    scorer: str
    capabilities: int
    wanted: int
    unwanted: int
    skipped: int
    """How many rows were left out: their label is not in the catalog, or they nearly repeat a
    trigger."""
    measures: dict[str, Measure]
    kinds: dict[str, dict[str, float]]
    latency: Latency | None = None


@dataclass(frozen=True, slots=True)
class Judged:
    """One row, and the decision that routing made on it."""

    row: Row
    decision: Decision

    def values(self) -> dict[str, bool]:
        """Return for this row whether each measure is true, by the measure's name.

        Which measures there are depends on whether the row wants a capability.
        """
        right, decision = self.row.right, self.decision
        is_on = decision.outcome == "activate"
        if not right:
            return {
                "false_activation": is_on,
                "false_suggestion": decision.outcome == "suggest",
            }
        is_right = is_on and decision.id is not None and decision.id.name in right
        best = [score.id.name for score in decision.top]
        return {
            "correct": is_right,
            "wrong": is_on and not is_right,
            "abstention": not is_on,
            "found": is_right or any(id_.name in right for id_ in decision.suggested),
            **{f"recall@{k}": any(name in right for name in best[:k]) for k in RECALLS},
        }


@dataclass(frozen=True, slots=True)
class Ranked:
    """A message's text, and the scores of capabilities for its clearest part, best first."""

    text: str
    scores: list[Score]


class Router:
    """Decides over one catalog as the daemon does, without a daemon."""

    def __init__(
        self,
        capabilities: Sequence[CapabilitySpec],
        profile: RoutingProfile,
        vectorizer: Vectorizer,
        *,
        keys: Collection[str] | None = None,
    ) -> None:
        """Create a router over the catalog `capabilities`, with the constants in `profile`.

        `vectorizer` computes vectors. `keys` are the keys that the user has stored; None stands for
        all keys.
        """
        self._capabilities = capabilities
        self._profile = profile
        self._vectorizer = vectorizer
        self._compared = self._comparison_of(capabilities)
        wanted = {key for each in capabilities for key in each.wanted_keys}
        # A catalogue file names no servers.
        is_catalogue = not any(each.servers or each.requires for each in capabilities)
        kept = (
            gates.Eligible(tuple(capabilities), {})
            if is_catalogue
            else gates.eligible(capabilities, "", wanted if keys is None else keys)
        )
        self._known = Circumstances(kept)
        self._without: dict[tuple[str, str], Comparison] = {}

    def decided(self, row: Row, *, drop_src_trigger: bool = False) -> Decision:
        """Return the decision on a row.

        With `drop_src_trigger`, the trigger that the message was derived from is left out of the
        catalog, because the message would match it too easily.
        """
        compared = self._message(row)
        if isinstance(compared, Decision):
            return compared
        chosen = self._compared
        if drop_src_trigger and row.label is not None and row.src_trigger is not None:
            chosen = self._without_trigger(row.label, row.src_trigger)
        return self._decision(chosen, *compared)

    def ranked(self, row: Row) -> "Ranked | Decision":
        """Return the scores of a row's message, which `concluded` turns into a decision.

        If routing decides without scores, the decision is returned instead.
        """
        compared = self._message(row)
        if isinstance(compared, Decision):
            return compared
        message, vectors = compared
        _, scores = deciding.ranked_best(
            message, vectors, self._compared, self._profile, self._known
        )
        return Ranked(message.text, scores)

    def concluded(self, ranked: "Ranked", learnt: Learnt, project: str) -> Decision:
        """Return the decision that follows from the scores in `ranked`.

        `learnt` has the score offsets that routing has learnt from use. They are applied as for a
        message in `project`.
        """
        known = replace(self._known, learnt=learnt, project=project)
        return deciding.concluded(ranked.text, ranked.scores, self._compared, self._profile, known)

    def _message(self, row: Row) -> "tuple[Passages, list[Vectors]] | Decision":
        """Return the parts of a row's message that are compared, and their vectors.

        If routing abstains before any comparison, that decision is returned instead.
        """
        message = gates.before_model(row.text, is_enabled=True)
        if isinstance(message, Decision):
            return message
        known = self._vectorizer.of(message.each)
        vectors = [known[text] for text in message.each]
        before = gates.before_model(row.before, is_enabled=True) if row.before else None
        is_blended = self._profile.scorer == WHOLE_RULES and is_elliptical(message.ends)
        if is_blended and isinstance(before, Passages):
            last = self._vectorizer.of([before.ends])[before.ends]
            vectors = [blended(vectors[0], last)]
        return message, vectors

    def timed(self, rows: Sequence[Row]) -> Latency | None:
        """Return how long decisions on `rows` take, each text embedded anew; None without rows."""
        taken: list[float] = []
        for row in rows:
            started = time.perf_counter()
            message = gates.before_model(row.text, is_enabled=True)
            if not isinstance(message, Decision):
                self._decision(self._compared, message, list(self._vectorizer.embed(message.each)))
            taken.append((time.perf_counter() - started) * 1000)
        if not taken:
            return None
        p50, p99 = np.percentile(taken, [50, 99])
        return Latency(round(float(p50), 2), round(float(p99), 2), len(taken))

    def _decision(
        self, chosen: Comparison, message: Passages, vectors: "list[Vectors]"
    ) -> Decision:
        return deciding.decided(message, vectors, chosen, self._profile, self._known)

    def _comparison_of(self, capabilities: Sequence[CapabilitySpec]) -> Comparison:
        background = background_messages()
        texts = [text for each in capabilities for text in texts_of(each)]
        vectors = self._vectorizer.of([*texts, *background])
        return deciding.comparison(self._profile, capabilities, vectors, background)

    def _without_trigger(self, label: str, trigger: str) -> Comparison:
        key = (label, trigger)
        if key not in self._without:
            self._without[key] = self._comparison_of(
                [
                    msgspec.structs.replace(
                        each,
                        triggers=tuple(t for t in each.triggers if t != trigger),
                        extra_triggers=tuple(t for t in each.extra_triggers if t != trigger),
                    )
                    if each.id.name == label
                    else each
                    for each in self._capabilities
                ]
            )
        return self._without[key]


def known_rows(
    rows: Sequence[Row], capabilities: Iterable[CapabilitySpec], *, skip_unknown: bool
) -> list[Row]:
    """Return the rows that want no capability, and those that want one of `capabilities`.

    Raises:
        BadDataError: a label is unknown, and `skip_unknown` is false.
    """
    names = {each.id.name for each in capabilities}
    kept = [row for row in rows if not row.right or row.right & names]
    if len(kept) < len(rows) and not skip_unknown:
        unknown = next(row.label for row in rows if row.right and not row.right & names)
        raise BadDataError(
            f"{len(rows) - len(kept)} rows have a label that the catalogue does not, such as "
            f"{unknown!r}; --skip-unknown-labels leaves them out"
        )
    return kept


def without_near_copies(
    rows: Sequence[Row],
    capabilities: Iterable[CapabilitySpec],
    vectorizer: Vectorizer,
    cosine: float,
) -> list[Row]:
    """Return the rows whose cosine with every trigger of `capabilities` is below `cosine`.

    A message that nearly repeats a trigger does not test generalisation.
    """
    phrases = [t for each in capabilities for t in (*each.triggers, *each.extra_triggers)]
    texts = [passages_of(row.text).ends for row in rows]
    vectors = vectorizer.of([*phrases, *texts])
    triggers = np.stack([vectors[phrase] for phrase in phrases])
    nearest = (np.stack([vectors[text] for text in texts]) @ triggers.T).max(axis=1)
    return [row for row, near in zip(rows, nearest, strict=True) if near < cosine]


def report(
    judged: Sequence[Judged], name: str, capabilities: int, skipped: int, latency: Latency | None
) -> RouteReport:
    """Return the measures of the rows `judged`, over all of them and for each kind of message.

    `name` is the name of the scorer, and `capabilities` the size of the catalog. `skipped`
    is the number of rows that were left out.
    """
    values = [each.values() for each in judged]
    wanted = sum(1 for each in judged if each.row.right)
    kinds: dict[str, list[dict[str, bool]]] = {}
    for each, value in zip(judged, values, strict=True):
        if each.row.kind:
            kinds.setdefault(each.row.kind, []).append(value)
    return RouteReport(
        scorer=name,
        capabilities=capabilities,
        wanted=wanted,
        unwanted=len(judged) - wanted,
        skipped=skipped,
        measures={
            measure: _measured([value[measure] for value in values if measure in value])
            for measure in (*WANTED, *UNWANTED)
            if any(measure in value for value in values)
        },
        kinds={kind: _means(rows) for kind, rows in sorted(kinds.items())},
        latency=latency,
    )


def _means(rows: Sequence[Mapping[str, bool]]) -> dict[str, float]:
    # Messages of one kind may want a capability or none, and each has the measures of its own case.
    by_name = {name: [r[name] for r in rows if name in r] for name in (*WANTED, *UNWANTED)}
    means = {name: round(sum(had) / len(had), 4) for name, had in by_name.items() if had}
    return {"messages": float(len(rows)), **means}


def _measured(values: Sequence[bool]) -> Measure:
    numbers = np.array(values, np.float64)
    picks = np.random.default_rng(SEED).integers(0, len(numbers), (RESAMPLES, len(numbers)))
    low, high = np.percentile(numbers[picks].mean(axis=1), [2.5, 97.5])
    return Measure(*(round(float(number), 4) for number in (numbers.mean(), low, high)))


def table(result: RouteReport) -> str:
    """Return the report `result` as text for a person."""
    head = (
        f"{result.scorer} over {result.capabilities} capabilities: {result.wanted} messages that "
        f"want something, {result.unwanted} that do not, {result.skipped} skipped"
    )
    lines = [head]
    for name, measure in result.measures.items():
        lines.append(f"  {name:17} {measure.mean:.3f}  [{measure.low:.3f}, {measure.high:.3f}]")
    for kind, values in result.kinds.items():
        shown = "  ".join(f"{n} {v:.2f}" for n, v in values.items() if n != "messages")
        lines.append(f"  {kind} ({values['messages']:.0f}): {shown}")
    if result.latency is not None:
        late = result.latency
        lines.append(f"  decision p50 {late.p50} ms, p99 {late.p99} ms ({late.messages} messages)")
    return "\n".join(lines)
