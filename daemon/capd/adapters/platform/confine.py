"""How a guard (guard.py) confines itself, and so the server that it then starts.

    guard.py FD --apart --narrow --hide=FOLDER --show=PATH --read-only=PATH --own=FILE
    confine.py --hide=FOLDER --apart      prints which of these work here

`--apart`       a Landlock domain that only forbids signals to processes outside of it. The kernel
                also lets no process in a domain trace a process outside, or read its environment,
                memory or descriptors. A filter on system calls refuses `prlimit` on other
                processes, which Landlock does not cover.
`--narrow`      a filter on system calls refuses `prlimit` on other processes, and every use of
                the kernel's keyrings: processes of a user share them across pid namespaces and
                Landlock domains. It is for strict servers, which cannot gain privileges from
                another program anyway.
`--hide`        an empty, read-only folder in place of one of capd's, in a mount namespace.
`--show`        a path in the hidden folders that stays visible.
`--read-only`   as `--show`, but the path cannot be written.
`--own`         a file of root that should seem to be the user's. Without privilege a mount
                namespace needs a user namespace, in which root's files seem to be nobody's, and
                `ssh` refuses to include such files.

All of it applies to the guard too, so a server may inspect and signal its parent process, as some
do to notice its end. Nothing needs privilege. Whatever the kernel refuses is left out; `confine`
returns whether `--hide` and `--apart` are in force. This file imports only modules written in C, as
guard.py does.
"""

import posix
import sys

CLONE_NEWNS = 0x20000
CLONE_NEWUSER = 0x10000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_REMOUNT = 1, 2, 4, 32
MS_BIND, MS_REC, MS_SLAVE = 4096, 16384, 0x80000
PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 4, 22, 38
LANDLOCK_CREATE_RULESET, LANDLOCK_RESTRICT_SELF = 444, 446
LANDLOCK_VERSION_FLAG = 1
SCOPE_VERSION = 6
SCOPE_SIGNAL = 2
OPTIONS = ("--hide=", "--show=", "--read-only=", "--own=")
S_IFMT, S_IFDIR = 0o170000, 0o040000
MOST_COPIED_BYTES = 1 << 20

# The audit architectures of a machine, and the numbers of `prlimit64` in each.
PRLIMIT = {
    "x86_64": ((0xC000003E, 302), (0xC000003E, 302 | 0x40000000), (0x40000003, 340)),
    "aarch64": ((0xC00000B7, 261), (0x40000028, 369)),
}
# The same for `add_key`; the numbers of `request_key` and `keyctl` are the next two.
KEYRINGS = {
    "x86_64": ((0xC000003E, 248), (0xC000003E, 248 | 0x40000000), (0x40000003, 286)),
    "aarch64": ((0xC00000B7, 217), (0x40000028, 309)),
}
SECCOMP_MODE_FILTER = 2
SECCOMP_ALLOW, SECCOMP_EPERM = 0x7FFF0000, 0x00050001
BPF_LOAD, BPF_JUMP_EQUAL, BPF_RETURN = 0x20, 0x15, 0x06
# Offsets in `struct seccomp_data`.
NUMBER, ARCHITECTURE, PID, NEW_LIMIT_LOW, NEW_LIMIT_HIGH = 0, 4, 16, 32, 36


class ConfinementRefusedError(Exception):
    """The kernel refused an operation by which this process confines itself."""


class Kernel:
    """Calls functions of the C library without the module `ctypes`, which takes 4 ms to import."""

    def __init__(self) -> None:
        """Open the C library, in which functions are looked up by name.

        Raises:
            ImportError: the interpreter lacks the module `_ctypes`.
        """
        import _ctypes  # noqa: PLC0415

        self._ctypes = _ctypes
        self._library = _ctypes.dlopen(None, 0)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

    def call(self, name: str, *arguments: "int | bytes | None") -> int:
        """Return the result of the C function `name`. An `int` argument must fit in 32 bits."""
        function = self._ctypes.dlsym(self._library, name)
        result: int = self._ctypes.call_function(function, arguments)
        return result

    def must(self, name: str, *arguments: "int | bytes | None") -> None:
        """Call the C function `name`, which returns 0 if it succeeds.

        Raises:
            ConfinementRefusedError: it returned something else than 0.
        """
        if self.call(name, *arguments) != 0:
            raise ConfinementRefusedError(name)


