"""An MCP server over stdio that lists the tools that it is told to, in the standard library.

Arguments: its name, then tools separated by commas, then anything that makes it recognisable.
"""

import json
import os
import sys
from typing import Any

NAME, TOOLS = sys.argv[1], sys.argv[2].split(",")


def listed(tool: str) -> dict[str, Any]:
    words = tool.replace("_", " ")
    return {
        "name": tool,
        "description": f"{words.capitalize()}, with {NAME}: it takes a subject and a place.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "subject": {"type": "string", "description": f"What to {words}."},
                "place": {"type": "string", "description": "Where to look for it."},
            },
            "required": ["subject"],
        },
    }


def answered(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    if method == "initialize":
        return {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": NAME, "version": "1"},
        }
    if method == "tools/list":
        return {"tools": [listed(tool) for tool in TOOLS]}
    if method == "tools/call":
        said = f"{NAME} {params['name']} {os.getpid()} {json.dumps(params.get('arguments'))}"
        return {"content": [{"type": "text", "text": said}]}
    return {} if method == "ping" else None


for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request:
        continue
    result = answered(request["method"], request.get("params", {}))
    reply = {"jsonrpc": "2.0", "id": request["id"]}
    reply |= {"error": {"code": -32601, "message": "no"}} if result is None else {"result": result}
    print(json.dumps(reply), flush=True)
