"""Servers by URL that want a login, each with its own authorization server, in threads.

A site is honest as it is made. A test changes one part of what it says.
"""

import json
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, urlencode, urlsplit

CODE = "the-code"
TOOL = {"name": "echo", "description": "x", "inputSchema": {"type": "object"}}


@dataclass(frozen=True)
class Request:
    """One request that a site got."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def form(self) -> dict[str, str]:
        return {key: values[0] for key, values in parse_qs(self.body.decode()).items()}


class LoginSite:
    """An MCP server at `/mcp`, and the authorization server that issues its tokens."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.journal: list[Request] = []
        self.tokens: dict[str, Any] = {
            "access_token": f"access-{name}",
            "token_type": "Bearer",
            "refresh_token": f"refresh-{name}",
        }
        self.says_iss = True
        """Whether its redirects name their issuer (RFC 9207)."""
        self.lets_in = True
        """Whether `/mcp` accepts the present token."""
        self.redirects_calls_to = ""
        site = self

        class Visit(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                site.serve(self, b"")

            def do_POST(self) -> None:
                site.serve(self, self.rfile.read(int(self.headers["content-length"] or 0)))

            do_DELETE = do_GET  # noqa: N815 - the library calls it so

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Visit)
        self._server.daemon_threads = True
        self.base = f"http://127.0.0.1:{self._server.server_address[1]}"
        self.url = f"{self.base}/mcp"
        self.resource: dict[str, Any] = {
            "resource": self.url,
            "authorization_servers": [self.base],
        }
        self.metadata: dict[str, Any] = {
            "issuer": self.base,
            "authorization_endpoint": f"{self.base}/authorize",
            "token_endpoint": f"{self.base}/token",
            "registration_endpoint": f"{self.base}/register",
            "response_types_supported": ["code"],
            "code_challenge_methods_supported": ["S256"],
        }
        self.pages: dict[str, Callable[[dict[str, list[str]]], str]] = {
            "/authorize": self._authorize
        }
        """Pages that redirect a browser, with the address that each leads to."""

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def asked(self, path: str) -> list[Request]:
        """Return the requests for a path."""
        return [each for each in self.journal if each.path.partition("?")[0] == path]

    def heard(self) -> str:
        """Return everything that anybody has sent to this site."""
        return repr(self.journal)

    def _authorize(self, query: dict[str, list[str]]) -> str:
        """Consent at once, and return to whoever asked."""
        [redirect] = query["redirect_uri"]
        answer = {"code": CODE, "state": query["state"][0]}
        if self.says_iss:
            answer["iss"] = self.base
        return f"{redirect}{'&' if '?' in redirect else '?'}{urlencode(answer)}"

    def serve(self, visit: BaseHTTPRequestHandler, body: bytes) -> None:
        headers = {name.lower(): value for name, value in visit.headers.items()}
        self.journal.append(Request(visit.command, visit.path, headers, body))
        path, _, query = visit.path.partition("?")
        if path in self.pages:
            self._answer(visit, b"", 302, location=self.pages[path](parse_qs(query)))
        elif path == "/mcp":
            self._serve_mcp(visit, body)
        elif path.startswith("/.well-known/oauth-protected-resource"):
            self._answer(visit, self.resource)
        elif path.startswith("/.well-known/oauth-authorization-server"):
            self._answer(visit, self.metadata)
        elif path == "/register":
            self._answer(visit, {**json.loads(body), "client_id": f"client-{self.name}"}, 201)
        elif path == "/token":
            self._answer(visit, self.tokens)
        else:
            self._answer(visit, b"", 404)

    def _serve_mcp(self, visit: BaseHTTPRequestHandler, body: bytes) -> None:
        token = f"Bearer {self.tokens['access_token']}"
        if not self.lets_in or visit.headers["authorization"] != token:
            self._answer(visit, b"", 401)
            return
        if visit.command != "POST":
            self._answer(visit, b"", 405)
            return
        message = json.loads(body)
        method, number = message.get("method"), message.get("id")
        if method == "tools/call" and self.redirects_calls_to:
            self._answer(visit, b"", 307, location=self.redirects_calls_to)
        elif number is None:
            self._answer(visit, b"", 202)
        else:
            self._answer(visit, {"jsonrpc": "2.0", "id": number, "result": _result(method)})

    @staticmethod
    def _answer(
        visit: BaseHTTPRequestHandler,
        body: bytes | dict[str, Any],
        status: int = 200,
        **more: str,
    ) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        visit.send_response(status)
        visit.send_header("content-type", "application/json")
        visit.send_header("content-length", str(len(data)))
        for name, value in more.items():
            visit.send_header(name, value)
        visit.end_headers()
        visit.wfile.write(data)


def _result(method: str) -> dict[str, Any]:
    if method == "initialize":
        info = {"name": "x", "version": "1"}
        capabilities: dict[str, Any] = {"tools": {}}
        return {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": info}
    if method == "tools/list":
        return {"tools": [TOOL]}
    return {"content": [{"type": "text", "text": "called"}]}


def led_to(address: str) -> str:
    """Return the address to which login pages redirect a browser in the end."""
    url = urlsplit(address)
    while url.path != "/callback":
        status, location = visited(address)
        assert status == HTTPStatus.FOUND, address
        address, url = location, urlsplit(location)
    return address


def visited(address: str) -> tuple[int, str]:
    """Open an address, and return the status and where it redirects to."""
    url = urlsplit(address)
    with closing(HTTPConnection(url.hostname or "", url.port, timeout=30)) as connection:
        connection.request("GET", f"{url.path}?{url.query}")
        answer = connection.getresponse()
        answer.read()
        return answer.status, answer.headers.get("location", "")
