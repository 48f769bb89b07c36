"""A server that says what its callers tell it to say, byte for byte, and lists what its argv says.

`python talking_server.py TAG JOURNAL OPTIONS`, the options as a JSON object:

    prompts, prompt_bytes     how many prompts it lists, and how long each one's description is
    pages                     on how many pages; each has all of them, under other names
    resources, templates      the URIs that it lists, and its templates
    hidden                    how many resources it lists beside them that are hard to clean
    silent                    methods that it never answers

Tools: `echo` (x), `reply` (the rest of its own reply's line), `say` (lines, times: `%d` in a line
is the number of the line) and `ask` (as `say`; answers when the first line has an answer). Every
call of a tool is a line in the journal, before anything is said.
"""

import json
import sys
from pathlib import Path
from typing import Any

Json = dict[str, Any]

TAG, JOURNAL, OPTIONS = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
TOOLS = ("echo", "reply", "say", "ask")
ANY = {"type": "object"}
out = sys.stdout.buffer


def note(what: str) -> None:
    with Path(JOURNAL).open("a") as journal:
        journal.write(what + "\n")


def write(line: str) -> None:
    out.write(line.encode("utf-8", "surrogatepass") + b"\n")


def answer(message_id: Any, result: Json) -> None:
    write(json.dumps({"jsonrpc": "2.0", "id": message_id, "result": result}))


def said(text: str) -> Json:
    return {"content": [{"type": "text", "text": text}]}


def page(kind: str, cursor: str | None) -> Json:
    number = int(cursor or 0)
    text = "x" * OPTIONS.get("prompt_bytes", 10)
    if kind == "prompts":
        names = (f"p{number}-{each}" for each in range(OPTIONS.get("prompts", 0)))
        entries = [{"name": name, "description": text} for name in names]
    elif kind == "resources":
        hidden = [f"x://{each}" + "\u200b" * 80_000 for each in range(OPTIONS.get("hidden", 0))]
        uris = [*OPTIONS.get("resources", ()), *hidden]
        entries = [{"uri": uri, "name": uri} for uri in uris]
    else:
        uris = OPTIONS.get("templates", ())
        entries = [{"uriTemplate": uri, "name": uri} for uri in uris]
    member = {"prompts": "prompts", "resources": "resources"}.get(kind, "resourceTemplates")
    more = number + 1 < OPTIONS.get("pages", 1)
    return {member: entries, **({"nextCursor": str(number + 1)} if more else {})}


def say(lines: list[str], times: int) -> None:
    for number in range(times):
        for line in lines:
            write(line.replace("%d", str(number)))
    out.flush()


def called(message_id: Any, name: str, arguments: Json) -> None:
    note(name)
    if name == "echo":
        answer(message_id, said(f"{TAG}: {arguments.get('x')}"))
    elif name == "reply":
        write('{"jsonrpc":"2.0","id":' + json.dumps(message_id) + "," + arguments["rest"] + "}")
    elif name == "say":
        say(arguments["lines"], arguments.get("times", 1))
        answer(message_id, said("said"))
    else:
        waiting.append(message_id)
        say(arguments["lines"], arguments.get("times", 1))


waiting: list[Any] = []
for line in sys.stdin.buffer:
    message = json.loads(line)
    method, message_id = message.get("method", ""), message.get("id")
    params = message.get("params") or {}
    if method in OPTIONS.get("silent", ()):
        continue
    if method == "initialize":
        offers = {"tools": {"listChanged": True}, "logging": {}}
        offers.update({each: {} for each in ("prompts", "resources") if each in OPTIONS})
        answer(
            message_id,
            {
                "protocolVersion": "2025-11-25",
                "capabilities": offers,
                "serverInfo": {"name": "a bank", "version": "1"},
            },
        )
    elif method == "tools/list":
        answer(message_id, {"tools": [{"name": each, "inputSchema": ANY} for each in TOOLS]})
    elif method in ("prompts/list", "resources/list", "resources/templates/list"):
        answer(message_id, page(method.removesuffix("/list"), params.get("cursor")))
    elif method == "resources/read":
        note(f"read {params['uri']}")
        answer(message_id, {"contents": [{"uri": params["uri"], "text": TAG}]})
    elif method == "tools/call":
        called(message_id, params["name"], params.get("arguments") or {})
    elif not method and waiting:
        answer(waiting.pop(0), said(json.dumps(message)))
    elif message_id is not None and method:
        answer(message_id, {})
    out.flush()
