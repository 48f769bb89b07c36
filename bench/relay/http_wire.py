"""MCP over HTTP/1.1 on the loopback, for peers that offer nothing else: streamable HTTP, or SSE.

Connections are kept alive and a request takes one that is free, as any client's pool does.
"""

import select
import socket

from bench.relay.line_wire import WireError, milliseconds_until

_READ_BYTES = 1 << 20
_HEAD_END = b"\r\n\r\n"
_EVENT_ENDS = (b"\n\n", b"\r\n\r\n")


class _Connection:
    """One kept-alive connection with at most one request in progress.

    head -> body (of a known length, or chunks) -> head ...
    """

    def __init__(self, port: int) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=5.0)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.is_free = True
        self.is_closed = False
        self.endpoint = ""
        """The path to post to, as an SSE stream names it."""
        self.session = ""
        self._raw = bytearray()
        self._body = bytearray()
        self._searched = 0
        self._left: int | None = None
        self._is_in_head = True
        self._is_chunked = False
        self._is_events = False
        self._status = ""

    def request(self, method: str, path: str, headers: str, body: bytes, deadline: float) -> None:
        self.is_free = False
        head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{headers}"
        if method == "POST":
            head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        self.sock.settimeout(max(0.01, milliseconds_until(deadline) / 1000))
        try:
            self.sock.sendall(head.encode() + b"\r\n" + body)
        except OSError as error:
            raise WireError(f"sending failed: {error}") from None

    def read(self) -> list[bytes]:
        """Return the messages that a read completes."""
        try:
            chunk = self.sock.recv(_READ_BYTES)
        except OSError:
            chunk = b""
        if not chunk:
            self.is_closed = True
            if self.is_free:
                # The server has closed an idle connection.
                return []
            raise WireError("it closed a connection with a request under way")
        self._raw += chunk
        messages: list[bytes] = []
        while self._advance(messages):
            pass
        return messages

    def _advance(self, messages: list[bytes]) -> bool:
        """Take one step through what has arrived; return whether there may be another."""
        if self._is_in_head:
            return self._take_head(messages)
        if self._left is None:
            return self._take_chunk_size(messages)
        if self._left:
            piece = self._raw[: self._left]
            del self._raw[: len(piece)]
            self._left -= len(piece)
            self._body += piece
            if self._is_events:
                self._take_events(messages)
        if self._left:
            return False
        if not self._is_chunked:
            self._end(messages)
            return bool(self._raw)
        if len(self._raw) < 2:
            return False
        del self._raw[:2]
        self._left = None
        return True

    def _take_head(self, messages: list[bytes]) -> bool:
        end = self._raw.find(_HEAD_END)
        if end < 0:
            return False
        first, *lines = self._raw[:end].decode("latin-1").split("\r\n")
        del self._raw[: end + len(_HEAD_END)]
        headers = {
            name.lower(): value.strip()
            for name, _, value in (each.partition(":") for each in lines)
        }
        self._status = first.partition(" ")[2]
        self._is_events = headers.get("content-type", "").startswith("text/event-stream")
        self._is_chunked = "chunked" in headers.get("transfer-encoding", "")
        self.session = headers.get("mcp-session-id", self.session)
        self._left = None if self._is_chunked else int(headers.get("content-length", "0"))
        self._is_in_head = False
        if self._left == 0:
            self._end(messages)
        return True

    def _take_chunk_size(self, messages: list[bytes]) -> bool:
        end = self._raw.find(b"\r\n")
        if end < 0:
            return False
        size = int(self._raw[:end].split(b";")[0], 16)
        if size:
            del self._raw[: end + 2]
            self._left = size
            return True
        # The last chunk is empty, and followed by an empty line.
        if len(self._raw) < end + 4:
            return False
        del self._raw[: end + 4]
        self._end(messages)
        return bool(self._raw)

    def _take_events(self, messages: list[bytes]) -> None:
        while True:
            ends = [
                (at, len(mark))
                for mark in _EVENT_ENDS
                if (at := self._body.find(mark, self._searched)) >= 0
            ]
            if not ends:
                # A megabyte arrives in many pieces: none of it is searched twice.
                self._searched = max(0, len(self._body) - 3)
                return
            at, length = min(ends)
            self._take_event(bytes(self._body[:at]), messages)
            del self._body[: at + length]
            self._searched = 0

    def _take_event(self, event: bytes, messages: list[bytes]) -> None:
        fields = [line.partition(b":") for line in event.splitlines()]
        content = b"\n".join(value.strip() for name, _, value in fields if name == b"data")
        if any(name == b"event" and value.strip() == b"endpoint" for name, _, value in fields):
            self.endpoint = content.decode()
        elif content:
            messages.append(content)

    def _end(self, messages: list[bytes]) -> None:
        body = bytes(self._body)
        self._body.clear()
        self._searched = 0
        self._left = None
        self._is_in_head = True
        self.is_free = True
        if not self._status.startswith("2"):
            raise WireError(f"HTTP {self._status}")
        if body.startswith(b"{") and not self._is_events:
            messages.append(body)


class HttpWire:
    """A client of one HTTP endpoint; with `is_sse`, over the older transport (HTTP with SSE)."""

    def __init__(self, port: int, path: str, deadline: float, *, is_sse: bool) -> None:
        self._port = port
        self._path = path
        self._pool: dict[int, _Connection] = {}
        self._poll = select.poll()
        self._messages: list[bytes] = []
        self._session = ""
        self._stream: _Connection | None = None
        if is_sse:
            self._stream = self._connected()
            self._stream.request("GET", path, "Accept: text/event-stream\r\n", b"", deadline)
            while not self._stream.endpoint:
                self._read(deadline)
            self._path = self._stream.endpoint

    def send(self, message: bytes, deadline: float) -> None:
        if self._poll.poll(0):
            self._read(deadline)
        free = next((each for each in self._pool.values() if each.is_free), None)
        headers = "Accept: application/json, text/event-stream\r\n"
        if self._session:
            headers += f"Mcp-Session-Id: {self._session}\r\nMCP-Protocol-Version: 2025-11-25\r\n"
        (free or self._connected()).request("POST", self._path, headers, message, deadline)

    def receive(self, deadline: float) -> list[bytes]:
        while not self._messages:
            self._read(deadline)
        messages, self._messages = self._messages, []
        return messages

    def close(self) -> None:
        for connection in self._pool.values():
            connection.sock.close()

    def _connected(self) -> _Connection:
        try:
            connection = _Connection(self._port)
        except OSError as error:
            raise WireError(f"connecting failed: {error}") from None
        self._pool[connection.sock.fileno()] = connection
        self._poll.register(connection.sock, select.POLLIN)
        return connection

    def _read(self, deadline: float) -> None:
        events = self._poll.poll(milliseconds_until(deadline))
        if not events:
            raise WireError("no answer in time")
        for fd, _ in events:
            connection = self._pool[fd]
            self._messages += connection.read()
            self._session = self._session or connection.session
            if connection.is_closed:
                self._poll.unregister(fd)
                self._pool.pop(fd).sock.close()
