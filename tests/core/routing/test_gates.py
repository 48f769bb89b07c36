"""Every gate with its reason, the score, and the comparisons at their limits."""

import hashlib
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capd.core.routing.gates import (
    EPSILON,
    MINILM_INT8,
    Candidate,
    Eligible,
    ProfileMismatchError,
    RoutingProfile,
    before_model,
    decide,
    eligible,
    fingerprint,
    scores,
)
from capd.core.routing.passages import Passages
from capd_protos.types import (
    CapabilityId,
    CapabilityName,
    CapabilitySpec,
    Decision,
    DecisionReason,
    Score,
    ServerName,
    ServerSpec,
    TapName,
    UnusableCapability,
)

TAP = TapName("tap")
PROFILE = RoutingProfile("m", "q", "p", threshold=0.5, margin=0.1, top_k=3)


def id_of(name: str) -> CapabilityId:
    return CapabilityId(TAP, CapabilityName(name))


def ranking(*numbers: float) -> list[Score]:
    return [Score(id_of("abcdefgh"[n]), number) for n, number in enumerate(numbers)]


@pytest.mark.parametrize(
    ("text", "is_enabled", "reason"),
    [
        pytest.param("<system-note>", False, "disabled", id="the first gate comes first"),
        pytest.param("show the git log please", False, "disabled", id="switched off"),
        pytest.param("<system-note>x", True, "system_content", id="the second comes second"),
        pytest.param("hi there", True, "too_short", id="seven characters"),
        pytest.param("<log>a long paste</log> fix it", True, "too_short", id="after cleaning"),
        pytest.param("", True, "too_short", id="nothing"),
    ],
)
def test_a_message_that_needs_no_model_is_turned_away_with(
    text: str, reason: DecisionReason, *, is_enabled: bool
) -> None:
    got = before_model(text, is_enabled=is_enabled)

    assert got == Decision("abstain", reason, fingerprint=fingerprint(text))


def test_a_message_that_passes_the_first_gates_comes_back_cleaned() -> None:
    got = before_model("\n <log>x</log> show the history\n", is_enabled=True)

    assert got == Passages("show the history")


def test_of_a_message_its_hash_alone_is_kept() -> None:
    got = fingerprint("show the history")

    assert got == hashlib.sha256(b"show the history").hexdigest()[:16]


def test_a_lone_surrogate_in_a_message_is_no_obstacle() -> None:
    got = (fingerprint("\ud800"), before_model("tell me why \ud800", is_enabled=True))

    assert (len(got[0]), got[1]) == (16, Passages("tell me why \ud800"))


@pytest.mark.parametrize(
    ("ranked", "active", "decision"),
    [
        pytest.param([], [], Decision("abstain", "no_candidates"), id="no candidates"),
        pytest.param(
            ranking(0.49, 0.48),
            ["a"],
            Decision("abstain", "below_threshold", top=tuple(ranking(0.49, 0.48))),
            id="the threshold comes before margin and activity",
        ),
        pytest.param(
            ranking(0.6, 0.55),
            ["a"],
            Decision("abstain", "below_margin", top=tuple(ranking(0.6, 0.55))),
            id="the margin comes before activity",
        ),
        pytest.param(
            ranking(0.6, 0.2),
            ["a", "b"],
            Decision("abstain", "already_active", id=id_of("a"), top=tuple(ranking(0.6, 0.2))),
            id="an active winner",
        ),
        pytest.param(
            ranking(0.6, 0.2),
            ["b"],
            Decision("activate", id=id_of("a"), top=tuple(ranking(0.6, 0.2))),
            id="an active runner-up",
        ),
        pytest.param(
            ranking(0.5, 0.4),
            [],
            Decision("activate", id=id_of("a"), top=tuple(ranking(0.5, 0.4))),
            id="both comparisons are inclusive",
        ),
        pytest.param(
            ranking(0.5),
            [],
            Decision("activate", id=id_of("a"), top=tuple(ranking(0.5))),
            id="one candidate has a runner-up of 0",
        ),
        pytest.param(
            ranking(0.9, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2),
            [],
            Decision("activate", id=id_of("a"), top=tuple(ranking(0.9, 0.7, 0.6, 0.5, 0.4))),
            id="five are told",
        ),
    ],
)
def test_scores_lead_to(ranked: list[Score], active: list[str], decision: Decision) -> None:
    got = decide(ranked, [id_of(name) for name in active], PROFILE)

    assert got == decision


