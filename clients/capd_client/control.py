"""A connection of role `control` to the daemon (docs/protocol.md), for requests or for events.

Standard library only, so that a command which asks the daemon starts at once.
"""

import contextlib
import json
import os
import socket
import struct
import sys
import time
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, Self

from capd_client.shim.replay import DAEMON_LINE_LIMIT_BYTES, is_encodable
from capd_protos import SOCKET_PROTOCOL

INVALID_PARAMS = -32602
"""The JSON-RPC code for parameters that a method does not take."""
_READ_BYTES = 256 * 1024
_CONNECT_TIMEOUT = 5.0
_CONNECT_PAUSE = 0.05
_TIMEOUT = 30.0
_LONG_TIMEOUT = 660.0
"""Seconds: a capability may first install programs, and a tool may take minutes."""
_WHOLE_CATALOG_TIMEOUT = 3700.0
"""Seconds: the daemon answers only after it has read all taps, or asked every server."""
_TIMEOUTS = {
    **dict.fromkeys(("turn", "enable", "disable", "call", "login", "login_wait"), _LONG_TIMEOUT),
    **dict.fromkeys(("reload", "index"), _WHOLE_CATALOG_TIMEOUT),
}


class DaemonDownError(Exception):
    """No daemon answers at the socket."""

    def __init__(self, path: str, reason: str = "") -> None:
        super().__init__(f"no daemon at {path}" + (f" ({reason})" if reason else ""))
        self.path = path


