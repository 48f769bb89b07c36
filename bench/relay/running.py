"""A process that the driver started, with its output in a file."""

import os
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.relay import process_trees


@dataclass(frozen=True, slots=True)
class Running:
    """A process that we started.

    `reads` and `writes` are the descriptors of its standard streams; -1 where it has no pipes.
    """

    pid: int
    log: Path
    reads: int = -1
    writes: int = -1

    @property
    def is_alive(self) -> bool:
        return bool(process_trees.tree([self.pid]))

    def last_words(self) -> str:
        """Return the last line of its output, at most 200 characters of it."""
        try:
            lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return ""
        return next((line.strip()[:200] for line in reversed(lines) if line.strip()), "")


def started(
    argv: list[str], env: Mapping[str, str], cwd: Path, log: Path, *, is_piped: bool = False
) -> Running:
    """Start a command, with pipes to its standard streams if `is_piped`."""
    with log.open("ab") as said:
        process = subprocess.Popen(
            argv,
            env=dict(env),
            cwd=cwd,
            stdin=subprocess.PIPE if is_piped else subprocess.DEVNULL,
            stdout=subprocess.PIPE if is_piped else said,
            stderr=said,
            # Ctrl-C then reaches only the driver, which ends the processes in its own order.
            start_new_session=True,
        )
    # So that this object does not reap it: the driver reaps all its processes.
    process.returncode = 0
    reads = os.dup(process.stdout.fileno()) if process.stdout else -1
    writes = os.dup(process.stdin.fileno()) if process.stdin else -1
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()
    return Running(process.pid, log, reads, writes)


def end_on_signals() -> None:
    """Make SIGTERM and SIGHUP end the driver as Ctrl-C does, through its cleanup."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupted)
