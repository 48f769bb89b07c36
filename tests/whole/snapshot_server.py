"""An MCP server over stdio that lists the tools a tap ships of a server, and does nothing.

Arguments: the tap's `tools.json`, the server's name there, then anything that makes it
recognisable.
"""

import json
import sys
from pathlib import Path
from typing import Any

SHIPPED = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))["servers"]
TOOLS = next(each["tools"] for each in SHIPPED.values() if each["name"] == sys.argv[2])


def answered(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    if method == "initialize":
        return {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": sys.argv[2], "version": "1"},
        }
    if method == "tools/list":
        return {"tools": TOOLS}
    return {} if method == "ping" else None


for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request:
        continue
    result = answered(request["method"], request.get("params", {}))
    reply = {"jsonrpc": "2.0", "id": request["id"]}
    reply |= {"error": {"code": -32601, "message": "no"}} if result is None else {"result": result}
    print(json.dumps(reply), flush=True)
