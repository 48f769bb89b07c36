"""The program on the far side of a bridge: it installs the shim there, and removes it again.

The far side is the other host or the container; the near side is the machine of the daemon.

    prepare ──> hold ──`bye`, end of input, silence, a signal──> everything removed
                  └──a newer `prepare` came──> left as it is

The program needs Python 3.8 and its standard library, and reads its orders from standard input, so
that no secret is ever among the arguments of a process. Everything is in one folder of mode 0700:

    ~/.local/share/capd-bridge/NAME/  capd.pyz  credential  generation  pid  socket
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import signal
import socket
import sys
import time
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

MARK = "capd-bridge:"
"""The beginning of each line for the near side. Lines without it come from a login shell."""
SILENCE = 60.0
"""Seconds without a message from the near side after which it counts as gone."""
FILES = ("capd.pyz", "credential", "generation", "socket", "pid")


def folder_of(name: str) -> Path:
    """Return the folder on this machine with the files of the bridge `name`."""
    return Path("~/.local/share/capd-bridge").expanduser() / name


def say(**members: object) -> None:
    """Send one message to the near side: `members` as a line of JSON."""
    with contextlib.suppress(OSError):
        sys.stdout.write(f"{MARK}{json.dumps(members)}\n")
        sys.stdout.flush()


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of all bridges on this machine while the block runs.

    `folder` is the folder of any bridge.
    """
    above = folder.parent
    is_held = False
    while not is_held:
        above.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(above, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            with contextlib.suppress(FileNotFoundError):
                # The previous holder may have removed the folder, and another process created it.
                is_held = os.path.samestat(above.stat(), os.fstat(lock))
            if is_held:
                yield
        finally:
            os.close(lock)


def write(path: Path, data: bytes, mode: int) -> None:
    """Write `data` to the file at `path`, which has the mode `mode` from the start."""
    beside = path.with_name(f"{path.name}.{os.getpid()}")
    beside.unlink(missing_ok=True)
    with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(data)
    beside.replace(path)


def prepare(order: dict[str, Any], shim: bytes) -> None:
    """Install the program `shim` and its credential, replacing those of an earlier bridge.

    `order` is the near side's command. Its `generation` is a random text that is new for each
    connection of the bridge.
    """
    folder = folder_of(order["name"])
    with locked(folder):
        folder.mkdir(mode=0o700, exist_ok=True)
        if folder.is_symlink() or folder.stat().st_uid != os.getuid():
            raise OSError(f"{folder} is a link, or somebody else's")
        folder.chmod(0o700)
        if order.get("kind") == "container":
            end_holder(holder_of(folder))
        else:
            end_connection(holder_of(folder))
        remove_files(folder, ("socket",))
        write(folder / "capd.pyz", shim, 0o700)
        write(folder / "credential", order["credential"].encode(), 0o600)
        write(folder / "generation", order["generation"].encode(), 0o600)
        try:
            if order.get("install"):
                install(folder)
        except (OSError, ValueError):
            # No holder will start, which would remove them.
            remove_files(folder, FILES)
            remove_empty(folder)
            raise
    say(folder=str(folder), python=sys.executable or "python3", installed=order.get("install"))


def hold(folder: Path, generation: str) -> None:
    """Wait until the near side is gone; then remove everything in `folder`.

    The near side is the machine of the daemon, from which the bridge was opened. `generation` is
    that of the command `prepare`. If a newer connection has installed its files since, they stay.
    """
    # The zip file that a bridge copies here contains the runner as a separate module.
    from capd_client.bridge.runner import RunnerSupervisor  # noqa: PLC0415

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _stop)
    supervisor = RunnerSupervisor(folder)
    try:
        write(folder / "pid", str(os.getpid()).encode(), 0o600)
        say(held=True)
        why = _wait(supervisor)
    except _Stopped:
        why = "stopped"
    finally:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        supervisor.close()
        clean(folder, generation)
    say(removed=True, why=why)


def hold_streams(folder: Path, generation: str) -> None:
    """Serve the bridge's socket over standard input and output, until the near side is gone.

    At the end remove everything that was installed. `folder` and `generation` are as for `hold`.
    """
    # The zip file that a bridge copies here contains these as separate modules.
    from capd_client.bridge.runner import RunnerSupervisor  # noqa: PLC0415
    from capd_client.bridge.streams import StreamEndedError, Streams  # noqa: PLC0415

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _stop)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    streams = Streams(0, 1, listener=listener)
    supervisor = RunnerSupervisor(folder)
    why = "gone"
    try:
        write(folder / "pid", str(os.getpid()).encode(), 0o600)
        os.umask(0o177)
        listener.bind(str(folder / "socket"))
        listener.listen(32)
        streams.say(held=True)
        why = _serve(streams, supervisor)
    except _Stopped:
        why = "stopped"
    except StreamEndedError:
        pass
    finally:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        supervisor.close()
        clean(folder, generation)
        listener.close()
        streams.close()
        with contextlib.suppress(StreamEndedError):
            streams.say(removed=True, why=why)
            streams.drain()


def _serve(streams: Any, supervisor: Any) -> str:
    last_message_at = time.monotonic()
    while time.monotonic() < last_message_at + SILENCE:
        supervisor.ensure_running()
        words, _ = streams.turn(1.0)
        if words:
            last_message_at = time.monotonic()
        if any(each.get("bye") for each in words):
            return "bye"
    return "silence"


def _wait(supervisor: Any) -> str:
    last_message_at = time.monotonic()
    while time.monotonic() < last_message_at + SILENCE:
        supervisor.ensure_running()
        if not select.select([0], [], [], 1.0)[0]:
            continue
        data = os.read(0, 4096)
        last_message_at = time.monotonic()
        if not data or b"bye" in data:
            return "bye" if data else "gone"
    return "silence"


