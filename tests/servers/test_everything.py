"""server-everything: each tool, prompt and resource that it offers, through capd and directly.

What is excluded, and why, is in `NOT_COMPARED` and in the masks.
"""

import dataclasses

import pytest

from .conftest import Both
from .conversation import (
    Ask,
    Call,
    Hear,
    Mask,
    Prompt,
    Read,
    Server,
    Side,
    Step,
    Transcript,
    listed,
    on_the_wire,
    stepped,
)
from .table import npx

pytestmark = pytest.mark.servers

PROGRESS = "notifications/progress"
UPDATED = "notifications/resources/updated"
DOCUMENT = "demo://resource/static/document/architecture.md"
DYNAMIC = "demo://resource/dynamic/text/1"

EVERYTHING = Server(
    "everything",
    "@modelcontextprotocol/server-everything 2026.8.31",
    npx("@modelcontextprotocol/server-everything@2026.8.31"),
    tools=17,
    steps=(),
    masks=(
        Mask(r"\d+:\d\d:\d\d [AP]M", "the time at which a dynamic resource was read"),
        Mask(r'"blob":"[^"]*"', "the time at which a dynamic resource was read, in base64"),
        Mask(r'"elicitationId":"[0-9a-f-]{36}"', "a random id in each refusal"),
    ),
)

NOT_COMPARED = {
    "get-env": "the whole answer: it is the server's environment, of which capd passes only known"
    " variables",
}

OF_THEMSELVES: tuple[Step, ...] = (
    Call("echo", {"message": "boats — 🛶 — žluťoučký"}),
    Call("echo", {}),
    Call("echo"),
    Call("get-annotated-message", {"messageType": "error", "includeImage": True}),
    Call("get-annotated-message", {"messageType": "success"}),
    Call("get-annotated-message", {"messageType": "gone"}),
    Call("get-resource-links", {"count": 4}),
    Call("get-resource-reference", {"resourceType": "Text", "resourceId": 3}),
    Call("get-resource-reference", {"resourceType": "Blob", "resourceId": 4}),
    Call("get-resource-reference", {"resourceType": "Blob", "resourceId": -1}),
    Call("get-structured-content", {"location": "Chicago"}),
    Call("get-structured-content", {"location": "Nowhere"}),
    Call("get-sum", {"a": 0.1, "b": 0.2}),
    Call("get-sum", {"a": "one", "b": 2}),
    Call("get-tiny-image", {}),
    Call(
        "gzip-file-as-resource", {"name": "a.gz", "data": "data:,boats", "outputType": "resource"}
    ),
    Call("gzip-file-as-resource", {"name": "b.gz", "data": "data:,boats"}),
    Call("gzip-file-as-resource", {"name": "c.gz", "data": "ftp://nowhere/file"}),
    Call("toggle-simulated-logging", {}),
    Call("toggle-simulated-logging", {}),
    Call("toggle-subscriber-updates", {}),
    Call("toggle-subscriber-updates", {}),
    Call("trigger-long-running-operation", {"duration": 0.2, "steps": 2}),
    Call("simulate-research-query", {"topic": "boats"}),
)

THAT_ASK_THE_CLIENT: tuple[Step, ...] = (
    Call("get-roots-list", {}),
    Call("trigger-sampling-request", {"prompt": "count the boats", "maxTokens": 20}),
    Call("trigger-elicitation-request", {}),
    Call("trigger-url-elicitation", {"url": "https://example.org/", "elicitationId": "one"}),
    Call("trigger-url-elicitation", {"url": "https://example.org/", "errorPath": True}),
)

PROGRESSING: tuple[Step, ...] = (
    Ask(
        "tools/call",
        {
            "name": "{{NAME trigger-long-running-operation}}",
            "arguments": {"duration": 0.4, "steps": 4},
            "_meta": {"progressToken": "p", "vendor/key": [1.0, None]},
        },
    ),
    Hear(PROGRESS, 4),
)

PROMPTS: tuple[Step, ...] = (
    Prompt("simple-prompt"),
    Prompt("args-prompt", {"city": "Gdańsk"}),
    Prompt("args-prompt", {"city": "Gdańsk", "state": "Pomerania"}),
    Prompt("args-prompt"),
    Prompt("completable-prompt", {"department": "Sales", "name": "David"}),
    Prompt("resource-prompt", {"resourceType": "Text", "resourceId": "1"}),
    Prompt("resource-prompt", {"resourceType": "Gone", "resourceId": "1"}),
)

