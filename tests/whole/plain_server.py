"""An ordinary MCP server over stdio, in the standard library: it echoes and says who it is.

Arguments: any; they make it recognisable in the process list.
"""

import json
import os
import sys
from typing import Any

TOOLS = [
    {
        "name": name,
        "description": f"Say {name} and the process's id.",
        "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}},
    }
    for name in ("echo", "shout")
]


def answered(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    if method == "initialize":
        return {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "plain", "version": "1"},
        }
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "tools/call":
        said = f"{os.getpid()} {params['arguments'].get('text', '')}"
        text = said.upper() if params["name"] == "shout" else said
        return {"content": [{"type": "text", "text": text}]}
    return {} if method == "ping" else None


for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request:
        continue
    result = answered(request["method"], request.get("params", {}))
    reply = {"jsonrpc": "2.0", "id": request["id"]}
    reply |= {"error": {"code": -32601, "message": "no"}} if result is None else {"result": result}
    print(json.dumps(reply), flush=True)
