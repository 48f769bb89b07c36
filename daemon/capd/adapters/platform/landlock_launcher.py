"""Confines its own process with Landlock, and then executes a server in it.

    landlock_launcher.py --read=PATH --write=PATH --no-network -- argv

Run as `python -I -S landlock_launcher.py`, on machines where users may not create namespaces. If
something cannot be enforced, it ends with code 126 and a line on stderr, before the server's first
instruction. `--version` prints the version of Landlock's interface, 0 if there is none.
"""

import ctypes
import os
import struct
import sys

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
RULE_PATH_BENEATH = 1
VERSION_FLAG = 1
NO_NEW_PRIVS = 38
READ = 1 << 0 | 1 << 2 | 1 << 3  # execute, read a file, read a folder
ALL_OF_VERSION = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}
FILE_ONLY = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 14 | 1 << 15  # what a rule on a file may hold
TCP = 0b11
SCOPES = 0b11
NETWORK_VERSION, SCOPE_VERSION = 4, 6
CANNOT = 126


def main(arguments: list[str]) -> None:
    """Confine this process by the options, and execute the command that follows `--`.

    With `--version` alone, print the kernel's Landlock version; 0 if it has no Landlock.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    version = max(0, libc.syscall(CREATE_RULESET, None, 0, VERSION_FLAG))
    if arguments == ["--version"]:
        sys.stdout.write(f"{version}\n")
        return
    mark = arguments.index("--")
    options, argv = arguments[:mark], arguments[mark + 1 :]
    if version < 1:
        fail("this kernel has no Landlock")
    if "--no-network" in options and version < NETWORK_VERSION:
        fail("this kernel's Landlock cannot forbid connections; it takes version 4")
    handled = ALL_OF_VERSION[max(known for known in ALL_OF_VERSION if known <= version)]
    network = TCP if "--no-network" in options else 0
    attributes = struct.pack("=QQQ", handled, network, SCOPES if version >= SCOPE_VERSION else 0)
    size = 8 * (1 + (version >= NETWORK_VERSION) + (version >= SCOPE_VERSION))
    ruleset = libc.syscall(CREATE_RULESET, attributes, size, 0)
    if ruleset < 0:
        fail("the kernel takes no rules")
    for option in options:
        kind, _, path = option.partition("=")
        if path:
            allow(libc, ruleset, path, handled & READ if kind == "--read" else handled)
    zero = ctypes.c_ulong(0)
    libc.prctl(NO_NEW_PRIVS, ctypes.c_ulong(1), zero, zero, zero)
    if libc.syscall(RESTRICT_SELF, ruleset, 0) != 0:
        fail("the kernel does not apply the rules")
    os.close(ruleset)
    try:
        # Not execvp, which imports modules: Python's files cannot be read any more.
        os.execv(argv[0], argv)  # noqa: S606  # there is no shell to want
    except OSError as error:
        fail(f"{argv[0]}: {error.strerror}")


def allow(libc: ctypes.CDLL, ruleset: int, path: str, rights: int) -> None:
    """Add to `ruleset` that the accesses `rights` are allowed for everything below `path`.

    If `path` does not exist, do nothing.
    """
    try:
        folder = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    if not os.path.isdir(path):  # noqa: PTH112  # pathlib costs as much as all of this
        rights &= FILE_ONLY
    libc.syscall(ADD_RULE, ruleset, RULE_PATH_BENEATH, struct.pack("=Qi", rights, folder), 0)
    os.close(folder)


def fail(reason: str) -> None:
    """Print `reason` and end this process, before the server starts."""
    sys.stderr.write(f"capd sandbox: {reason}\n")
    raise SystemExit(CANNOT)


if __name__ == "__main__":
    main(sys.argv[1:])