@pytest.mark.parametrize(
    ("best", "second", "reason"),
    [
        (0.5 - EPSILON / 2, 0.0, ""),
        (0.5 - EPSILON * 2, 0.0, "below_threshold"),
        (0.6, 0.5 + EPSILON / 2, ""),
        (0.6, 0.5 + EPSILON * 2, "below_margin"),
    ],
)
def test_a_comparison_forgives_the_rounding_of_float32_and_no_more(
    best: float, second: float, reason: str
) -> None:
    got = decide(ranking(best, second), [], PROFILE)

    assert got.reason == reason


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        # Almost nothing is left for "none": a modest winner is enough.
        ((0.55, 0.35, 0.05), ("activate", "")),
        ((0.55, 0.35), ("activate", "")),
        ((0.55, 0.35 - EPSILON / 2), ("activate", "")),
        # As good a winner, but it may be that nothing is wanted.
        ((0.55, 0.2), ("suggest", "below_threshold")),
        ((0.85,), ("suggest", "below_threshold")),
        # Something is wanted, and nobody knows what.
        ((0.45, 0.45, 0.05), ("suggest", "below_threshold")),
    ],
)
def test_the_best_is_activated_only_if_all_together_leave_little_for_none(
    scores: tuple[float, ...], expected: tuple[str, str]
) -> None:
    profile = replace(SUGGESTING, activate_at=0.9)

    got = decide(ranking(*scores), [], profile)

    assert (got.outcome, got.reason) == expected


def test_a_single_candidate_below_the_margin_has_no_clear_lead() -> None:
    profile = RoutingProfile("m", "q", "p", threshold=0.05, margin=0.1, top_k=3)

    got = decide(ranking(0.07), [], profile)

    assert got.reason == "below_margin"


def unit(cosine: float) -> list[float]:
    return [cosine, float(np.sqrt(1 - cosine**2))]


def candidate(name: str, *cosines: float) -> Candidate:
    rows = np.array([unit(c) for c in cosines], dtype=np.float32).reshape(-1, 2)
    return Candidate(id_of(name), rows)


@pytest.mark.parametrize(
    ("cosines", "top_k", "score"),
    [
        pytest.param((0.2, 0.8, 0.5, 0.6), 3, 0.6333333, id="the mean of the best three"),
        pytest.param((0.2, 0.8), 3, 0.5, id="fewer triggers than top_k"),
        pytest.param((0.4,), 3, 0.4, id="one trigger"),
        pytest.param((0.2, 0.8), 1, 0.8, id="top_k of one"),
        pytest.param((-0.5, -0.7), 3, -0.6, id="below zero"),
        pytest.param((), 3, 0.0, id="no triggers"),
    ],
)
def test_a_capability_scores(cosines: tuple[float, ...], top_k: int, score: float) -> None:
    message = np.array([1, 0], dtype=np.float32)

    (got,) = scores(message, [candidate("a", *cosines)], top_k)

    assert (got.id, abs(got.score - score) < 1e-6) == (id_of("a"), True)


def test_the_best_comes_first_and_ties_keep_their_order() -> None:
    message = np.array([1, 0], dtype=np.float32)
    candidates = [
        candidate("a", 0.3),
        candidate("b"),
        candidate("c", 0.9),
        candidate("d", 0.3),
        candidate("e"),
    ]

    got = scores(message, candidates, 3)

    assert [str(score.id.name) for score in got] == ["c", "a", "d", "b", "e"]


def test_without_candidates_there_are_no_scores() -> None:
    got = scores(np.array([1, 0], dtype=np.float32), [], 3)

    assert got == []


