"""`python -m capd daemon run`: the daemon in the foreground; `main` has the other commands."""

import gc
import importlib
import os
import sys
import types
from collections.abc import Callable
from functools import partial

from capd import lazy_dataclasses


def _main(arguments: list[str]) -> int:
    if arguments[:2] == ["daemon", "run"]:
        _leave_foreign_python()
        _open_standard_streams()
    # Objects that imports create stay for ever. The collector would visit them a hundred times,
    # which takes an eighth of the CPU time of a daemon's start.
    gc.disable()
    command = _imported(arguments)
    gc.freeze()
    gc.enable()
    return command()


def _imported(arguments: list[str]) -> Callable[[], int]:
    """Import no more than a command needs; return the command."""
    lazy_dataclasses.install()
    _import_with_less()
    if arguments[:1] == ["embedder"]:
        from capd import embedder_process  # noqa: PLC0415 - without the daemon, which costs 20 MB

        return partial(embedder_process.main, arguments[1:])
    from capd.main import main  # noqa: PLC0415 - as above

    return partial(main, arguments)


def _import_with_less() -> None:
    """Import structlog and msgspec without packages that capd does not use through them.

    structlog imports rich and pygments, which are installed together with `capd top`, for
    tracebacks in colour, which the log of capd does not have: 65 modules and 3 MB of every daemon.
    asyncio, of which trio has no use, is another 30 modules and 2 MB: the loggers that would use it
    import it then. msgspec uses typing_extensions for Pythons older than capd's. A later import of
    any of them works as usual.
    """
    stand_in = types.ModuleType("asyncio")
    stand_in.__getattr__ = lambda name: getattr(importlib.import_module("asyncio"), name)  # type: ignore[method-assign]
    instead = {"rich": None, "twisted": None, "asyncio": stand_in, "typing_extensions": None}
    unused = {name: each for name, each in instead.items() if name not in sys.modules}
    sys.modules.update(unused)  # type: ignore[arg-type]
    try:
        # For everybody who imports them from here on.
        import msgspec  # noqa: F401, PLC0415
        import structlog  # noqa: F401, PLC0415
    finally:
        for name in unused:
            del sys.modules[name]


def _leave_foreign_python() -> None:
    """Start again without the `PYTHON*` variables of the caller's environment.

    A module on a project's PYTHONPATH would be imported in place of one of Python's own. The shim
    leaves these variables out already; this is for people who type `python -m capd daemon run`.
    PYTHONMALLOC makes Python use the C library's allocator, which gives more memory back.
    """
    kept = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith("PYTHON") or key == "PYTHON_KEYRING_BACKEND"
    }
    kept["PYTHONMALLOC"] = "malloc"
    if kept != dict(os.environ):
        command = [sys.executable, "-P", "-m", "capd", *sys.argv[1:]]
        os.execve(sys.executable, command, kept)  # noqa: S606 - ourselves, no shell


def _open_standard_streams() -> None:
    """Open those of the descriptors 0 to 2 that are closed.

    The next file to be opened would get such a number, and the log would be written into a socket.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # `open` returns the lowest free descriptor.
            os.open(os.devnull, os.O_RDWR)


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
