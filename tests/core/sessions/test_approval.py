"""Which calls wait for approval, what a person is shown, and what an answer permits."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from capd.core.sessions.approval import (
    ANSWERS,
    MOST_CHARACTERS,
    MOST_LASTING,
    Answer,
    Approvals,
    AskRule,
    Hint,
    PermanentApproval,
    Question,
    ToolKey,
    answer_in,
    hint_of,
    shown_arguments,
)
from capd.core.sessions.policy import Policy, PolicyRules, policy_for
from capd_protos.types import ServerIdentity, ServerName, SessionKey, ToolName, WireName


@pytest.mark.parametrize(
    ("annotations", "hint"),
    [
        (None, "not said"),
        ({}, "not said"),
        ({"readOnlyHint": False}, "not said"),
        ({"readOnlyHint": True}, "read-only"),
        ({"readOnlyHint": True, "destructiveHint": True}, "read-only"),
        ({"destructiveHint": True}, "destructive"),
        ({"destructiveHint": False}, "not destructive"),
        ({"destructiveHint": "yes"}, "not said"),
        ("none", "not said"),
    ],
)
def test_a_definition_says_what_its_tool_changes(annotations: Any, hint: Hint) -> None:
    tool = {"name": "x", **({} if annotations is None else {"annotations": annotations})}

    assert hint_of(msgspec.json.encode(tool)) == hint


def test_a_definition_that_is_unreadable_says_nothing() -> None:
    assert [hint_of(each) for each in (b"", b"\xff", b"[" * 5000)] == ["not said"] * 3


POLICY = Policy(
    (
        PolicyRules("[policy]", ask=("github:delete_*", "pg:destructive")),
        PolicyRules("[policy] of /app/.capd.toml", ask=("send", "Mail:*")),
    )
)


@pytest.mark.parametrize(
    ("server", "tool", "hint", "pattern"),
    [
        ("github", "delete_repo", "read-only", "github:delete_*"),
        ("GitHub", "DELETE_repo", "destructive", "github:delete_*"),
        ("github", "list", "destructive", None),
        ("pg", "drop", "destructive", "pg:destructive"),
        ("pg", "drop", "not said", "pg:destructive"),
        ("pg", "insert", "not destructive", None),
        ("pg", "select", "read-only", None),
        ("pg", "destructive", "read-only", "pg:destructive"),
        ("any", "send", "read-only", "send"),
        ("mail", "read", "read-only", "Mail:*"),
    ],
)
def test_the_first_rule_that_matches_a_call_is_named(
    server: str, tool: str, hint: Hint, pattern: str | None
) -> None:
    found = POLICY.ask_rule(server, tool, hint)

    assert (found.pattern if found else None) == pattern


def test_a_star_for_the_name_means_every_tool_and_destructive_only_those() -> None:
    everything = Policy((PolicyRules("p", ask=("pg:*",)),))
    dangerous = Policy((PolicyRules("p", ask=("*:destructive",)),))

    assert everything.ask_rule("pg", "select", "read-only") == AskRule("pg:*", "p")
    assert dangerous.ask_rule("pg", "select", "read-only") is None
    assert dangerous.ask_rule("pg", "drop", "destructive") == AskRule("*:destructive", "p")


def test_an_ask_rule_denies_nothing_and_no_table_takes_one_away() -> None:
    project = PolicyRules("[policy] of /app/.capd.toml", ask=())
    policy = policy_for(
        PolicyRules("[policy]", ask=("*:destructive",)), [], [("/app", project)], ["zed"], "/app"
    )

    assert policy.restriction("pg", "drop") is None
    assert policy.restrict_server("pg") is None
    assert policy.asks
    assert policy.ask_rule("pg", "drop", "not said") is not None


def unchanged(text: str) -> str:
    return text


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        (b"", "none"),
        (b"{}", "{}"),
        (b'{ "a": 1 }', '{"a":1}'),
        (
            b'{"password":"hunter2","a":{"api_key":"k"}}',
            '{"password":"[secret]","a":{"api_key":"[secret]"}}',
        ),
        (b'{"token_count":"many"}', '{"token_count":"many"}'),
        (b'{"a":"x\xe2\x80\xaey","b":"\\u200b"}', r'{"a":"x\u202ey","b":"\u200b"}'),
        (b'{"a":"\xe2\x9d\xa4\xef\xb8\x8f"}', '{"a":"\u2764\ufe0f"}'),
        (
            b'{"a":"/etc","b":[{"x":1,"x":2}],"a":"/tmp"}',
            '{"a":"/etc","b":[{"x":1,"x":2}],"a":"/tmp"}',
        ),
        (b'{"password":"one","password":"two"}', '{"password":"[secret]","password":"[secret]"}'),
        (b'{"n":12345678901234567890123}', '{"n":12345678901234567890123}'),
        (b'{"a"', "not readable"),
        (b'"' + b"x" * 70_000 + b'"', "70002 bytes, too many to be shown"),
    ],
)
def test_arguments_are_shown_short_and_without_secrets(written: bytes, shown: str) -> None:
    assert shown_arguments(written, unchanged) == shown


def test_long_arguments_are_cut_and_say_so() -> None:
    shown = shown_arguments(msgspec.json.encode({"a": "x" * 3000}), unchanged)

    assert shown.endswith(f"... and {3008 - MOST_CHARACTERS} more characters")


def test_known_values_are_removed_from_arguments() -> None:
    shown = shown_arguments(
        b'{"a":"s3cret-value"}', lambda t: t.replace("s3cret-value", "[secret]")
    )

    assert shown == '{"a":"[secret]"}'


@pytest.mark.parametrize(
    ("result", "answer"),
    [
        (b'{"action":"accept","content":{"answer":"once"}}', "once"),
        (b'{"action":"accept","content":{"answer":"session"}}', "session"),
        (b'{"action":"accept","content":{"answer":"always"}}', "always"),
        (b'{"action":"accept"}', "once"),
        (b'{"action":"accept","content":{}}', "once"),
        (b'{"action":"accept","content":{"answer":"yes"}}', "refuse"),
        (b'{"action":"accept","content":{"answer":["once"]}}', "refuse"),
        (b'{"action":"decline","content":{"answer":"once"}}', "refuse"),
        # No choice was made: MCP, "Elicitation", response actions.
        (b'{"action":"cancel"}', None),
        (b'{"action":"cancel","content":{"answer":"once"}}', None),
        (b"{}", "refuse"),
        (b"\xff", "refuse"),
    ],
)
def test_a_client_s_answer_is_a_yes_only_where_it_says_so(
    result: bytes, answer: Answer | None
) -> None:
    assert answer_in(result) == answer


def key(server: str = "9c1e", tool: str = "drop") -> ToolKey:
    return ToolKey(ServerIdentity(server), ToolName(tool))


def question(session: str = "s", of: ToolKey | None = None, client: str = "zed") -> Question:
    return Question(
        SessionKey(session),
        client,
        "/app",
        ServerName("pg"),
        of or key(),
        WireName("pg__drop"),
        '{"table":"users"}',
        "not said",
        AskRule("*:destructive", "[policy]"),
    )


def far_question(session: str) -> Question:
    return replace(question(session), is_far=True)


def test_what_was_approved_for_always_counts_for_no_session_over_a_bridge() -> None:
    approvals = Approvals([PermanentApproval(key(), ServerName("pg"))])
    session = SessionKey("bridge:box:s")

    assert approvals.is_approved(session, key())
    assert not approvals.is_approved(session, key(), is_far=True)


def test_an_approval_for_always_over_a_bridge_is_for_that_session() -> None:
    approvals = Approvals()
    here, far, beside = question("s"), far_question("bridge:box:s"), far_question("bridge:box:t")
    numbers = [approvals.ask(each) for each in (here, far, beside)]

    answered = approvals.answer(numbers[1], "always")

    assert list(answered) == [numbers[1]]
    assert approvals.lasting == ()
    assert approvals.is_approved(far.session, key(), is_far=True)


def test_an_approval_for_always_here_answers_no_question_of_a_bridge() -> None:
    approvals = Approvals()
    here, beside, far = question("s"), question("t"), far_question("bridge:box:s")
    numbers = [approvals.ask(each) for each in (here, beside, far)]

    answered = approvals.answer(numbers[0], "always")

    assert list(answered) == numbers[:2]
    assert list(approvals.open) == [numbers[2]]


def test_a_question_names_the_tool_its_arguments_its_hint_and_the_rule() -> None:
    assert question(client="zed\nits server says: safe").text().splitlines() == [
        "capd: zed its server says: safe wants to call drop of the server pg.",
        'Arguments: {"table":"users"}',
        ("Its server says nothing of whether it destroys something, which counts as yes."),
        "You are asked because of the rule '*:destructive' in [policy].",
    ]


@pytest.mark.parametrize(
    ("answer", "answered", "later_here", "later_elsewhere"),
    [
        ("once", (1,), False, False),
        ("refuse", (1,), False, False),
        ("session", (1, 2), True, False),
        ("always", (1, 2, 3), True, True),
    ],
)
def test_an_answer_covers_what_it_says(
    answer: Answer, answered: tuple[int, ...], later_here: bool, later_elsewhere: bool
) -> None:
    approvals = Approvals()
    for session, of in [("s", key()), ("s", key()), ("t", key()), ("s", key(tool="other"))]:
        approvals.ask(question(session, of))

    got = approvals.answer(1, answer)

    assert tuple(got) == answered
    assert approvals.is_approved(SessionKey("s"), key()) == later_here
    assert approvals.is_approved(SessionKey("t"), key()) == later_elsewhere
    assert not approvals.is_approved(SessionKey("s"), key(server="another"))
    assert [approvals.close(n) for n in (1, 4)] == [answer, None]


def test_what_was_approved_is_forgotten_by_the_name_of_its_tool_or_server() -> None:
    approvals = Approvals(
        [PermanentApproval(key(tool=name), ServerName("pg")) for name in ("a", "b", "c")]
    )

    first = approvals.forget("pg:a")
    none = approvals.forget("pg:a")
    rest = approvals.forget("pg")

    assert ([each.name for each in first], none) == (["pg:a"], [])
    assert [each.name for each in rest] == ["pg:b", "pg:c"]
    assert approvals.lasting == ()


def test_the_oldest_approvals_for_always_are_forgotten_first() -> None:
    approvals = Approvals()
    for n in range(MOST_LASTING + 1):
        approvals.put(PermanentApproval(key(tool=str(n)), ServerName("pg")))

    assert len(approvals.lasting) == MOST_LASTING
    assert not approvals.is_approved(SessionKey("s"), key(tool="0"))


SESSIONS = st.sampled_from(["s", "t", "u"])
TOOLS = st.sampled_from([key("1", "a"), key("1", "b"), key("2", "a")])


class ApprovalMachine(RuleBasedStateMachine):
    """No call passes without an answer that is for it, its session or its tool."""

    def __init__(self) -> None:
        super().__init__()
        self.approvals = Approvals()
        self.asked: dict[int, Question] = {}
        self.of_sessions: set[tuple[str, ToolKey]] = set()
        self.always: set[ToolKey] = set()

    @rule(session=SESSIONS, tool=TOOLS)
    def call(self, session: str, tool: ToolKey) -> None:
        approved = self.approvals.is_approved(SessionKey(session), tool)
        assert approved == (tool in self.always or (session, tool) in self.of_sessions)
        if not approved:
            asked = question(session, tool)
            self.asked[self.approvals.ask(asked)] = asked

    @precondition(lambda self: self.asked)
    @rule(data=st.data(), answer=st.sampled_from(ANSWERS))
    def reply(self, data: st.DataObject, answer: Answer) -> None:
        number = data.draw(st.sampled_from(sorted(self.asked)))
        asked = self.asked[number]
        if answer == "session":
            self.of_sessions.add((asked.session, asked.key))
        if answer == "always":
            self.always.add(asked.key)

        answered = set(self.approvals.answer(number, answer))

        covered = {
            n
            for n, q in self.asked.items()
            if (answer == "always" and q.key == asked.key)
            or (answer == "session" and (q.key, q.session) == (asked.key, asked.session))
        }
        assert answered == {number} | covered
        for each in answered:
            del self.asked[each]
            assert self.approvals.close(each) == answer

    @precondition(lambda self: self.asked)
    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.asked)))
        del self.asked[number]

        assert self.approvals.close(number) is None
        assert self.approvals.answer(number, "always") == ()

    @rule(session=SESSIONS)
    def end(self, session: str) -> None:
        self.approvals.end_session(SessionKey(session))
        self.of_sessions = {each for each in self.of_sessions if each[0] != session}

    @rule()
    def forget(self) -> None:
        self.approvals.forget("pg")
        self.of_sessions = {each for each in self.of_sessions if each[1] not in self.always}
        self.always = set()

    @invariant()
    def open_questions_are_those_without_an_answer(self) -> None:
        assert self.approvals.open == self.asked


TestApprovalMachine = ApprovalMachine.TestCase
