"""Tells one session's model which capabilities are installed: first their names, then a line each.

These are the first two of the index's three levels (docs/memories.md). Which capabilities are named
depends on policy, domain, project, and on what is already on. The texts are made, and their tokens
counted, when the catalog is read.
"""

from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress

import structlog
import trio

from capd.actor_clients.index import IndexClient
from capd.actors.session.policy import Denials
from capd.adapters.tokens.piece_counts import PieceCounts
from capd.core.index.summaries import Suggestions, call_of, suggestions, surrounding_texts
from capd.core.index.token_costs import TokenCosts
from capd.core.index.trigger_map import TriggerMap, trigger_map
from capd.core.sessions.domains import is_inside
from capd.core.sessions.policy import Policy
from capd.core.sessions.session import SessionState
from capd.core.sessions.session_place import NotActivatedError, SessionPlace
from capd.core.sessions.session_view import SessionView
from capd.runtime.bus import ActorUnavailableError, Bus
from capd_protos import index as messages
from capd_protos.codec import MsgpackCodec
from capd_protos.index import IndexEntry
from capd_protos.types import CapabilityId, CapabilityRestriction

NEWS: MsgpackCodec[messages.IndexChanged] = MsgpackCodec(messages.IndexChanged)
TOPIC = "index.changed"
ASK_TIMEOUT = 4.0
ASK_AGAIN = 2.0
MOST_PROJECTS = 32
"""Projects whose index is kept. One that has a session is never dropped."""
MOST_TOOLS = 64
"""The most names of the tool `capability` for which texts are counted. Clients give the tool
different names; the table of clients has a dozen of them."""

log = structlog.get_logger(actor="curator")
_Entries = dict[CapabilityId, IndexEntry]


_NONE: frozenset[CapabilityId] = frozenset()
"""Shared, because Python makes a new empty set each time."""


class IndexCache:
    """A cache of the index actor's answers, by project, so that a turn waits for no reply.

    `IndexChanged` invalidates it: the entries of every project are then requested again.
    """

    def __init__(self, bus: Bus, pieces: PieceCounts | None = None) -> None:
        self._bus = bus
        self._index = IndexClient(bus)
        self._pieces = pieces or PieceCounts()
        self._last_map = TriggerMap()
        self._entries: OrderedDict[str, _Entries] = OrderedDict()
        self._restrictions: dict[str, list[CapabilityRestriction]] = {}
        self._tools: dict[str, None] = {}
        self._is_new = trio.Event()
        self._unanswered: dict[str, None] = {}
        self._is_late = trio.Event()
        self.open_projects: Callable[[], Collection[str]] = tuple
        """Returns the projects that have a session. Their entries are never dropped."""

    @property
    def costs(self) -> TokenCosts:
        """The token counts of the index's texts."""
        return self._pieces.costs

    def same(self, mapped: TriggerMap) -> TriggerMap:
        """Return the last map if `mapped` equals it, so that sessions share one object.

        A map is the first level of the index.
        """
        if mapped != self._last_map:
            self._last_map = mapped
        return self._last_map

    async def follow(self) -> None:
        """Follow changes of the index until cancelled."""
        async with trio.open_nursery() as nursery, self._bus.subscribe(NEWS, TOPIC) as news:
            nursery.start_soon(self._learn)
            nursery.start_soon(self._catch_up)
            async for _ in news:
                for project in {*self._entries, *self.open_projects()}:
                    await self._ask(project)

    async def load(self, project: str, tool: str) -> None:
        """Load the index of a project, unless it is loaded.

        `tool` is the client's name for the tool `capability`.
        """
        if tool not in self._tools and len(self._tools) < MOST_TOOLS:
            self._tools[tool] = None
            self._is_new.set()
        if project in self._entries:
            self._entries.move_to_end(project)
            return
        self._unanswered[project] = None
        # Set before asking: if the caller runs out of patience, `_catch_up` asks again.
        self._is_late.set()
        await self._ask(project)

    def entries(self, project: str) -> list[IndexEntry]:
        """Return the entries of a project, the most important first."""
        return list(self._entries.get(project, {}).values())

    def restrictions(self, project: str) -> list[CapabilityRestriction]:
        """Return the restrictions that a person has set on automatic activation in a project."""
        return self._restrictions.get(project, [])

    def entry(self, project: str, id_: CapabilityId) -> IndexEntry:
        """Return the entry of a capability; one without texts if it is unknown."""
        return self._entries.get(project, {}).get(id_) or IndexEntry(id_, "", "")

    async def _learn(self) -> None:
        while True:
            await self._is_new.wait()
            self._is_new = trio.Event()
            texts = [text for tool in self._tools for text in surrounding_texts(call_of(tool))]
            await self._pieces.learn(texts)

    async def _catch_up(self) -> None:
        """Load the entries that could not be loaded, for projects that still have a session."""
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
                reply = await self._index.entries(project, timeout=ASK_TIMEOUT)
        except (ActorUnavailableError, trio.TooSlowError) as error:
            log.info("index_not_known", reason=str(error))
            return
        # If the index is not known yet, `IndexChanged` follows once it is.
        self._unanswered.pop(project, None)
        if reply.is_known:
            self._entries[project] = {entry.id: entry for entry in reply.entries}
            self._restrictions[project] = [
                CapabilityRestriction(entry.id, entry.threshold, entry.is_automatic)
                for entry in reply.entries
                if entry.threshold or not entry.is_automatic
            ]
            self._entries.move_to_end(project)
            wanted = {project, *self.open_projects()}
            unwanted = [each for each in self._entries if each not in wanted]
            for each in unwanted[: max(0, len(self._entries) - MOST_PROJECTS)]:
                del self._entries[each], self._restrictions[each]


