"""Twenty canaries through everything that a secret or a user's data may pass.

Four as environment, two as headers, one as a header that no client can send, three as arguments of
a server's command, three as arguments of calls, one as a message of the user, two as results, two
written to stderr, two in errors and a crash. A server that tells all that it knows, wherever it
can, is what would betray them.
"""

import base64
import json
import os
import shutil
import stat
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from capd_client.control import Control, DaemonDownError
from capd_client.mcp_host import HostError
from whole_daemon import Home, wait_for

pytestmark = pytest.mark.reliability

NAMES = {
    "env": 4,
    "header": 2,
    "unsendable": 1,
    "argv": 3,
    "call": 3,
    "message": 1,
    "result": 2,
    "stderr": 2,
    "error": 1,
    "crash": 1,
}
CANARIES = {
    f"{kind}_{n}": f"canary/{kind}+{n}-{os.urandom(8).hex()}=="
    for kind, count in NAMES.items()
    for n in range(count)
}
# What libraries refuse, they like to quote.
CANARIES["unsendable_0"] += "\nx-more: 1"
DECLARED = ("env", "header", "unsendable", "argv", "stderr", "error", "crash")
"""Kinds that definitions ask for, so that capd knows their values."""

SERVER = """
import json, os, sys
known = [v for k, v in sorted(os.environ.items()) if k.startswith("CANARY")] + sys.argv[2:]
def tell(where): print(*known, file=where, flush=True)
tell(sys.stderr)
for line in sys.stdin:
    m = json.loads(line)
    if "id" not in m: continue
    def reply(**kind): print(json.dumps({"jsonrpc": "2.0", "id": m["id"], **kind}), flush=True)
    if m["method"] == "initialize":
        reply(result={"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                      "serverInfo": {"name": "tells", "version": "1"}})
    elif m["method"] == "tools/list":
        names = ("echo", "long", "fail", "junk", "crash")
        reply(result={"tools": [{"name": n, "inputSchema": {"type": "object"}} for n in names]})
    elif m["method"] != "tools/call": reply(error={"code": -32601, "message": "no"})
    else:
        said, name = m["params"]["arguments"].get("x", ""), m["params"]["name"]
        if name == "fail": reply(error={"code": -32000, "message": " ".join(known)})
        elif name == "crash": raise ValueError(" ".join(known))
        elif name == "junk":
            tell(sys.stdout); tell(sys.stderr)
            reply(result={"content": [{"type": "text", "text": said}]})
        else:
            text = said * (9000 if name == "long" else 1)
            reply(result={"content": [{"type": "text", "text": text}]})
"""


class _Refuses(BaseHTTPRequestHandler):
    """A site that repeats what it was sent, and lets nobody in."""

    def do_POST(self) -> None:
        said = str(self.headers).encode()
        self.send_response(500, "no")
        self.send_header("content-length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    do_GET = do_POST  # noqa: N815 - the name is http.server's

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing."""


@pytest.fixture
def site() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Refuses)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/mcp"
    server.shutdown()
    server.server_close()


def of(*kinds: str) -> dict[str, str]:
    return {key: value for key, value in CANARIES.items() if key.partition("_")[0] in kinds}


def marked(keys: dict[str, str]) -> str:
    """Return a TOML table that hands keys over under names that the server tells."""
    return ", ".join(f'CANARY_{key} = "{{{{ENV:{key}}}}}"' for key in keys)


def define(home: Home, site: str) -> None:
    script = home.folder / "tells.py"
    script.write_text(SERVER)
    python = sys.executable
    home.capability("tells", [python, "-I", str(script), home.tag])
    provider = home.folder / "tap/capabilities/tells/default.toml"
    asked = of("env", "stderr", "error", "crash")
    provider.write_text(provider.read_text() + f"env = {{ {marked(asked)} }}\n")
    home.capability(
        "argued", [python, "-I", str(script), home.tag, *(f"{{{{ENV:{k}}}}}" for k in of("argv"))]
    )
    for name, kind in (("far", "header"), ("unsendable", "unsendable")):
        home.capability(name, ["none"])
        provider = home.folder / "tap/capabilities" / name / "default.toml"
        headers = ", ".join(f'"x-{key}" = "Bearer {{{{ENV:{key}}}}}"' for key in of(kind))
        provider.write_text(
            f'[[mcp.servers]]\nname = "{name}"\ntype = "http"\nurl = "{site}"\n'
            f"headers = {{ {headers} }}\n"
        )


def follow(socket: str, heard: list[str]) -> None:
    try:
        with Control(socket, timeout=600.0) as control:
            heard.extend(json.dumps(event) for event in control.events([]))
    except (DaemonDownError, OSError):
        return


def forms(value: str) -> list[str]:
    """Return what a canary looks like wherever it is told, or a part of it."""
    core = value.partition("-")[2].partition("=")[0]
    encoded = base64.b64encode(value.encode()).decode().rstrip("=")
    return [core, value, quote(value, safe=""), encoded]


def found_in(told: dict[str, str], canaries: dict[str, str]) -> list[tuple[str, str]]:
    return [
        (key, where)
        for key, value in canaries.items()
        for where, text in told.items()
        if any(form in text for form in forms(value))
    ]


def written(home: Home) -> dict[str, str]:
    """Return every file below the daemon's folder, but for the private store of results."""
    store = home.folder / "cache" / "results"
    if store.exists():
        assert stat.S_IMODE(store.stat().st_mode) == 0o700
        assert {stat.S_IMODE(each.stat().st_mode) for each in store.iterdir()} == {0o600}
    return {
        str(file): file.read_bytes().decode("latin-1")
        for file in home.folder.rglob("*")
        if file.is_file() and store not in file.parents
    }


def command_lines() -> dict[str, str]:
    """Return the process list, as anybody sees it."""
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError):
                line = (folder / "cmdline").read_bytes().decode("latin-1")
                found[f"process {folder.name}"] = line
    return found


