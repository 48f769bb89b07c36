"""A session for programs on trio or asyncio. Its own tasks do the I/O; any task may use it."""

import contextlib
import socket
from collections.abc import Mapping
from functools import partial
from types import TracebackType
from typing import Any, Self

import anyio
from anyio.abc import SocketAttribute, TaskGroup, UNIXSocketStream
from anyio.to_thread import run_sync

from capd_client.agent.address import FIRST_PAUSE, GREETING_TIMEOUT, LAST_PAUSE, Address
from capd_client.agent.blocking import switched
from capd_client.agent.errors import CapdError, no_answer
from capd_client.agent.link import AgentFacts, Link, RequestOutcome
from capd_client.agent.shapes import Change, Result, Tool, Turn, tools_of

_READ_BYTES = 256 * 1024
_FAREWELL = 1.0


class _Waiter:
    """The entry of a task that waits for the outcome of one request."""

    def __init__(self) -> None:
        self.is_done = anyio.Event()
        self.outcome: dict[str, Any] | CapdError = {}


class AsyncSession:
    """A session with capd for asynchronous tasks, like `Session`; `async with` opens and closes it.

    Cancelling a task cancels its request.
    """

    def __init__(self, facts: AgentFacts, where: Address, patience: float) -> None:
        self._link = Link(facts)
        self._where = where
        self._patience = patience
        self._waiting: dict[int, _Waiter] = {}
        self._group = anyio.create_task_group()
        self._stream: UNIXSocketStream | None = None
        self._has_output = anyio.Event()
        self._is_up = anyio.Event()
        self._over_with: CapdError | None = None

    async def __aenter__(self) -> Self:
        """Open the session, and return it; the errors are those of `Connecting.open`."""
        await self._group.__aenter__()
        try:
            self._group.start_soon(self._move)
            await self._is_up.wait()
        except BaseException:
            await self._leave()
            raise
        if self._over_with is not None:
            await self._leave()
            raise self._over_with
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._resolve(self._link.end())
        stream = self._stream
        if stream is not None:
            with (
                anyio.move_on_after(_FAREWELL, shield=True),
                contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError),
            ):
                await _write(stream, self._link.output())
        await self._leave()

    async def _leave(self) -> None:
        self._group.cancel_scope.cancel()
        # Without the exception, so that the task group does not wrap it in an exception group.
        await self._group.__aexit__(None, None, None)

    @property
    def key(self) -> str:
        """The session's key, as `capd sessions` shows it."""
        return self._link.session

    @property
    def changes(self) -> int:
        """A number that grows whenever the result of `tools` may have changed."""
        return self._link.changes

    async def turn(self, text: str, *, timeout: float | None = None) -> Turn:
        """Send the user's message, and return what capd decided and its text for the model.

        When this returns, the tools that the message needs are switched on. `timeout` is in
        seconds; None waits without a limit.
        """
        return Turn.read(await self._ask("capd/turn", {"text": text}, timeout))

    async def tools(self, *, timeout: float | None = None) -> list[Tool]:
        """Return the tools that are listed now.

        `timeout` is in seconds; None waits without a limit.
        """
        return tools_of(await self._ask("tools/list", {}, timeout))

    async def call(
        self, name: str, arguments: Mapping[str, Any] | None = None, *, timeout: float | None = None
    ) -> Result:
        """Call the tool `name` with these arguments, and return its result.

        `timeout` and the errors are those of `Session.call`.
        """
        params = {"name": name, "arguments": dict(arguments or {})}
        return Result.read(await self._ask("tools/call", params, timeout))

    async def enable(self, name: str) -> Change:
        """Switch the capability `name` on; return what was done."""
        return await self._switch("enable", name)

    async def disable(self, name: str) -> Change:
        """Switch the capability `name` off; return what was done."""
        return await self._switch("disable", name)

    async def _switch(self, method: str, name: str) -> Change:
        work = partial(switched, self._where.path, method, name, self.key)
        return await run_sync(work, abandon_on_cancel=True)

    async def _ask(
        self, method: str, params: dict[str, Any], timeout: float | None
    ) -> dict[str, Any]:
        key = self._link.ask(method, params)
        waiter = self._waiting[key] = _Waiter()
        self._has_output.set()
        try:
            with anyio.move_on_after(timeout):
                await waiter.is_done.wait()
        except BaseException:
            self._drop(key)
            raise
        if not waiter.is_done.is_set():
            assert timeout is not None
            raise no_answer(method, timeout, may_have_run=self._drop(key))
        if isinstance(waiter.outcome, CapdError):
            raise waiter.outcome
        return waiter.outcome

    def _drop(self, key: int) -> bool:
        may_have_run = self._link.may_have_run(key)
        self._waiting.pop(key, None)
        self._link.drop(key)
        self._has_output.set()
        return may_have_run

    # The tasks that do the I/O

    async def _move(self) -> None:
        error: CapdError | None = None
        try:
            while self._link.phase != "over":
                async with await self._reached() as stream:
                    await self._serve(stream)
        except CapdError as caught:
            error = caught
        self._resolve(self._link.end(error))
        self._over_with = error or self._link.fatal
        self._is_up.set()

    async def _reached(self) -> UNIXSocketStream:
        """Return a connection to this user's daemon; start the daemon if none runs."""
        is_stopped = self._link.is_stopped
        give_up_at = anyio.current_time() + (0.0 if is_stopped else self._patience)
        may_start = self._where.may_start and not is_stopped
        pause, why = FIRST_PAUSE, self._link.trouble
        while True:
            last_key = self._link.last_key
            try:
                stream = await anyio.connect_unix(self._where.path)
            except OSError as error:
                why = error.strerror or str(error)
            else:
                try:
                    self._check(stream)
                except BaseException:
                    await anyio.aclose_forcefully(stream)
                    raise
                return stream
            if may_start:
                may_start = False
                why = await run_sync(self._where.start, abandon_on_cancel=True)
                continue
            if anyio.current_time() > give_up_at:
                nobody = self._link.stopped() if is_stopped else self._where.none(why)
                self._give_up(nobody, last_key)
            await anyio.sleep(pause)
            pause = min(pause * 2, LAST_PAUSE)

    def _check(self, stream: UNIXSocketStream) -> None:
        # Each backend has a socket object of its own; all have a descriptor.
        raw = stream.extra(SocketAttribute.raw_socket)  # noqa: S610 - no database is near
        with socket.socket(fileno=socket.dup(raw.fileno())) as connection:
            self._where.check(connection)

    def _give_up(self, error: CapdError, last_key: int) -> None:
        """Fail the waiting requests up to the key `last_key` with `error`.

        If the session was never connected, raise `error` instead.
        """
        if not self._is_up.is_set():
            raise error
        self._resolve(self._link.abandon(error, last_key))

    async def _serve(self, stream: UNIXSocketStream) -> None:
        """Read and write on a connection until it is lost."""
        self._link.connected()
        self._stream = stream
        why = ""
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._write, stream, group)
                group.start_soon(self._watch, group)
                why = await self._read(stream)
                group.cancel_scope.cancel()
        finally:
            self._stream = None
        self._resolve(self._link.lost(why))

    async def _watch(self, group: TaskGroup) -> None:
        """End the tasks in `group` if the session is not ready in `GREETING_TIMEOUT` seconds.

        These tasks use the connection, which is closed when they end.
        """
        await anyio.sleep(GREETING_TIMEOUT)
        if self._link.phase != "up":
            group.cancel_scope.cancel()

    async def _read(self, stream: UNIXSocketStream) -> str:
        """Read until the connection is lost; return the reason of the loss, for a person."""
        while not self._link.is_dropped:
            try:
                chunk = await stream.receive(_READ_BYTES)
            except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
                return "it closed the connection"
            self._resolve(self._link.take(chunk))
            self._has_output.set()
            if self._link.phase == "up":
                self._is_up.set()
        return ""

    async def _write(self, stream: UNIXSocketStream, group: TaskGroup) -> None:
        try:
            while True:
                if self._link.has_output:
                    await _write(stream, self._link.output())
                else:
                    await self._has_output.wait()
                    self._has_output = anyio.Event()
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            group.cancel_scope.cancel()

    def _resolve(self, outcomes: list[RequestOutcome]) -> None:
        for each in outcomes:
            waiter = self._waiting.pop(each.key, None)
            if waiter is not None:
                waiter.outcome = each.outcome
                waiter.is_done.set()


async def _write(stream: UNIXSocketStream, output: bytes) -> None:
    if output:
        await stream.send(output)
