"""capd for agent authors: `connect`, and the sessions that it opens (docs/library.md)."""

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