class ControlError(Exception):
    """The daemon answered with an error, not in time, or not as docs/protocol.md says.

    `code` is the JSON-RPC code of the error, 0 if it has none. `name` is a word for programs, such
    as `timeout`, and `message` a text for a person.
    """

    def __init__(self, code: int, name: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.name = name
        self.message = message


class Control:
    """A connection to the daemon whose socket is `path`; it is made with the first request.

    `client` is the client name in its hello. `timeout` is the number of seconds for each request;
    if it is None, the limit depends on the method. After an error that broke the connection, the
    next request connects again.

    Raises:
        DaemonDownError: no daemon answers at `path`, or the connection was lost.
        ControlError: the daemon answered with an error, or not in time.
    """

    def __init__(self, path: str, *, client: str = "capd", timeout: float | None = None) -> None:
        self._path = path
        self._client = client
        self._timeout = timeout
        self._sock: socket.socket | None = None
        self._buffer = bytearray()
        self._last_id = 0
        self.daemon: Mapping[str, Any] = {}
        """The daemon's `version` and `pid`, from its welcome; empty before the first connection."""

    def __enter__(self) -> Self:
        """Connect, so that a missing daemon is noticed before the first request."""
        self.connect()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def connect(self) -> None:
        """Open the connection unless it is open already."""
        if self._sock is not None:
            return
        self._sock = self._reach()
        self._sock.settimeout(_CONNECT_TIMEOUT)
        try:
            hello = {"capd": "hello", "protocol": SOCKET_PROTOCOL, "role": "control"}
            self._write({**hello, "client": {"name": self._client}})
            frame = self._read()
        except BaseException:
            self.close()
            raise
        if frame.get("capd") == "welcome":
            self.daemon = frame.get("daemon", {})
            return
        self.close()
        if frame.get("capd") == "refused":
            message = str(frame.get("message") or frame.get("code"))
            raise ControlError(0, str(frame.get("code")), message)
        raise ControlError(0, "protocol", f"what listens at {self._path} is not capd")

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        sock, self._sock = self._sock, None
        if sock is not None:
            with contextlib.suppress(OSError):
                # Without a shutdown, a thread that is receiving would wait, and the daemon too.
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()
        self._buffer.clear()

    def call(self, method: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Send a request for `method` with `params`; wait for the answer, and return its result."""
        self.connect()
        default = _TIMEOUTS.get(method, _TIMEOUT)
        timeout = default if self._timeout is None else self._timeout
        self._connected().settimeout(timeout)
        self._last_id += 1
        key = self._last_id
        self._write({"jsonrpc": "2.0", "id": key, "method": method, "params": dict(params or {})})
        while True:
            message = self._read()
            # The answer to a line that the daemon could not read has no id.
            if message.get("id") == key or ("id" in message and message["id"] is None):
                return _result_of(message)

    def events(self, topics: list[str] | None = None) -> Iterator[dict[str, Any]]:
        """Subscribe to events now; return an iterator over them, until the daemon disconnects.

        `topics` are prefixes such as `server.`; without any, all events come. Each item has the
        event's `topic`, and the event's fields in `event`.
        """
        self.call("events", {"topics": topics or []})
        self._connected().settimeout(None)
        return self._events()

    def _events(self) -> Iterator[dict[str, Any]]:
        while True:
            try:
                message = self._read()
            except DaemonDownError:
                return
            if message.get("method") == "event" and isinstance(message.get("params"), dict):
                yield message["params"]

    def fileno(self) -> int:
        """Return the file descriptor of the open connection; -1 if none is open."""
        return -1 if self._sock is None else self._sock.fileno()

    def read_event(self) -> dict[str, Any]:
        """Wait for the daemon's next message, of any kind, and return it unchanged.

        Call it only while no request of this connection is waiting for its answer.
        """
        self._connected().settimeout(None)
        return self._read()

    def _reach(self) -> socket.socket:
        """Return a connected socket, after checking that the daemon runs as this user.

        Another user's program at the socket could read every call.
        """
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(0)
        give_up_at = time.monotonic() + _CONNECT_TIMEOUT
        while True:
            try:
                sock.connect(self._path)
                break
            except BlockingIOError:
                # The backlog is full: the daemon is there, and busy.
                if time.monotonic() < give_up_at:
                    time.sleep(_CONNECT_PAUSE)
                    continue
                sock.close()
                raise DaemonDownError(self._path, "it does not take connections") from None
            except OSError as error:
                sock.close()
                is_absent = isinstance(error, FileNotFoundError | ConnectionRefusedError)
                reason = "" if is_absent else (error.strerror or str(error))
                raise DaemonDownError(self._path, reason) from None
        uid = peer_uid(sock)
        if uid != os.getuid():
            sock.close()
            text = f"the daemon at {self._path} runs as user {uid}, not as you: remove that socket"
            raise ControlError(0, "stranger", text)
        return sock

    def _write(self, message: Mapping[str, Any]) -> None:
        for text in _texts(message):
            if not is_encodable(text):
                raise ControlError(INVALID_PARAMS, "invalid_params", f"{text!r} is not UTF-8")
        # The daemon knows a link frame by its first bytes: there is no space after the colon.
        line = json.dumps(message, separators=(",", ":")).encode() + b"\n"
        try:
            self._connected().sendall(line)
        except OSError as error:
            raise self._broken(error) from None

    def _read(self) -> dict[str, Any]:
        """Wait for the daemon's next message, and return it: a JSON object on a line of its own."""
        searched = 0
        while (end := self._buffer.find(b"\n", searched)) < 0:
            searched = len(self._buffer)
            self._fill()
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            message = None
        if isinstance(message, dict):
            return message
        self.close()
        raise ControlError(0, "protocol", f"what listens at {self._path} is not capd")

    def _fill(self) -> None:
        if len(self._buffer) > DAEMON_LINE_LIMIT_BYTES:
            self.close()
            raise ControlError(0, "protocol", f"a line of the daemon at {self._path} has no end")
        try:
            chunk = self._connected().recv(_READ_BYTES)
        except OSError as error:
            raise self._broken(error) from None
        if not chunk:
            self.close()
            raise DaemonDownError(self._path, "it closed the connection")
        self._buffer += chunk

    def _connected(self) -> socket.socket:
        if self._sock is None:
            raise DaemonDownError(self._path)
        return self._sock

    def _broken(self, error: OSError) -> Exception:
        self.close()
        if isinstance(error, TimeoutError):
            text = f"the daemon at {self._path} did not answer in time; `capd status` may say why"
            return ControlError(0, "timeout", text)
        return DaemonDownError(self._path, error.strerror or "the connection broke")


def peer_uid(sock: socket.socket) -> int:
    """Return the user id of the process at the other end; this user's if the system cannot say."""
    if sys.platform != "linux":
        return os.getuid()
    size = struct.calcsize("3i")
    credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    _, uid, _ = struct.unpack("3i", credentials)
    return int(uid)


def _texts(value: object) -> Iterator[str]:
    """Yield each text in a message, keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from _texts(key)
            yield from _texts(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _texts(each)


def _result_of(message: Mapping[str, Any]) -> dict[str, Any]:
    error = message.get("error")
    if isinstance(error, dict):
        code = error.get("code")
        data = error.get("data")
        name = data.get("code") if isinstance(data, dict) else ""
        text = str(error.get("message") or "the daemon gave no reason")
        raise ControlError(code if isinstance(code, int) else 0, str(name or code), text)
    result = message.get("result")
    if not isinstance(result, dict):
        raise ControlError(0, "protocol", "the daemon answered with neither a result nor an error")
    return result
