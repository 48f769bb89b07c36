"""An MCP server that says what reaches it: its process, its token, and its client's roots.

    bridged_server.py JOURNAL NAME [TAG]

It writes the text of each call of `mark` to JOURNAL before it answers. A call of `hold` does that,
too, and is answered as soon as there is a file `go` beside JOURNAL. NAME tells it from others,
TAG makes it recognisable in the process list.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

JOURNAL = Path(sys.argv[1])
SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}}
TOOLS: list[dict[str, Any]] = [
    {"name": name, "inputSchema": SCHEMA} for name in ("echo", "token", "roots", "long", "hold")
]
TOOLS.append({"name": "mark", "inputSchema": SCHEMA, "annotations": {"destructiveHint": True}})


def send(message: dict[str, Any]) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def roots() -> str:
    """Ask the client for its roots, and return its answer as text."""
    send({"id": "roots", "method": "roots/list"})
    while True:
        message = json.loads(sys.stdin.readline())
        if message.get("id") == "roots":
            return json.dumps(message.get("result", "none offered"))


def said(name: str, text: str) -> str:
    match name:
        case "token":
            return os.environ.get("API_TOKEN", "none")
        case "roots":
            return roots()
        case "long":
            return text * 20_000
        case "mark" | "hold":
            with JOURNAL.open("a") as journal:
                journal.write(f"{text}\n")
            while name == "hold" and not JOURNAL.with_name("go").exists():
                time.sleep(0.02)
            return text
        case _:
            return f"{os.getpid()} {text}"


for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request:
        continue
    method, params = request["method"], request.get("params", {})
    if method == "initialize":
        capabilities: dict[str, Any] = {"tools": {}, "resources": {}}
        info = {"name": "bridged", "version": "1"}
        version = params["protocolVersion"]
        result = {"protocolVersion": version, "capabilities": capabilities, "serverInfo": info}
    elif method == "tools/list":
        result = {"tools": TOOLS}
    elif method == "tools/call":
        text = said(params["name"], str(params.get("arguments", {}).get("text", "")))
        result = {"content": [{"type": "text", "text": text}]}
    elif method == "resources/list":
        result = {"resources": [{"uri": "note://own", "name": "own"}]}
    elif method == "resources/read":
        result = {"contents": [{"uri": params["uri"], "text": f"read {params['uri']}"}]}
    elif method == "resources/templates/list":
        result = {"resourceTemplates": []}
    else:
        result = {}
    send({"id": request["id"], "result": result})