COMPLETIONS: tuple[Step, ...] = (
    Ask(
        "completion/complete",
        {
            "ref": {"type": "ref/prompt", "name": "{{NAME completable-prompt}}"},
            "argument": {"name": "department", "value": "S"},
        },
    ),
    Ask(
        "completion/complete",
        {
            "ref": {"type": "ref/prompt", "name": "{{NAME completable-prompt}}"},
            "argument": {"name": "name", "value": "D"},
            "context": {"arguments": {"department": "Sales"}},
        },
    ),
    Ask(
        "completion/complete",
        {
            "ref": {"type": "ref/resource", "uri": "demo://resource/dynamic/text/{resourceId}"},
            "argument": {"name": "resourceId", "value": "7"},
        },
    ),
)

TEMPLATES: tuple[Step, ...] = (
    Read(DYNAMIC),
    Read("demo://resource/dynamic/blob/2"),
    Read("demo://resource/dynamic/text/none"),
    Read("demo://resource/gone"),
)

SUBSCRIBING: tuple[Step, ...] = (
    Ask("resources/subscribe", {"uri": DOCUMENT}),
    Ask("resources/subscribe", {"uri": DYNAMIC}),
    Call("toggle-subscriber-updates", {}),
    Hear(UPDATED, 2),
    Ask("resources/unsubscribe", {"uri": DYNAMIC}),
)

LOGGING: tuple[Step, ...] = (Ask("logging/setLevel", {"level": "debug"}),)


def told(both: Both, *steps: Step) -> tuple[Transcript, Transcript]:
    """Return the answers through capd and directly."""
    server = dataclasses.replace(EVERYTHING, steps=steps)
    with both.directly(server) as side:
        direct = stepped(server, side)
    with both.through_capd(server) as side:
        through = stepped(server, side)
    return through, direct


def names(found: Transcript, kind: str) -> list[str]:
    return [asked.removeprefix(f"{kind} ") for asked, _ in found if asked.startswith(f"{kind} ")]


def static_resources(side: Side) -> list[Step]:
    resources = side.client.ask("resources/list").read()["resources"]
    return [Read(resource["uri"]) for resource in resources]


def test_every_tool_and_prompt_that_it_lists_is_in_the_table(both: Both) -> None:
    with both.directly(EVERYTHING) as side:
        found = listed(EVERYTHING, side)

    calls = (*OF_THEMSELVES, *THAT_ASK_THE_CLIENT)
    called = {step.tool for step in calls if isinstance(step, Call)}
    asked = {step.name for step in PROMPTS if isinstance(step, Prompt)}
    assert set(names(found, "tools")) == set(map(on_the_wire, called | set(NOT_COMPARED)))
    assert set(names(found, "prompts")) == set(map(on_the_wire, asked))
    assert len(names(found, "resources")) == 7
    assert len(names(found, "resources/templates")) == 2


def test_it_lists_the_same(both: Both) -> None:
    with both.directly(EVERYTHING) as side:
        direct = listed(EVERYTHING, side)

    with both.through_capd(EVERYTHING) as side:
        through = listed(EVERYTHING, side)

    assert through == direct


def test_tools_that_ask_nothing_of_the_client_answer_the_same(both: Both) -> None:
    through, direct = told(both, *OF_THEMSELVES)

    assert through == direct


def test_tools_that_ask_the_client_answer_the_same(both: Both) -> None:
    through, direct = told(both, *THAT_ASK_THE_CLIENT)

    assert through == direct


def test_progress_is_told_the_same(both: Both) -> None:
    through, direct = told(both, *PROGRESSING)

    assert through == direct


def test_prompts_are_the_same(both: Both) -> None:
    through, direct = told(both, *PROMPTS)

    assert through == direct


def test_completions_are_the_same(both: Both) -> None:
    through, direct = told(both, *COMPLETIONS)

    assert through == direct


def test_every_listed_resource_reads_the_same(both: Both) -> None:
    with both.directly(EVERYTHING) as side:
        reads = static_resources(side)

    through, direct = told(both, *reads)

    assert through == direct


def test_resources_of_templates_read_the_same(both: Both) -> None:
    through, direct = told(both, *TEMPLATES)

    assert through == direct


def test_subscriptions_hear_the_same(both: Both) -> None:
    through, direct = told(both, *SUBSCRIBING)

    assert through == direct


def test_the_level_of_logging_is_taken_the_same(both: Both) -> None:
    through, direct = told(both, *LOGGING)

    assert through == direct
