"""Runs the parser process: texts that strangers wrote are never parsed in the daemon.

    none ──a job──> idle ──a job──> busy ──answered──> idle ──silent for a while──> none
                                      └──over a limit, or dead──> none, and the job fails

A parser written in Python can take seconds for a few hostile kilobytes, and gigabytes of memory for
a few more. It cannot be interrupted, and blocks every thread. So it runs in a process that can be
killed. The process is started for the first text that a stranger wrote, and never for the user's
own texts. A daemon that will soon read such texts starts it in advance. When the daemon ends, the
socket closes and the process ends. If the process is stopped (SIGSTOP) at that moment, the daemon's
watcher process (`platform/watcher`) kills it. A text that could not be parsed is remembered, so
that no reload tries it again.

All calls block, so make them from threads.
"""

import contextlib
import importlib.util
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import TypeVar, cast

import msgspec

from capd.adapters.channel_process import ChannelProcess
from capd.adapters.parsing.jobs import RESULTS, Job, SettingsRead
from capd.adapters.parsing.process import (
    DONE,
    JOB_HEAD,
    LARGEST_RESULT_BYTES,
    RESULT_HEAD,
    TOO_LARGE,
)

LONGEST_JOB = 0.25
"""CPU seconds for one text; an ordinary one takes one or two milliseconds."""
IDLE = 30.0
LARGEST_JOB_BYTES = 2 << 20
DEADLINE = 10.0
"""Seconds for an answer, however busy the machine is."""
BUDGET = 1.0
"""CPU seconds for the files of one project or tap, plus `BUDGET_PER_JOB` for each file."""
BUDGET_PER_JOB = 0.01
_LONGEST_END = 2.0
_MOST_REMEMBERED = 512
_MODULES = ("capd", "capd_protos", "msgspec", "yaml")
_MAIN = (
    "import sys; sys.path += sys.argv[3:]; "
    "from capd import lazy_dataclasses; lazy_dataclasses.install(); "
    "from capd.adapters.parsing.process import start; start(sys.argv[1:3])"
)

_TOO_LONG = f"it takes more than {LONGEST_JOB:g} s to read"
_TOO_MUCH = "it takes too much memory to read"
_TOO_LARGE = f"it is larger than {LARGEST_JOB_BYTES >> 20} MiB"

T = TypeVar("T")


class _UnreadError(Exception):
    """A job failed. `is_final` says that it would fail again."""

    def __init__(self, reason: str, *, is_final: bool = True) -> None:
        super().__init__(reason)
        self.is_final = is_final


