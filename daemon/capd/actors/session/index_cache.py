"""The curators' part that has the index at hand: the same for all sessions of a project.

A turn asks nobody: what the keeper tells is held here, and asked for again when it has changed.
"""

from collections import OrderedDict
from collections.abc import Callable, Collection

import structlog
import trio

from capd.adapters.tokens.piece_counts import PieceCounts
from capd.core.index.summaries import call_of, told_texts
from capd.core.index.token_costs import TokenCosts
from capd.runtime.bus import Bus
from capd.runtime.peer import AskFailedError, AskTimeoutError, PeerUnreachableError
from capd_protos import index as messages
from capd_protos.codec import MsgpackCodec
from capd_protos.index import IndexEntry
from capd_protos.types import ActorName, CapabilityId

INDEX = ActorName("index")
REPLIES: MsgpackCodec[messages.Reply] = MsgpackCodec(messages.Reply)
NEWS: MsgpackCodec[messages.IndexChanged] = MsgpackCodec(messages.IndexChanged)
TOPIC = "index.changed"
ASK_TIMEOUT = 4.0
ASK_AGAIN = 2.0
MOST_PROJECTS = 32
"""As long as no more have a session."""
MOST_TOOLS = 64
"""Names of capd's own tool among all clients; the table of clients has a dozen."""
_UNANSWERED = (AskTimeoutError, PeerUnreachableError, AskFailedError)

log = structlog.get_logger(actor="curator")

_Held = dict[CapabilityId, IndexEntry]


class IndexDesk:
    """What there is, by project."""

    def __init__(self, bus: Bus, pieces: PieceCounts | None = None) -> None:
        self._bus = bus
        self._pieces = pieces or PieceCounts()
        self._held: OrderedDict[str, _Held] = OrderedDict()
        self._tools: dict[str, None] = {}
        self._is_new = trio.Event()
        self._unanswered: dict[str, None] = {}
        self._is_late = trio.Event()
        self.open_projects: Callable[[], Collection[str]] = tuple
        """The projects that have a session: what is held for those is never given up."""

    @property
    def costs(self) -> TokenCosts:
        """What texts take."""
        return self._pieces.costs

    async def follow(self) -> None:
        """Hold what is told anew, until cancelled."""
        async with trio.open_nursery() as nursery, self._bus.subscribe(NEWS, TOPIC) as news:
            nursery.start_soon(self._learn)
            nursery.start_soon(self._catch_up)
            async for _ in news:
                for project in {*self._held, *self.open_projects()}:
                    await self._ask(project)

    async def meet(self, project: str, tool: str) -> None:
        """Have the index of a project at hand, for a client that calls `tool` to switch on."""
        if tool not in self._tools and len(self._tools) < MOST_TOOLS:
            self._tools[tool] = None
            self._is_new.set()
        if project in self._held:
            self._held.move_to_end(project)
            return
        self._unanswered[project] = None
        # Here, for who waits is soon out of patience, and nobody asks in a turn.
        self._is_late.set()
        await self._ask(project)

    def entries(self, project: str) -> list[IndexEntry]:
        """Return the entries, the most wanted first."""
        return list(self._held.get(project, {}).values())

    def entry(self, project: str, id_: CapabilityId) -> IndexEntry:
        """Return one entry; one that nobody knows has no words."""
        return self._held.get(project, {}).get(id_) or IndexEntry(id_, "", "")

    async def _learn(self) -> None:
        while True:
            await self._is_new.wait()
            self._is_new = trio.Event()
            texts = [text for tool in self._tools for text in told_texts(call_of(tool))]
            await self._pieces.learn(texts)

    async def _catch_up(self) -> None:
        """Ask again for what nobody has answered, as long as somebody has a use for it."""
        while True:
            await self._is_late.wait()
            self._is_late = trio.Event()
            await trio.sleep(ASK_AGAIN)
            wanted = self.open_projects()
            self._unanswered = {each: None for each in self._unanswered if each in wanted}
            for project in list(self._unanswered):
                await self._ask(project)
            if self._unanswered:
                self._is_late.set()

    async def _ask(self, project: str) -> None:
        try:
            with trio.fail_after(ASK_TIMEOUT):
                reply = await self._bus.ask(
                    INDEX, messages.ListIndex(project), REPLIES, ASK_TIMEOUT
                )
        except (*_UNANSWERED, trio.TooSlowError) as error:
            log.info("index_not_known", reason=str(error))
            return
        # What is not known yet is told of as soon as it is.
        self._unanswered.pop(project, None)
        if isinstance(reply, messages.IndexListed) and reply.is_known:
            self._held[project] = {entry.id: entry for entry in reply.entries}
            self._held.move_to_end(project)
            wanted = {project, *self.open_projects()}
            unwanted = [each for each in self._held if each not in wanted]
            for each in unwanted[: max(0, len(self._held) - MOST_PROJECTS)]:
                del self._held[each]
