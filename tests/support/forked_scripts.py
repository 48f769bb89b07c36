"""Scripts that tests start, forked from a process that has imported what they need.

    who asks --its descriptors, folder, environment, arguments--> a program with the modules
                                                       --fork--> the script, as `__main__`
             <--its exit status-------------------------------

    server   a test server on the MCP SDK, whose import takes a second of the processor. The daemon
             starts this file as the server's process, which asks for the script, passes on its own
             descriptors 0 to 2, and ends as the script ends; if it is killed, so is the script.
    capd     the `capd` command, most of whose time is imports.
    counting the process that counts tokens for a daemon, which loads the vocabulary first: 0.4 s of
             the processor for each daemon with a session.
    parsing  the process that reads files for a daemon.
    registry the process of `python -m capd registry`, which imports half of the daemon: 0.6 s of
             the processor for each `capd import`.

The last three run a function in place of a script, and a signal that ends the fork ends also the
process that stands for it, since the daemon looks for that.

What a process is to the operating system (its memory, its command line, a sandbox) and what Python
does before the script is no matter for tests that use these; the others start a process.
"""

# Little, since each process that stands for a fork imports it, and `socket` alone would double the
# time that such a process takes: the rest is imported where it is needed.
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import _socket
    import socket
    import subprocess

STANDARD = (0, 1, 2)
_KILLED = 128
"""An exit status above it is of a process that a signal ended."""
_LARGEST_MESSAGE_BYTES = 1 << 17
_ENTRY = "clients/capd_client/entry.py"


def server_command(script: str, *arguments: str) -> list[str]:
    """Return the command by which a daemon starts an SDK server."""
    if sys.platform != "linux":
        return [sys.executable, "-W", "ignore", script, *arguments]
    address = _program("server").address
    return [sys.executable, "-I", "-S", __file__, address, script, *arguments]


def own_process_command(kind: str) -> list[str]:
    """Return what is started in place of a process of capd's own, without arguments."""
    return [sys.executable, "-I", "-S", __file__, _program(kind).address, kind]


def can_fork_capd(environment: dict[str, str]) -> bool:
    """Tell whether a `capd` with this environment may be forked instead of started.

    What Python or the loader is told, it is told when it starts. On macOS, Apple's libraries do
    not survive a fork without an exec.
    """
    return sys.platform == "linux" and _for_starts(environment) == _for_starts(dict(os.environ))


def _for_starts(environment: dict[str, str]) -> dict[str, str]:
    told = ("PYTHON", "LD_", "LC_", "LANG")
    return {name: value for name, value in environment.items() if name.startswith(told)}


def run_capd(
    arguments: list[str], environment: dict[str, str], folder: str, said: str, patience: float
) -> "subprocess.CompletedProcess[str]":
    """Run the `capd` command in `folder`, `said` on its standard input, as subprocess.run does.

    Raises:
        TimeoutError: it did not end within `patience` seconds; it is killed.
    """
    import socket
    import subprocess
    import tempfile
    from contextlib import ExitStack
    from pathlib import Path

    argv = [str(Path(__file__).parents[2] / _ENTRY), *arguments]
    with ExitStack() as stack:
        files = [stack.enter_context(tempfile.TemporaryFile()) for _ in STANDARD]
        files[0].write(said.encode())
        files[0].seek(0)
        channel = stack.enter_context(socket.socket(socket.AF_UNIX))
        channel.settimeout(patience)
        channel.connect(_program("capd").address)
        _ask_for(channel, argv, folder, environment, [file.fileno() for file in files])
        status = channel.recv(16)
        assert status, "the program that forks scripts is gone"
        texts = []
        for file in files[1:]:
            file.seek(0)
            texts.append(file.read().decode())
    return subprocess.CompletedProcess(argv, int(status), *texts)


class _Program:
    """A program that has imported the modules of a kind. It ends with the process of the tests."""

    def __init__(self, kind: str) -> None:
        import socket
        import subprocess
        import tempfile

        self._folder = tempfile.mkdtemp(prefix="capd")
        self.address = f"{self._folder}/s"
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(self.address)
            # Whoever connects from here on waits until the program is ready.
            listener.listen(128)
            number = str(listener.fileno())
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-W", "ignore", __file__, number, kind],
                stdin=subprocess.PIPE,
                pass_fds=[listener.fileno()],
            )

    def close(self) -> None:
        import shutil

        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        shutil.rmtree(self._folder)


_programs: dict[str, _Program] = {}


def _program(kind: str) -> _Program:
    if kind not in _programs:
        import atexit

        _programs[kind] = _Program(kind)
        atexit.register(_programs[kind].close)
    return _programs[kind]


def _ask_for(
    channel: "_socket.socket",
    argv: list[str],
    folder: str,
    environment: dict[str, str],
    descriptors: list[int],
) -> None:
    import _socket
    import marshal

    request = marshal.dumps([argv, folder, environment])
    # What `socket.send_fds` does.
    passed = b"".join(each.to_bytes(4, sys.byteorder) for each in descriptors)
    rights = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, passed)]
    channel.sendmsg([len(request).to_bytes(4, "big") + request], rights)


