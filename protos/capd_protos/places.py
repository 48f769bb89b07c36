"""Where capd's socket and folders are. The daemon and its clients use the same rules.

`CAPD_HOME` puts everything under one folder, for tests or for several daemons side by side.
`CAPD_SOCKET` sets only the path of the socket. Without these variables, all paths follow the XDG
rules (docs/protocol.md), by which a relative path in one of XDG's variables is ignored. The shim,
which an editor starts and waits for, has a copy of `socket_path` that imports nothing; a test
compares the two.
"""

import os
from collections.abc import Callable, Mapping
from typing import NamedTuple

STATE_LOCK = "daemon.lock"
"""The file in the state folder that the running daemon locks (flock(2)), and that has its pid."""

_UNDER_HOME = {
    "XDG_CONFIG_HOME": ".config",
    "XDG_STATE_HOME": ".local/state",
    "XDG_CACHE_HOME": ".cache",
    "XDG_DATA_HOME": ".local/share",
}


# Not a dataclass, whose imports take 8 ms, because some commands have to start fast.
class Places(NamedTuple):
    """Folders and socket of one daemon, as absolute paths; none of them need exist."""

    config: str
    state: str
    cache: str
    data: str
    run: str
    socket: str


def socket_path(
    env: Mapping[str, str], uid: int, is_dir: Callable[[str], bool] = os.path.isdir
) -> str:
    """Return the path of the daemon's socket for the environment `env` and the user id `uid`.

    `is_dir` tells whether a path is a folder.
    """
    if env.get("CAPD_SOCKET"):
        return os.path.abspath(env["CAPD_SOCKET"])
    if env.get("CAPD_HOME"):
        return os.path.join(os.path.abspath(env["CAPD_HOME"]), "run", "capd.sock")
    if os.path.isabs(env.get("XDG_RUNTIME_DIR", "")):
        return os.path.join(env["XDG_RUNTIME_DIR"], "capd", "capd.sock")
    if is_dir(f"/run/user/{uid}"):
        return f"/run/user/{uid}/capd/capd.sock"
    return os.path.join(_home(env), ".local", "state", "capd", "run", "capd.sock")


def places(
    env: Mapping[str, str], uid: int, is_dir: Callable[[str], bool] = os.path.isdir
) -> Places:
    """Return all paths of the daemon for the environment `env` and the user id `uid`.

    `is_dir` tells whether a path is a folder.
    """
    socket = socket_path(env, uid, is_dir)
    if env.get("CAPD_HOME"):
        home = os.path.abspath(env["CAPD_HOME"])
        return Places(
            config=os.path.join(home, "config"),
            state=os.path.join(home, "state"),
            cache=os.path.join(home, "cache"),
            data=os.path.join(home, "data"),
            run=os.path.join(home, "run"),
            socket=socket,
        )
    return Places(
        config=_xdg(env, "XDG_CONFIG_HOME"),
        state=_xdg(env, "XDG_STATE_HOME"),
        cache=_xdg(env, "XDG_CACHE_HOME"),
        data=_xdg(env, "XDG_DATA_HOME"),
        run=os.path.dirname(socket),
        socket=socket,
    )


def make_folders(folder: str | os.PathLike[str]) -> None:
    """Create `folder` and those above it that are missing, each with mode 0700.

    `os.makedirs` and `Path.mkdir` leave the mode of those above it to the umask.

    Raises:
        OSError: one cannot be created, or is not a folder.
    """
    if os.path.isdir(folder):
        return
    above = os.path.dirname(os.path.abspath(folder))
    if not os.path.lexists(above):
        make_folders(above)
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        # Another process may have been faster.
        if not os.path.isdir(folder):
            raise


def folder_variables(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of `env` that move capd's folders, with absolute paths.

    A program that starts capd later may not have them in its environment.
    """
    if env.get("CAPD_HOME"):
        return {"CAPD_HOME": os.path.abspath(env["CAPD_HOME"])}
    moved = {name: os.path.abspath(_folder(env, name)) for name in _UNDER_HOME}
    return {name: path for name, path in moved.items() if path != _usual(env, name)}


def _home(env: Mapping[str, str]) -> str:
    return env.get("HOME") or os.path.expanduser("~")


def _xdg(env: Mapping[str, str], name: str) -> str:
    return os.path.join(_folder(env, name), "capd")


def _folder(env: Mapping[str, str], name: str) -> str:
    """Return the folder that the variable `name` sets; a relative one is ignored."""
    folder = env.get(name, "")
    return folder if os.path.isabs(folder) else _usual(env, name)


def _usual(env: Mapping[str, str], name: str) -> str:
    """Return the folder that is used if the variable `name` is not set."""
    return os.path.join(_home(env), _UNDER_HOME[name])
