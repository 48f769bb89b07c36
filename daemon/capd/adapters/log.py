"""Logs: one event a line on standard error, JSON unless a person watches (70-operation)."""

import contextlib
import json
import os
import sys
from collections.abc import Mapping
from typing import Any, TextIO, cast

import msgspec
import structlog

_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}


class _Sink:
    """Standard error that fails nobody: a log that cannot be written is lost, not the daemon."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):
            os.write(self._fd, text.encode("utf-8", "backslashreplace"))
        return len(text)

    def flush(self) -> None:
        """Do nothing: nothing is kept back."""


def configure_logs(environment: Mapping[str, str]) -> None:
    """Set structlog up; call it before anything logs."""
    renderer: Any
    if sys.stderr.isatty():
        renderer = structlog.dev.ConsoleRenderer(
            colors="NO_COLOR" not in environment,
            exception_formatter=structlog.dev.plain_traceback,
        )
    else:
        renderer = structlog.processors.JSONRenderer(serializer=lambda event, **_: _json(event))
    level = _LEVELS.get(environment.get("CAPD_LOG", "").lower(), _LEVELS["info"])
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(
            file=cast("TextIO", _Sink(sys.stderr.fileno()))
        ),
        cache_logger_on_first_use=True,
    )


def _json(event: Any) -> str:
    try:
        return msgspec.json.encode(event, enc_hook=str).decode()
    except UnicodeEncodeError:
        # A lone surrogate, from a path that is not UTF-8.
        return json.dumps(event, default=str)
