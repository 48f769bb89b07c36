"""What a prompt hook is answered."""

import json

import pytest

from capd.adapters.model.minilm import load_tokenizer, token_ids
from capd.adapters.tokens.token_counts import count
from capd.core.sessions.hook_context import (
    TURN_TOKENS,
    coming,
    context,
    hook_output,
    said,
    suggestion,
    tools_told,
)
from capd_protos.types import CapabilityName, WireName

GIT = CapabilityName("git")


def test_nothing_is_said_where_nothing_came_on() -> None:
    assert context(GIT, []) == ""
    assert hook_output("") == "{}"


def test_the_model_is_told_what_came_on_by_the_names_it_can_call() -> None:
    text = context(GIT, [WireName("git__git_log"), WireName("git__git_show")])

    assert text == (
        "capd switched on 'git' for this message; its tools are listed now: "
        "git__git_log, git__git_show."
    )


@pytest.mark.parametrize("tools", [13, 500])
def test_a_large_capability_is_told_in_as_few_words(tools: int) -> None:
    text = context(GIT, [WireName(f"s__t{number}") for number in range(tools)])

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
    caller, enabler = WireName("mcp__capd__tool_call"), WireName("mcp__capd__capability")

    said_of_it = [
        context(tool, names),
        context(tool, names, caller),
        coming(tool, names, caller, enabler),
    ]

    assert max(map(count, said_of_it)) <= TURN_TOKENS


def test_what_is_on_its_way_is_called_by_the_tool_that_waits_for_it() -> None:
    text = coming(
        GIT, [WireName("git__git_log")], WireName("capd-tool_call"), WireName("capd-capability")
    )

    assert text == (
        "capd is switching on 'git' for this message. "
        "Call its tools with capd-tool_call, name=...: git__git_log."
    )


def test_where_nobody_knows_its_tools_the_model_is_told_how_to_wait_for_them() -> None:
    text = coming(GIT, [], WireName("capd-tool_call"), WireName("capd-capability"))

    assert text == (
        "capd is switching on 'git' for this message; "
        "capd-capability(action=enable, name=git) waits for it and names its tools."
    )


def test_the_output_is_what_claude_code_reads() -> None:
    assert json.loads(hook_output('say "this"')) == {
        "hookSpecificOutput": {
            "hookEventName": "UserPromptSubmit",
            "additionalContext": 'say "this"',
        }
    }


def test_what_may_be_meant_is_named_in_one_line_each_with_the_way_to_enable_it() -> None:
    got = suggestion([CapabilityName("git"), CapabilityName("web-page")])

    assert got == (
        "Installed, off; if wanted, call capability(action=enable, name=...):\n- git\n- web-page"
    )


def test_nothing_to_suggest_is_nothing_said() -> None:
    assert suggestion([]) == ""


def test_a_suggestion_takes_at_most_sixty_tokens_whatever_the_names_are() -> None:
    tokenizer = load_tokenizer()

    got = suggestion([CapabilityName(f"capability-with-a-long-name-{n}" * 9) for n in range(3)])

    assert len(token_ids(tokenizer, got)) - 2 <= 60


CALL = WireName("capd_tool_call")
LONG = [WireName(f"kubernetes__list_persistent_volume_claims_{n}") for n in range(3)]


def test_single_tools_that_fit_are_told_with_the_way_to_call_them() -> None:
    told, words = tools_told([WireName("git__log"), WireName("git__diff")], CALL)

    assert told == ["git__log", "git__diff"]
    assert words == "Tools that fit, by capd_tool_call(name=...): git__log, git__diff"


def test_no_tool_is_no_word() -> None:
    assert tools_told([], CALL, suggestion="words") == ([], "words")


@pytest.mark.parametrize(
    "names",
    [
        LONG,
        [WireName("x" * 64)] * 3,
        [WireName("0f3b_9" * 10)] * 3,
        [WireName("getHTTPStatusOfTheWholeWorld")] * 3,
        [WireName("qzxkv_bcdfg_hjklm_npqrs")] * 3,
    ],
)
def test_suggestions_take_sixty_tokens_together_and_a_turn_twice_that(
    names: list[WireName],
) -> None:
    tokenizer = load_tokenizer()
    capabilities = suggestion(
        [CapabilityName(f"capability-with-a-long-name-{n}") for n in range(3)]
    )
    on = context(GIT, [WireName(f"server__tool_{number}") for number in range(500)])

    beside_capabilities = tools_told(names, CALL, suggestion=capabilities)[1]
    beside_what_came_on = said(on, tools_told(names, CALL, context=on)[1])

    assert len(token_ids(tokenizer, tools_told(names, CALL)[1])) - 2 <= 60
    assert len(token_ids(tokenizer, beside_capabilities)) - 2 <= 60
    assert len(token_ids(tokenizer, beside_what_came_on)) - 2 <= 120
