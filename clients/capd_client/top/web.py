"""`capd top --web`: the same screen in a browser on this machine, protected by a token.

    /?token=...   valid once: it sets a cookie in this browser, and leads to a secret folder
    /FOLDER/...   needs that cookie, and a Host header that names this machine; otherwise 403

A browser sends a cookie to all ports of a host, and so to a page of an MCP server as well. The
cookie is therefore for the secret folder alone, which no other server can name.

Each open page runs a `capd top` of its own, which ends when the page is closed (textual-serve).
"""

import secrets
import shlex
import socket
import sys

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware
from textual_serve.server import Server

HOST = "127.0.0.1"
_COOKIE = "capd_top"
_POLICY = (
    "default-src 'self' data: blob:; connect-src 'self'; frame-ancestors 'none'; "
    "script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'"
)
"""textual-serve's page loads a font from another host. This policy keeps the browser from it, so
that the other host learns nothing of this one."""


class TokenServer(Server):
    """Serves `capd top --every EVERY` on `port`.

    The first browser that opens `address` gets access; no other does.
    """

    def __init__(self, port: int, every: float) -> None:
        command = [sys.executable, "-P", "-m", "capd_client.entry", "top", "--every", str(every)]
        super().__init__(shlex.join(command), host=HOST, port=port, title="capd top")
        self._token = secrets.token_urlsafe(32)
        self._cookie = secrets.token_urlsafe(32)
        self._folder = f"/{secrets.token_urlsafe(32)}/"

    @property
    def address(self) -> str:
        """The address with the token, valid once."""
        return f"{self.public_url}/?token={self._token}"

    async def _make_app(self) -> web.Application:
        app = web.Application(middlewares=[self._guard()])
        app.add_subapp(self._folder, await super()._make_app())
        return app

    async def on_startup(self, app: web.Application) -> None:
        """Print nothing: `capd top` has printed the address already."""
        del app

    def _guard(self) -> Middleware:
        @web.middleware
        async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
            own = f"{self.host}:{self.port}"
            # DNS rebinding: a name of another site may resolve to this machine. Host and Origin
            # have that name then.
            if request.headers.get("Host") != own or request.headers.get("Origin") not in {
                None,
                f"http://{own}",
            }:
                raise web.HTTPForbidden(text="not from here")
            token = request.query.get("token", "")
            if self._token and secrets.compare_digest(token.encode(), self._token.encode()):
                self._token = ""
                found = web.HTTPFound(self._folder)
                found.set_cookie(
                    _COOKIE, self._cookie, path=self._folder, httponly=True, samesite="Strict"
                )
                raise found
            cookie = request.cookies.get(_COOKIE, "")
            if not secrets.compare_digest(cookie.encode(), self._cookie.encode()):
                raise web.HTTPForbidden(text="open the address that `capd top --web` printed; once")
            answer = await handler(request)
            if not answer.prepared:
                answer.headers["Content-Security-Policy"] = _POLICY
            return answer

        return guard


def free_port() -> int:
    """Return a port on the loopback interface that is free at this moment."""
    with socket.socket() as made:
        made.bind((HOST, 0))
        port: int = made.getsockname()[1]
        return port
