"""A session for programs that block. One thread does its I/O; any thread may use it."""

import contextlib
import selectors
import socket
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from types import TracebackType
from typing import Any, Self

from capd_client.agent.address import (
    CONNECT_TIMEOUT,
    FIRST_PAUSE,
    GREETING_TIMEOUT,
    LAST_PAUSE,
    Address,
)
from capd_client.agent.errors import (
    CapdError,
    NotSentError,
    RefusedError,
    error_of,
    no_answer,
)
from capd_client.agent.link import AgentFacts, Link, RequestOutcome
from capd_client.agent.shapes import Change, Result, Tool, Turn, tools_of
from capd_client.control import Control, ControlError, DaemonDownError
from capd_client.shim.replay import NOT_SENT, REFUSED

_READ_BYTES = 256 * 1024
_FAREWELL = 1.0


class Session:
    """A session with capd, for programs that block: send messages, list tools, and call them.

    It reconnects by itself after a restart of the daemon. `with connect(...)` opens and closes one.
    Its methods raise subclasses of `CapdError`.
    """

    def __init__(self, facts: AgentFacts, where: Address, patience: float) -> None:
        self._link = Link(facts)
        self._where = where
        self._patience = patience
        self._lock = threading.Lock()
        self._waiting: dict[int, Future[dict[str, Any]]] = {}
        self._is_closing = False
        self._is_up = threading.Event()
        self._over_with: CapdError | None = None
        self._wake_in, self._wake_out = socket.socketpair()
        self._wake_in.setblocking(False)
        self._wake_out.setblocking(False)
        self._mover = threading.Thread(target=self._move, name="capd-session", daemon=True)
        self._mover.start()
        try:
            self._is_up.wait()
        except BaseException:
            self.close()
            raise
        if self._over_with is not None:
            self.close()
            raise self._over_with

    def __enter__(self) -> Self:
        """Return this session. It is closed at the end of the `with` block."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def key(self) -> str:
        """The session's key, as `capd sessions` shows it."""
        return self._link.session

    @property
    def changes(self) -> int:
        """A number that grows whenever the result of `tools` may have changed."""
        return self._link.changes

    def turn(self, text: str, *, timeout: float | None = None) -> Turn:
        """Send the user's message, and return what capd decided and its text for the model.

        When this returns, the tools that the message needs are switched on. `timeout` is in
        seconds; None waits without a limit.
        """
        return Turn.read(self._ask("capd/turn", {"text": text}, timeout))

    def tools(self, *, timeout: float | None = None) -> list[Tool]:
        """Return the tools that are listed now.

        `timeout` is in seconds; None waits without a limit.
        """
        return tools_of(self._ask("tools/list", {}, timeout))

    def call(
        self, name: str, arguments: Mapping[str, Any] | None = None, *, timeout: float | None = None
    ) -> Result:
        """Call the tool `name` with these arguments, and return its result.

        `timeout` is in seconds; None waits without a limit.

        Raises:
            NotSentError: nothing has run.
            OutcomeUnknownError: it may have run; also after `timeout` seconds.
            RefusedError, NotFoundError: capd says that it has not run.
            ServerError: the server answered with a JSON-RPC error.
        """
        params = {"name": name, "arguments": dict(arguments or {})}
        return Result.read(self._ask("tools/call", params, timeout))

    def enable(self, name: str) -> Change:
        """Switch the capability `name` on; return what was done."""
        return self._switch("enable", name)

    def disable(self, name: str) -> Change:
        """Switch the capability `name` off; return what was done."""
        return self._switch("disable", name)

    def close(self) -> None:
        """End the session and release its servers at once. Calling it again is harmless."""
        self._is_closing = True
        self._wake()
        if threading.current_thread() is not self._mover:
            self._mover.join()

    def _switch(self, method: str, name: str) -> Change:
        return switched(self._where.path, method, name, self.key)

    def _ask(self, method: str, params: dict[str, Any], timeout: float | None) -> dict[str, Any]:
        future: Future[dict[str, Any]] = Future()
        with self._lock:
            key = self._link.ask(method, params)
            self._waiting[key] = future
        self._wake()
        try:
            # Waiting longer than TIMEOUT_MAX, such as infinitely, would raise OverflowError.
            is_endless = timeout is None or timeout > threading.TIMEOUT_MAX
            return future.result(None if is_endless else timeout)
        except FutureTimeout:
            if future.done():
                # The answer came at the last moment.
                return future.result()
            assert timeout is not None
            raise no_answer(method, timeout, may_have_run=self._drop(key)) from None
        except BaseException:
            self._drop(key)
            raise

    def _drop(self, key: int) -> bool:
        with self._lock:
            may_have_run = self._link.may_have_run(key)
            self._waiting.pop(key, None)
            self._link.drop(key)
        self._wake()
        return may_have_run

    def _wake(self) -> None:
        # If the buffer is full, the thread wakes anyway; if the socket is closed, it has ended.
        with contextlib.suppress(OSError):
            self._wake_in.send(b"\0")

    # The thread that does the I/O

    def _move(self) -> None:
        error: CapdError | None = None
        try:
            while not self._is_closing and self._link.phase != "over":
                with self._reached() as connection:
                    self._serve(connection)
        except CapdError as caught:
            error = caught
        finally:
            with self._lock:
                self._resolve(self._link.end(error))
            self._over_with = error or self._link.fatal
            self._is_up.set()
            self._wake_in.close()
            self._wake_out.close()

    def _reached(self) -> socket.socket:
        """Return a connection to this user's daemon; start the daemon if none runs."""
        is_stopped = self._link.is_stopped
        give_up_at = time.monotonic() + (0.0 if is_stopped else self._patience)
        may_start = self._where.may_start and not is_stopped
        pause, why = FIRST_PAUSE, self._link.trouble
        while True:
            last_key = self._link.last_key
            connection = socket.socket(socket.AF_UNIX)
            connection.settimeout(CONNECT_TIMEOUT)
            try:
                connection.connect(self._where.path)
                self._where.check(connection)
            except OSError as error:
                connection.close()
                why = error.strerror or str(error)
            except BaseException:
                connection.close()
                raise
            else:
                return connection
            if may_start:
                may_start = False
                why = self._where.start()
                continue
            if self._is_closing:
                raise self._where.none(why)
            if time.monotonic() > give_up_at:
                nobody = self._link.stopped() if is_stopped else self._where.none(why)
                self._give_up(nobody, last_key)
            self._sleep(pause)
            pause = min(pause * 2, LAST_PAUSE)

    def _give_up(self, error: CapdError, last_key: int) -> None:
        """Fail the waiting requests up to the key `last_key` with `error`.

        If the session was never connected, raise `error` instead.
        """
        if not self._is_up.is_set():
            raise error
        with self._lock:
            self._resolve(self._link.abandon(error, last_key))

    def _sleep(self, seconds: float) -> None:
        """Wait `seconds`, or until the session is closed."""
        until = time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            selector.register(self._wake_out, selectors.EVENT_READ)
            while not self._is_closing and (left := until - time.monotonic()) > 0:
                if selector.select(left):
                    self._hear_wake()

    def _serve(self, connection: socket.socket) -> None:
        """Read and write on a connection until it is lost, or the session is closed."""
        connection.setblocking(False)
        with self._lock:
            self._link.connected()
        why = ""
        unwritten = b""
        greet_until = time.monotonic() + GREETING_TIMEOUT
        with selectors.DefaultSelector() as selector:
            selector.register(self._wake_out, selectors.EVENT_READ)
            selector.register(connection, selectors.EVENT_READ)
            try:
                while not self._link.is_dropped and not self._is_closing:
                    with self._lock:
                        unwritten = unwritten or self._link.output()
                    events = selectors.EVENT_READ | selectors.EVENT_WRITE * bool(unwritten)
                    selector.modify(connection, events)
                    is_up = self._link.phase == "up"
                    if is_up:
                        self._is_up.set()
                    elif time.monotonic() > greet_until:
                        why = "it does not greet"
                        break
                    for ready, mask in selector.select(None if is_up else GREETING_TIMEOUT):
                        if ready.fileobj is self._wake_out:
                            self._hear_wake()
                            continue
                        if mask & selectors.EVENT_READ:
                            self._read(connection)
                        if mask & selectors.EVENT_WRITE:
                            unwritten = unwritten[connection.send(unwritten) :]
            except OSError as error:
                why = error.strerror or str(error)
        if self._is_closing:
            self._say_goodbye(connection, unwritten)
            return
        with self._lock:
            self._resolve(self._link.lost(why))

    def _read(self, connection: socket.socket) -> None:
        chunk = connection.recv(_READ_BYTES)
        if not chunk:
            raise ConnectionResetError("it closed the connection")
        with self._lock:
            self._resolve(self._link.take(chunk))

    def _say_goodbye(self, connection: socket.socket, unwritten: bytes) -> None:
        with self._lock:
            self._resolve(self._link.end())
            last = unwritten + self._link.output()
        connection.settimeout(_FAREWELL)
        with contextlib.suppress(OSError):
            connection.sendall(last)

    def _hear_wake(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while len(self._wake_out.recv(4096)) == 4096:  # noqa: PLR2004 - until it is empty
                pass

    def _resolve(self, outcomes: list[RequestOutcome]) -> None:
        for each in outcomes:
            future = self._waiting.pop(each.key, None)
            if future is None:
                continue
            if isinstance(each.outcome, CapdError):
                future.set_exception(each.outcome)
            else:
                future.set_result(each.outcome)


def switched(path: str, method: str, name: str, session: str) -> Change:
    """Switch a capability of a session on or off, over a connection of role `control`.

    `path` is the daemon's socket, `method` is `enable` or `disable`, `name` the capability's name,
    and `session` the session's key. Return what was done.

    Raises:
        NotSentError: no daemon answers.
        RefusedError: the capability was not switched.
        CapdError: the daemon answered with another error.
    """
    try:
        with Control(path, client="capd-agent") as control:
            raw = control.call(method, {"name": name, "session": session})
    except DaemonDownError as error:
        raise NotSentError(str(error), NOT_SENT) from None
    except ControlError as error:
        raise error_of({"code": error.code, "message": error.message}) from None
    if not raw.get("ok"):
        raise RefusedError(str(raw.get("text") or f"{name} was not {method}d"), REFUSED)
    return Change.read(raw)
