"""A server with several URLs: which is used when some fail, and what callers get."""

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

from whole.test_remote_servers import SITE
from whole_daemon import Home, wait_for


@contextmanager
def ending_site() -> Iterator[tuple[str, "subprocess.Popen[str]"]]:
    """Run one of the SDK's servers; yield its URL and the process to kill."""
    process = subprocess.Popen(
        [sys.executable, str(SITE), "streamable"], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        yield f"{process.stdout.readline().strip()}/mcp", process
    finally:
        process.kill()
        process.communicate()


@contextmanager
def black_hole() -> Iterator[str]:
    """Yield the URL of a port that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"


class Overloaded(BaseHTTPRequestHandler):
    """Answers every request with 503."""

    asked: list[str]

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length") or 0))
        self.asked.append(self.path)
        self.send_response(503)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
        pass


@contextmanager
def overloaded() -> Iterator[tuple[str, list[str]]]:
    """Yield the URL of a server that answers 503, and the requests it got."""
    asked: list[str] = []
    server = HTTPServer(("127.0.0.1", 0), type("Here", (Overloaded,), {"asked": asked}))
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/mcp", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def at(home: Home, *urls: str) -> None:
    """Define a capability on a server at `urls`."""
    home.plain("web")
    (home.folder / "tap/capabilities/web/default.toml").write_text(
        f'[[mcp.servers]]\nname = "web"\nurls = {json.dumps(urls)}\n'
    )


def test_addresses_that_answer_503_or_not_at_all_are_passed_over(home: Home) -> None:
    with overloaded() as (busy, asked), black_hole() as silent, ending_site() as (good, _):
        at(home, busy, silent, good)
        home.start()
        editor = home.shim("one")

        enabled = home.ask("enable", session="one", name="web")

        assert enabled["ok"], enabled
        result = editor.call("web__echo", {"text": "far away"})
        assert result["structuredContent"] == {"result": "far away"}
        assert asked
        editor.leave()


def test_a_call_at_an_address_that_dies_is_told_so_and_the_next_goes_elsewhere(home: Home) -> None:
    with ending_site() as (first, dying), ending_site() as (second, _):
        at(home, first, second)
        home.start()
        editor = home.shim("one")
        assert home.ask("enable", session="one", name="web")["ok"]
        params = {"name": "web__hang", "arguments": {}, "_meta": {"progressToken": 7}}
        editor._write({"jsonrpc": "2.0", "id": "h", "method": "tools/call", "params": params})
        editor.wait_for("notifications/progress")

        dying.kill()
        answer = editor._next("the answer", 60)
        while answer.get("id") != "h":
            answer = editor._next("the answer", 60)

        # It may have run, and was not sent to the second address.
        assert answer["result"]["_meta"] == {
            "capd/outcome": "outcome_unknown",
            "capd/retriable": False,
        }
        wait_for(lambda: home.ask("servers")["servers"][0]["state"] == "failed")
        result = editor.call("web__echo", {"text": "after"})
        assert result["structuredContent"] == {"result": "after"}
        # What the second server has seen of hanging calls: nothing.
        assert editor.call("web__ends", {})["structuredContent"] == {"result": []}
        editor.leave()
