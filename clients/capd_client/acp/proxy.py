"""Runs the agent's process, and passes lines between it and the editor.

The proxy ends when the agent ends, with the agent's exit code. When the editor is gone, the proxy
closes the agent's input; an agent that goes on running is killed.
"""

import contextlib
import os
import select
import signal
import subprocess
import threading
import time
import uuid
from collections.abc import Iterator, Sequence

from capd_client.acp import process_tree
from capd_client.acp.dialogue import Dialogue
from capd_client.acp.turns import Turns

_READ_BYTES = 256 * 1024
_LINE_LIMIT_BYTES = 64 * 1024 * 1024
"""A longer line is passed on in pieces, and is not parsed."""
VARIABLE = "CAPD_ACP"
"""Tells the agent's own hooks and plugins that `capd acp` sends its prompts to the daemon."""
GRACE = 5.0
"""Seconds that an agent gets to end by itself when its editor is gone, and again after SIGTERM."""
_DRAIN = 1.0
"""Seconds to wait for more output of an agent that has ended; a child may keep its output open."""
_DRAIN_LIMIT = 60.0
"""The most seconds for an editor to read what an agent had written when it ended."""
_LOOK = 0.02
_SIGNALLED = 128


class Proxy:
    """One agent, started by `command`, and its editor on the standard streams.

    `dialogue` adds capd to the lines, and `turns` gets the daemon's texts for prompts. `grace` is
    in seconds, as `GRACE` is.
    """

    def __init__(
        self, command: Sequence[str], dialogue: Dialogue, turns: Turns, *, grace: float = GRACE
    ) -> None:
        self._grace = grace
        self._dialogue = dialogue
        self._turns = turns
        self._lock = threading.Lock()
        self._mark = uuid.uuid4().hex
        self._is_ending = False
        self._has_passed_all = threading.Event()
        """Set while the editor has all output that was read, and the reading thread waits for more.
        """
        self._watcher = process_tree.watch(self._mark, grace)
        self._process = subprocess.Popen(
            list(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            env={**os.environ, VARIABLE: "1", process_tree.MARK: self._mark},
        )
        process_tree.tell(self._watcher, self._process.pid)

    def run(self) -> int:
        """Pass lines between editor and agent until the agent has ended; return its exit code."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # A terminal sends it to the agent as well.
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._forward)
        threading.Thread(target=self._from_editor, daemon=True).start()
        speaking = threading.Thread(target=self._from_agent, daemon=True)
        speaking.start()
        code = self._process.wait()
        if not self._is_ending:
            process_tree.spare(self._watcher)
        speaking.join(_DRAIN)
        give_up_at = time.monotonic() + _DRAIN_LIMIT
        while speaking.is_alive() and not self._is_drained() and time.monotonic() < give_up_at:
            speaking.join(_LOOK)
        return code if code >= 0 else _SIGNALLED - code

    def _is_drained(self) -> bool:
        """Tell whether the editor has everything that the agent has written.

        The pipe is checked before the event: the reading thread clears the event before it empties
        the pipe.
        """
        assert self._process.stdout is not None
        is_empty = not select.select([self._process.stdout], [], [], 0)[0]
        return is_empty and self._has_passed_all.is_set()

    def _forward(self, number: int, _: object) -> None:
        self._is_ending = True
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)

    def _from_editor(self) -> None:
        assert self._process.stdin is not None
        to_agent = self._process.stdin.fileno()
        with contextlib.suppress(OSError):
            for piece, is_line in _pieces(0):
                _write(to_agent, self._with_context(piece) if is_line else piece)
        self._is_ending = True
        self._process.stdin.close()
        try:
            self._process.wait(self._grace)
        except subprocess.TimeoutExpired:
            process_tree.end(self._process.pid, self._mark, self._grace)

    def _with_context(self, line: bytes) -> bytes:
        with self._lock:
            passing = self._dialogue.from_editor(line)
        if passing.prompt is None:
            return passing.line
        return passing.with_context(self._turns.context(passing.prompt))

    def _from_agent(self) -> None:
        assert self._process.stdout is not None
        with contextlib.suppress(OSError):
            for piece, is_line in _pieces(self._process.stdout.fileno(), self._has_passed_all):
                if is_line:
                    with self._lock:
                        if self._dialogue.expects():
                            self._dialogue.from_agent(piece)
                _write(1, piece)
            return
        # The editor no longer reads.
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()


def _pieces(fd: int, waiting: threading.Event | None = None) -> Iterator[tuple[bytes, bool]]:
    """Yield each whole line of the descriptor `fd` with True.

    A line that is too long is yielded in pieces, each with False. `waiting` is set while the caller
    has taken all that was read, and this function waits for more.
    """
    parts: list[bytes] = []
    size = 0
    is_long = False
    while chunk := _read(fd, waiting):
        *ended, rest = chunk.split(b"\n")
        for each in ended:
            yield b"".join([*parts, each, b"\n"]), not is_long
            parts, size, is_long = [], 0, False
        parts.append(rest)
        size += len(rest)
        if size > _LINE_LIMIT_BYTES or (is_long and size):
            yield b"".join(parts), False
            parts, size, is_long = [], 0, True
    if size:
        yield b"".join(parts), not is_long


def _read(fd: int, waiting: threading.Event | None) -> bytes:
    if waiting is not None:
        waiting.set()
        select.select([fd], [], [])
        waiting.clear()
    return os.read(fd, _READ_BYTES)


def _write(fd: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(fd, left) :]
