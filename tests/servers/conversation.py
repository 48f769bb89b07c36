"""One conversation with a server, the same directly and through capd, and what was said in it.

A transcript is a list of (what was asked, what was answered), the answers as the bytes of their
`result` or `error` member. What the protocol makes capd change is undone here, and nothing else:
the prefix of names, and their case and dashes. What differs from run to run is taken out by the
masks of the table, each with its reason.
"""

import contextlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from whole_daemon import wait_for

from .line_client import Answer, LineClient

OWN_TOOLS = {"capability", "tool_search", "tool_call", "result_read"}
TOOLS_CHANGED = "notifications/tools/list_changed"
SETTLING = 10.0
LISTEN_SECONDS = 10.0
LISTS = {"prompts": "prompts", "resources": "resources", "resources/templates": "resourceTemplates"}
_NO_METHOD = -32601
_NAMED = re.compile(r"\{\{NAME ([^{}]+)\}\}")

Transcript = list[tuple[str, str]]
Rename = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Mask:
    """A part of a server's output that differs from run to run, and why it does."""

    pattern: str
    reason: str


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call; without `arguments` the member is left out."""

    tool: str
    arguments: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Relist:
    """The server announces a changed tool list, and lists this many tools."""

    tools: int


@dataclass(frozen=True, slots=True)
class Prompt:
    """A `prompts/get`."""

    name: str
    arguments: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Read:
    """A `resources/read`."""

    uri: str


@dataclass(frozen=True, slots=True)
class Ask:
    """Any other request; `{{NAME x}}` is the wire name of the tool or prompt x."""

    method: str
    params: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Hear:
    """Wait for so many notifications of one method, in order."""

    method: str
    count: int


Step = Call | Relist | Prompt | Read | Ask | Hear


@dataclass(frozen=True, slots=True)
class Server:
    """One row of the table."""

    name: str
    package: str
    command: tuple[str, ...]
    tools: int
    steps: tuple[Step, ...]
    speaks: str = "2025-11-25"
    """The version it answers to a client that asks for 2025-11-25."""
    is_modern: bool = False
    """Whether it answers `server/discover` with 2026-07-28."""
    env: dict[str, str] = field(default_factory=dict)
    masks: tuple[Mask, ...] = ()
    awaits: str = ""
    """What capd does differently; the row must fail until it does not."""

    @property
    def registry(self) -> str:
        return "npm" if "npx" in self.command else "PyPI"


@dataclass(frozen=True, slots=True)
class Side:
    """A way to a server: directly, or through capd."""

    client: LineClient
    prefix: str
    """What capd puts before a name; nothing on the direct way."""
    places: dict[str, str]
    """What stands for `{{PROJECT}}` and the like in arguments."""

    def wire_name(self, name: str) -> str:
        """Return the name under which a tool or prompt is asked for."""
        return on_the_wire(self.prefix + name) if self.prefix else name

    def fill(self, value: Any) -> Any:
        text = msgspec.json.encode(value).decode()
        named = _NAMED.sub(lambda match: self.wire_name(match[1]), text)
        return msgspec.json.decode(filled(named, self.places))


def on_the_wire(name: str) -> str:
    """Return a name as capd gives it to its clients, but for the server's before it."""
    return name.lower().replace("-", "_")


def filled(text: str, places: dict[str, str]) -> str:
    """Return `text` with its placeholders filled."""
    for name, place in places.items():
        text = text.replace("{{" + name + "}}", place)
    return text


def transcript(server: Server, side: Side) -> Transcript:
    """List what the server offers, run the row's steps, and return all answers."""
    return [*listed(server, side), *stepped(server, side)]


def listed(server: Server, side: Side) -> Transcript:
    """Return the tools, the prompts, the resources and their templates."""
    told = _tools(side, server.tools)
    side.client.forget(TOOLS_CHANGED)
    for kind in LISTS:
        told += _listed(side, kind)
    return told


def stepped(server: Server, side: Side) -> Transcript:
    """Go through the row's steps."""
    told: Transcript = []
    for step in server.steps:
        told += _stepped(side, step)
    return [(asked, _masked(answered, server.masks)) for asked, answered in told]


def _stepped(side: Side, step: Step) -> Transcript:
    match step:
        case Call(tool, arguments):
            params: dict[str, Any] = {"name": side.wire_name(tool)}
            if arguments is not None:
                params["arguments"] = side.fill(arguments)
            return [(f"call {tool} {arguments}", said(side.client.ask("tools/call", params)))]
        case Relist(tools):
            side.client.hear(TOOLS_CHANGED)
            side.client.forget(TOOLS_CHANGED)
            return _tools(side, tools)
        case Prompt(name, arguments):
            params = {"name": side.wire_name(name), "arguments": side.fill(arguments)}
            return [(f"prompt {name} {arguments}", said(side.client.ask("prompts/get", params)))]
        case Read(uri):
            answer = side.client.ask("resources/read", {"uri": side.fill(uri)})
            return [(f"read {uri}", said(answer))]
        case Ask(method, params):
            return [(f"{method} {params}", said(side.client.ask(method, side.fill(params))))]
        case Hear(method, count):
            heard = side.client.hear(method, count, LISTEN_SECONDS)
            return [(method, params.decode()) for params in heard]


def said(answer: Answer) -> str:
    """Return an answer as text, with every byte."""
    return f"{answer.member} {answer.json.decode()}"


def _masked(text: str, masks: tuple[Mask, ...]) -> str:
    for mask in masks:
        text = re.sub(mask.pattern, "<varies>", text)
    return text


def _tools(side: Side, count: int) -> Transcript:
    """Return the tools once there are `count`, else those that there are at last.

    Some servers list more once they have asked the client for its roots.
    """
    listed: list[tuple[str, str]] = []

    def is_complete() -> bool:
        listed[:] = _listed(side, "tools")
        return len(listed) == count

    # Where some never come, the comparison says which.
    with contextlib.suppress(AssertionError):
        wait_for(is_complete, SETTLING)
    return listed


def _listed(side: Side, kind: str) -> Transcript:
    """Return a list in its order, each member as the server wrote it."""
    member = LISTS.get(kind, kind)
    found: Transcript = []
    for entry in _pages(side.client, f"{kind}/list", member):
        members = msgspec.json.decode(entry, type=dict[str, msgspec.Raw])
        name = str(msgspec.json.decode(members.pop("name")))
        if name in OWN_TOOLS and side.prefix:
            continue
        # Of resources capd changes nothing, so that their URIs stay valid.
        is_named = kind in {"tools", "prompts"}
        plain = on_the_wire(name).removeprefix(on_the_wire(side.prefix)) if is_named else name
        rest = {key: bytes(value).decode() for key, value in members.items()}
        found.append((f"{kind} {plain}", str(rest)))
    return found


def _pages(client: LineClient, method: str, member: str) -> Iterator[bytes]:
    cursor: dict[str, str] = {}
    while True:
        answer = client.ask(method, cursor)
        if answer.member == "error" and answer.read()["code"] == _NO_METHOD:
            # A server without the feature refuses; capd, which has it, lists nothing.
            return
        assert answer.member == "result", answer
        page = msgspec.json.decode(answer.json, type=dict[str, msgspec.Raw])
        yield from map(bytes, msgspec.json.decode(page[member], type=list[msgspec.Raw]))
        if "nextCursor" not in page:
            return
        cursor = {"cursor": msgspec.json.decode(page["nextCursor"], type=str)}
