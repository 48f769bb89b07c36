"""Computes the environment of a daemon that one client starts and all clients use.

One daemon serves every editor, so the editor that happens to start it must not decide for the
others: an agent may strip or set a variable such as SSL_CERT_FILE for its own children, and a
project's `.envrc` may set any. What the daemon gets:

- `USER_VARIABLES` and `CAPD_*` come from the client: they name the user and capd's folders, on
  which the client and the daemon must agree. PATH comes without folders of a project: relative
  ones, those in the client's working folder, and each `node_modules/.bin`, which npm puts first.
  Otherwise every editor would use a clone's `npx`.
- `NETWORK_VARIABLES` come from the login environment (`systemctl --user show-environment`).
  Without systemd they come from /etc/environment, and then from the client unless direnv has
  changed its environment.
- Nothing else.

The daemon itself asks the login shell for PATH and for the network's variables, which takes longer.
"""

import posix
import select
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

USER_VARIABLES = (
    b"DBUS_SESSION_BUS_ADDRESS",
    b"DISPLAY",
    b"HOME",
    b"LANG",
    b"LANGUAGE",
    b"LOGNAME",
    b"PATH",
    b"PYTHON_KEYRING_BACKEND",
    b"SHELL",
    b"SSH_AUTH_SOCK",
    b"TEMP",
    b"TERM",
    b"TMP",
    b"TMPDIR",
    b"TZ",
    b"USER",
    b"WAYLAND_DISPLAY",
    b"XAUTHORITY",
    b"XDG_CACHE_HOME",
    b"XDG_CONFIG_DIRS",
    b"XDG_CONFIG_HOME",
    b"XDG_CURRENT_DESKTOP",
    b"XDG_DATA_DIRS",
    b"XDG_DATA_HOME",
    b"XDG_RUNTIME_DIR",
    b"XDG_SESSION_TYPE",
    b"XDG_STATE_HOME",
)
_USER_PREFIXES = (b"CAPD_", b"LC_")
NETWORK_VARIABLES = (
    b"CURL_CA_BUNDLE",
    b"GIT_SSL_CAINFO",
    b"NIX_SSL_CERT_FILE",
    b"NODE_EXTRA_CA_CERTS",
    b"NODE_USE_SYSTEM_CA",
    b"REQUESTS_CA_BUNDLE",
    b"SSL_CERT_DIR",
    b"SSL_CERT_FILE",
)
_NETWORK_PREFIXES = (b"NPM_CONFIG_", b"PIP_", b"UV_")
_PROXIES = (b"ALL_PROXY", b"FTP_PROXY", b"HTTPS_PROXY", b"HTTP_PROXY", b"NO_PROXY")
_CLIENT_VARIABLES = (
    b"CAPD_CLIENT",
    b"CAPD_SESSION",
    b"CAPD_PARENT_SESSION",
    b"CAPD_PROJECT",
    b"CAPD_NO_START",
    b"CAPD_ACP",
    b"CAPD_ACP_TREE",
    b"CAPD_INSTANCE",
    b"CAPD_HOOK_BUDGET",
    b"CAPD_PATIENCE",
    b"CAPD_RESTART_GRACE",
    b"CAPD_IDLE_RETRY",
)
"""Variables that are about one client or session, and must not reach the daemon."""
_DIRENV = b"DIRENV_DIFF"
_OF_NPM = b"/node_modules/.bin"
_SYSTEMCTL = ("/usr/bin/systemctl", "/bin/systemctl", "/run/current-system/sw/bin/systemctl")
"""Where systemctl may be. PATH is not used, because a project may have put a folder on it."""
_SYSTEMD_PATIENCE = 1.0
_LONGEST_BYTES = 1 << 20


def daemon_environment(
    own: "Mapping[bytes, bytes]",
    login: "Mapping[bytes, bytes]",
    *,
    is_whole: bool,
    folders: "tuple[bytes, ...]" = (),
) -> "dict[bytes, bytes]":
    """Return the daemon's environment, made of the client's (`own`) and the login's (`login`).

    `is_whole` says that `login` is complete: then network variables are not taken from `own`.
    `folders` are the paths of the client's working folder, whose programs must not be on PATH.
    """
    is_taken = not is_whole and _DIRENV not in own
    found = {
        name: value
        for name, value in own.items()
        if _is_of_user(name) or (is_taken and is_of_network(name))
    }
    if b"PATH" in found:
        path = path_without_projects(found.pop(b"PATH"), folders, own.get(b"HOME", b""))
        if path:
            found[b"PATH"] = path
    for name, value in login.items():
        if is_of_network(name):
            found[name] = value
        elif _is_of_user(name):
            found.setdefault(name, value)
    return found