class _Stopped(BaseException):
    """Raised by a signal handler to end this process."""


def _stop(_number: int, _frame: object) -> None:
    raise _Stopped


def clean(folder: Path, generation: str = "") -> None:
    """Remove what a bridge installed in `folder`, unless a newer one of the same name replaced it.

    It was replaced if the saved generation is not `generation`. If `generation` is empty,
    everything is removed in any case.
    """
    if not folder.parent.is_dir():
        # Nothing is installed, and taking the lock would create the folder.
        return
    with locked(folder):
        if not generation or _generation_of(folder) == generation:
            uninstall(folder)
            remove_files(folder, FILES)
        remove_empty(folder)


def _generation_of(folder: Path) -> str:
    try:
        return (folder / "generation").read_text()
    except FileNotFoundError:
        return ""


def remove(name: str) -> None:
    """End the process that holds the bridge `name`, and remove all of the bridge's files."""
    folder = folder_of(name)
    if folder.is_dir():
        holder = holder_of(folder)
        clean(folder)
        if holder:
            with contextlib.suppress(OSError):
                os.kill(holder, signal.SIGTERM)
    say(removed=True, why="asked")


def holder_of(folder: Path) -> int:
    """Return the pid of the process that holds a bridge open; 0 if it cannot be identified.

    `folder` has the bridge's files.
    """
    with contextlib.suppress(OSError, ValueError):
        pid = int((folder / "pid").read_text())
        command = Path("/proc", str(pid), "cmdline").read_bytes().split(b"\0")
        if str(folder / "capd.pyz").encode() in command:
            return pid
    return 0


def end_connection(holder: int) -> None:
    """Kill the sshd of an earlier connection, which is an ancestor of the process `holder`.

    After a network failure, that sshd may wait for hours. The shims that are connected to it wait
    as long, because their connections stay open. The sshd runs as this user, so no privilege is
    needed.
    """
    pid = holder
    while pid > 1:
        with contextlib.suppress(OSError, ValueError):
            stat = Path("/proc", str(pid), "stat").read_text()
            name = stat.partition("(")[2].rpartition(")")[0]
            if name.startswith("sshd"):
                os.kill(pid, signal.SIGKILL)
                return
            pid = int(stat.rpartition(")")[2].split()[1])
            continue
        return


def end_holder(holder: int) -> None:
    """Kill the process `holder`, which holds an earlier connection.

    If that connection was cut, the process may go on waiting for a minute.
    """
    if holder > 1:
        with contextlib.suppress(OSError):
            os.kill(holder, signal.SIGKILL)


def remove_files(folder: Path, names: Iterable[str]) -> None:
    """Remove the files with these names in `folder`, as far as they exist."""
    for name in names:
        (folder / name).unlink(missing_ok=True)


def remove_empty(folder: Path) -> None:
    """Remove `folder` and the folder of all bridges, as far as they are empty."""
    for each in (folder, folder.parent):
        with contextlib.suppress(OSError):
            each.rmdir()


# Claude Code


def config_file() -> Path:
    """Return the path of Claude Code's configuration."""
    return Path("~/.claude.json").expanduser()


def entry(folder: Path) -> dict[str, Any]:
    """Return the entry for the shim in `folder`, for Claude Code's configuration."""
    python = sys.executable or "python3"
    args = [str(folder / "capd.pyz")]
    # Without `alwaysLoad` the first request to the model is sent before the tools are there.
    return {"type": "stdio", "command": python, "args": args, "alwaysLoad": True}


def install(folder: Path) -> None:
    """Add the shim in `folder` to Claude Code's configuration.

    Raises:
        OSError: the configuration has another server that is called `capd`.
        ValueError: the configuration cannot be read.
    """
    config = read_config()
    servers = config.setdefault("mcpServers", {})
    if servers.setdefault("capd", entry(folder)) != entry(folder):
        raise OSError(f"{config_file()} has another server that is called capd")
    write(config_file(), json.dumps(config, indent=2).encode(), 0o600)


def uninstall(folder: Path) -> None:
    """Remove the entry `capd` from Claude Code's configuration, if it starts `folder`'s shim."""
    with contextlib.suppress(OSError, ValueError):
        config = read_config()
        servers = config.get("mcpServers", {})
        if servers.get("capd") != entry(folder):
            return
        del servers["capd"]
        if not servers:
            del config["mcpServers"]
        if config:
            write(config_file(), json.dumps(config, indent=2).encode(), 0o600)
        else:
            config_file().unlink()


def read_config() -> dict[str, Any]:
    """Return Claude Code's configuration; empty if there is none.

    Raises:
        OSError: it cannot be read.
        ValueError: it is not a JSON object, or its `mcpServers` is none.
    """
    try:
        found = json.loads(config_file().read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        reason = str(error)
    else:
        if isinstance(found, dict) and isinstance(found.get("mcpServers", {}), dict):
            return found
        reason = "it has no object where one is expected"
    repair = "correct it there, or leave --install out"
    raise ValueError(f"{config_file()} is not a configuration of Claude Code ({reason}): {repair}")


def obey() -> int:
    """Carry out the command that is on standard input; return the exit code."""
    order = json.loads(sys.stdin.buffer.readline())
    try:
        if order["do"] == "prepare":
            prepare(order, sys.stdin.buffer.read(order["size"]))
        else:
            remove(order["name"])
    except (OSError, ValueError) as error:
        say(failed=str(error))
        return 1
    return 0
