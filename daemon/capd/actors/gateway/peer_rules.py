"""Decides which processes may use capd: not those that capd started, with some exceptions."""

from contextlib import suppress
from fnmatch import fnmatchcase

import structlog

from capd.actor_clients.supervisor import SupervisorClient
from capd.adapters import platform
from capd.adapters.clients.peers import Peer
from capd.core.servers.ancestry import ADMITTED, Verdict
from capd.runtime.bus import ActorUnavailableError, Bus
from capd_protos import SOCKET_PROTOCOL
from capd_protos import socket as frames

NO_DESCRIPTORS = (
    "capd has no file descriptor free: end sessions or servers, or raise its limit (LimitNOFILE= "
    "of capd.service, ulimit -n elsewhere), and connect again"
)

log = structlog.get_logger(actor="gateway")


class PeerRules:
    """Refuses processes that capd started, unless `may_connect` names their server."""

    def __init__(self, bus: Bus, may_connect: tuple[str, ...] = ()) -> None:
        """Create the rules. `may_connect` are globs of servers whose processes may be clients."""
        self._supervisor = SupervisorClient(bus)
        self._may_connect = may_connect

    async def refusal(self, peer: Peer) -> frames.Refused | None:
        """Return why a process may not use this daemon; None if it may.

        A process of a server in `may_connect` is admitted, and `peer.is_excepted` is set.
        """
        verdict = await peer.verdict()
        if verdict in ADMITTED:
            return None
        name = await self.server_of(peer.above) if verdict == "descendant" else ""
        if self.is_excepted(name):
            peer.is_excepted = True
            return None
        if verdict == "no_descriptors":
            log.error("peer_not_judged", pid=peer.pid, reason="no file descriptor is free")
            return frames.Refused("overloaded", NO_DESCRIPTORS, SOCKET_PROTOCOL)
        log.warning("descendant_refused", pid=peer.pid, server=name or "unknown", verdict=verdict)
        return frames.Refused("started_by_capd", _reason(verdict, name), SOCKET_PROTOCOL)

    def is_excepted(self, server: str) -> bool:
        """Tell whether processes of `server` may connect; only `*` admits an unknown server."""
        return any(fnmatchcase(server, each) for each in self._may_connect)

    async def server_of(self, chain: tuple[int, ...]) -> str:
        """Return the server to which a process in `chain` belongs; empty if none does.

        `chain` has the pids of a process's ancestors.
        """
        pids = set(chain)
        with suppress(ActorUnavailableError):
            for entry in await self._supervisor.servers():
                # A server's orphaned process has the server's guard as its parent.
                if entry.pid and pids & {entry.pid, platform.parent_pid(entry.pid)}:
                    return str(entry.name)
        return ""


def _reason(verdict: Verdict, server: str) -> str:
    if verdict == "gone":
        return "the process that connected has ended, and its owner is not known: connect again"
    if verdict == "unknown":
        return (
            "the processes above the one that connects cannot be seen, or keep changing, so that "
            "it may be a server's: connect again; where /proc hides processes (hidepid), Linux "
            "6.13 is needed"
        )
    name = server or "unknown"
    return (
        f"a process of the server {name}, which capd has started, may not use capd; an agent that "
        f"is meant to: [servers] may_connect = [{name!r}]"
    )
