"""What sessions cost in tokens. Texts are noted when they are sent, and counted later.

    a text is sent ──> `DEBOUNCE` passes, or somebody asks ──> all uncounted texts are counted

A request for the costs is answered with the counts that are known, and whether some are missing.
"""

from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import Any

import msgspec
import structlog
import trio

from capd.actor_clients.finder import FinderClient
from capd.actors.session.policy import rules_of
from capd.adapters.tokens.counted_texts import Counts, NotCountedError
from capd.adapters.tokens.token_counts import VOCABULARY
from capd.core.records.token_account import Kind, TokenAccount
from capd.core.results.large_results import Result
from capd.core.sessions.own_tools import CAPABILITY
from capd.core.sessions.policy import Policy
from capd.core.sessions.search_tools import TOOL_SEARCH
from capd.core.sessions.session_place import SessionPlace
from capd.core.sessions.session_view import SessionView
from capd.runtime.boundary import contained
from capd.runtime.bus import ActorUnavailableError, Bus
from capd_protos import curator as messages
from capd_protos import finder, tokens
from capd_protos.codec import JsonCodec, MsgpackCodec
from capd_protos.types import WireName

DEBOUNCE = 60.0
"""Seconds to collect texts before they are counted, because counting starts a process. A request
for the costs ends the wait."""
ASK_TIMEOUT = 150.0
"""Seconds; enough to count a whole catalog."""
MOST_PASSES = 3
INDEXED = "index.tools"
Terms = tuple[Policy, str]
"""A session's policy and project. Sessions with the same terms may use the same tools."""
KINDS: dict[WireName, Kind] = {TOOL_SEARCH: "searches", CAPABILITY: "answers"}
"""capd's own tools, each with the kind of text under which its answers are counted."""

_NEWS: MsgpackCodec[finder.ToolsIndexed] = MsgpackCodec(finder.ToolsIndexed)

log = structlog.get_logger(actor="curator")


class _Block(msgspec.Struct):
    text: str = ""


class _Content(msgspec.Struct):
    content: list[_Block]


_CONTENT: JsonCodec[_Content] = JsonCodec(_Content)


class TokenAccounting:
    """The token counts of all sessions, and the cost of listing every permitted tool."""

    def __init__(self, bus: Bus, counts: Counts | None = None) -> None:
        """Create it. Without `counts`, texts are noted and never counted."""
        self._bus = bus
        self._finder = FinderClient(bus)
        self._counts = counts
        self._everything: dict[Terms, tokens.AllTools] = {}
        self._problem = ""
        self._due = trio.Event()
        self._hurried = trio.Event()
        self._passed = trio.Event()

    def wake(self) -> None:
        """Have the newly sent texts counted soon."""
        self._due.set()

    async def run(self, sessions: "Callable[[], Iterable[SessionTokenCount]]") -> None:
        """Count the tokens of sent texts until cancelled.

        `sessions` returns the counts of all sessions.
        """
        if self._counts is None:
            return
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._listen)
            while True:
                await self._due.wait()
                with trio.move_on_after(DEBOUNCE):
                    await self._hurried.wait()
                self._due, self._hurried = trio.Event(), trio.Event()
                await contained("tokens", self._count, self._counts, list(sessions()), log=log)
                self._passed.set()
                self._passed = trio.Event()

    async def described(
        self, within: float, sessions: "Callable[[], Iterable[SessionTokenCount]]"
    ) -> messages.TokensDescribed:
        """Return the cost of every session; wait up to `within` seconds for missing counts."""
        with trio.move_on_after(within if self._counts else 0.0):
            # A count in progress may have begun before the latest texts were sent.
            for _ in range(MOST_PASSES):
                self._due.set()
                self._hurried.set()
                await self._passed.wait()
                if self._problem or not any(session.is_open for session in sessions()):
                    break
        found = [session.described() for session in sessions()]
        return messages.TokensDescribed(VOCABULARY, found, self._problem)

    def everything(self, terms: Terms) -> tokens.AllTools | None:
        """Return how many tokens a list of all permitted tools takes.

        None if that is not known yet. `terms` are a session's policy and project.
        """
        return self._everything.get(terms)

    @property
    def is_able(self) -> bool:
        """Whether texts can be counted: there is a counter, and it has not failed."""
        return self._counts is not None and not self._problem

    async def _listen(self) -> None:
        async with self._bus.subscribe(_NEWS, INDEXED) as news:
            async for indexed in news:
                if not indexed.has_vectors:
                    self._everything.clear()
                    self.wake()

    async def _count(self, counts: Counts, sessions: "list[SessionTokenCount]") -> None:
        wanted: dict[bytes, None] = {}
        for session in sessions:
            # A checkpoint for each session: a thousand sessions have a hundred thousand texts.
            await trio.lowlevel.checkpoint()
            wanted.update(dict.fromkeys(session.account.uncounted_texts()))
        problem = ""
        try:
            counted = await counts.counted(list(wanted))
        except NotCountedError as error:
            counted, problem = error.counts, str(error)
            if problem != self._problem:
                log.warning("tokens_not_counted", reason=problem)
        self._problem = problem
        for session in sessions:
            await trio.lowlevel.checkpoint()
            session.account.store_counts(counted.get)
        await self._ask_for_everything(sessions)

    async def _ask_for_everything(self, sessions: "list[SessionTokenCount]") -> None:
        views = {session.terms: session.view for session in sessions if session.account.has_listed}
        found: dict[Terms, tokens.AllTools] = {}
        for terms, view in views.items():
            try:
                reply = await self._finder.count(rules_of(view), view.project, timeout=ASK_TIMEOUT)
            except ActorUnavailableError as error:
                log.warning("tools_not_counted", reason=str(error))
                continue
            if reply.is_known:
                found[terms] = tokens.AllTools(reply.tools, reply.tokens, reply.unlisted)
        self._everything = found


