"""The thin clients of capd: the shim, the command, and the library for agent authors.

    from capd_client import connect

The library is imported at the first use of one of its names, so that the shim and the commands
start without it.
"""

# `typing` takes 5 ms, and an editor waits for the shim.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from capd_client.agent import (
        CapdError,
        Change,
        ClosedError,
        NoDaemonError,
        NotFoundError,
        NotSentError,
        OutcomeUnknownError,
        RefusedError,
        Result,
        ServerError,
        Session,
        Tool,
        Turn,
        UnavailableError,
        connect,
    )

__all__ = [
    "CapdError",
    "Change",
    "ClosedError",
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


def __getattr__(name: str) -> object:
    """Import the library, and return what it has under `name`."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from capd_client import agent  # noqa: PLC0415 - see above

    return getattr(agent, name)
