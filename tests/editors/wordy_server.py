"""An MCP server over stdio whose three tools say as much of themselves as large servers' do.

Arguments: its name, then anything that makes it recognisable.
"""

import json
import sys
from typing import Any

VERBS = ("inspect", "arrange", "report")
WORDS = (
    "It takes what it is given as it is, looks at each part in turn, and answers with one line for "
    "every part, in the order in which they were found; what cannot be read is said to be so. "
)


def listed(name: str, verb: str) -> dict[str, Any]:
    fields = {
        f"{verb}_{field}": {"type": "string", "description": f"The {field} of the {name}. {WORDS}"}
        for field in ("subject", "place", "period", "format", "owner", "limit", "filter")
    }
    return {
        "name": f"{verb}_{name}",
        "description": f"{verb.capitalize()} the {name}. {WORDS * 5}",
        "inputSchema": {"type": "object", "properties": fields},
    }


def answered(name: str, method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    if method == "initialize":
        return {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": name, "version": "1"},
        }
    if method == "tools/list":
        return {"tools": [listed(name, verb) for verb in VERBS]}
    if method == "tools/call":
        return {"content": [{"type": "text", "text": "done"}]}
    return {} if method == "ping" else None


if __name__ == "__main__":
    for line in sys.stdin:
        request = json.loads(line)
        if "id" not in request:
            continue
        result = answered(sys.argv[1], request["method"], request.get("params", {}))
        reply: dict[str, Any] = {"jsonrpc": "2.0", "id": request["id"]}
        if result is None:
            reply["error"] = {"code": -32601, "message": "no"}
        else:
            reply["result"] = result
        print(json.dumps(reply), flush=True)
