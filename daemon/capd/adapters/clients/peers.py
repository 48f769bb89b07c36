"""The process at the other end of a connection: identified once, and judged when needed.

The verdict says whether the daemon itself started the process, for example as a part of a server
(`core/servers/ancestry`).
"""

import os
from collections.abc import Callable, Generator

import trio

from capd.adapters import platform
from capd.adapters.platform import SocketOptions
from capd.core.servers.ancestry import Chain, Missing, PeerFacts, Process, Verdict, judge, walk

LOOKS_AT_ONCE = 2
TRIES = 7
"""How often a process is judged, at most, while its verdict is one of `UNSETTLED`. The pauses are
5, 10, 20, ... ms."""
FIRST_PAUSE = 0.005

UNSETTLED: frozenset[Verdict] = frozenset({"unknown", "no_descriptors"})
"""Verdicts that a later look may change."""

_NOTHING = Chain((), "gone")


def is_never_marked(_pid: int) -> bool:
    """Return False: on this system the processes of servers have no mark to recognise them by."""
    return False


class Peers:
    """Identifies and judges processes. `is_marked` tells whether a pid is a process of a server."""

    def __init__(self, is_marked: Callable[[int], bool] = is_never_marked) -> None:
        self._is_marked = is_marked
        self._daemon = os.getpid()
        self._limiter = trio.CapacityLimiter(LOOKS_AT_ONCE)

    def of(self, connection: SocketOptions) -> "Peer":
        """Return the process that connected a Unix socket. The caller has to `close` the result.

        Raises:
            OSError: the system cannot identify the process.
        """
        credentials = platform.peer_credentials(connection)
        pid = max(0, credentials.pid)
        try:
            pidfd = platform.peer_pidfd(connection) if pid else None
        except ProcessLookupError:
            return Peer(self, pid, credentials.uid, None, "")
        except OSError as error:
            if error.errno not in platform.NO_DESCRIPTORS:
                raise
            return Peer(self, pid, credentials.uid, None, "", is_held=False)
        # Without a pidfd, the pid and the start time (`identity`) stand for the process.
        seen = platform.look_at(pid) if pid and pidfd is None else "gone"
        identity = seen.identity if isinstance(seen, Process) else ""
        is_held = seen != "no_descriptors"
        return Peer(self, pid, credentials.uid, pidfd, identity, is_held=is_held)

    def facts(self, pid: int, has_ended: Callable[[tuple[Chain, Chain]], bool]) -> PeerFacts:
        """Return the facts about the process `pid` and its parents. Blocks for about 0.2 ms.

        `has_ended` tells, from two readings of the parents, whether the process has ended.
        """
        if pid <= 0:
            return PeerFacts(0, False, (_NOTHING, _NOTHING))
        chains = self._chain(pid), self._chain(pid)
        is_marked = platform.is_in_own_unit(pid) or self._is_marked(pid)
        # The end is checked last: if the process still lives, all the above was read from it.
        return PeerFacts(pid, has_ended(chains), chains, is_marked)

    async def look(self, peer: "Peer") -> PeerFacts:
        """Return the facts about a connected process, which are read in a thread.

        The process may be a server's. A server can make its chain of parents so long that reading
        it takes long, so this must not block the event loop.
        """
        return await trio.to_thread.run_sync(
            self.facts, peer.pid, peer.has_ended, limiter=self._limiter
        )

    def _chain(self, pid: int) -> Chain:
        return _read(walk(pid, self._daemon))


class Peer:
    """The process at the other end of a client's connection."""

    def __init__(
        self,
        peers: Peers,
        pid: int,
        uid: int,
        pidfd: int | None,
        identity: str,
        *,
        is_held: bool = True,
    ) -> None:
        """Note the process `pid` of the user `uid`, which the system has just reported.

        Without a `pidfd`, `identity` identifies the process; empty if it has ended. `is_held` is
        False if no file descriptor was left for a pidfd; the process is then never judged.
        """
        self.pid = pid
        self.uid = uid
        self.above: tuple[int, ...] = ()
        """The pids of the process and its ancestors, as read for the last verdict; empty before."""
        self.is_excepted = False
        """Whether the user permits this process to connect although capd started it."""
        self._peers = peers
        self._pidfd = pidfd
        self._identity = identity
        self._is_held = is_held

    async def verdict(self) -> Verdict:
        """Return who started the process, or why that is unknown (`core/servers/ancestry`).

        For example, `person` is a process that this daemon did not start, and `descendant` one that
        it did.
        """
        if not self._is_held:
            return "no_descriptors"
        pause = FIRST_PAUSE
        found: Verdict = "unknown"
        for _ in range(TRIES):
            facts = await self._peers.look(self)
            self.above = (self.pid, *(each.parent for each in facts.chains[0].processes))
            found = judge(facts)
            if found not in UNSETTLED:
                break
            await trio.sleep(pause)
            pause *= 2
        return found

    def has_ended(self, chains: tuple[Chain, Chain]) -> bool:
        """Tell whether the process has ended; `chains` are two readings of its ancestors."""
        if self._pidfd is not None:
            return platform.has_ended(self._pidfd)
        first = [each.processes[0].identity for each in chains if each.processes]
        is_another = not self._identity or any(each != self._identity for each in first)
        # `process_start_time` is None also for a zombie.
        return is_another or platform.process_start_time(self.pid) is None

    def close(self) -> None:
        """Close the descriptor of the process."""
        if self._pidfd is not None:
            os.close(self._pidfd)
            self._pidfd = None
            self._identity = ""


def _read(steps: Generator[int, Process | Missing, Chain]) -> Chain:
    try:
        asked = next(steps)
        while True:
            asked = steps.send(platform.look_at(asked))
    except StopIteration as done:
        chain: Chain = done.value
        return chain
