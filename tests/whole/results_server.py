"""An MCP server over stdio whose tools answer with the results in a folder, as they are written.

Arguments: the folder, then any; they make it recognisable in the process list. A tool's name is
a file's; `NAME.schema` beside it is its output schema, `NAME.meta` its `_meta`.
"""

import json
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(sys.argv[1])


def definition(path: Path) -> dict[str, Any]:
    tool: dict[str, Any] = {"name": path.stem, "inputSchema": {"type": "object"}}
    for suffix, member in ((".schema", "outputSchema"), (".meta", "_meta")):
        beside = path.with_suffix(suffix)
        if beside.exists():
            tool[member] = json.loads(beside.read_text())
    return tool


def answered(method: str, params: dict[str, Any]) -> bytes:
    if method == "tools/call":
        return FOLDER.joinpath(params["name"] + ".json").read_bytes()
    result: dict[str, Any] = {}
    if method == "initialize":
        result = {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "results", "version": "1"},
        }
    elif method == "tools/list":
        result = {"tools": [definition(path) for path in sorted(FOLDER.glob("*.json"))]}
    return json.dumps(result).encode()


for line in sys.stdin.buffer:
    request = json.loads(line)
    if "id" in request:
        body = answered(request["method"], request.get("params", {}))
        sys.stdout.buffer.write(b'{"jsonrpc":"2.0","id":%d,"result":%s}\n' % (request["id"], body))
        sys.stdout.buffer.flush()
