"""The scripted model, with what the clients of the lab need besides.

    python searching_llm.py FAKE_LLM PORT FOLDER [SCRIPT]

FAKE_LLM picks a step's tool among those of the request. Codex adds what its `tool_search` has found
to the conversation instead, and a model may call that as well.

A script of one step `{"follow": {...}}` is a model that takes what it is offered: `followed` says
how it decides.

A step `{"either": [step, ...]}` is the first of these that the request has a tool for: that of
`with`, or of `tool`. So a script can be of a conversation and of its sub-agents, which have other
tools.

A step `{"once": FILE, "then": step}` is answered as soon as FILE is there: a test does something
meanwhile, and the client has not ended.
"""

import ast
import json
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

Json = dict[str, Any]

MOST_REQUESTS = 8
"""Answers after which a model that follows gives up."""

_LOOK_AGAIN = 0.05

_HEAD = re.compile(r"\b[Bb]y ([\w:.-]+)(?:\(name, arguments\))?:$", re.MULTILINE)
"""What stands above call cards: the tool that calls them."""
_FOUND = re.compile(
    r"(?:call them with|to be called with|call one with) (?P<caller>\w+)"
    r"(?:[^\n]*These with (?P<apart>\w+): (?P<these>[^\n]*))?"
)
"""What an answer of a search begins with."""
_OWN_CALL = re.compile(r"capd.*tool_call(_readonly)?$")
_OWN_SEARCH = re.compile(r"capd.*tool_search$")


def followed(step: Json, body: Json, tools: Sequence[tuple[str, Any]]) -> Json:
    """Return the steps of a model that wants one tool; `tools` are those it can call.

    `step` names the tool (`name`), its `arguments`, the user's `message`, and what results have
    that are the answer (`until`), and how often (`times`). In this order:

    1. the answer is there: it says so;
    2. the tool is listed: it calls it;
    3. a call card of the tool is there: it calls the tool that stands above the card;
    4. a search has named the tool: it calls it as the answer says;
    5. else it searches, once, for the user's message: by the client's own search first, where that
       has kept capd's tools back.
    """
    said = "\n".join(_texts({key: value for key, value in body.items() if key != "tools"}))
    # Some clients put a repository's last commits into the prompt.
    answered = "\n".join(text for each in results(body) for text in _texts(each))
    if all(answered.count(each) >= step["times"] for each in step["until"]):
        return {"text": "three commits"}
    wanted, arguments = step["name"], step["arguments"]
    names = [name for name, each in tools if name and not _is_deferred(each)]
    listed = [name for name in names if re.search(rf"(^|[_:-]){wanted}$", name)]
    if listed:
        return {"tool": _exactly(listed[0]), "args": arguments}
    by_name = {"name": wanted, "arguments": arguments}
    card = re.search(rf"^- {wanted}\(", said, re.MULTILINE)
    heads = _HEAD.findall(said[: card.start()]) if card else []
    if heads:
        return _through(heads[-1], by_name, names)
    searches = [name for name in names if _OWN_SEARCH.search(name)]
    if wanted in answered:
        # Called by name, and not listed yet: the tool for what is not listed calls it.
        found = _FOUND.search(answered)
        apart = found and found["apart"] and wanted in found["these"]
        caller = (found["apart"] if apart else found["caller"]) if found else "tool_call"
        if f"mcp__capd__{wanted}" in answered and "tool_call" in names:
            # Qwen Code's own tool for what it has not listed.
            call = {"name": f"mcp__capd__{wanted}", "arguments": arguments}
            return {"tool": "^tool_call$", "args": call}
        return _through(caller, by_name, names)
    if not searches and "tool_search" in names:
        query = {"query": step["message"]}
        times = _asked(body).count(step["message"])
        if times == 0:
            return {"tool": "^tool_search$", "args": query}
        if times == 1 and "tool_call" in names:
            call = {"name": "mcp__capd__tool_search", "arguments": query}
            return {"tool": "^tool_call$", "args": call}
    if searches and step["message"] not in _asked(body):
        return {"tool": _exactly(searches[0]), "args": {"query": step["message"]}}
    return {"text": "I have no tool for this"}


def results(body: object) -> Iterator[object]:
    """Yield the tool results of a request, whichever API it is of."""
    if isinstance(body, list):
        for each in body:
            yield from results(each)
    elif isinstance(body, dict):
        kind = str(body.get("type", ""))
        if kind == "tool_result" or kind.endswith("_output") or body.get("role") == "tool":
            yield body
        elif "functionResponse" in body:
            yield body["functionResponse"]
        else:
            for each in body.values():
                yield from results(each)


