"""capd for agent authors: `connect`, and what it gives. docs/library.md is its page."""

from capd_client.agent.blocking import Session
from capd_client.agent.connecting import Connecting, connect
from capd_client.agent.errors import (
    CapdError,
    ClosedError,
    NoDaemonError,
    NotFoundError,
    NotSentError,
    OutcomeUnknownError,
    RefusedError,
    ServerError,
    UnavailableError,
)
from capd_client.agent.shapes import Change, Result, Tool, Turn

__all__ = [
    "CapdError",
    "Change",
    "ClosedError",
    "Connecting",
    "NoDaemonError",
    "NotFoundError",
    "NotSentError",
    "OutcomeUnknownError",
    "RefusedError",
    "Result",
    "ServerError",
    "Session",
    "Tool",
    "Turn",
    "UnavailableError",
    "connect",
]
