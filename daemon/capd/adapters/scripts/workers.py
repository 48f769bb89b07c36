"""Runs the script processes, and sends them steps.

    none ──a step──> idle ──a step──> busy ──answered──> idle ──silent for a while──> none
                                       └──dead, or over its time──> none: the step runs once more

A step without an idle process starts one, up to `most`; further steps wait. Each process has one
end of a socket pair, and ends by itself when the other end closes. So a killed daemon leaves none
behind. If a process is stopped (SIGSTOP) at that moment, the daemon's watcher process
(`platform/watcher`) kills it.
"""

import contextlib
import sys
from collections.abc import Callable, Mapping

import msgspec
import structlog
import trio

from capd.adapters.channel_process import ChannelProcess
from capd.adapters.scripts.steps import (
    HEAD_BYTES,
    MOST_FRAME_BYTES,
    Called,
    Ended,
    OnCalls,
    Step,
    Stepped,
)
from capd.core.errors import CapdError

IDLE = 60.0
"""Seconds without a step after which a process ends."""
DEADLINE = 20.0
"""Seconds of real time for one step, on a busy machine."""
_READ_BYTES = 256 << 10
_TRIES = 2
_FRAMES: msgspec.msgpack.Decoder[Called | Stepped] = msgspec.msgpack.Decoder(Called | Stepped)

log = structlog.get_logger(actor="curator")


class ScriptsUnavailableError(CapdError):
    """No process can run a script; the text says why."""


class _ProcessOverError(Exception):
    """The process has ended, or does not answer in time."""


class ScriptWorkers:
    """The script processes of one daemon."""

    def __init__(
        self,
        most: int = 2,
        idle: float = IDLE,
        environment: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        """Set the limits; no process is started yet.

        At most `most` processes run, and each ends after `idle` seconds without a step.
        `environment` returns all variables that a process gets.
        """
        self._idle_seconds = idle
        self._environment = environment
        self._turns = trio.CapacityLimiter(most)
        self._idle: list[_Process] = []

    @property
    def pids(self) -> list[int]:
        """The pids of the idle processes."""
        return [each.pid for each in self._idle if each.is_alive]

    def resize(self, most: int) -> None:
        """Change the highest number of processes to `most`."""
        self._turns.total_tokens = most

    async def run(self, step: Step, on_calls: OnCalls = lambda _: None) -> Stepped:
        """Run one step of a script in a process; return the step's result.

        If two processes in turn die during the step, the result is an error of the script.
        `on_calls` is called with the script's calls before the snapshot has arrived; again if a
        second process repeats the step.

        Raises:
            ScriptsUnavailableError: no process can be started.
        """
        request = msgspec.msgpack.encode(step)
        if len(request) > MOST_FRAME_BYTES:
            return Ended(error="The script holds too much: keep less of each result.")
        async with self._turns:
            for left in reversed(range(_TRIES)):
                process = self._taken(step.script) or await self._started()
                is_new = process.steps == 0
                try:
                    answer = await process.answered(request, on_calls)
                except _ProcessOverError as error:
                    # A process that ended while it was idle has not begun the step.
                    log.info("script_process_over", reason=str(error), pid=process.pid)
                    if left or not is_new:
                        continue
                    return Ended(error=f"The script was ended: {error}.")
                else:
                    process.script = step.script
                    self._idle.append(process)
                    return answer
            return Ended(error="The script was ended: its process has died twice.")

    def close(self) -> None:
        """End the idle processes; a busy one ends after its step."""
        while self._idle:
            self._idle.pop().end()

    def _taken(self, script: str) -> "_Process | None":
        """Return an idle process, preferably one that has `script` loaded; None if none is idle."""
        for each in [each for each in self._idle if not each.is_alive]:
            self._idle.remove(each)
            each.end()
        if not self._idle:
            return None
        held = next((each for each in self._idle if each.script == script), self._idle[0])
        self._idle.remove(held)
        return held

    async def _started(self) -> "_Process":
        try:
            return await trio.to_thread.run_sync(
                _Process, self._idle_seconds, dict(self._environment())
            )
        except OSError as error:
            raise ScriptsUnavailableError(
                f"the process that runs scripts cannot be started: {error.strerror or error}"
            ) from None


class _Process:
    """One script process, from its start to its end."""

    def __init__(self, idle: float, environment: Mapping[str, str]) -> None:
        """Start the script process; `idle` and `environment` are as for `ScriptWorkers`.

        Raises:
            OSError: it cannot be started.
        """
        self.script = ""
        self.steps = 0
        self._process = ChannelProcess(
            [
                # -E -P: no PYTHONPATH, and no module of the working directory.
                *(sys.executable, "-E", "-P", "-X", "utf8"),
                *("-m", "capd.adapters.scripts.process", str(idle)),
            ],
            environment,
        )
        self._stream: trio.SocketStream | None = None
        self._read = bytearray()
        """The bytes that have arrived after the last frame."""

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.is_alive

    async def answered(self, request: bytes, on_calls: OnCalls) -> Stepped:
        """Send an encoded step to the process; return its result.

        `on_calls` is called with the script's calls before the snapshot has arrived.

        Raises:
            _ProcessOverError: the process has ended, or does not answer in time.
        """
        if self._stream is None:
            self._stream = trio.SocketStream(trio.socket.from_stdlib_socket(self._process.channel))
        answer: Stepped | None = None
        try:
            with trio.move_on_after(DEADLINE):
                await self._stream.send_all(len(request).to_bytes(HEAD_BYTES, "big") + request)
                frame = _FRAMES.decode(await self._frame(self._stream))
                if isinstance(frame, Called):
                    on_calls(frame.calls)
                    frame = _FRAMES.decode(await self._frame(self._stream))
                if isinstance(frame, Called):
                    raise _ProcessOverError("it calls twice in one step")
                answer = frame
        except (trio.BrokenResourceError, trio.ClosedResourceError, msgspec.MsgspecError):
            raise _ProcessOverError("its process has ended") from None
        finally:
            if answer is None:
                self.end()
        if answer is None:
            raise _ProcessOverError(f"it was not done within {DEADLINE:g} s")
        self.steps += 1
        return answer

    async def _frame(self, stream: trio.SocketStream) -> bytes:
        """Return the next frame that the process sends."""
        size = MOST_FRAME_BYTES
        while True:
            if len(self._read) >= HEAD_BYTES:
                size = int.from_bytes(self._read[:HEAD_BYTES], "big")
                if size > MOST_FRAME_BYTES:
                    raise _ProcessOverError("it answers too much")
            end = HEAD_BYTES + size
            if len(self._read) >= end:
                frame = bytes(self._read[HEAD_BYTES:end])
                del self._read[:end]
                return frame
            part = await stream.receive_some(_READ_BYTES)
            if not part:
                raise _ProcessOverError("its process has ended")
            self._read += part

    def end(self) -> None:
        """End the process, and with it the interpreter below it."""
        with contextlib.suppress(OSError):
            if self._stream is not None:
                self._stream.socket.close()
            else:
                self._process.channel.close()
        if self.is_alive:
            self._process.kill()
