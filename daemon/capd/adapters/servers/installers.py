"""Dependency scripts of a tap: `deps/<org>/<tool>.sh` (10-catalog, "Deps-only capabilities").

A script names in its header how to see that there is nothing to do: `# check: <command>`. Both
run off the event loop, with a time limit, as a process tree that ends with them.
"""

import re
from collections.abc import Mapping
from pathlib import Path

import trio

from capd.adapters.servers.processes import (
    CommandNotFoundError,
    ProcessSpec,
    SpawnFailedError,
    running,
)
from capd.core.errors import CapdError

CHECK_TIMEOUT = 20.0
INSTALL_TIMEOUT = 600.0
_CHECK = re.compile(r"^#\s*check:\s*(.+?)\s*$", re.MULTILINE)
_TAIL_LINES = 5


class InstallFailedError(CapdError):
    """A dependency is not there, and its script could not bring it."""


async def ensure_installed(script: Path, environment: Mapping[str, str], cwd: Path) -> bool:
    """Run `script` unless its check passes; return whether it had to run.

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
    with trio.move_on_after(INSTALL_TIMEOUT):
        await _run(("sh", str(script)), environment, cwd, script.name)
        return True
    raise InstallFailedError(f"{script.name} did not end within {INSTALL_TIMEOUT:g} s")


async def _succeeds(argv: tuple[str, ...], environment: Mapping[str, str], cwd: Path) -> bool:
    with trio.move_on_after(CHECK_TIMEOUT):
        try:
            await _run(argv, environment, cwd, argv[-1])
        except InstallFailedError:
            return False
        return True
    return False


async def _run(argv: tuple[str, ...], environment: Mapping[str, str], cwd: Path, name: str) -> None:
    said = bytearray()
    try:
        async with running(ProcessSpec(argv, dict(environment), cwd)) as process:
            process.stdin.close()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_drain, process.stdout, said)
                status = await process.wait()
                nursery.cancel_scope.cancel()
            lines = process.stderr_tail() or said.decode(errors="replace").splitlines()
    except (CommandNotFoundError, SpawnFailedError) as error:
        raise InstallFailedError(str(error)) from None
    if status.code != 0:
        tail = " / ".join(line.strip() for line in lines[-_TAIL_LINES:] if line.strip())
        raise InstallFailedError(f"{name} {status}: {tail}" if tail else f"{name} {status}")


async def _drain(stream: trio.abc.ReceiveStream, said: bytearray) -> None:
    while chunk := await stream.receive_some(65536):
        said += chunk
        del said[:-65536]
