"""Test servers over HTTP, and a client that talks to them in lines."""

import json
import socket
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

import trio

from capd.adapters.servers.http.logins import Logins
from capd.adapters.servers.http.remote_server import RemoteServer, connected
from capd.adapters.servers.http.remote_spec import RemoteSpec
from capd.adapters.servers.http.token_store import FileStore
from capd.adapters.servers.server_lines import LINK_MARK
from capd.adapters.stdio_frames import Frame, FrameReader

PATIENCE = 30.0
Json = dict[str, Any]
LEGACY = "2025-11-25"
MODERN = "2026-07-28"


class Site:
    """A web server with scripted paths and a journal of requests."""

    def __init__(self) -> None:
        self.paths: dict[str, Callable[[Exchange], None]] = {}
        self.journal: list[tuple[str, str, dict[str, str], bytes]] = []
        self.closing = threading.Event()
        self.listened = threading.Event()
        site = self

        class Here(Exchange):
            def serve(self) -> None:
                size_bytes = int(self.headers.get("content-length") or 0)
                self.content = self.rfile.read(size_bytes)
                headers = {key.lower(): value for key, value in self.headers.items()}
                site.journal.append((self.command, self.path, headers, self.content))
                self.site = site
                path = self.path.partition("?")[0]
                site.paths.get(path, Exchange.refuse)(self)

        self._server = _Quiet(("127.0.0.1", 0), Here)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self.base = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def asked(self) -> list[str]:
        return [f"{method} {path}" for method, path, _, _ in self.journal]


class _Quiet(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that disconnect: these tests do that on purpose."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class Exchange(BaseHTTPRequestHandler):
    """One request to a site, and the ways to answer it."""

    protocol_version = "HTTP/1.1"
    site: Site
    content: bytes

    def serve(self) -> None:
        raise NotImplementedError

    def do_GET(self) -> None:
        self.serve()

    def do_POST(self) -> None:
        self.serve()

    def do_DELETE(self) -> None:
        self.serve()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
        pass

    @property
    def message(self) -> Json:
        message: Json = json.loads(self.content)
        return message

    def refuse(self) -> None:
        self.answer(b"", status=404)

    def answer(
        self, body: bytes | Json, *, status: int = 200, kind: str = "application/json", **more: str
    ) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        for name, value in more.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(data)

    def reply(self, result: Json, **more: str) -> None:
        body = {"jsonrpc": "2.0", "id": self.message["id"], "result": result}
        self.answer(body, status=200, kind="application/json", **more)

    def begin_events(self, **more: str) -> None:
        self.begin_answer(kind="text/event-stream", **more)

    def begin_answer(self, kind: str = "application/json", **more: str) -> None:
        """Begin an answer that ends with its connection."""
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("connection", "close")
        for name, value in more.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.close_connection = True

    def event(self, data: bytes | Json, **fields: str) -> None:
        text = data if isinstance(data, bytes) else json.dumps(data).encode()
        lines = [f"{name}: {value}\n".encode() for name, value in fields.items()]
        self.raw(b"".join(lines) + b"data: " + text + b"\n\n")

    def raw(self, data: bytes) -> None:
        self.wfile.write(data)
        self.wfile.flush()


class Talk:
    """Somebody at the lines of a remote server."""

    def __init__(self, server: RemoteServer) -> None:
        self.server = server
        self.heard: list[Json] = []
        self.raw: list[bytes] = []
        self._reader = FrameReader(server.stdout, 256 << 20)
        self._ids = 0

    async def send(self, message: Json | bytes) -> None:
        line = message if isinstance(message, bytes) else json.dumps(message).encode()
        await self.server.stdin.send_all(line + b"\n")

    async def request(self, method: str, params: Json | None = None) -> int:
        self._ids += 1
        message = {"jsonrpc": "2.0", "id": self._ids, "method": method, "params": params or {}}
        await self.send(message)
        return self._ids

    async def hear(self) -> Json:
        with trio.fail_after(PATIENCE):
            frame = await anext(self._reader)
        assert isinstance(frame, Frame)
        self.raw.append(frame.data)
        self.heard.append(json.loads(frame.data))
        return self.heard[-1]

    async def until(self, is_it: Callable[[Json], bool]) -> Json:
        while not is_it(await self.hear()):
            pass
        return self.heard[-1]

    async def reply(self, message_id: int) -> Json:
        return await self.until(lambda m: m.get("id") == message_id and "method" not in m)

    async def ask(self, method: str, params: Json | None = None) -> Json:
        return await self.reply(await self.request(method, params))

    async def call(self, tool: str, **arguments: Any) -> Json:
        return await self.ask("tools/call", {"name": tool, "arguments": arguments})

    async def shake_hands(self, **capabilities: Json) -> Json:
        params = {
            "protocolVersion": LEGACY,
            "capabilities": capabilities,
            "clientInfo": {"name": "test", "version": "1"},
        }
        reply = await self.ask("initialize", params)
        await self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return reply

    async def modern(self, method: str, **params: Any) -> Json:
        return await self.ask(method, modern(**params))


def modern(**params: Any) -> Json:
    """Return params of the stateless generation."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}},
    }
    return {**params, "_meta": {**params.get("_meta", {}), **meta}}


@asynccontextmanager
async def talking(spec: RemoteSpec, logins: Logins) -> AsyncIterator[Talk]:
    async with connected(spec, logins) as server:
        yield Talk(server)


def logins_in(folder: Path) -> Logins:
    return Logins(folder, FileStore(folder / "logins"))


def failure(message_id: int, code: int, text: str) -> Json:
    outcome = {4001: "not_sent", 4002: "outcome_unknown", 4003: "refused"}[code]
    if code == 4002:
        text += "; the call may have run, so check before repeating it"
    error = {"code": code, "message": text, "data": {"capd": outcome, "link": LINK_MARK}}
    return {"jsonrpc": "2.0", "id": message_id, "error": error}


@contextmanager
def closed_port() -> Iterator[int]:
    """Reserve a port on which nothing listens."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]