def _through(caller: str, by_name: Json, names: Sequence[str]) -> Json:
    """Return the call through one of capd's own tools: `caller`, or the first that is there."""
    # A card has a name as the client says it, an answer of a search as capd does.
    same = re.compile(rf"(^|__|[_-]){re.escape(caller)}$")
    plain = [(name, name.replace("::", "__")) for name in names if _OWN_CALL.search(name)]
    ours = [name for name, each in plain if caller and same.search(each)]
    if ours:
        return {"tool": _exactly(ours[0]), "args": by_name}
    if "tool_call" in names:
        # Qwen Code's own tool for what it has not listed.
        return {
            "tool": "^tool_call$",
            "args": {"name": "mcp__capd__tool_call", "arguments": by_name},
        }
    if "tool_search" in names:
        # Codex keeps tools of MCP back until its own search has found them.
        query = f"{caller} call any installed tool by its name"
        return {"tool": "^tool_search$", "args": {"query": query}}
    return {"text": "I have no tool for this"}


def _exactly(name: str) -> str:
    return f"^{re.escape(name)}$"


def _is_deferred(tool: object) -> bool:
    return isinstance(tool, dict) and bool(tool.get("defer_loading"))


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each)


def _asked(body: Json) -> str:
    """Return the searches of the conversation so far."""
    return "\n".join(re.findall(r'\\*"query\\*": ?\\*"([^"\\]*)', json.dumps(body)))


class _Script(list[Json]):
    """The steps, of which one that follows is decided for the request at hand."""

    def __init__(self, steps: Sequence[Json]) -> None:
        is_following = any("follow" in each for each in steps)
        super().__init__([*steps, *([steps[-1]] * MOST_REQUESTS if is_following else [])])
        self.request = threading.local()

    def __getitem__(self, at: Any) -> Any:
        step = super().__getitem__(at)
        if "once" in step:
            while not Path(step["once"]).exists():
                time.sleep(_LOOK_AGAIN)
            step = step["then"]
        if "either" in step:
            return self._fitting(step["either"])
        if "follow" not in step:
            return step
        return followed(step["follow"], self.request.body, self.request.tools)

    def _fitting(self, steps: Sequence[Json]) -> Json:
        names = [name for name, _ in self.request.tools if name]
        for each in steps:
            wanted = each.get("with") or each.get("tool", "")
            if any(re.search(wanted, name) for name in names):
                return each
        return {"text": "I have no tool for this"}


def found_tools(body: Json) -> list[Json]:
    """Return the tools, or namespaces of tools, that a search of the conversation has found.

    They may be called from then on, though their definitions say that they were kept back.
    """
    items = body.get("input")
    outputs = [each for each in items or [] if each.get("type") == "tool_search_output"]
    return [_loaded(tool) for each in outputs for tool in each.get("tools") or []]


def _loaded(tool: Json) -> Json:
    inside = {"tools": [_loaded(each) for each in tool["tools"]]} if "tools" in tool else {}
    return {name: value for name, value in tool.items() if name != "defer_loading"} | inside


class _OfNamespace(str):
    """The name of a server's tool, which is not Codex's own tool of that name."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        return False


def _in_namespace(respond: Callable[..., Any]) -> Callable[..., Any]:
    """Return the writer of an answer, which takes any `tool_search` for Codex's own."""

    def responded(self: Any, body: Json, tool: str | None, ns: str | None, *rest: Any) -> Any:
        return respond(self, body, _OfNamespace(tool) if tool and ns else tool, ns, *rest)

    return responded


def main() -> None:
    program = Path(sys.argv.pop(1))
    tree = ast.parse(program.read_text(encoding="utf-8"))
    # The last statement serves for ever; what a request is asked for has to be another by then.
    *definitions, serving = tree.body
    room: Json = {"__name__": "__main__"}
    exec(compile(ast.Module(definitions, []), str(program), "exec"), room)
    plain = room["summarize"]
    script = room["SCRIPT"] = _Script(room["SCRIPT"])

    def summarized(kind: str, path: str, headers: Any, body: Json) -> Any:
        listed = [*(body.get("tools") or []), *found_tools(body)]
        tools = plain(kind, path, headers, {**body, "tools": listed})
        script.request.body, script.request.tools = body, tools
        return tools

    room["summarize"] = summarized
    room["H"].r_responses = _in_namespace(room["H"].r_responses)
    exec(compile(ast.Module([serving], []), str(program), "exec"), room)


if __name__ == "__main__":
    main()