def _stand_for(address: str, argv: list[str]) -> int:
    """Have `argv` run in a fork with the descriptors of this process; return its exit status."""
    import _socket

    channel = _socket.socket(_socket.AF_UNIX)
    channel.connect(address)
    folder = os.getcwd()  # noqa: PTH109 - without pathlib
    _ask_for(channel, argv, folder, dict(os.environ), list(STANDARD))
    # Its ends are the script's alone, so that whoever reads there sees it close them.
    for number in STANDARD:
        os.close(number)
    status = int(channel.recv(16) or b"1")
    if argv[0] in _FUNCTIONS and status > _KILLED:
        import signal

        signal.signal(status - _KILLED, signal.SIG_DFL)
        os.kill(os.getpid(), status - _KILLED)
    return status


def _serve(listener: "socket.socket") -> None:
    """Fork for each request, until the tests are gone; return in each fork that runs a script."""
    import select
    import signal

    running: dict[int, socket.socket] = {}
    woken, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.set_wakeup_fd(wakes)
    while True:
        sources: list[int | socket.socket] = [0, woken, listener, *running.values()]
        ready, _, _ = select.select(sources, [], [])
        if woken in ready:
            os.read(woken, 4096)
            _tell_ended(running)
        if 0 in ready:
            for pid in running:
                os.kill(pid, signal.SIGKILL)
            os._exit(0)
        for pid, channel in list(running.items()):
            if channel in ready:
                # It says nothing more, so it has ended.
                os.kill(pid, signal.SIGKILL)
                running.pop(pid).close()
        if listener in ready:
            channel, _ = listener.accept()
            request, descriptors = _asked(channel)
            if request is None:
                channel.close()
                continue
            pid = os.fork()
            if not pid:
                for each in (listener, channel, *running.values()):
                    each.close()
                _become(request, descriptors, (woken, wakes))
                return
            running[pid] = channel
            for number in descriptors:
                os.close(number)


def _asked(channel: "socket.socket") -> tuple[bytes | None, list[int]]:
    """Return a request and its descriptors; None if its process was killed before it had asked."""
    import socket

    message, descriptors, *_ = socket.recv_fds(channel, _LARGEST_MESSAGE_BYTES, 3)
    size = int.from_bytes(message[:4], "big") + 4
    while len(message) < size:
        more = channel.recv(size - len(message))
        if not more:
            for number in descriptors:
                os.close(number)
            return None, []
        message += more
    return message[4:], descriptors


def _tell_ended(running: "dict[int, socket.socket]") -> None:
    import contextlib

    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        channel = running.pop(pid, None)
        if channel is not None:
            code = os.waitstatus_to_exitcode(status)
            # Nobody hears it where its process was killed, and so was it.
            with contextlib.suppress(OSError):
                channel.send(str(code if code >= 0 else _KILLED - code).encode())
            channel.close()


def _become(request: bytes, descriptors: list[int], to_close: tuple[int, ...]) -> None:
    import marshal
    import signal
    import time

    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, given in zip(STANDARD, descriptors, strict=True):
        os.dup2(given, number)
    for number in (*descriptors, *to_close):
        os.close(number)
    sys.argv[:], folder, environment = marshal.loads(request)

    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    os.chdir(folder)


def _import_sdk() -> None:
    import mcp.server.apps
    import mcp.server.mcpserver  # noqa: F401 - what the scripts import


def _import_capd() -> None:
    import importlib
    import pkgutil

    import capd_client

    for module in pkgutil.walk_packages(capd_client.__path__, "capd_client."):
        # The screen imports textual, and the shim's launcher runs when it is imported.
        if ".top" not in module.name and not module.name.endswith((".launch", "__main__")):
            importlib.import_module(module.name)


def _load_vocabulary() -> None:
    import capd.adapters.tokens.counting_process  # noqa: F401 - what the forks run
    from capd.adapters.tokens.token_counts import count

    count("")


def _import_parsing() -> None:
    from capd import lazy_dataclasses

    lazy_dataclasses.install()
    import yaml  # noqa: F401 - what the jobs import

    import capd.adapters.parsing.process  # noqa: F401 - what the forks run


def _import_registry() -> None:
    from capd.__main__ import _imported

    _imported(["registry"])
    import capd.mcp_registry  # noqa: F401 - what the forks run


_IMPORTS = {
    "server": _import_sdk,
    "capd": _import_capd,
    "counting": _load_vocabulary,
    "parsing": _import_parsing,
    "registry": _import_registry,
}


def _count() -> None:
    from capd.adapters.tokens import counting_process

    sys.exit(counting_process.main())


def _parse() -> None:
    from capd.adapters.parsing import process

    process.start(sys.argv[1:])


def _ask_registry() -> None:
    from capd import main

    sys.exit(main.main(["registry", *sys.argv[1:]]))


def _run_script() -> None:
    import runpy

    runpy.run_path(sys.argv[0], run_name="__main__")


_FUNCTIONS = {"counting": _count, "parsing": _parse, "registry": _ask_registry}


def _run_scripts(listener: "socket.socket", kind: str) -> None:
    import gc
    import traceback

    # No fork visits the objects of the imports again, which takes longer than many a script.
    gc.disable()
    _IMPORTS[kind]()
    gc.freeze()
    gc.enable()
    _serve(listener)
    status = 0
    try:
        _FUNCTIONS.get(kind, _run_script)()
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 - as the interpreter ends with it
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    # What the program's own end would do is not a fork's.
    os._exit(status)


if __name__ == "__main__":
    if sys.argv[1].isdigit():
        import socket

        _run_scripts(socket.socket(fileno=int(sys.argv[1])), sys.argv[2])
    else:
        os._exit(_stand_for(sys.argv[1], sys.argv[2:]))
