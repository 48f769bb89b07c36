"""Runs dependency scripts of a tap: `deps/<org>/<tool>.sh` (docs/design/catalog.md).

A script may name a command that tells whether the dependency is already there, in a comment:

    # check: <command>

The check and the script run as separate processes with a time limit. Afterwards their whole process
trees are ended. A script runs under the interpreter named in its first line, or under `sh`.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path

import trio

from capd.adapters.servers.processes import (
    CommandNotFoundError,
    ProcessSpec,
    ServerProcess,
    SpawnFailedError,
    running,
)
from capd.adapters.servers.stderr_tail import printable
from capd.core.errors import CapdError
from capd.core.lazy_patterns import lazy_pattern

CHECK_TIMEOUT = 20.0
INSTALL_TIMEOUT = 600.0
TELL_PAUSE = 1.0
"""Seconds between two reports of a script's last line."""
_CHECK = lazy_pattern(r"^#\s*check:\s*(.+?)\s*$", re.MULTILINE)
_TAIL_LINES = 5
_LONGEST_LINE = 200

OnLine = Callable[[str], None]


class InstallFailedError(CapdError):
    """A dependency is missing, and its script failed."""


async def ensure_installed(
    script: Path,
    environment: Mapping[str, str],
    cwd: Path,
    *,
    on_start: Callable[[], None] = lambda: None,
    on_line: OnLine = lambda _: None,
) -> bool:
    """Run the dependency script `script` unless its check passes; return whether it had to run.

    It runs in the folder `cwd`. `on_start` is called when the script starts. While it runs,
    `on_line` is called with the last line of its output whenever that has changed.

    Raises:
        InstallFailedError: the script is unreadable, failed, or took more than 600 s.
    """
    try:
        text = await trio.Path(script).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InstallFailedError(f"{script.name} cannot be read: {error}") from None
    check = _CHECK.search(text)
    if check and await _succeeds(("sh", "-c", check[1]), environment, cwd):
        return False
    on_start()
    argv = (*_interpreter(text), str(script))
    last_line = ""

    def note_line(line: str) -> None:
        nonlocal last_line
        last_line = line
        on_line(line)

    with trio.move_on_after(INSTALL_TIMEOUT):
        await _run(argv, environment, cwd, script.name, note_line)
        return True
    last = f"; its last line: {last_line}" if last_line else ""
    raise InstallFailedError(f"{script.name} did not end within {INSTALL_TIMEOUT:g} s{last}")


def _interpreter(text: str) -> list[str]:
    first = text.split("\n", 1)[0]
    if not first.startswith("#!"):
        return ["sh"]
    # As the kernel reads it: one interpreter, and one argument at most.
    return first[2:].strip().split(None, 1) or ["sh"]


async def _succeeds(argv: tuple[str, ...], environment: Mapping[str, str], cwd: Path) -> bool:
    with trio.move_on_after(CHECK_TIMEOUT):
        try:
            await _run(argv, environment, cwd, argv[-1])
        except InstallFailedError:
            return False
        return True
    return False


async def _run(
    argv: tuple[str, ...],
    environment: Mapping[str, str],
    cwd: Path,
    name: str,
    on_line: OnLine = lambda _: None,
) -> None:
    said = bytearray()
    try:
        async with running(ProcessSpec(argv, dict(environment), cwd)) as process:
            process.stdin.close()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_drain, process.stdout, said)
                nursery.start_soon(_tell, process, said, on_line)
                status = await process.wait()
                nursery.cancel_scope.cancel()
            lines = process.stderr_tail() or _lines(said)
    except (CommandNotFoundError, SpawnFailedError) as error:
        raise InstallFailedError(str(error)) from None
    if status.code != 0:
        tail = " / ".join(line.strip() for line in lines[-_TAIL_LINES:] if line.strip())
        raise InstallFailedError(f"{name} {status}: {tail}" if tail else f"{name} {status}")


async def _drain(stream: trio.abc.ReceiveStream, said: bytearray) -> None:
    while chunk := await stream.receive_some(65536):
        said += chunk
        del said[:-65536]


async def _tell(process: ServerProcess, said: bytearray, on_line: OnLine) -> None:
    """Call `on_line` with the newest line of the script's output whenever that changes.

    `said` has what the script wrote to standard output. The script's lines on standard error are
    reported, too.
    """
    reported = ["", ""]
    while True:
        await trio.sleep(TELL_PAUSE)
        for n, lines in enumerate((_lines(said), process.stderr_tail())):
            last = next((line.strip() for line in reversed(lines) if line.strip()), "")
            if last and last != reported[n]:
                reported[n] = last
                on_line(last[:_LONGEST_LINE])


def _lines(said: bytearray) -> list[str]:
    return [printable(line) for line in said.decode(errors="replace").splitlines()]
