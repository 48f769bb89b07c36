"""A stdio server for containers: it says what it sees, and does what it is asked to.

Its modes: `ok`, and `stays`, which ignores the end of its input and SIGTERM.
"""

import json
import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

TOOLS = ("look", "read", "write", "connect", "eat")


def look(_path: str) -> object:
    with Path("/proc/self/status").open() as file:
        status = dict(line.split(":\t", 1) for line in file if ":\t" in line)
    with Path("/proc/self/mountinfo").open() as file:
        mounts = [line.split()[4] for line in file]
    return {
        "environment": dict(os.environ),
        "capabilities": status["CapEff"].strip(),
        "no_new_privileges": status["NoNewPrivs"].strip(),
        "user": os.getuid(),
        "root": sorted(each.name for each in Path("/").iterdir()),
        "folder": str(Path.cwd()),
        "interfaces": sorted(each.name for each in Path("/sys/class/net").iterdir()),
        "processes": sorted(each.name for each in Path("/proc").iterdir() if each.name.isdigit()),
        "mounts": mounts,
    }


def read(path: str) -> object:
    return Path(path).read_text()


def write(path: str) -> object:
    return Path(path).write_text("written")


def connect(path: str) -> object:
    host, _, port = path.partition(":")
    with socket.create_connection((host, int(port)), timeout=5):
        return "connected"


def eat(path: str) -> object:
    held = bytearray(int(path))
    held[::4096] = b"x" * len(held[::4096])
    return len(held)


def answered(request: dict[str, Any]) -> dict[str, Any]:
    method, params = request["method"], request.get("params", {})
    if method == "initialize":
        return {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "contained", "version": "1"},
        }
    if method == "tools/list":
        schema = {"type": "object", "properties": {"path": {"type": "string"}}}
        return {"tools": [{"name": name, "inputSchema": schema} for name in TOOLS]}
    if method == "tools/call":
        try:
            tool = globals()[params["name"]]
            text, is_error = json.dumps(tool(params.get("arguments", {}).get("path", ""))), False
        except (OSError, MemoryError) as error:
            text, is_error = repr(error), True
        return {"content": [{"type": "text", "text": text}], "isError": is_error}
    return {}


def main() -> None:
    is_staying = sys.argv[1:] == ["stays"]
    if is_staying:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for line in sys.stdin:
        request = json.loads(line)
        if "id" in request and "method" in request:
            answer = {"jsonrpc": "2.0", "id": request["id"], "result": answered(request)}
            print(json.dumps(answer), flush=True)
    while is_staying:
        time.sleep(600)


main()
