"""Logs: one event a line on standard error, JSON unless a person watches (70-operation)."""

import sys
from collections.abc import Mapping
from typing import Any

import msgspec
import structlog

_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}


def configure_logs(environment: Mapping[str, str]) -> None:
    """Set structlog up; call it before anything logs."""
    renderer: Any
    if sys.stderr.isatty():
        renderer = structlog.dev.ConsoleRenderer(
            colors="NO_COLOR" not in environment,
            exception_formatter=structlog.dev.plain_traceback,
        )
    else:
        renderer = structlog.processors.JSONRenderer(
            serializer=lambda event, **_: msgspec.json.encode(event, enc_hook=str).decode()
        )
    level = _LEVELS.get(environment.get("CAPD_LOG", "").lower(), _LEVELS["info"])
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
