"""The session that a server's unsolicited message is for.

In the handshake generation nothing links a server's request or log line to a call. So it goes to
the only session that it can belong to: the one session with calls under way at that instance, else
the only session that holds the instance. Between two sessions capd does not guess.
"""

from collections.abc import Iterable

from capd_protos.types import ServerName, SessionKey


def session_meant(
    in_call: Iterable[SessionKey], holders: Iterable[SessionKey]
) -> SessionKey | None:
    """Return the only session that can be meant; None if that is not certain."""
    for sessions in (set(in_call), set(holders)):
        if sessions:
            return next(iter(sessions)) if len(sessions) == 1 else None
    return None


def refusal(server: ServerName, method: str) -> str:
    """Return the answer to a server whose request could be for several sessions."""
    return (
        f"several sessions use {server}, and {method} could be for any of them; "
        'give this server scope = "session" in its definition'
    )


LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")


def lowest_level(levels: Iterable[str]) -> str:
    """Return the log level that gives each session all that it asked for; empty if none asked."""
    known = [LEVELS.index(level) for level in levels if level in LEVELS]
    return LEVELS[min(known)] if known else ""


def is_shown(level: str, wanted: str) -> bool:
    """Tell whether a message of `level` is shown to a session that asked for `wanted` or worse."""
    if wanted not in LEVELS or level not in LEVELS:
        return True
    return LEVELS.index(level) >= LEVELS.index(wanted)
