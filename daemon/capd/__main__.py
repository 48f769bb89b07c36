"""The entry point of `python -m capd`: imports what the command needs, and runs it with `main`."""

import contextlib
import gc
import importlib
import os
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from capd import lazy_dataclasses


def _main(arguments: list[str]) -> int:
    if arguments[:2] == ["daemon", "run"]:
        _leave_foreign_python()
        _open_standard_streams()
    # Objects that imports create stay for ever. The garbage collector would visit them a hundred
    # times during the imports, which takes an eighth of the CPU time of a daemon's start.
    gc.disable()
    command = _imported(arguments)
    gc.freeze()
    gc.enable()
    return command()


def _imported(arguments: list[str]) -> Callable[[], int]:
    """Import the modules that the command in `arguments` needs, and no others.

    Return the function that runs the command and returns its exit code.
    """
    lazy_dataclasses.install()
    _import_with_less()
    if arguments[:1] == ["embedder"]:
        from capd import embedder_process  # noqa: PLC0415 - without the daemon, which costs 20 MB

        return partial(embedder_process.main, arguments[1:])
    _import_trio_with_less()
    from capd.main import main  # noqa: PLC0415 - as above

    return partial(main, arguments)


def _import_with_less() -> None:
    """Import structlog and msgspec without some packages that they import and capd does not need.

    structlog imports rich and pygments, which are installed with `capd top`, for coloured
    tracebacks. capd's log has no such tracebacks, and the two would cost every daemon 65 modules
    and 3 MB. asyncio is another 30 modules and 2 MB. trio does not use it, and structlog's
    asynchronous loggers import it when they need it. msgspec uses typing_extensions for Pythons
    older than capd supports. A later import of any of them works as usual.
    """
    asyncio = _StandIn("asyncio")
    instead = {"rich": None, "twisted": None, "asyncio": asyncio, "typing_extensions": None}
    with _instead_of(instead):
        # Imported here, so that every later import finds these modules.
        import msgspec  # noqa: F401, PLC0415
        import structlog  # noqa: F401, PLC0415


def _import_trio_with_less() -> None:
    """Import trio without TLS, DTLS and ctypes, which take 1.3 MB.

    `trio.SSLStream` and the like are imported at their first use, for a server reached by URL.
    trio uses ctypes only to give threads a name in the system; to find a library for that, it would
    start a process (`ldconfig`).
    """
    if "trio" in sys.modules:
        return
    tls = [_StandIn(f"trio.{name}") for name in ("_ssl", "_dtls", "_highlevel_ssl_helpers")]
    modules: dict[str, types.ModuleType] = {each.__name__: each for each in tls}
    if "ctypes" not in sys.modules:
        # trio goes without the names of threads if it finds no library.
        ctypes, ctypes_util = types.ModuleType("ctypes"), types.ModuleType("ctypes.util")
        ctypes.util = ctypes_util  # type: ignore[attr-defined]
        ctypes_util.find_library = lambda _: None  # type: ignore[attr-defined]
        modules |= {"ctypes": ctypes, "ctypes.util": ctypes_util}
    with _instead_of(modules):
        import trio  # noqa: PLC0415
    origins = {name: each.__name__ for each in tls for name in each.asked}
    for name in origins:
        delattr(trio, name)
    of_trio: Callable[[str], Any] = vars(trio)["__getattr__"]

    def late(name: str) -> Any:
        if name not in origins:
            return of_trio(name)
        value = getattr(importlib.import_module(origins[name]), name)
        setattr(trio, name, value)
        return value

    trio.__getattr__ = late  # type: ignore[method-assign]


class _StandIn(types.ModuleType):
    """Stands in for a module, which is imported only when something uses it."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.asked: list[str] = []
        """The names that were imported from this object while it was in the module's place."""

    def __getattr__(self, name: str) -> Any:
        """Return the attribute of the real module, or a placeholder while imports are diverted."""
        if name.startswith("__"):
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is self:
            self.asked.append(name)
            return None
        return getattr(importlib.import_module(self.__name__), name)


@contextlib.contextmanager
def _instead_of(modules: Mapping[str, types.ModuleType | None]) -> Iterator[None]:
    """While the block runs, let `import` find the given modules under the names in `modules`.

    A module that was imported before is not replaced. None in place of a module makes it seem not
    installed.
    """
    unused = {name: each for name, each in modules.items() if name not in sys.modules}
    sys.modules.update(unused)  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name in unused:
            del sys.modules[name]


def _leave_foreign_python() -> None:
    """If the environment has `PYTHON*` variables, execute this program again without them.

    PYTHON_KEYRING_BACKEND is kept. A module on a project's PYTHONPATH would be imported in place of
    one of Python's own. capd's clients leave these variables out when they start a daemon; this is
    for people who type `python -m capd daemon run`.
    """
    kept = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith("PYTHON") or key == "PYTHON_KEYRING_BACKEND"
    }
    if kept != dict(os.environ):
        command = [sys.executable, "-P", "-m", "capd", *sys.argv[1:]]
        os.execve(sys.executable, command, kept)  # noqa: S606 - ourselves, no shell


def _open_standard_streams() -> None:
    """Open `/dev/null` as each of the descriptors 0, 1 and 2 that is closed.

    Otherwise the next file or socket to be opened would get such a number, and the log would be
    written into it.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # `open` returns the lowest free descriptor.
            os.open(os.devnull, os.O_RDWR)


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
