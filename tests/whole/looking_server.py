"""An MCP server over stdio that tells what it can see of the machine it runs on.

Arguments: the folder of the daemon, a port where somebody listens on 127.0.0.1, and any more.
"""

import json
import socket
import sys
from pathlib import Path
from typing import Any

LOOK = {"name": "look", "description": "Look around.", "inputSchema": {"type": "object"}}


def text_of(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def connects(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=10).close()
    except OSError:
        return False
    return True


def looked() -> dict[str, Any]:
    capd = Path(sys.argv[1])
    here = Path("kept")
    here.write_text("kept")
    return {
        "ssh": text_of(Path.home() / ".ssh" / "id"),
        "notes": text_of(Path.home() / "notes"),
        "secrets": text_of(capd / "config" / "secrets.env"),
        "sees_socket": (capd / "run" / "capd.sock").exists(),
        "connects": connects(int(sys.argv[2])),
        "keeps": text_of(here),
    }


def answered(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    if method == "initialize":
        return {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "looking", "version": "1"},
        }
    if method == "tools/list":
        return {"tools": [LOOK]}
    if method == "tools/call":
        return {"content": [{"type": "text", "text": json.dumps(looked())}]}
    return {} if method == "ping" else None


for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request:
        continue
    result = answered(request["method"], request.get("params", {}))
    reply = {"jsonrpc": "2.0", "id": request["id"]}
    reply |= {"error": {"code": -32601, "message": "no"}} if result is None else {"result": result}
    print(json.dumps(reply), flush=True)
