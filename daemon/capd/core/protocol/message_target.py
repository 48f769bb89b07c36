"""Finds the session that a server's request, or its log message, is for.

In the handshake generation nothing links a server's request or log line to a call. So capd passes
it to the only session that it can belong to. That is the only session with calls in progress at the
instance (the running connection to the server), or else the only session that holds the instance.
If two sessions are possible, capd does not guess.
"""

from collections.abc import Iterable

from capd_protos.types import ServerName, SessionKey


def only_session(in_call: Iterable[SessionKey], holders: Iterable[SessionKey]) -> SessionKey | None:
    """Return the session that a message is for; None if that is not certain.

    `in_call` are the sessions with calls in progress at the instance, `holders` those that lease
    it.
    """
    for sessions in (set(in_call), set(holders)):
        if sessions:
            return next(iter(sessions)) if len(sessions) == 1 else None
    return None


def refusal(server: ServerName, method: str) -> str:
    """Return the text of the error for a server's request that may be for several sessions."""
    return (
        f"several sessions use {server}, and {method} could be for any of them; "
        'give this server scope = "session" in its definition'
    )


LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")


def lowest_level(levels: Iterable[str]) -> str:
    """Return the most detailed of `levels`, which sessions asked for; empty if none did."""
    known = [LEVELS.index(level) for level in levels if level in LEVELS]
    return LEVELS[min(known)] if known else ""


def is_shown(level: str, wanted: str) -> bool:
    """Tell whether a session that asked for level `wanted` gets messages of `level`."""
    if wanted not in LEVELS or level not in LEVELS:
        return True
    return LEVELS.index(level) >= LEVELS.index(wanted)
