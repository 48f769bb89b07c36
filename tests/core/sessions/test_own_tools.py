"""The tool `capability`: its arguments, and a distinct answer for every case."""

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capd.core.sessions import own_tools
from capd.core.sessions.own_tools import Arguments, BadArgumentsError, ListedCapability
from capd.core.taps.catalog import Unknown
from capd_protos.types import CapabilityId, CapabilityName, ServerName, TapName, WireName

GIT = CapabilityName("git")
ID = CapabilityId(TapName("tap"), GIT)
TOOLS = [WireName("git__log"), WireName("git__push")]
SERVERS = [ServerName("git")]
ENTRY = ListedCapability(ID, ["a", "b", "c", "d"], [], is_active=False)
ACTIVE = ListedCapability(ID, ["a"], ["KEY"], is_active=True, score=0.756)


def enabled(
    servers: list[ServerName] = SERVERS,
    tools: list[WireName] = TOOLS,
    offered: int = 2,
    evicted: tuple[CapabilityId, ...] = (),
    installed: tuple[str, ...] = (),
) -> str:
    return own_tools.enabled(
        GIT, servers, tools, offered=offered, evicted=evicted, installed=installed
    )


def refusal(arguments: Arguments) -> str:
    with pytest.raises(BadArgumentsError) as caught:
        own_tools.checked(arguments)
    return str(caught.value)


CASES = {
    "no action": refusal(Arguments()),
    "unknown action": refusal(Arguments("toggle")),
    "enable without a name": refusal(Arguments("enable")),
    "disable without a name": refusal(Arguments("disable", " ")),
    "discover without an intent": refusal(Arguments("discover")),
    "list": own_tools.listing([ENTRY], 0, ""),
    "list, some outside the domain": own_tools.listing([ENTRY], 3, "devops"),
    "list, all outside the domain": own_tools.listing([], 3, "devops"),
    "list, nothing installed": own_tools.listing([], 0, ""),
    "already active": own_tools.already_active(GIT, TOOLS),
    "already active without tools": own_tools.already_active(GIT, []),
    "not found": own_tools.unknown("gti", Unknown("no tap has it", ("git",))),
    "not found, nothing near": own_tools.unknown("gti", Unknown("no tap has it")),
    "secrets missing": own_tools.missing_keys(GIT, ["A", "B"]),
    "outside its domain": own_tools.outside_domain(GIT, ["devops"], "lawyer"),
    "nothing to activate": own_tools.nothing_to_activate(GIT),
    "builtin": own_tools.builtin_unsupported(GIT),
    "dependency failed": own_tools.dependency_failed(GIT, "org/tool", "exit 1"),
    "server failed": own_tools.server_failed(SERVERS[0], "it ended", []),
    "server failed with words": own_tools.server_failed(SERVERS[0], "it ended", ["boom", "bye"]),
    "enabled, all tools": enabled(),
    "enabled, the filter matched none": enabled(tools=[]),
    "enabled, the server has none": enabled(tools=[], offered=0),
    "enabled, dependencies alone": enabled([], [], 0, installed=("org/tool",)),
    "enabled in another's place": enabled(evicted=(ID,)),
    "not active": own_tools.not_active("gti"),
    "disabled, stopped": own_tools.disabled(GIT, SERVERS, []),
    "disabled, still used": own_tools.disabled(GIT, [], [(SERVERS[0], "2 other sessions")]),
    "disabled, no server": own_tools.disabled(GIT, [], []),
    "hits": own_tools.discovered("the history", [ENTRY, ACTIVE]),
    "no hits": own_tools.discovered("the history", []),
    "model not ready": own_tools.MODEL_NOT_READY,
}


def test_every_case_has_words_of_its_own() -> None:
    assert len(set(CASES.values())) == len(CASES)


@pytest.mark.parametrize("text", CASES.values(), ids=CASES.keys())
def test_an_answer_is_a_sentence_with_everything_filled_in(text: str) -> None:
    assert re.match(r"[A-Z0-9`]", text)
    assert not re.search(r"[{}]|\bNone\b|\[\]|\(\)|\.\.", text)


@pytest.mark.parametrize(
    ("case", "parts"),
    [
        ("unknown action", ["'toggle'", "list, discover, enable, disable"]),
        ("list", ['- git: "a", "b", "c"\n']),
        ("list, some outside the domain", ["3 more", "'devops'"]),
        ("not found", ["'gti'", "no tap has it", "Near names: git."]),
        ("secrets missing", ["A, B"]),
        ("outside its domain", ["devops", "'lawyer'"]),
        ("dependency failed", ["org/tool", "exit 1"]),
        ("server failed with words", ["it ended", "\n  boom\n  bye"]),
        ("enabled, all tools", ["git__log, git__push"]),
        ("enabled, the filter matched none", ["none of the 2 tools"]),
        ("enabled, dependencies alone", ["Installed: org/tool."]),
        ("enabled in another's place", ["to make room: git."]),
        ("disabled, still used", ["'git' is still used by 2 other sessions."]),
        ("hits", ['- [active] git (score 0.76): "a" [needs KEY]']),
    ],
)
def test_an_answer_names(case: str, parts: list[str]) -> None:
    assert [part for part in parts if part not in CASES[case]] == []


@pytest.mark.parametrize(
    "arguments",
    [
        Arguments(" list "),
        Arguments("discover", intent=" the history\n"),
        Arguments("enable", " git "),
        Arguments("disable", "git"),
    ],
)
def test_good_arguments_come_back_trimmed(arguments: Arguments) -> None:
    got = own_tools.checked(arguments)

    assert got == Arguments(
        arguments.action.strip(), arguments.name.strip(), arguments.intent.strip()
    )


@pytest.mark.parametrize(
    ("text", "echoed"),
    [
        ("git", "'git'"),
        ("a\n b\t\tc ", "'a b c'"),
        ("x" * 200, "'" + "x" * 200 + "'"),
        ("x" * 201, "'" + "x" * 199 + "…'"),
    ],
)
def test_an_echo_is(text: str, echoed: str) -> None:
    assert own_tools.echo(text) == echoed


@given(st.text())
@settings(deadline=None)
def test_an_echo_is_one_line_of_at_most_two_hundred_characters(text: str) -> None:
    got = own_tools.echo(text)

    assert len(got) <= 202
    assert len(got.splitlines()) == 1


def test_the_definition_offers_exactly_the_actions_that_are_accepted() -> None:
    definition = json.loads(own_tools.DEFINITION)

    assert definition["name"] == own_tools.CAPABILITY
    assert definition["inputSchema"]["properties"]["action"]["enum"] == list(own_tools.ACTIONS)


def test_what_is_told_a_person_names_commands_and_no_actions_of_tools() -> None:
    model_texts = (
        own_tools.MODEL_NOT_READY,
        own_tools.unknown("nonsuch", Unknown("no tap has a capability 'nonsuch'")),
        f"Nothing fits. {own_tools.TRY_DISCOVER}",
        "No tool 'x' is on. The tool `tool_search` finds others.",
    )

    texts = [own_tools.for_person(text) for text in model_texts]

    loading = "The embedding model is still loading, so nothing can be ranked."
    refused = "Capability 'nonsuch' cannot be used: no tap has a capability 'nonsuch'."
    assert texts == [
        f"{loading} Try again in a moment; `capd caps` lists what there is.",
        f"{refused} `capd caps` lists all.",
        "Nothing fits. Try other words, or see what there is with `capd caps`.",
        "No tool 'x' is on. `capd search` finds others.",
    ]
