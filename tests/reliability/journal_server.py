"""An MCP server that writes down each call before it answers it.

    journal_server.py JOURNAL TAG NAME

TAG makes it recognisable in the process list, NAME tells it from others. Its one tool, `mark`,
appends the call's nonce to JOURNAL, waits as many milliseconds as it is told, and answers with the
nonce. What stands in the journal has happened, whatever the caller hears.
"""

import json
import os
import sys
import time
from typing import Any

SCHEMA = {
    "type": "object",
    "properties": {"nonce": {"type": "string"}, "wait": {"type": "integer"}},
}


def answered(method: str, params: dict[str, Any], journal: int) -> dict[str, Any]:
    if method == "initialize":
        return {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "journal", "version": "1"},
        }
    if method == "tools/list":
        return {"tools": [{"name": "mark", "inputSchema": SCHEMA}]}
    if method == "tools/call":
        arguments = params["arguments"]
        # One write: lines of several servers do not mix.
        os.write(journal, (arguments["nonce"] + "\n").encode())
        time.sleep(arguments["wait"] / 1000)
        return {"content": [{"type": "text", "text": arguments["nonce"]}]}
    return {}


def main() -> None:
    journal = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    for line in sys.stdin:
        request = json.loads(line)
        if "id" in request:
            result = answered(request["method"], request.get("params", {}), journal)
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}))
            sys.stdout.write("\n")
            sys.stdout.flush()


main()
