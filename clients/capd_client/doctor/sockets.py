"""Checks the socket's path and permissions, and looks for sockets at other paths."""

import os
import socket
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from capd_client.doctor.environment import CheckContext
from capd_client.doctor.findings import Finding

LONGEST_PATH_BYTES = 107
"""The longest path of a Unix socket on Linux: `sun_path` of unix(7) without the final NUL."""
_TIMEOUT = 1.0
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def check_socket(seen: CheckContext) -> Iterator[Finding]:
    """Check the path, type and permissions of the daemon's socket for this environment."""
    path = seen.places.socket
    size = len(os.fsencode(path))
    if size > LONGEST_PATH_BYTES:
        yield Finding(
            "socket",
            "error",
            f"the socket's path has {size} bytes: {path}",
            f"the system takes {LONGEST_PATH_BYTES}",
            "set CAPD_SOCKET, or CAPD_HOME, to a shorter path",
        )
        return
    there = [each for each in (Path(path).parent, Path(path)) if each.exists()]
    wrong = [finding for each in there for finding in _not_private(each, seen.uid)]
    yield from wrong
    if Path(path) in there and not Path(path).is_socket():
        yield Finding(
            "socket", "error", f"{path} is not a socket", "something else is there", f"rm {path}"
        )
    elif Path(path) in there and seen.down:
        yield Finding(
            "socket",
            "note",
            f"{path} was left by an earlier daemon; the next one will replace it",
        )
    elif there and not wrong:
        yield Finding("socket", "ok", f"nobody else can reach {path}")


def check_other_sockets(seen: CheckContext) -> Iterator[Finding]:
    """Report sockets at the paths that programs with another XDG_RUNTIME_DIR would use."""
    if seen.env.get("CAPD_HOME") or seen.env.get("CAPD_SOCKET"):
        return
    home = seen.env.get("HOME") or Path.home()
    elsewhere = (
        Path(seen.env.get("XDG_RUNTIME_DIR") or "/nowhere", "capd", "capd.sock"),
        Path(f"/run/user/{seen.uid}/capd/capd.sock"),
        Path(home, ".local", "state", "capd", "run", "capd.sock"),
    )
    for path in dict.fromkeys(elsewhere):
        if path == Path(seen.places.socket) or not path.exists():
            continue
        if _is_answered(str(path)):
            yield Finding(
                "other socket",
                "warning",
                f"another daemon of yours listens at {path}",
                "a program whose XDG_RUNTIME_DIR differs from yours here uses that one",
                f"CAPD_SOCKET={path} capd stop, and give both programs the same XDG_RUNTIME_DIR",
            )
        else:
            yield Finding(
                "other socket",
                "warning",
                f"a socket that no daemon serves is at {path}",
                "a daemon ended without removing it",
                f"rm {path}",
            )


def _not_private(path: Path, uid: int) -> Iterator[Finding]:
    found = path.stat()
    if found.st_uid != uid:
        yield Finding(
            "socket",
            "error",
            f"{path} belongs to user {found.st_uid}, not to you",
            "whoever owns it could read every call",
            "ask its owner to remove it, or set CAPD_SOCKET to a file name in a folder of your own",
        )
    elif found.st_mode & _OTHERS:
        yield Finding(
            "socket",
            "error",
            f"{path} is open to others (mode {stat.S_IMODE(found.st_mode):04o})",
            "they could have tools called in your name",
            f"chmod go-rwx {path}",
        )


def _is_answered(path: str) -> bool:
    with closing(socket.socket(socket.AF_UNIX)) as sock:
        sock.settimeout(_TIMEOUT)
        try:
            sock.connect(path)
        except (FileNotFoundError, ConnectionRefusedError):
            return False
        except OSError:
            # Busy, or not permitted: something listens there.
            return True
    return True