def path_without_projects(path: bytes, folders: "tuple[bytes, ...]", home: bytes) -> bytes:
    """Return the PATH `path` without the entries that a project may control.

    Those are relative folders, `node_modules/.bin`, and `folders` with all that is below them.
    `folders` are the known paths of the client's working folder, which may be reached through a
    link. A folder that is `home`, or is above it, is not a project's, and removes nothing.
    """
    projects = [
        folder.rstrip(b"/") + b"/"
        for folder in folders
        if not (home.rstrip(b"/") + b"/").startswith(folder.rstrip(b"/") + b"/")
    ]
    return b":".join(
        each
        for each in path.split(b":")
        if each.startswith(b"/")
        and not each.rstrip(b"/").endswith(_OF_NPM)
        and not any((each + b"/").startswith(project) for project in projects)
    )


def _is_of_user(name: bytes) -> bool:
    is_known = name in USER_VARIABLES or name.startswith(_USER_PREFIXES)
    return is_known and name not in _CLIENT_VARIABLES


def is_of_network(name: bytes) -> bool:
    """Tell whether a variable configures the network or the package registries."""
    upper = name.upper()
    return name in NETWORK_VARIABLES or upper in _PROXIES or upper.startswith(_NETWORK_PREFIXES)


def clean_environment(
    own: "Mapping[bytes, bytes]", folders: "tuple[bytes, ...]"
) -> "dict[bytes, bytes]":
    """Return the environment for a daemon that this client starts.

    `own` is the client's environment, and `folders` are the paths of its working folder. The login
    environment is read from systemd or a file.
    """
    login = _of_systemd(own)
    is_whole = bool(login)
    login = login or _of_file(b"/etc/environment")
    return daemon_environment(own, login, is_whole=is_whole, folders=folders)


def working_folders(own: "Mapping[bytes, bytes]") -> "tuple[bytes, ...]":
    """Return the paths of the working folder: the one without symlinks, and the one in PWD."""
    try:
        real = posix.getcwdb()
    except OSError:
        return ()
    named = own.get(b"PWD", b"")
    try:
        there, here = posix.stat(named), posix.stat(real)
    except (OSError, ValueError):
        return (real,)
    is_same = (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino)
    return (real, named) if is_same and named.startswith(b"/") else (real,)


def _of_systemd(own: "Mapping[bytes, bytes]") -> "dict[bytes, bytes]":
    runtime = own.get(b"XDG_RUNTIME_DIR") or b"/run/user/%d" % posix.getuid()
    try:
        # Without this socket no user manager runs, and `systemctl --user` would fail slowly.
        posix.stat(runtime + b"/systemd/private")
        for program in _SYSTEMCTL:
            if _is_there(program):
                return parse_lines(_systemd_output(program, own))
    except OSError:
        return {}
    return {}


def _is_there(path: str) -> bool:
    try:
        posix.stat(path)
    except OSError:
        return False
    return True


def _systemd_output(program: str, own: "Mapping[bytes, bytes]") -> bytes:
    readable, writable = posix.pipe()
    pid = 0
    output = b""
    try:
        nowhere = (posix.POSIX_SPAWN_OPEN, 2, "/dev/null", posix.O_WRONLY, 0)
        pid = posix.posix_spawn(
            program,
            ["systemctl", "--user", "show-environment"],
            dict(own),
            file_actions=[(posix.POSIX_SPAWN_DUP2, writable, 1), nowhere],
        )
        posix.close(writable)
        writable = -1
        poll = select.poll()
        poll.register(readable, select.POLLIN)
        give_up_at = time.monotonic() + _SYSTEMD_PATIENCE
        while len(output) < _LONGEST_BYTES:
            left = int((give_up_at - time.monotonic()) * 1000)
            if left <= 0 or not poll.poll(left):
                posix.kill(pid, 9)
                return b""
            chunk = posix.read(readable, 65536)
            if not chunk:
                return output
            output += chunk
        return b""
    finally:
        posix.close(readable)
        if writable >= 0:
            posix.close(writable)
        if pid:
            posix.waitpid(pid, 0)


def _of_file(path: bytes) -> "dict[bytes, bytes]":
    try:
        fd = posix.open(path, posix.O_RDONLY | posix.O_NONBLOCK)
    except OSError:
        return {}
    try:
        return parse_lines(posix.read(fd, _LONGEST_BYTES))
    except OSError:
        return {}
    finally:
        posix.close(fd)


def parse_lines(text: bytes) -> "dict[bytes, bytes]":
    """Return the variables in lines `NAME=VALUE`, the format of pam_env(8) and of systemctl.

    A value that systemctl escapes (`$'...'`) contains a control character, and is left out.
    """
    found = {}
    for line in text.splitlines():
        name, equals, value = line.strip().removeprefix(b"export ").partition(b"=")
        if not equals or not name or name.startswith(b"#") or value.startswith(b"$'"):
            continue
        if len(value) > 1 and value[:1] == value[-1:] and value[:1] in {b'"', b"'"}:
            value = value[1:-1]
        found[name] = value
    return found