class SessionTokenCount:
    """Notes the texts that capd sends in one session; their tokens are counted later."""

    __slots__ = ("_accounting", "_place", "account", "view")

    def __init__(self, accounting: TokenAccounting, place: SessionPlace, view: SessionView) -> None:
        self._accounting = accounting
        self._place = place
        self.view = view
        self.account = TokenAccount()

    def listed(self, definitions: list[bytes], own: int, now: float) -> None:
        """Note a list of tools that is sent at `now`. `own` is how many of its tools are capd's."""
        self.account.note_list(definitions, own, now)
        self._wake()

    def instructed(self, text: str) -> str:
        """Note the instructions that are sent, and return them."""
        self.account.note_instructions(text)
        self._wake()
        return text

    def turned(self, text: str) -> str:
        """Note a turn's text for the model, and return it."""
        self.account.note_text("turns", text)
        self._wake()
        return text

    def answered(self, own: WireName, result: Result) -> Result:
        """Note the answer of one of capd's own tools, and return it."""
        kind = KINDS.get(own)
        if kind is not None and isinstance(result, bytes):
            for block in _CONTENT.decode(result).content:
                self.account.note_text(kind, block.text)
            self._wake()
        return result

    @property
    def terms(self) -> Terms:
        """The policy and the project, which decide the tools that the session may use."""
        return self.view.policy, self.view.project

    @property
    def is_open(self) -> bool:
        """Whether a count is missing: that of a text, or that of a list of all permitted tools."""
        is_unknown = self.account.has_listed and self._accounting.everything(self.terms) is None
        return self.account.is_counting or is_unknown

    @property
    def known_tools(self) -> int:
        """The number of servers' tools that the session could use; 0 if unknown."""
        everything = self._accounting.everything(self.terms)
        return everything.tools if everything else 0

    def entry(self) -> dict[str, Any]:
        """Return the session's token counts, as the list of sessions shows them."""
        figures = self.account.figures()
        everything = self._accounting.everything(self.terms)
        net = figures.net(everything.tokens) if everything else None
        if not self.account.has_listed:
            state = "not_listed"
        elif self.is_open and self._accounting.is_able:
            state = "counting"
        else:
            state = "not_counted" if net is None else "counted"
        return {"tokens": figures.surface, "tokens_saved": net, "tokens_state": state}

    def described(self) -> tokens.SessionTokens:
        """Return the token counts of the session, by kind of text."""
        figures = self.account.figures()
        everything = self._accounting.everything(self.terms)
        of_all = everything.tokens if everything else None
        return tokens.SessionTokens(
            key=self._place.key,
            client=self._place.client,
            mode=self.view.plan.mode,
            is_counting=self.is_open and self._accounting.is_able,
            tools=figures.tools,
            list_tokens=figures.list_tokens,
            own_tokens=figures.own_tokens,
            instructions=figures.instructions,
            surface=figures.surface,
            everything=everything,
            saved=figures.saved(of_all),
            turns=tokens.TextsSent(**asdict(figures.turns)),
            searches=tokens.TextsSent(**asdict(figures.searches)),
            answers=tokens.TextsSent(**asdict(figures.answers)),
            changes=tokens.TextsSent(**asdict(figures.changes)),
            added=figures.added,
            net=figures.net(of_all),
            last_changes=[tokens.ListSent(**asdict(each)) for each in figures.last_changes],
        )

    def _wake(self) -> None:
        if self.account.is_counting:
            self._accounting.wake()
