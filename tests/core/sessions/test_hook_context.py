"""The context that a prompt hook returns."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capd.adapters.tokens.token_counts import count
from capd.core.index.summaries import call_of, suggestions
from capd.core.index.token_costs import TokenCosts
from capd.core.sessions.hook_context import (
    TURN_TOKENS,
    coming,
    context,
    contexts,
    hook_output,
    join_texts,
    notice,
    skill_text,
)
from capd.core.sessions.turn_cards import fitting_cards
from capd.core.tools.call_cards import CallCard
from capd_protos.index import IndexEntry
from capd_protos.types import CapabilityId, CapabilityName, Decision, TapName, WireName
from support.examples import examples

GIT = CapabilityName("git")
CALL = WireName("capd_tool_call")


class Everything(dict[str, int]):
    """Every piece, counted when it is asked for."""

    def get(self, piece: str, default: object = None) -> int:
        del default
        return count(piece)


EXACT = TokenCosts(Everything())
NOTHING = TokenCosts()


def test_nothing_is_said_where_nothing_came_on() -> None:
    got = (context(GIT, [], EXACT), hook_output(""))

    assert got == ("", "{}")


@pytest.mark.parametrize("costs", [EXACT, NOTHING])
def test_the_model_is_told_what_came_on_by_the_names_it_can_call(costs: TokenCosts) -> None:
    text = context(GIT, [WireName("git__log"), WireName("git__show")], costs)

    assert text == (
        "capd switched on 'git' for this message; its tools are listed now: git__log, git__show."
    )


@pytest.mark.parametrize("costs", [EXACT, NOTHING])
@pytest.mark.parametrize("capabilities", [2, 3, 9])
def test_several_that_came_on_share_the_tokens_of_one_turn(
    capabilities: int, costs: TokenCosts
) -> None:
    came_on = [
        (CapabilityName(f"git-{at}"), [WireName(f"git{at}__tool_{number}") for number in range(20)])
        for at in range(capabilities)
    ]

    text = contexts([(GIT, []), *came_on], costs)

    assert text.splitlines()[0].startswith("capd switched on 'git-0' for this message; its")
    assert text.count("switched on") >= 2
    assert all("__tool_0" in line for line in text.splitlines())
    assert count(text) <= TURN_TOKENS


@pytest.mark.parametrize("tools", [13, 500])
def test_a_large_capability_is_told_in_as_few_words(tools: int) -> None:
    text = context(GIT, [WireName(f"s__t{number}") for number in range(tools)], NOTHING)

    assert text.count("s__t") == 12
    assert text.endswith(f"s__t11 and {tools - 12} more.")


ODD = [
    [WireName("x" * 64)] * 9,
    [WireName("0f3b_9" * 10)] * 9,
    [WireName("getHTTPStatusOfTheWholeWorld")] * 9,
    [WireName("qzxkv_bcdfg_hjklm_npqrs")] * 9,
    [WireName(f"kubernetes__list_persistent_volume_claims_{n}") for n in range(9)],
    [],
]


@pytest.mark.parametrize("names", ODD)
@pytest.mark.parametrize("name", ["git", "capability-with-a-long-name" * 9])
def test_what_came_on_or_is_coming_takes_a_turns_tokens_whatever_the_names_are(
    names: list[WireName], name: str
) -> None:
    tool = CapabilityName(name)

    said_of_it = [
        context(tool, names, NOTHING),
        context(tool, names, EXACT),
        coming(tool, WireName("mcp__capd__capability")),
    ]

    assert max(map(count, said_of_it)) <= TURN_TOKENS


def test_where_nobody_knows_its_tools_the_model_is_told_how_to_wait_for_them() -> None:
    text = coming(GIT, WireName("capd-capability"))

    assert text == (
        "capd is switching on 'git' for this message; "
        "capd-capability(action=enable, name=git) waits for it and names its tools."
    )


def test_the_output_is_what_claude_code_reads() -> None:
    got = json.loads(hook_output('say "this"'))

    assert got == {
        "hookSpecificOutput": {
            "hookEventName": "UserPromptSubmit",
            "additionalContext": 'say "this"',
        }
    }


def test_a_skill_that_fits_is_told_with_the_call_that_uses_it() -> None:
    told = skill_text(WireName("git_release_notes"), "Writes the notes.", "capability", EXACT)

    assert told == (
        "Skill git_release_notes fits: Writes the notes. "
        'NEXT capability {"action":"enable","name":"skill:git_release_notes"}'
    )


def test_the_parts_of_a_turn_stand_below_each_other() -> None:
    got = join_texts("Installed", "came on", "may be meant")

    assert got == "Installed\ncame on\nmay be meant"


NAMES = st.one_of(
    st.text(max_size=64),
    st.sampled_from(["kubernetes__list_persistent_volume_claims", "0f3b_9" * 10, "数据库__查询"]),
    st.sampled_from(["ملفات__بحث", "🙂__👩\u200d💻", "getHTTPStatusOfTheWholeWorld", "x" * 64]),
)


@settings(max_examples=examples(100), deadline=None)
@given(
    NAMES,
    st.lists(NAMES, max_size=20),
    st.lists(NAMES, max_size=4),
    st.lists(NAMES, max_size=3),
    st.sampled_from([EXACT, NOTHING]),
)
def test_suggestions_take_sixty_tokens_together_and_a_turn_what_it_may(
    name: str,
    added: list[str],
    tools: list[str],
    meant: list[str],
    costs: TokenCosts,
) -> None:
    entries = [
        IndexEntry(CapabilityId(TapName("t"), CapabilityName(each)), "use", each) for each in meant
    ]

    on = context(CapabilityName(name), [WireName(each) for each in added], costs)
    capabilities = suggestions(entries, call_of("mcp__capd__capability"), costs).text
    names = [WireName(each) for each in tools]
    cards = [CallCard(each, "a, b?", "Does it", is_whole=True) for each in names]
    words = fitting_cards(cards, CALL, costs, beside=capabilities).text

    assert count(capabilities) <= 60
    assert count(on) <= TURN_TOKENS
    assert count(join_texts(capabilities, words)) <= TURN_TOKENS


ACTIVATED = Decision("activate", "", CapabilityId(TapName("t"), CapabilityName("git")))


@pytest.mark.parametrize(
    ("decision", "problem", "shown"),
    [
        (ACTIVATED, "", "capd switches git on"),
        (ACTIVATED, "it exited", "capd: git could not be switched on (capd why)"),
        (Decision("abstain", "below_threshold"), "", ""),
        (Decision("suggest", "near_tie"), "", ""),
    ],
)
def test_the_user_is_shown_a_short_line_when_something_comes_on(
    decision: Decision, problem: str, shown: str
) -> None:
    assert notice(decision, problem) == shown


def test_what_the_user_sees_stands_beside_what_the_model_is_told() -> None:
    assert json.loads(hook_output("words", "capd switches git on")) == {
        "systemMessage": "capd switches git on",
        "hookSpecificOutput": {"hookEventName": "UserPromptSubmit", "additionalContext": "words"},
    }
    assert json.loads(hook_output("", "capd switches git on")) == {
        "systemMessage": "capd switches git on"
    }