class Parser:
    """The parser process of one daemon."""

    def __init__(
        self,
        longest: float = LONGEST_JOB,
        idle: float = IDLE,
        environment: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        """Set the limits; no process is started yet.

        `longest` is the number of CPU seconds that a job may take. After `idle` seconds without a
        job the process ends. `environment` returns the variables for the process, with the mark of
        the daemon's own processes.
        """
        self._longest = longest
        self._idle = idle
        self._environment = environment
        self._turn = threading.Lock()
        self._process: _Process | None = None
        self._failed: dict[bytes, str] = {}

    is_spent = False

    @property
    def pid(self) -> int | None:
        """The process's pid; None if there is none at the moment."""
        process = self._process
        return process.pid if process is not None and process.is_alive else None

    def start(self) -> None:
        """Start the parser process in advance, so that the first job does not wait for it.

        If it cannot be started, the first job tries again.
        """
        with self._turn:
            if self._process is None:
                with contextlib.suppress(OSError):
                    self._process = _Process(self._longest, self._idle, self._environment())

    def read(self, job: Job[T]) -> T:
        """Return the result of a job, which runs in the parser process after all earlier jobs.

        If the job fails, the result says why.
        """
        return self.timed(job)[0]

    def timed(self, job: Job[T]) -> tuple[T, float]:
        """Run a job as `read` does; return also the CPU seconds that it took.

        A failed job counts as `longest` seconds, and one that is refused at once as none.
        """
        asked = msgspec.msgpack.encode(job)
        if len(asked) > LARGEST_JOB_BYTES:
            return job.unread(_TOO_LARGE), 0.0
        digest = blake2b(asked, digest_size=16).digest()
        with self._turn:
            if digest in self._failed:
                return job.unread(self._failed[digest]), 0.0
            try:
                result, seconds = self._answer(asked)
                return msgspec.msgpack.decode(result, type=RESULTS[type(job)]), seconds
            except (msgspec.MsgspecError, RecursionError):
                error = _UnreadError("it says what cannot be passed on")
            except _UnreadError as failure:
                error = failure
            if error.is_final:
                self._failed[digest] = str(error)
                while len(self._failed) > _MOST_REMEMBERED:
                    del self._failed[next(iter(self._failed))]
        unread = job.unread(str(error))
        if isinstance(unread, SettingsRead):
            # A project's settings may forbid something, so they are read again soon.
            unread = cast("T", msgspec.structs.replace(unread, is_final=error.is_final))
        return unread, self._longest

    def reading(self) -> "BudgetedReader":
        """Return a `Reader` for the files of one project or tap, which share one budget of time."""
        return BudgetedReader(self)

    def close(self) -> None:
        """End the parser process."""
        with self._turn:
            if self._process is not None:
                self._process.end()
                self._process = None

    def _answer(self, asked: bytes) -> tuple[bytes, float]:
        """Return the encoded result of the encoded job `asked`, and its CPU seconds.

        Raises:
            _UnreadError: there is no result.
        """
        kept = self._process
        if kept is not None:
            with contextlib.suppress(OSError):
                return kept.answer(asked)
            self._process = None
            reason = kept.end()
            # The process may have ended because it was idle, or was killed or stopped. The job is
            # tried once more in a new process, unless the job itself ended the process.
            if kept.has_ended_by_job:
                raise _UnreadError(reason)
        try:
            self._process = _Process(self._longest, self._idle, self._environment())
            return self._process.answer(asked)
        except OSError as error:
            started, self._process = self._process, None
            if started is None:
                why = f"the process that reads it cannot be started: {error.strerror}"
                raise _UnreadError(why, is_final=False) from None
            reason = started.end()
            raise _UnreadError(reason, is_final=started.has_ended_by_job) from None


class BudgetedReader:
    """Reads the files of one project or tap, which share one budget of CPU time."""

    def __init__(self, parser: Parser) -> None:
        self._parser = parser
        self._left = BUDGET

    @property
    def is_spent(self) -> bool:
        """Whether the files read so far have used up the available time."""
        return self._left <= 0

    def read(self, job: Job[T]) -> T:
        """Return the result of a job; if the text cannot be read, it contains the reason."""
        if self.is_spent:
            return job.unread(f"the files before it took more than {BUDGET:g} s to read")
        result, seconds = self._parser.timed(job)
        self._left += BUDGET_PER_JOB - seconds
        return result


def command(longest: float, idle: float) -> list[str]:
    """Return the command that starts a parser process; both numbers are as for `Parser`."""
    return [
        # -I and -S: ignore Python's environment variables and site packages.
        *(sys.executable, "-I", "-S", "-c", _MAIN),
        *(str(longest), str(idle)),
        *_import_folders(),
    ]


_SILENT = "the process that reads it has ended"


class _Process:
    """One parser process, from its start to its end."""

    def __init__(self, longest: float, idle: float, environment: Mapping[str, str]) -> None:
        """Start the process; `longest` and `idle` are as for `Parser`.

        Raises:
            OSError: it cannot be started.
        """
        self._process = ChannelProcess(command(longest, idle), environment)
        self._channel = self._process.channel
        self._is_answering = False

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.is_alive

    @property
    def has_ended_by_job(self) -> bool:
        """Whether the process ended because its job used too much CPU time or crashed it.

        False if somebody else has killed the process.
        """
        return self._process.returncode in {-signal.SIGPROF, -signal.SIGXCPU, -signal.SIGSEGV}

    def answer(self, asked: bytes) -> tuple[bytes, float]:
        """Return the encoded result of the encoded job `asked`, and its CPU seconds.

        Raises:
            _UnreadError: the job failed, and the process goes on.
            OSError: the process has ended, or does not answer.
        """
        deadline = time.monotonic() + DEADLINE
        self._channel.settimeout(DEADLINE)
        self._channel.sendall(JOB_HEAD.pack(len(asked)) + asked)
        self._is_answering = True
        size, how, seconds = RESULT_HEAD.unpack(self._received(RESULT_HEAD.size, deadline))
        if size > LARGEST_RESULT_BYTES:
            raise ConnectionError
        result = self._received(size, deadline)
        self._is_answering = False
        if how == TOO_LARGE:
            raise _UnreadError(_TOO_MUCH)
        if how != DONE:
            raise _UnreadError(result.decode(errors="replace"))
        return result, seconds

    def end(self) -> str:
        """End the process; return why its last job has no result."""
        self._channel.close()
        # Without its channel the process ends by itself, unless it is stuck in a job. Its exit
        # status then says why the job has no answer.
        self._process.wait(0.1)
        is_stuck = self._process.is_alive
        if is_stuck:
            self._process.kill()
            self._process.wait(_LONGEST_END)
        code = self._process.returncode
        if code in {-signal.SIGPROF, -signal.SIGXCPU}:
            return _TOO_LONG
        if code == -signal.SIGSEGV:
            return "it crashes what reads it"
        if is_stuck and self._is_answering:
            return f"it was not read within {DEADLINE:g} s"
        return _SILENT

    def _received(self, size: int, deadline: float) -> bytes:
        data = bytearray()
        while len(data) < size:
            self._channel.settimeout(max(0.001, deadline - time.monotonic()))
            part = self._channel.recv(size - len(data))
            if not part:
                raise ConnectionError
            data += part
        return bytes(data)


def _import_folders() -> list[str]:
    """Return the folders from which the parser process imports besides the standard library."""
    found: dict[str, None] = {}
    for name in _MODULES:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin is not None:
            found.setdefault(str(Path(spec.origin).resolve().parents[1]))
    return list(found)