class SessionIndex:
    """The part of the index that one session's model may get, and the part that it has got."""

    __slots__ = (
        *("_denials", "_denied", "_cache", "_place", "_state", "_view"),
        *("left_out", "mapped", "loaded_for"),
    )

    def __init__(
        self,
        cache: IndexCache,
        place: SessionPlace,
        state: SessionState,
        view: SessionView,
        denials: Denials,
    ) -> None:
        """Create it. `cache` is shared by all sessions."""
        self._cache = cache
        self._place = place
        self._state = state
        self._view = view
        self._denials = denials
        self._denied: tuple[Policy, frozenset[CapabilityId]] | None = None
        """The policy, with the capabilities that it denies; None if these are not known."""
        self.loaded_for: Policy | None = None
        """The policy with which the index was last loaded for a connection."""
        self.mapped = TriggerMap()
        """The first level of the index (`map`) as it was delivered last."""
        self.left_out = 0
        """How many suggested capabilities had no room in the text of their turn."""

    @property
    def costs(self) -> TokenCosts:
        """The token counts of the index's texts."""
        return self._cache.costs

    async def load(self) -> None:
        """Load the index once, and find out which capabilities are denied.

        Before that is known, no capability may be named.
        """
        self.loaded_for = self._view.policy
        await self._cache.load(self._place.project, self._view.name_for_client(self._view.enabler))
        with suppress(NotActivatedError):
            await self.denied()

    async def denied(self) -> list[CapabilityId]:
        """Return the capabilities that policy or profile deny, and leave them out of `map`.

        Raises:
            NotActivatedError: that cannot be found out, so none may be named.
        """
        policy = self._view.policy
        try:
            denied = await self._denials.all()
        except NotActivatedError:
            self._denied = None
            raise
        self._denied = (policy, frozenset(denied) or _NONE)
        return denied

    def map(self) -> str:
        """Return the first level of the index: the names of capabilities, grouped by verb.

        Capabilities that are active, denied or outside the session's domain are left out. The text
        is empty until it is known which capabilities policy denies.
        """
        if self._denied is None or self._view.is_bare:
            return ""
        policy, denied = self._denied
        if policy != self._view.policy:
            return ""
        entries = [
            entry
            for entry in self._cache.entries(self._place.project)
            if entry.id not in denied
            and entry.id not in self._state.active
            and is_inside(self._place.domain, entry.domains)
        ]
        self.mapped = self._cache.same(trigger_map(entries, self._cache.costs))
        return self.mapped.text

    def map_for_hook(self) -> str:
        """Return `map()`, for a client whose model gets it only from a prompt hook.

        Empty if the client passes instructions on to its model, or lists every tool anyway.
        """
        reads_map = self._view.traits.reads_instructions or self._view.wants_all
        return "" if reads_map else self.map()

    def suggestions(self, ids: Sequence[CapabilityId]) -> str:
        """Return the second level of the index: a line for each capability of `ids` that has room.

        The line says what the capability is for, and how it is switched on.
        """
        entries = [self._cache.entry(self._place.project, id_) for id_ in ids]
        said: Suggestions = suggestions(
            entries, call_of(self._view.name_for_client(self._view.enabler)), self._cache.costs
        )
        self.left_out += said.left_out
        return said.text

    def entry(self) -> dict[str, int]:
        """Return the session's index figures for the list of sessions."""
        return {
            "index_listed": self.mapped.listed,
            "index_left_out": self.mapped.left_out,
            # An estimate until the counting process has counted the words of the text.
            "index_tokens": self._cache.costs.of(self.mapped.text),
            "suggestions_left_out": self.left_out,
        }

    def restrictions(self) -> list[CapabilityRestriction]:
        """Return the restrictions that a person has set on automatic activation."""
        return self._cache.restrictions(self._place.project)
