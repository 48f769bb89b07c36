"""A routing decision by all rules together, on given scores."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capd.core.routing.deciding import CatalogWords, Circumstances, Comparison, decided
from capd.core.routing.gates import (
    MINILM_INT8,
    Candidate,
    Eligible,
    RoutingProfile,
    eligible,
)
from capd.core.routing.learning import NOTHING as NOTHING_LEARNT
from capd.core.routing.learning import Learnt, replay
from capd.core.routing.passages import Passages
from capd.core.routing.phrases import ContainedTriggers, Phrases
from capd.core.routing.scorers import TriggerMean
from capd.core.routing.siblings import Siblings
from capd_protos.types import (
    CapabilityId,
    CapabilityName,
    CapabilitySpec,
    Decision,
    RoutingLabel,
    Score,
    ServerName,
    ServerSpec,
    TapName,
    UnusableCapability,
)

PROFILE = RoutingProfile(
    *("m", "q", "p"), 0.5, 0.0, 3, scorer="evidence", suggest_at=0.2, suggest_each=0.02
)
NOTHING = np.zeros(2, np.float32)


def id_of(name: str) -> CapabilityId:
    return CapabilityId(TapName("t"), CapabilityName(name))


def spec(name: str, *triggers: str, key: str = "") -> CapabilitySpec:
    server = ServerSpec(ServerName(name.partition("-")[2] or name), "stdio", TapName("t"), "x")
    keys = (key,) if key else ()
    return CapabilitySpec(id_of(name), "", triggers=triggers, servers=(server,), wanted_keys=keys)


class Given:
    """A scorer with given scores."""

    def __init__(self, scores: Mapping[str, float]) -> None:
        self._scores = scores

    def ranked(self, text: str, message: object, among: Collection[CapabilityId]) -> list[Score]:
        del text, message
        found = [Score(id_, self._scores.get(id_.name, 0.0)) for id_ in among]
        return sorted(found, key=lambda each: (-each.score, each.id.name))

    def ranked_parts(
        self, texts: Sequence[str], vectors: Sequence[object], among: Collection[CapabilityId]
    ) -> list[tuple[int, list[Score]]]:
        return [(0, self.ranked(texts[0], vectors[0], among))]


def decision_on(
    text: str,
    specs: list[CapabilitySpec],
    scores: Mapping[str, float],
    active: tuple[str, ...] = (),
    *,
    files: tuple[str, ...] = (),
    profile: RoutingProfile = PROFILE,
    learnt: Learnt = NOTHING_LEARNT,
    project: str = "",
) -> Decision:
    compared = Comparison(Given(scores), CatalogWords(Phrases(specs), Siblings(specs)))
    known = Circumstances(
        eligible(specs, "", ()),
        [id_of(name) for name in active],
        {"files": [id_of(name) for name in files]},
        learnt,
        project,
    )
    return decided(Passages(text), [NOTHING], compared, profile, known)


def named(decision: Decision) -> tuple[str, str, list[str], list[str]]:
    return (
        decision.outcome,
        str(decision.id.name) if decision.id else decision.reason,
        [str(each.name) for each in decision.suggested],
        [str(each.id.name) for each in decision.unusable],
    )


class ByText(Given):
    """A scorer with given scores for each part of a message, some of which it takes."""

    def __init__(
        self, scores: Mapping[str, Mapping[str, float]], promising: Sequence[int] | None
    ) -> None:
        self._of_text = scores
        self._promising = promising

    def ranked_parts(
        self, texts: Sequence[str], vectors: Sequence[object], among: Collection[CapabilityId]
    ) -> list[tuple[int, list[Score]]]:
        chosen = range(len(texts)) if self._promising is None else self._promising
        return [
            (at, Given(self._of_text[texts[at]]).ranked(texts[at], vectors[at], among))
            for at in chosen
        ]


def decision_by_parts(
    scores: Mapping[str, Mapping[str, float]], promising: Sequence[int] | None = None
) -> Decision:
    specs = [spec("chat"), spec("pods")]
    compared = Comparison(ByText(scores, promising), CatalogWords(Phrases(specs), Siblings(specs)))
    ends, *others = scores
    message = Passages(ends, tuple(others))
    known = Circumstances(eligible(specs, "", ()))
    return decided(message, [NOTHING for _ in scores], compared, PROFILE, known)


def test_the_part_of_a_long_message_in_which_a_capability_stands_out_most_decides() -> None:
    scores = {"the ends": {"chat": 0.4}, "one": {"pods": 0.9}, "two": {"chat": 0.8}}

    got = decision_by_parts(scores)

    assert (named(got), got.part) == (("activate", "pods", [], []), 1)


def test_of_two_parts_that_say_the_same_the_first_decides() -> None:
    scores = {"the ends": {"chat": 0.9, "pods": 0.1}, "one": {"chat": 0.2, "pods": 0.9}}

    got = decision_by_parts(scores)

    assert (got.top, got.part) == ((Score(id_of("chat"), 0.9), Score(id_of("pods"), 0.1)), 0)


def test_only_parts_that_the_scorer_finds_promising_are_ranked() -> None:
    scores = {"the ends": {"chat": 0.6}, "one": {"pods": 0.9}, "two": {"chat": 0.8}}

    got = decision_by_parts(scores, promising=[0, 2])

    assert (got.top[0], got.part) == (Score(id_of("chat"), 0.8), 2)


def test_the_published_rule_compares_the_ends_of_a_long_message_alone() -> None:
    ends, passage = np.array([1, 0], np.float32), np.array([0, 1], np.float32)
    specs = [spec("chat"), spec("pods")]
    scorer = TriggerMean(
        [Candidate(id_of("chat"), ends[None]), Candidate(id_of("pods"), passage[None])], 1
    )
    compared = Comparison(scorer, CatalogWords(Phrases(specs), Siblings(specs)))
    known = Circumstances(eligible(specs, "", ()))
    profile = replace(PROFILE, scorer="trigger_mean")

    got = decided(Passages("ends", ("ask",)), [0.9 * ends, passage], compared, profile, known)

    assert (named(got), got.part) == (("activate", "chat", [], []), 0)


LOCKED = [spec("chat", key="CHAT_TOKEN"), spec("pods")]


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ({"chat": 0.8, "pods": 0.1}, ("abstain", "missing_secrets", [], ["chat"])),
        ({"chat": 0.3, "pods": 0.1}, ("suggest", "below_threshold", ["pods"], ["chat"])),
        ({"chat": 0.3}, ("abstain", "below_threshold", [], ["chat"])),
        ({"chat": 0.2, "pods": 0.7}, ("activate", "pods", [], ["chat"])),
        ({"chat": 0.05, "pods": 0.7}, ("activate", "pods", [], [])),
        ({"chat": 0.05, "pods": 0.05}, ("abstain", "below_threshold", [], [])),
    ],
)
def test_what_lacks_a_key_is_named_and_nothing_takes_its_place(
    scores: dict[str, float], expected: tuple[str, str, list[str], list[str]]
) -> None:
    got = decision_on("drop a note in the channel", LOCKED, scores)

    assert named(got) == expected


def test_the_keys_that_are_missing_are_told() -> None:
    got = decision_on("drop a note in the channel", LOCKED, {"chat": 0.9})

    assert got.unusable == (UnusableCapability(id_of("chat"), "missing_secrets", ("CHAT_TOKEN",)),)


REMEMBER = [spec("notes", "remember this for later"), spec("pods", "list the pods")]


@pytest.mark.parametrize(
    ("text", "scores", "active", "expected"),
    [
        ("remember this for later: Ada", {}, (), ("suggest", "below_threshold", ["notes"], [])),
        ("Remember this, for later!", {"notes": 0.04}, (), ("activate", "notes", [], [])),
        (
            "Remember this, for later!",
            {"notes": 0.04, "pods": 0.3},
            (),
            ("suggest", "below_threshold", ["notes", "pods"], []),
        ),
        ("remember this for later", {"notes": 0.04}, ("notes",), ("abstain", "notes", [], [])),
        ("remember this for ever", {}, (), ("abstain", "below_threshold", [], [])),
        ("remember this for later: Ada", {"pods": 0.9}, (), ("activate", "pods", [], [])),
        (
            "remember this for later: Ada",
            {},
            ("notes",),
            ("abstain", "below_threshold", [], []),
        ),
    ],
)
def test_a_trigger_in_a_message_is_heard(
    text: str,
    scores: dict[str, float],
    active: tuple[str, ...],
    expected: tuple[str, str, list[str], list[str]],
) -> None:
    got = decision_on(text, REMEMBER, scores, active)

    assert named(got) == expected


BASES = [
    spec("db-postgres", "rows of the table", "run psql"),
    spec("db-sqlite", "rows of the table", "open the db file"),
]


@pytest.mark.parametrize(
    ("text", "scores", "files", "expected"),
    [
        ("count orders", {"db-postgres": 0.9, "db-sqlite": 0.05}, (), "suggest"),
        ("count orders", {"db-postgres": 0.9, "db-sqlite": 0.01}, (), "activate"),
        ("count orders in postgres", {"db-postgres": 0.9, "db-sqlite": 0.05}, (), "activate"),
        ("count orders with psql", {"db-postgres": 0.9, "db-sqlite": 0.05}, (), "activate"),
        (
            "count orders",
            {"db-postgres": 0.9, "db-sqlite": 0.05},
            ("db-postgres",),
            "activate",
        ),
        (
            "count orders",
            {"db-postgres": 0.9, "db-sqlite": 0.05},
            ("db-postgres", "db-sqlite"),
            "suggest",
        ),
    ],
)
def test_siblings_are_both_suggested_unless_something_names_one(
    text: str, scores: dict[str, float], files: tuple[str, ...], expected: str
) -> None:
    got = decision_on(text, BASES, scores, files=files)

    assert got.outcome == expected
    if expected == "suggest":
        assert named(got) == ("suggest", "near_tie", ["db-postgres", "db-sqlite"], [])


CHATS = [
    spec("chat-slack", "post on slack", "slack the team"),
    spec("chat-discord", "post on discord", "discord the team"),
]


@pytest.mark.parametrize(
    ("text", "slack", "discord", "expected"),
    [
        ("tell the team", 0.95, 0.02, ("suggest", "near_tie")),
        ("tell the team", 0.95, 0.005, ("activate", "chat-slack")),
        ("tell the team on slack", 0.95, 0.02, ("activate", "chat-slack")),
        ("tell the team", 0.3, 0.0, ("suggest", "below_threshold")),
    ],
)
def test_among_alternatives_a_low_score_is_not_out_of_question(
    text: str, slack: float, discord: float, expected: tuple[str, str]
) -> None:
    got = decision_on(text, CHATS, {"chat-slack": slack, "chat-discord": discord})

    assert named(got)[:2] == expected


PLACES = ("slack", "discord", "mail", "sms", "irc", "matrix", "signal", "fax")
EVERY_CHAT = [spec(f"chat-{place}", f"post on {place}", f"{place} them") for place in PLACES]


@pytest.mark.parametrize(
    ("text", "scores", "expected"),
    [
        # Of a family, as many as fit a suggestion, the best first.
        (
            "tell the team",
            {"chat-irc": 0.9, "chat-fax": 0.05},
            "near_tie chat-irc chat-fax chat-discord chat-mail chat-matrix chat-signal",
        ),
        # What else may be meant stays before those that nothing speaks for.
        (
            "tell the team",
            {"chat-irc": 0.3, "pods": 0.2},
            "below_threshold chat-irc pods chat-discord chat-fax chat-mail chat-matrix",
        ),
        # One of the others is named, or the best itself.
        (
            "tell them on discord",
            {"chat-irc": 0.3, "chat-discord": 0.2},
            "below_threshold chat-irc chat-discord",
        ),
        ("tell them on irc", {"chat-irc": 0.3}, "below_threshold chat-irc"),
        # The best is no alternative.
        ("tell the team", {"pods": 0.3, "chat-irc": 0.1}, "below_threshold pods chat-irc"),
        # Nothing is plausible.
        ("tell the team", {"chat-irc": 0.1}, "below_threshold"),
    ],
)
def test_of_alternatives_that_a_message_leaves_open_as_many_as_fit_are_suggested(
    text: str, scores: dict[str, float], expected: str
) -> None:
    got = decision_on(text, [*EVERY_CHAT, spec("pods")], scores)

    assert " ".join([got.reason, *(str(each.name) for each in got.suggested)]) == expected


def test_a_person_is_told_of_three_keys_at_most() -> None:
    locked = [spec(f"chat-{place}", f"post on {place}", key="KEY") for place in PLACES]

    got = decision_on("tell the team", locked, {"chat-irc": 0.3, "chat-fax": 0.1})

    assert named(got)[3] == ["chat-irc", "chat-fax", "chat-discord"]


@pytest.mark.parametrize(
    ("wanted", "project", "expected"),
    [
        (("t/chat-slack",), "here", "activate"),
        (("t/chat-discord",), "here", "suggest"),
        (("t/chat-slack", "t/chat-discord"), "here", "suggest"),
        (("t/chat-slack",), "elsewhere", "suggest"),
        (("t/chat-slack",), "", "suggest"),
    ],
)
def test_what_was_wanted_in_the_project_before_decides_between_siblings(
    wanted: tuple[str, ...], project: str, expected: str
) -> None:
    labels = [RoutingLabel(0.0, name, "enabled", 0.0, "", "here") for name in wanted]
    scores = {"chat-slack": 0.9, "chat-discord": 0.05}

    got = decision_on("tell the team", CHATS, scores, learnt=replay(labels), project=project)

    assert got.outcome == expected


@pytest.mark.parametrize("text", ["run tests", "please run tests again", "write a new note today"])
def test_a_trigger_that_a_server_gave_itself_is_not_heard_by_its_letters(text: str) -> None:
    own = ("run tests", "please write a new note today")
    evil = msgspec.structs.replace(spec("evil", "use evil"), extra_triggers=own, tool_triggers=own)
    written = msgspec.structs.replace(evil, tool_triggers=())

    outcomes = [decision_on(text, [each], {"evil": 0.01}).outcome for each in (evil, written)]

    assert outcomes[0] == "abstain"
    assert outcomes[1] != "abstain"


def test_what_was_learnt_moves_the_bar() -> None:
    more = replay([RoutingLabel(0.0, "t/pods", "enabled", 0.4)] * 3)
    less = replay([RoutingLabel(0.0, "t/pods", "disabled", 0.9)] * 3)

    got = [decision_on("x", LOCKED, {"pods": 0.45}, learnt=each).outcome for each in (more, less)]
    sure = decision_on("x", LOCKED, {"pods": 0.55}, learnt=less).outcome

    assert (got, sure) == (["activate", "suggest"], "suggest")


def test_the_published_rule_learns_nothing() -> None:
    more = replay([RoutingLabel(0.0, "t/pods", "enabled", 0.4)] * 9)

    got = decision_on("x", LOCKED, {"pods": 0.4}, profile=MINILM_INT8, learnt=more)

    assert named(got)[:2] == ("abstain", "below_threshold")


def test_the_published_rule_ranks_what_can_be_used_and_knows_no_other_rule() -> None:
    got = decision_on(
        "remember this for later",
        [*LOCKED, *REMEMBER],
        {"chat": 0.9, "pods": 0.3},
        profile=MINILM_INT8,
    )

    assert named(got) == ("abstain", "below_threshold", [], [])


_NAMES = ("chat", "pods", "db-postgres", "db-sqlite")


@given(
    st.fixed_dictionaries({name: st.floats(0, 1) for name in _NAMES}),
    st.sets(st.sampled_from(_NAMES)),
    st.sets(st.sampled_from(_NAMES)),
)
def test_what_cannot_be_used_is_never_switched_on_or_suggested(
    scores: dict[str, float], lacking: set[str], active: set[str]
) -> None:
    specs = [spec(name, "list all of it", key="K" if name in lacking else "") for name in _NAMES]

    got = decision_on("please list all of it", specs, scores, tuple(active))

    on = {got.id.name} if got.outcome == "activate" and got.id else set()
    assert (on | {each.name for each in got.suggested}).isdisjoint(lacking)
    assert {each.id.name for each in got.unusable} <= lacking
    assert {each.name for each in got.suggested}.isdisjoint(active)
    best = max(scores, key=lambda name: (scores[name], name))
    if best in lacking and got.outcome == "activate":
        assert scores[str(got.id.name if got.id else "")] == scores[best]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("list the pods", ContainedTriggers((id_of("pods"),), (id_of("pods"),))),
        ("List the pods!", ContainedTriggers((id_of("pods"),), (id_of("pods"),))),
        ("please list the pods of staging", ContainedTriggers((), (id_of("pods"),))),
        ("list all the pods", ContainedTriggers()),
        (
            "it is: show me which pods are not running today",
            ContainedTriggers((), (id_of("pods"),)),
        ),
        ("pods", ContainedTriggers((id_of("one"),))),
        ("the pods", ContainedTriggers()),
        ("", ContainedTriggers()),
    ],
)
def test_a_message_has_of_triggers(text: str, expected: ContainedTriggers) -> None:
    phrases = Phrases(
        [
            spec("pods", "list the pods", "show me which pods are not running"),
            spec("one", "pods"),
        ]
    )

    got = phrases.find(text)

    assert got == expected


def test_everything_is_usable_where_nothing_is_left_out() -> None:
    assert eligible([spec("a"), spec("b")], "", ()) == Eligible((spec("a"), spec("b")), {}, ())
