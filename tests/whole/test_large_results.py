"""Results too large for memory pass complete; those over the limit are errors."""

import hashlib
import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import pytest

from capd_client.mcp_host import PROTOCOL_VERSION, McpHost
from whole_daemon import PATIENCE, SHIM, Home, wait_for

from .large_server import text_of

LARGE_SERVER = Path(__file__).parent / "large_server.py"
MIB = 1 << 20


@pytest.fixture(autouse=True)
def uncut(home: Home) -> None:
    """Switch shortening off."""
    home.env["CAPD_RESULT_LIMIT"] = "0"


def digest(parts: Iterable[bytes]) -> str:
    hashed = hashlib.sha256()
    for part in parts:
        hashed.update(part)
    return hashed.hexdigest()


def line_in_parts(pipe: IO[bytes]) -> Iterator[bytes]:
    """Return the next line, which is never held whole."""
    while True:
        part = pipe.readline(MIB)
        yield part
        if not part or part.endswith(b"\n"):
            return


@contextmanager
def talking(home: Home) -> Iterator[None]:
    """Let another session call an honest server all the time, and check the answers."""
    editor = home.shim("neighbour")
    home.ask("enable", session="neighbour", name="talk")
    (pid,) = [server["pid"] for server in home.servers() if server["name"] == "talk"]
    is_over = threading.Event()
    said: list[dict[str, Any]] = []

    def talk() -> None:
        while True:
            said.append(editor.call("talk__echo", {"text": str(len(said))}, timeout=30.0))
            if is_over.wait(0.01):
                return

    talker = threading.Thread(target=talk)
    talker.start()
    try:
        yield
    finally:
        is_over.set()
        talker.join()
        editor.leave()
    assert said == [{"content": [{"type": "text", "text": f"{pid} {n}"}]} for n in range(len(said))]


class RawEditor:
    """An editor that takes answers as bytes, behind the shim."""

    def __init__(self, home: Home, session: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(SHIM), home.socket],
            env={**home.env, "CAPD_SESSION": session},
            cwd=home.folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        home.processes.append(self.process)
        client = {"name": "raw", "version": "1"}
        params = {"protocolVersion": PROTOCOL_VERSION, "capabilities": {}, "clientInfo": client}
        digest(self.answer("initialize", params))
        self._write({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def answer(self, method: str, params: dict[str, Any]) -> Iterator[bytes]:
        """Return the answer to a request in parts."""
        self._write({"jsonrpc": "2.0", "id": "mine", "method": method, "params": params})
        assert self.process.stdout is not None
        while True:
            parts = line_in_parts(self.process.stdout)
            first = next(parts)
            if b'"method"' not in first[:50]:
                yield first
                yield from parts
                return

    def leave(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(PATIENCE)
        self.process.stdout.close()

    def _write(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()


def spooled_files(pid: int, folder: Path) -> list[str]:
    """Return the files without a name that a process has open."""
    found = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            name = str(link.readlink())
            if name.startswith(str(folder)) and name.endswith("(deleted)"):
                found.append(name)
    return found


def test_a_result_of_64_mib_comes_through_byte_for_byte(home: Home, evil_server: list[str]) -> None:
    home.capability("evil", [*evil_server, "--mode", "huge_line", "--n", "64", "--tag", home.tag])
    home.plain("talk")
    home.start()
    editor = RawEditor(home, "one")
    home.ask("enable", session="one", name="evil")

    with talking(home):
        got = digest(editor.answer("tools/call", {"name": "evil__echo", "arguments": {}}))

    begin = b'{"jsonrpc":"2.0","id":"mine","result":{"content":[{"type":"text","text":"'
    assert got == digest([begin, *[b"x" * MIB] * 64, b'"}]}}\n'])
    editor.leave()


@pytest.mark.reliability
def test_a_result_of_a_gibibyte_is_told_with_its_size_and_the_server_goes_on(
    home: Home, evil_server: list[str]
) -> None:
    home.capability("evil", [*evil_server, "--mode", "huge_line", "--n", "1024", "--tag", home.tag])
    home.plain("talk")
    home.start()
    editor = home.shim("one")
    home.ask("enable", session="one", name="evil")
    (pid,) = [server["pid"] for server in home.servers()]

    with talking(home):
        results = [editor.call("evil__echo", {"x": str(n)}) for n in range(2)]

    assert [result["_meta"]["capd/outcome"] for result in results] == ["outcome_unknown"] * 2
    assert re.search(r"a line of 107374\d{4} bytes is over the", results[0]["content"][0]["text"])
    assert [server["pid"] for server in home.servers() if server["name"] == "evil"] == [pid]
    editor.leave()


def with_the_large_server(home: Home) -> tuple[subprocess.Popen[bytes], McpHost]:
    """Start a daemon, and open a session that has the large server on."""
    home.capability("large", [sys.executable, "-I", str(LARGE_SERVER), home.tag])
    daemon = home.start()
    editor = home.shim("one")
    home.ask("enable", session="one", name="large")
    return daemon, editor


@pytest.mark.parametrize("layout", ["id first", "id last"])
@pytest.mark.parametrize("blocks", [1, 200, 300, 500])
def test_a_result_of_any_size_is_the_same_wherever_its_id_stands(
    home: Home, layout: str, blocks: int
) -> None:
    daemon, editor = with_the_large_server(home)

    result = editor.call("large__give", {"layout": layout, "blocks": blocks})

    text = result["content"][0].pop("text")
    assert (len(text), text == text_of(blocks)) == (len(text_of(blocks)), True)
    assert result == {"content": [{"type": "text"}], "isError": False}
    wait_for(lambda: spooled_files(daemon.pid, home.folder) == [])
    editor.leave()


@pytest.mark.parametrize("layout", ["two values", "not UTF-8"])
def test_what_could_be_taken_for_something_else_is_not_passed_on(home: Home, layout: str) -> None:
    daemon, editor = with_the_large_server(home)

    bad = editor.call("large__give", {"layout": layout, "blocks": 500})
    good = editor.call("large__give", {"layout": "id first", "blocks": 300})

    assert bad["_meta"]["capd/outcome"] == "outcome_unknown"
    assert good["content"][0]["text"] == text_of(300)
    wait_for(lambda: spooled_files(daemon.pid, home.folder) == [])
    editor.leave()