def environments(pid: int, *, but: str) -> dict[str, str]:
    """Return the environment of each process below `pid` that has not `but` in its command."""
    found = {}
    with suppress(OSError):
        folder = Path(f"/proc/{pid}")
        for child in (
            int(n) for t in folder.glob("task/*/children") for n in t.read_text().split()
        ):
            found.update(environments(child, but=but))
        if but not in (folder / "cmdline").read_text():
            text = (folder / "environ").read_bytes().decode("latin-1")
            found[f"environment of {pid}"] = text
    return found


READING = (
    *("status", "status --line", "status --tokens", "sessions", "servers", "caps", "secret list"),
    *("tools --session one", "tools --flags", "search echo", "discover tells", "why", "metrics"),
    *("doctor", "check", "config show --origin", "trust --list", "trust definitions", "tap list"),
    *("logs -n 100000", "version"),
)
"""Every command that only reads, in words and as JSON where it has some."""


def read_all(home: Home) -> str:
    """Return what all reading commands print."""
    log = home.folder / "state" / "capd.log"
    log.symlink_to(home.folder / "daemon.log")
    said = []
    for command in READING:
        for words in (command.split(), [*command.split(), "--json"]):
            done = home.capd(*words)
            assert "Traceback" not in done.stderr, done.stderr
            said += [done.stdout, done.stderr]
    log.unlink()
    return "\n".join(said)


@pytest.fixture
def home() -> Iterator[Home]:
    # Short: a socket's path has at most 108 bytes.
    folder = Path(tempfile.mkdtemp(prefix="capd"))
    folder.chmod(0o700)
    made = Home(folder)
    try:
        yield made
    finally:
        made.close()
        shutil.rmtree(folder, ignore_errors=True)


def test_twenty_canaries_are_told_to_nobody(home: Home, site: str) -> None:
    define(home, site)
    own_home = home.folder / "home"
    own_home.mkdir()
    home.env |= {"CAPD_LOG": "debug", "CAPD_RESULT_LIMIT": "2000", "HOME": str(own_home)}
    daemon = home.start()
    heard: list[str] = []
    follower = threading.Thread(target=follow, args=(home.socket, heard), daemon=True)
    follower.start()
    plain, home.env = home.env, {**home.env, **of(*DECLARED)}
    editor = home.shim("one")
    home.env = plain
    answers: list[str] = []
    results: list[str] = []

    def ask(method: str, **params: Any) -> None:
        answers.append(json.dumps(home.ask(method, **params)))

    for name in ("tells", "argued", "far", "unsendable"):
        ask("enable", session="one", name=name)
    listed = command_lines()
    inherited = environments(daemon.pid, but="tells.py")
    for value in of("call").values():
        results.append(json.dumps(editor.call("tells__echo", {"x": value})))
        results.append(json.dumps(editor.call("tells__junk", {"x": value})))
    results += [
        json.dumps(editor.call("tells__long", {"x": value})) for value in of("result").values()
    ]
    for name in ("tells__fail", "argued__fail", "tells__crash", "argued__crash"):
        with suppress(HostError):
            editor.call(name, {"x": "plain"})
    for value in of("message").values():
        ask("turn", session="one", text=f"please use tells on {value} now")
    for method in ("status", "caps", "servers", "sessions", "secrets", "why", "metrics"):
        ask(method)
    answers.append(read_all(home))
    wait_for(lambda: home.ask("status")["ledger"]["waiting"] == 0 or None)
    editor.leave()
    before = written(home)
    home.close()
    follower.join(30)
    told = {
        "answers": "\n".join(answers),
        "events": "\n".join(heard),
        **before,
        **written(home),
        **inherited,
    }

    assert len(CANARIES) == 20
    assert found_in({"results": "\n".join(results)}, of("call")), "nothing was passed on"
    assert "[secret]" in home.log() + told["answers"], "there was nothing to be found"
    assert heard
    # The daemon, its model, and a guard above each server; the first two show theirs to root alone.
    assert len(inherited) >= (3 if os.geteuid() == 0 else 2)
    assert found_in(told, CANARIES) == []
    # Those that a definition puts there, and no other.
    assert {key for key, _ in found_in(listed, CANARIES)} == set(of("argv"))
