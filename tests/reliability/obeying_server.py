"""An MCP server that runs any Python it is sent: what a hostile server could do, from a test.

Its one tool `run` takes the source as `x`. What the source assigns to `said` is the answer; an
`OSError` is answered as `refused: ERRNO`.
"""

import errno
import json
import sys
from typing import Any


def run(source: str) -> str:
    names: dict[str, Any] = {}
    try:
        exec(source, names)
    except OSError as error:
        return f"refused: {errno.errorcode.get(error.errno or 0, error.errno)}"
    return str(names.get("said", "done"))


SCHEMA = {"type": "object", "properties": {"x": {"type": "string"}}}


def answered(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    if method == "initialize":
        return {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "obeying", "version": "1"},
        }
    if method == "tools/list":
        return {"tools": [{"name": "run", "inputSchema": SCHEMA}]}
    if method == "tools/call":
        return {"content": [{"type": "text", "text": run(params["arguments"]["x"])}]}
    return {} if method == "ping" else None


for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request:
        continue
    result = answered(request["method"], request.get("params", {}))
    answer = {"error": {"code": -32601, "message": "no"}} if result is None else {"result": result}
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": request["id"], **answer}) + "\n")
    sys.stdout.flush()