def confine(options: "list[str]") -> "list[str]":
    """Confine this process by `options`; return which of `hidden` and `apart` are in force.

    `options` are words of the command line, such as `--apart` and `--hide=FOLDER`.
    """
    held: list[str] = []
    if sys.platform != "linux":
        return held
    try:
        kernel = Kernel()
    except (ImportError, OSError):
        return held
    paths = {
        option: [bytes_of(each[len(option) :]) for each in options if each.startswith(option)]
        for option in OPTIONS
    }
    if paths["--hide="]:
        try:
            hide(kernel, paths)
            held.append("hidden")
        except (ConfinementRefusedError, OSError):
            pass
    if "--apart" in options:
        try:
            separate(kernel)
            held.append("apart")
        except (ConfinementRefusedError, OSError):
            pass
    if "--narrow" in options:
        try:
            kernel.must("prctl", PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
            keep_limits(kernel)
            filter_calls(kernel, keyrings_filter(posix.uname().machine))
        except (ConfinementRefusedError, OSError):
            pass
    # Last, because a process that is not dumpable may not write to its own /proc/self.
    shut(kernel)
    return held


def shut(kernel: Kernel) -> None:
    """Deny other processes of this user access to this one's memory and environment."""
    kernel.call("prctl", PR_SET_DUMPABLE, 0, 0, 0, 0)


def hide(kernel: Kernel, paths: "dict[str, list[bytes]]") -> None:
    """Put an empty folder in place of each hidden folder.

    `paths` has the values of each option, by the option, such as `--hide=`.

    Raises:
        OSError, ConfinementRefusedError: the system refuses all or a part of it.
    """
    copies = [(path, text) for path in paths["--own="] if (text := content(path))]
    enter_namespaces(kernel)
    # Opened before the folders are hidden, and after the namespace was entered: a descriptor of
    # another namespace cannot be mounted here.
    shown = [
        (path, option == "--read-only=", posix.open(path, posix.O_PATH | posix.O_CLOEXEC))
        for option in ("--show=", "--read-only=")
        for path in paths[option]
    ]
    for folder in paths["--hide="]:
        options = b"mode=0700,size=%dk" % (64 + sum(len(text) for _, text in copies) // 512)
        kernel.must("mount", b"capd", folder, b"tmpfs", MS_NOSUID | MS_NODEV, options)
    for path, is_read_only, fd in shown:
        show(kernel, path, fd, is_read_only=is_read_only)
        posix.close(fd)
    # Each copy is written here and mounted over its file; this name can then be removed.
    spare = paths["--hide="][0] + b"/.own"
    for path, text in copies:
        write(spare, text, posix.O_CREAT | posix.O_EXCL)
        kernel.must("mount", spare, path, None, MS_BIND, None)
        posix.unlink(spare)
    for folder in paths["--hide="]:
        kernel.must("mount", b"none", folder, None, MS_REMOUNT | MS_BIND | MS_RDONLY | 6, None)
    # Enter the working directory again by its path: it may be below a hidden folder.
    try:  # noqa: SIM105  # contextlib costs 4 of 11 ms at start
        posix.chdir(posix.getcwdb())
    except OSError:
        pass


def enter_namespaces(kernel: Kernel) -> None:
    """Enter a mount namespace, and without privilege a user namespace around it.

    Raises:
        OSError, ConfinementRefusedError: the system refuses it.
    """
    if kernel.call("unshare", CLONE_NEWNS) != 0:
        user, group = posix.geteuid(), posix.getegid()
        if user == 0:
            # In a user namespace, root would lose access to other users' files.
            raise ConfinementRefusedError("unshare")
        kernel.must("unshare", CLONE_NEWUSER | CLONE_NEWNS)
        write(b"/proc/self/setgroups", b"deny")
        write(b"/proc/self/uid_map", b"%d %d 1" % (user, user))
        write(b"/proc/self/gid_map", b"%d %d 1" % (group, group))
    # Later mounts outside appear here, and mounts made here do not appear outside.
    kernel.must("mount", b"none", b"/", None, MS_REC | MS_SLAVE, None)


def show(kernel: Kernel, path: bytes, fd: int, *, is_read_only: bool) -> None:
    """Make a file or folder visible again at `path`, inside a folder that was hidden.

    `fd` is a descriptor of what `path` names, opened before the folder around it was hidden. With
    `is_read_only` it cannot be written there.

    Raises:
        OSError, ConfinementRefusedError: the system refuses it.
    """
    parent = path.rpartition(b"/")[0]
    missing = []
    while not exists(parent):
        missing.append(parent)
        parent = parent.rpartition(b"/")[0]
    for folder in reversed(missing):
        posix.mkdir(folder, 0o700)
    if not exists(path):
        if posix.fstat(fd).st_mode & S_IFMT == S_IFDIR:
            posix.mkdir(path, 0o700)
        else:
            write(path, b"", posix.O_CREAT)
    kernel.must("mount", b"/proc/self/fd/%d" % fd, path, None, MS_BIND | MS_REC, None)
    if is_read_only:
        kernel.must("mount", b"none", path, None, MS_REMOUNT | MS_BIND | MS_RDONLY | 6, None)


def separate(kernel: Kernel) -> None:
    """Enter a Landlock domain, and give up the power to change other processes' limits.

    Raises:
        ConfinementRefusedError: the kernel has no Landlock scopes, or does not apply them.
    """
    if kernel.call("syscall", LANDLOCK_CREATE_RULESET, None, 0, LANDLOCK_VERSION_FLAG) < (
        SCOPE_VERSION
    ):
        raise ConfinementRefusedError("landlock_create_ruleset")
    rules = bytes(16) + SCOPE_SIGNAL.to_bytes(8, sys.byteorder)
    ruleset = kernel.call("syscall", LANDLOCK_CREATE_RULESET, rules, len(rules), 0)
    if ruleset < 0:
        raise ConfinementRefusedError("landlock_create_ruleset")
    try:
        kernel.must("prctl", PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        kernel.must("syscall", LANDLOCK_RESTRICT_SELF, ruleset, 0)
    finally:
        posix.close(ruleset)
    keep_limits(kernel)


def keep_limits(kernel: Kernel) -> None:
    """Forbid this process and its children, for ever, to change limits of other processes.

    Landlock would allow it for any other process of the same user. A server could then keep the
    daemon from opening descriptors, so that it serves nobody.
    """
    filter_calls(kernel, limits_filter(posix.uname().machine))


def filter_calls(kernel: Kernel, program: bytes) -> None:
    """Have the filter `program` decide on all system calls of this process and its children.

    The filter is in the kernel's format, and stays in force until the processes end.
    """
    if not program:
        return
    address = id(program) + bytes.__basicsize__ - 1  # where CPython has the bytes themselves
    count = (len(program) // 8).to_bytes(8, sys.byteorder)  # two bytes, and six of padding
    kernel.call(
        "prctl",
        PR_SET_SECCOMP,
        SECCOMP_MODE_FILTER,
        count + address.to_bytes(8, sys.byteorder),
        0,
        0,
    )


def limits_filter(machine: str) -> bytes:
    """Return the filter that refuses `prlimit` on other processes; empty for unknown machines.

    It is in the kernel's format.
    """
    calls = PRLIMIT.get(machine, ())
    steps = []
    for architecture, number in calls:
        # A jump gives the number of steps to skip: to the next call, or to the return.
        steps += [
            (BPF_LOAD, 0, 0, ARCHITECTURE),
            (BPF_JUMP_EQUAL, 0, 9, architecture),
            (BPF_LOAD, 0, 0, NUMBER),
            (BPF_JUMP_EQUAL, 0, 7, number),
            (BPF_LOAD, 0, 0, PID),
            (BPF_JUMP_EQUAL, 5, 0, 0),
            (BPF_LOAD, 0, 0, NEW_LIMIT_LOW),
            (BPF_JUMP_EQUAL, 0, 2, 0),
            (BPF_LOAD, 0, 0, NEW_LIMIT_HIGH),
            (BPF_JUMP_EQUAL, 1, 0, 0),
            (BPF_RETURN, 0, 0, SECCOMP_EPERM),
        ]
    return assembled(steps)


def keyrings_filter(machine: str) -> bytes:
    """Return the filter that refuses the kernel's keyrings; empty for unknown machines.

    It is in the kernel's format.
    """
    steps = []
    for architecture, first in KEYRINGS.get(machine, ()):
        steps += [
            (BPF_LOAD, 0, 0, ARCHITECTURE),
            (BPF_JUMP_EQUAL, 0, 5, architecture),
            (BPF_LOAD, 0, 0, NUMBER),
            (BPF_JUMP_EQUAL, 2, 0, first),
            (BPF_JUMP_EQUAL, 1, 0, first + 1),
            (BPF_JUMP_EQUAL, 0, 1, first + 2),
            (BPF_RETURN, 0, 0, SECCOMP_EPERM),
        ]
    return assembled(steps)


def assembled(steps: "list[tuple[int, int, int, int]]") -> bytes:
    """Return the filter with these steps. It allows every call that they do not decide on.

    The result is empty if there are no steps.
    """
    if not steps:
        return b""
    steps = [*steps, (BPF_RETURN, 0, 0, SECCOMP_ALLOW)]
    order = sys.byteorder
    return b"".join(
        code.to_bytes(2, order) + bytes((yes, no)) + value.to_bytes(4, order)
        for code, yes, no, value in steps
    )


def content(path: bytes) -> bytes:
    """Return the content of the file at `path`; empty if it cannot be read or is too large."""
    try:
        fd = posix.open(path, posix.O_RDONLY | posix.O_CLOEXEC)
    except OSError:
        return b""
    try:
        text = posix.read(fd, MOST_COPIED_BYTES)
    except OSError:
        text = b""
    finally:
        posix.close(fd)
    return text if len(text) < MOST_COPIED_BYTES else b""


def write(path: bytes, text: bytes, flags: int = 0) -> None:
    """Write `text` to the file at `path` in one call; `flags` are more flags of open(2).

    Raises:
        OSError: it cannot be written.
    """
    fd = posix.open(path, posix.O_WRONLY | posix.O_CLOEXEC | flags, 0o600)
    try:
        posix.write(fd, text)
    finally:
        posix.close(fd)


def exists(path: bytes) -> bool:
    """Tell whether something is at `path`."""
    try:
        posix.stat(path)
    except OSError:
        return False
    return True


def bytes_of(argument: str) -> bytes:
    """Return an argument of the command line as the bytes that the caller gave."""
    return argument.encode(sys.getfilesystemencoding(), sys.getfilesystemencodeerrors())


def try_out(options: "list[str]") -> "list[str]":
    """Confine this process by `options`, as a test; return which of `hidden` and `apart` work."""
    held = confine(options)
    # Browsers and flatpak need further user namespaces within this one.
    if "hidden" in held and Kernel().call("unshare", CLONE_NEWUSER) != 0:
        held.remove("hidden")
    return held


if __name__ == "__main__":
    sys.stdout.write(" ".join(try_out(sys.argv[1:])) + "\n")