@given(
    st.lists(st.lists(st.floats(-1, 1), max_size=6), min_size=1, max_size=6),
    st.integers(min_value=1, max_value=4),
)
@settings(deadline=None)
def test_scoring_all_at_once_is_scoring_each_by_itself(
    triggers: list[list[float]], top_k: int
) -> None:
    message = np.array([1, 0], dtype=np.float32)
    candidates = [candidate("abcdef"[n], *cosines) for n, cosines in enumerate(triggers)]

    got = scores(message, candidates, top_k)

    def one(cosines: list[float]) -> float:
        best = sorted(cosines, reverse=True)[:top_k]
        return sum(best) / len(best) if best else 0.0

    assert {score.id.name: score.score for score in got} == pytest.approx(
        {CapabilityName("abcdef"[n]): one(cosines) for n, cosines in enumerate(triggers)}, abs=1e-5
    )
    assert [score.score for score in got] == sorted((s.score for s in got), reverse=True)


def capability(name: str, transport: str = "stdio", **fields: object) -> CapabilitySpec:
    server = ServerSpec(ServerName(name), transport, TAP)
    spec = CapabilitySpec(id_of(name), "default", servers=(server,))
    return msgspec.structs.replace(spec, **fields)


PLAIN = capability("plain")
DEPS_ONLY = capability("deps", servers=(), requires=("org/tool",))
DEVOPS = capability("devops", domains=("devops", "security"))
SECRET = capability("secret", wanted_keys=("A", "B"))
BUILTIN = capability("builtin", "builtin", domains=("devops",))
EMPTY = capability("empty", servers=(), domains=("devops",))
BOTH = capability("both", domains=("devops",), wanted_keys=("A",))
ALL = [PLAIN, DEPS_ONLY, DEVOPS, SECRET, BUILTIN, EMPTY, BOTH]


@pytest.mark.parametrize(
    ("domain", "keys", "left"),
    [
        pytest.param(
            "",
            ["A", "B"],
            Eligible(
                (PLAIN, DEPS_ONLY, DEVOPS, SECRET, BOTH),
                {"builtin_unsupported": 1, "nothing_to_activate": 1},
            ),
            id="without a domain nothing is filtered by it",
        ),
        pytest.param(
            "developer",
            ["A"],
            Eligible(
                (PLAIN, DEPS_ONLY),
                {
                    "domain": 2,
                    "missing_secrets": 1,
                    "builtin_unsupported": 1,
                    "nothing_to_activate": 1,
                },
                (
                    UnusableCapability(DEVOPS.id, "domain"),
                    UnusableCapability(SECRET.id, "missing_secrets", ("B",)),
                    UnusableCapability(BOTH.id, "domain"),
                ),
            ),
            id="each is counted once, by the first filter that removes it",
        ),
        pytest.param(
            "devops",
            [],
            Eligible(
                (PLAIN, DEPS_ONLY, DEVOPS),
                {"missing_secrets": 2, "builtin_unsupported": 1, "nothing_to_activate": 1},
                (
                    UnusableCapability(SECRET.id, "missing_secrets", ("A", "B")),
                    UnusableCapability(BOTH.id, "missing_secrets", ("A",)),
                ),
            ),
            id="one of several domains is enough",
        ),
    ],
)
def test_filters_leave(domain: str, keys: list[str], left: Eligible) -> None:
    got = eligible(ALL, domain, keys)

    assert got == left


def test_what_lacks_a_program_is_left_out_and_can_be_named() -> None:
    lacking = {PLAIN.id: ("npx",), SECRET.id: ("npx",)}

    got = eligible(ALL, "", ["A"], (), lacking)

    assert PLAIN not in got.capabilities
    assert got.left_out["missing_program"] == 1
    assert got.unusable == (
        UnusableCapability(PLAIN.id, "missing_program", (), ("npx",)),
        UnusableCapability(SECRET.id, "missing_secrets", ("B",)),
    )


