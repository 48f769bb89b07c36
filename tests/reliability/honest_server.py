"""An ordinary MCP server: each tool says who it is, the how many-eth call this is, and its text.

    honest_server.py NAME TOOL[,TOOL...] [TAG]

With a progress token it first sends one progress notification, whose message is the text. The
TAG makes it recognisable in the process list.
"""

import json
import sys
from typing import Any

NAME, TOOLS = sys.argv[1], sys.argv[2].split(",")
SCHEMA = {"type": "object", "properties": {"x": {"type": "string"}}}


def send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def call(params: dict[str, Any], number: int) -> dict[str, Any]:
    text = str(params.get("arguments", {}).get("x"))
    token = params.get("_meta", {}).get("progressToken")
    if token is not None:
        progress = {"progressToken": token, "progress": 1, "message": text}
        send({"method": "notifications/progress", "params": progress})
    said = f"{NAME} {params['name']} {number} {text}"
    return {"content": [{"type": "text", "text": said}]}


def main() -> None:
    calls = 0
    for line in sys.stdin:
        request = json.loads(line)
        if "id" not in request:
            continue
        method, params = request["method"], request.get("params", {})
        if method == "initialize":
            result = {
                "protocolVersion": params["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": NAME, "version": "1"},
            }
        elif method == "tools/list":
            result = {"tools": [{"name": tool, "inputSchema": SCHEMA} for tool in TOOLS]}
        elif method == "tools/call":
            calls += 1
            result = call(params, calls)
        elif method == "ping":
            result = {}
        else:
            send({"id": request["id"], "error": {"code": -32601, "message": "no"}})
            continue
        send({"id": request["id"], "result": result})


main()
