"""Logs: one event a line on standard error, as JSON unless standard error is a terminal.

The code that logs an event removes secrets from it, because only that code knows which secrets it
may contain. As a second line of defence, every known secret and everything that looks like a token
is removed from every line.
"""

import contextlib
import json
import os
import sys
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, TextIO, cast

import msgspec
import structlog
from structlog.typing import EventDict, WrappedLogger

from capd.adapters.log_file import LogFile
from capd.core.redaction import general_redactor

_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}


class Sink:
    """Writes to standard error, and never raises: a line that cannot be written is lost."""

    def __init__(self, fd: int, file: LogFile | None = None) -> None:
        self._fd = fd
        self._file = file

    def write(self, text: str) -> int:
        """Write a line to standard error, after moving a full log file aside. Ignore errors."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.keep_bounded()
        with contextlib.suppress(OSError):
            os.write(self._fd, text.encode("utf-8", "backslashreplace"))
        return len(text)

    def flush(self) -> None:
        """Do nothing: nothing is buffered."""


class SecretRemover:
    """The structlog processor that removes secrets from each event, as a last safety net."""

    def __init__(self) -> None:
        self.secrets: Callable[[], Collection[str]] = tuple
        """Returns every secret that is known at this moment."""
        self._values: Collection[str] = ()
        self._redacted = general_redactor(())

    def __call__(self, _logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        """Return the event with every secret in its texts replaced."""
        values = frozenset(self.secrets())
        if values != self._values:
            self._values, self._redacted = values, general_redactor(values)
        return {key: self._clean(value) for key, value in event.items()}

    def _clean(self, value: Any) -> Any:
        if value is None or isinstance(value, bool | int | float):
            return value
        if isinstance(value, list | tuple | set | frozenset):
            return [self._clean(each) for each in value]
        if isinstance(value, dict):
            return {self._redacted(str(key)): self._clean(each) for key, each in value.items()}
        return self._redacted(value if isinstance(value, str) else str(value))


SECRET_REMOVER = SecretRemover()
"""The processor of this process; structlog's configuration is global too."""


def configure_logs(environment: Mapping[str, str], file: Path | None = None) -> None:
    """Set structlog up, as variables in `environment` say; call it before anything logs.

    `file` is the log file, if standard error leads to it. Only the daemon passes it, and then keeps
    it bounded: two processes would each move away what the other writes.
    """
    renderer: Any
    if sys.stderr.isatty():
        renderer = structlog.dev.ConsoleRenderer(
            colors="NO_COLOR" not in environment,
            exception_formatter=structlog.dev.plain_traceback,
        )
    else:
        renderer = structlog.processors.JSONRenderer(serializer=lambda event, **_: _json(event))
    level = _LEVELS.get(environment.get("CAPD_LOG", "").lower(), _LEVELS["info"])
    fd = sys.stderr.fileno()
    sink = Sink(fd, LogFile(file, fd) if file is not None else None)
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            SECRET_REMOVER,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(file=cast("TextIO", sink)),
        cache_logger_on_first_use=True,
    )


def _json(event: Any) -> str:
    try:
        return msgspec.json.encode(event, enc_hook=str).decode()
    except UnicodeEncodeError:
        # A lone surrogate, from a path that is not UTF-8.
        return json.dumps(event, default=str)