@pytest.mark.parametrize(
    ("model", "quantisation", "pooling"), [("x", "q", "p"), ("m", "x", "p"), ("m", "q", "x")]
)
def test_a_profile_refuses_another_model(model: str, quantisation: str, pooling: str) -> None:
    with pytest.raises(ProfileMismatchError) as caught:
        PROFILE.check(model, quantisation, pooling)

    assert str(caught.value) == (
        f"the routing profile is for m/q/p, the loaded model is {model}/{quantisation}/{pooling}: "
        "a profile holds for one model only"
    )


def test_a_profile_accepts_the_model_that_it_is_for() -> None:
    PROFILE.check("m", "q", "p")

    assert (MINILM_INT8.threshold, MINILM_INT8.margin, MINILM_INT8.top_k) == (0.45, 0.08, 3)


SUGGESTING = RoutingProfile(
    "m", "q", "p", threshold=0.5, margin=0.0, top_k=3, suggest_at=0.3, suggest_each=0.05
)


@pytest.mark.parametrize(
    ("ranked", "active", "decision"),
    [
        pytest.param(
            ranking(0.3, 0.1, 0.06, 0.05),
            [],
            Decision(
                "suggest",
                "below_threshold",
                top=tuple(ranking(0.3, 0.1, 0.06, 0.05)),
                suggested=(id_of("a"), id_of("b"), id_of("c")),
            ),
            id="at most three",
        ),
        pytest.param(
            ranking(0.3, 0.04),
            [],
            Decision(
                "suggest",
                "below_threshold",
                top=tuple(ranking(0.3, 0.04)),
                suggested=(id_of("a"),),
            ),
            id="none that is hardly possible",
        ),
        pytest.param(
            ranking(0.2, 0.09),
            [],
            Decision("abstain", "below_threshold", top=tuple(ranking(0.2, 0.09))),
            id="none where nothing is wanted",
        ),
        pytest.param(
            ranking(0.3, 0.1),
            ["a"],
            Decision(
                "suggest",
                "below_threshold",
                top=tuple(ranking(0.3, 0.1)),
                suggested=(id_of("b"),),
            ),
            id="none that is on",
        ),
        pytest.param(
            ranking(0.3),
            ["a"],
            Decision("abstain", "below_threshold", top=tuple(ranking(0.3))),
            id="all are on",
        ),
        pytest.param(
            ranking(0.6, 0.3),
            [],
            Decision("activate", id=id_of("a"), top=tuple(ranking(0.6, 0.3))),
            id="a clear winner needs no suggestion",
        ),
    ],
)
def test_where_nothing_is_clear_the_plausible_are_suggested(
    ranked: list[Score], active: list[str], decision: Decision
) -> None:
    got = decide(ranked, [id_of(name) for name in active], SUGGESTING)

    assert got == decision


@given(
    st.lists(st.floats(0, 1), max_size=9).map(lambda numbers: sorted(numbers, reverse=True)),
    st.sets(st.sampled_from("abcdefgh")),
)
def test_what_is_suggested_is_off_among_the_best_and_at_most_three(
    numbers: list[float], active: set[str]
) -> None:
    ranked = ranking(*numbers[:8])

    got = decide(ranked, {id_of(name) for name in active}, SUGGESTING)

    assert len(got.suggested) <= 3
    assert {id_.name for id_ in got.suggested}.isdisjoint(active)
    assert set(got.suggested) <= {score.id for score in ranked[:3]}
    assert bool(got.suggested) is (got.outcome == "suggest")


def test_a_profile_may_be_for_one_changed_encoder_alone() -> None:
    bound = replace(PROFILE, adapter="a1")

    bound.check("m", "q", "p", adapter="a1")
    PROFILE.check("m", "q", "p", adapter="a1")
    for other in ("", "a2"):
        with pytest.raises(ProfileMismatchError):
            bound.check("m", "q", "p", adapter=other)


def test_a_profile_may_be_for_one_revision_of_a_model_alone() -> None:
    bound = replace(PROFILE, revision="r1")

    bound.check("m", "q", "p", "r1")
    with pytest.raises(ProfileMismatchError):
        bound.check("m", "q", "p", "r2")
