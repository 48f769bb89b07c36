"""Finds the process at the other end of a loopback connection.

The token alone is not enough, because a server may have read it. So a process must be found that
holds the socket at the other end, and that capd did not start.

    the kernel's report on the other end               verdict
    closed                                             gone
    root's                                             outside
    another user's                                     foreign
    this user's, and a process of a person holds it    person
    this user's, and no such process is found          unknown
    nothing: the system has no sock_diag               untold

The search covers the user's processes except the daemon and its descendants. So it does not find
sockets of servers, and a server cannot make it slow. It also misses a socket that is being passed
between two processes, because no process holds it then. One search serves all connections that wait
for it.
"""

import os
import socket
from collections import OrderedDict
from typing import Literal

import structlog
import trio

from capd.adapters import platform
from capd.adapters.clients.peers import UNSETTLED, Peers
from capd.core.servers.ancestry import Chain, Verdict, judge

TcpVerdict = Verdict | Literal["foreign", "untold"]

MOST_RECENT = 32
"""The most processes that are remembered because they had a connection; they are searched first."""
TRIES = 2
PAUSE = 0.05

Address = tuple[str, int]

log = structlog.get_logger(actor="http_gateway")


class _Question:
    """A connection whose other end is to be identified."""

    def __init__(self, ours: Address, theirs: Address) -> None:
        self.ours = ours
        self.theirs = theirs
        self.verdict: TcpVerdict | None = None
        self.chain: tuple[int, ...] = ()


class TcpPeers:
    """Finds out whose process is at the other end; one search serves all waiting connections."""

    def __init__(self, peers: Peers, *, searches_servers: bool = False) -> None:
        """Create the search; `peers` judges the processes that it finds.

        If `searches_servers` is set, processes of servers are searched too, because some servers
        may be clients.
        """
        self._peers = peers
        # The process `_spared` and its descendants are not searched; no process has the pid -1.
        self._spared = -1 if searches_servers else os.getpid()
        self._waiting: list[_Question] = []
        self._searching = trio.Lock()
        self._limiter = trio.CapacityLimiter(1)
        self._recent: OrderedDict[int, None] = OrderedDict()

    async def judge(self, ours: Address, theirs: Address) -> tuple[TcpVerdict, tuple[int, ...]]:
        """Return the verdict on the process at `theirs`, the other end of a connection to `ours`.

        The second result has the pids of the process and its ancestors; empty if none was found.
        """
        question = _Question(ours, theirs)
        for number in range(TRIES):
            if number:
                await trio.sleep(PAUSE)
                question = _Question(ours, theirs)
            self._waiting.append(question)
            try:
                async with self._searching:
                    if question.verdict is None:
                        batch = list(self._waiting)
                        await trio.to_thread.run_sync(self._answer, batch, limiter=self._limiter)
            finally:
                self._waiting.remove(question)
            if question.verdict not in {None, *UNSETTLED}:
                break
        return question.verdict or "unknown", question.chain

    def _answer(self, batch: list[_Question]) -> None:
        """Set the verdict on each connection in `batch`. Blocks for up to some tens of ms."""
        wanted: dict[int, _Question] = {}
        for question in batch:
            try:
                end = platform.other_end(question.ours, question.theirs)
            except platform.NotToldError as error:
                log.warning("http_peer_not_told", reason=str(error))
                question.verdict = "untold"
                continue
            if end is None:
                question.verdict = "gone"
            elif end.uid != os.getuid():
                question.verdict = "foreign" if end.uid else "outside"
            else:
                wanted[end.inode] = question
        found = platform.holders(wanted, self._spared, tuple(self._recent)) if wanted else {}
        for inode, question in wanted.items():
            question.verdict = "unknown"
            if inode in found:
                self._judge_holder(found[inode], inode, question)

    def _judge_holder(self, pid: int, inode: int, question: _Question) -> None:
        def is_another(_chains: tuple[Chain, Chain]) -> bool:
            return not platform.holds(pid, inode)

        facts = self._peers.facts(pid, is_another)
        question.chain = (pid, *(each.parent for each in facts.chains[0].processes))
        question.verdict = judge(facts)
        if question.verdict == "person":
            self._recent[pid] = None
            self._recent.move_to_end(pid)
            while len(self._recent) > MOST_RECENT:
                self._recent.popitem(last=False)


def can_tell() -> bool:
    """Tell whether this system can name the process at the other end. Blocks for a few ms."""
    try:
        with (
            socket.create_server(("127.0.0.1", 0)) as listening,
            socket.create_connection(listening.getsockname()) as ours,
        ):
            end = platform.other_end(listening.getsockname(), ours.getsockname())
            return end is not None and platform.holds(os.getpid(), end.inode)
    except OSError:
        return False
