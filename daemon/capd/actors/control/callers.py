"""Which processes may call the methods of the control role.

Every connection was checked at its hello, its first line. Methods that change something check the
process again, because it may have ended since, and another process may use its connection.
"""

import structlog

from capd.actors.control.actors import MethodError
from capd.adapters import platform
from capd.adapters.clients.peers import Peer
from capd.core.servers.ancestry import ADMITTED, Verdict
from capd_protos import socket as frames

log = structlog.get_logger(actor="gateway")

DESCENDS = "a process that capd started cannot ask this"
NO_DESCRIPTORS = "capd has no file descriptor free to see who asks: try again"
NO_TERMINAL = "this takes a person at a terminal: run {} in one"

READING = frozenset(
    {
        *("status", "caps", "servers", "sessions", "tools", "discover", "search", "events"),
        *("why", "metrics", "tokens", "config", "secrets", "definitions"),
        *("memories", "memory_read", "memory_suggest", "learning", "approvals"),
        *("profiles", "tool", "tool_edits", "bridges"),
    }
)
"""Methods that change nothing. Their caller is not checked again."""


async def check_still_let_in(peer: Peer) -> None:
    """Raise unless the peer is still the process that was checked at the hello.

    Raises:
        MethodError: it is another process, or that cannot be determined.
    """
    verdict = await peer.verdict()
    if verdict not in ADMITTED and (not peer.is_excepted or verdict in {"gone", "no_descriptors"}):
        raise MethodError(frames.REFUSED, reason(verdict))


async def check_person(method: str, peer: Peer, command: str = "capd trust") -> None:
    """Raise unless the request may come from a person.

    `method` is the called method, for the log. `command` is the command that a refusal names.

    Raises:
        MethodError: the process has no terminal, or fails `check_ancestry`.
    """
    has_terminal = platform.has_terminal(peer.pid)
    # Check the ancestry second: it fails if the process has ended. So the pid above was not reused.
    await check_ancestry(method, peer)
    if not has_terminal:
        _refuse(method, peer, NO_TERMINAL.format(command))


async def check_ancestry(method: str, peer: Peer) -> None:
    """Raise unless it is certain that capd did not start the process.

    Raises:
        MethodError: capd started it, it has ended, or its pid or ancestors cannot be determined.
    """
    verdict = await peer.verdict()
    if verdict != "person":
        _refuse(method, peer, reason(verdict))


async def is_person(peer: Peer) -> bool:
    """Tell whether the request may come from a person at a terminal, as `check_person` decides."""
    return platform.has_terminal(peer.pid) and await peer.verdict() == "person"


def reason(verdict: Verdict, otherwise: str = DESCENDS) -> str:
    """Return why the process is refused; `otherwise` if the verdict has no reason of its own."""
    return NO_DESCRIPTORS if verdict == "no_descriptors" else otherwise


def _refuse(method: str, peer: Peer, reason: str) -> None:
    log.warning("trust_refused", method=method, pid=peer.pid, reason=reason)
    raise MethodError(frames.REFUSED, reason)
