"""The daemon's log as lines, from the file or the journal: what there is, then what comes.

Whoever follows loses no line between the two: the follower begins with lines that were there
already, and those are known by their text, which has the microsecond.
"""

import subprocess
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from capd_client.service.manager import Manager, ServiceError

AGAIN = 1000
"""Lines that the follower begins with."""
ALL = 1_000_000


def there(manager: Manager, count: int = ALL) -> Iterator[str]:
    """Yield the last `count` lines that there are, oldest first.

    Raises:
        ServiceError: the log cannot be read.
    """
    command = manager.logs(follow=False, lines=count, is_bare=True)
    with _running(command, subprocess.PIPE) as process:
        yield from _lines(process)
        said = process.stderr.read().strip() if process.stderr is not None else ""
        if process.wait():
            raise ServiceError(
                f"the log cannot be read: {said or process.returncode}. A daemon that was started "
                "by hand writes to its own terminal"
            )


def coming(manager: Manager, seen: Collection[str]) -> Iterator[str]:
    """Yield every line that is not `seen`, as it comes, until nobody asks for more."""
    old = set(seen)
    command = manager.logs(follow=True, lines=AGAIN, is_bare=True)
    with _running(command, subprocess.DEVNULL) as process:
        for line in _lines(process):
            if line not in old:
                yield line


@contextmanager
def _running(command: list[str], errors_to: int) -> "Iterator[subprocess.Popen[str]]":
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=errors_to,
        text=True,
        errors="replace",
        # Ctrl-C is for us: what we started ends with us.
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def _lines(process: "subprocess.Popen[str]") -> Iterator[str]:
    assert process.stdout is not None
    for line in process.stdout:
        yield line.rstrip("\n")
