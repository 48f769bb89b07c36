"""What a prompt hook is answered."""

import json

import pytest

from capd.core.hook_context import context, hook_output
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


@pytest.mark.parametrize("count", [12, 13, 500])
def test_a_large_capability_is_told_in_as_few_words(count: int) -> None:
    text = context(GIT, [WireName(f"server__tool_{number}") for number in range(count)])

    assert text.count("server__tool_") == 12
    assert (f"and {count - 12} more" in text) is (count > 12)


def test_the_output_is_what_claude_code_reads() -> None:
    assert json.loads(hook_output('say "this"')) == {
        "hookSpecificOutput": {
            "hookEventName": "UserPromptSubmit",
            "additionalContext": 'say "this"',
        }
    }
