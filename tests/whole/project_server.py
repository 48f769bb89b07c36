"""An MCP server that says where it runs, and does there what it is told. It needs Python 3.8.

    project_server.py [TAG...]

A tag makes it recognisable in the process list. It ignores SIGTERM and the end of its input.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}}
NAMES = ("where", "root", "read", "link", "leave", "flood", "token", "die", "hang")
ORPHAN = (
    "import os, signal, sys, time\n"
    "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "os.fork() and os._exit(0)\nos.setsid()\ntime.sleep(3600)"
)

signal.signal(signal.SIGTERM, signal.SIG_IGN)


def send(message: dict[str, Any]) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def root() -> str:
    """Ask the client for its roots, and return its answer as text."""
    send({"id": "roots", "method": "roots/list"})
    while True:
        message = json.loads(sys.stdin.readline())
        if message.get("id") == "roots":
            return json.dumps(message.get("result", "none offered"))


def place() -> str:
    """Return this process's ids, folder, arguments and environment as JSON."""
    facts = {
        "pid": os.getpid(),
        "uid": os.getuid(),
        "cwd": str(Path.cwd()),
        "argv": sys.argv[1:],
        "env": dict(os.environ),
    }
    return json.dumps(facts)


def said(name: str, text: str) -> str:
    if name == "where":
        return place()
    if name == "root":
        return root()
    if name == "read":
        return Path(text).read_text(encoding="utf-8")
    if name == "leave":
        # A process in a session of its own, which outlives its parent.
        subprocess.run([sys.executable, "-c", ORPHAN, *sys.argv[1:]], check=True)
        return "left"
    if name == "flood":
        for _ in range(200):
            sys.stderr.write("x" * 65536)
            send(
                {
                    "method": "notifications/message",
                    "params": {"level": "info", "data": "x" * 60000},
                }
            )
        return "flooded"
    if name == "die":
        os._exit(7)
    if name == "hang":
        time.sleep(3600)
    return os.environ.get("API_TOKEN", "none")


def serve() -> None:
    for line in sys.stdin:
        request = json.loads(line)
        if "id" not in request:
            continue
        method, params = request["method"], request.get("params", {})
        result: dict[str, Any] = {}
        if method == "initialize":
            info = {"name": "project", "version": "1"}
            result = {"capabilities": {"tools": {}}, "serverInfo": info}
            result["protocolVersion"] = params["protocolVersion"]
        elif method == "tools/list":
            result = {"tools": [{"name": name, "inputSchema": SCHEMA} for name in NAMES]}
        elif method == "tools/call" and params["name"] == "link":
            uri = "file://" + str(Path.cwd()) + "/notes.txt"
            result = {"content": [{"type": "resource_link", "uri": uri, "name": "notes"}]}
        elif method == "tools/call":
            text = said(params["name"], str(params.get("arguments", {}).get("text", "")))
            result = {"content": [{"type": "text", "text": text}]}
        send({"id": request["id"], "result": result})


serve()
while True:
    time.sleep(3600)
