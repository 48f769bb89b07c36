"""Receives the redirect of the browser at the end of a login.

The module listens on one port of 127.0.0.1, for one login. A person may also paste the address of
the redirect.

Any process of this machine may connect, and so may a web page in a browser. A request without the
login's `state` gets a 404 and changes nothing, so nobody else can end the login or learn anything
about it. If there are too many connections, the oldest one is closed, so idle ones hold nobody up.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from urllib.parse import urlsplit

import trio

from capd.adapters.clients.waiting_pool import WaitingPool
from capd.core.servers.login_answers import Answer, read_pasted, read_redirect

PATH = "/callback"
_HEAD_CAP_BYTES = 16 * 1024
_HEAD_TIMEOUT = 10.0
_MOST_CONNECTIONS = 32


class RedirectListener:
    """Waits, on an open port, for the one request that is the redirect of the login."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}{PATH}"
        self._state = ""
        self._answer: Answer | None = None
        self._is_answered = trio.Event()
        self._waiting = WaitingPool(_MOST_CONNECTIONS, _HEAD_TIMEOUT)

    def expect(self, state: str) -> None:
        """Accept only requests whose parameter `state` has this value."""
        self._state = state

    async def answer(self) -> Answer:
        """Wait for the redirect of the browser, and return its parameters."""
        await self._is_answered.wait()
        assert self._answer is not None
        return self._answer

    async def serve(self, stream: trio.SocketStream) -> None:
        """Serve one connection. Nothing that the peer does raises an error here."""
        async with stream:
            with self._waiting.place():
                try:
                    answer = self._read(await _head(stream))
                    await stream.send_all(_page(is_known=answer is not None))
                except (trio.BrokenResourceError, trio.ClosedResourceError, OSError):
                    return
                if answer is not None:
                    self._take(answer)

    def paste(self, address: str) -> None:
        """Take the address to which the login redirected; a person copied it from a browser.

        Raises:
            PasteError: it is not this login's redirect.
        """
        self._take(read_pasted(address, self.url, self._state))

    def _take(self, answer: Answer) -> None:
        if self._answer is None:
            self._answer = answer
            self._is_answered.set()

    def _read(self, head: bytes) -> Answer | None:
        words = head.split(b"\r\n", 1)[0].decode("ascii", "replace").split(" ")
        if len(words) != 3 or words[0] != "GET":  # noqa: PLR2004 - method, target, version
            return None
        try:
            target = urlsplit(words[1])
        except ValueError:
            return None
        return read_redirect(target.query, self._state) if target.path == PATH else None


async def _head(stream: trio.SocketStream) -> bytes:
    head = b""
    while b"\r\n\r\n" not in head and len(head) < _HEAD_CAP_BYTES:
        chunk = await stream.receive_some(4096)
        if not chunk:
            break
        head += chunk
    return head


def _page(*, is_known: bool) -> bytes:
    status, text = (
        ("200 OK", "capd has what it needs. You can close this page.")
        if is_known
        else ("404 Not Found", "There is nothing here.")
    )
    return (
        f"HTTP/1.1 {status}\r\ncontent-type: text/plain; charset=utf-8\r\n"
        f"content-length: {len(text)}\r\ncache-control: no-store\r\nconnection: close\r\n\r\n{text}"
    ).encode()


@asynccontextmanager
async def listening(port: int = 0) -> AsyncIterator[RedirectListener]:
    """Listen on a port of 127.0.0.1 for the redirect of a login; 0 stands for any free port.

    The port is open while the block runs.

    Raises:
        OSError: another program uses the port.
    """
    [socket_listener] = await trio.open_tcp_listeners(port, host="127.0.0.1")
    async with socket_listener:
        listener = RedirectListener(socket_listener.socket.getsockname()[1])
        tasks = AsyncExitStack()
        nursery = await tasks.enter_async_context(trio.open_nursery())
        nursery.start_soon(trio.serve_listeners, listener.serve, [socket_listener])
        try:
            yield listener
        finally:
            nursery.cancel_scope.cancel()
            # Not `async with`: a nursery would wrap the block's own exception in a group.
            await tasks.aclose()
