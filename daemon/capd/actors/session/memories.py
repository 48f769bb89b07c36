"""Tells a model what is known, once, and refuses a call that repeats a known mistake.

    something comes on ──> due ──the next thing that the model reads──> told
    a call ──its arguments are a known mistake──> refused, and nothing is sent

What the model reads next is a turn's words, the answer of one of capd's own tools, or the result
of a tool of a server. A tool's description has its corrections from the moment that it is listed,
and keeps those bytes for as long as it is.
"""

from collections.abc import Callable, Mapping, Sequence

import structlog

from capd.actors.session.memory_catalog import MemoryCatalog
from capd.core.memories.binding import is_of_capability, is_of_tool
from capd.core.memories.known import KnownMemories, OfTool, PricedMemory, Tool
from capd.core.memories.lessons import Failures
from capd.core.memories.telling import MemoryText, Telling
from capd.core.memories.wording import refusal
from capd.core.protocol.calls import RESULT, TOOL_ERROR
from capd.core.protocol.generations import Members
from capd.core.protocol.outcomes import RefusedError
from capd.core.results.large_results import Result
from capd.core.results.text_blocks import takes_text, with_text
from capd.core.sessions.active_set import Grant
from capd.core.sessions.conversations import Conversations
from capd.core.sessions.session import SessionState
from capd.core.sessions.session_place import SessionPlace
from capd.core.sessions.surface import Shown
from capd_protos.types import CapabilityId, MemorySpec, ServerName, TapName, WireName

MOST_OF_A_TURN = 8000
"""Characters of memories in a turn: clients cut what a hook says at ten thousand."""

log = structlog.get_logger(actor="curator")


class RepeatedMistakeError(RefusedError):
    """The arguments of a call are a mistake that is known."""

    def __init__(self, memory: MemorySpec) -> None:
        super().__init__(refusal(memory))
        self.memory = memory


class SessionMemories:
    """The memories of one session."""

    __slots__ = (
        "__weakref__",
        "_awaited",
        "_catalog",
        "_conversations",
        "_due",
        "_failures",
        "_noted",
        "_notes",
        "_on_told",
        "_place",
        "_state",
    )

    def __init__(
        self,
        catalog: MemoryCatalog,
        place: SessionPlace,
        state: SessionState,
        conversations: Conversations,
        on_told: Callable[[], None],
    ) -> None:
        """`on_told` is called when there is something to write down."""
        self._catalog = catalog
        self._place = place
        self._state = state
        self._conversations = conversations
        self._on_told = on_told
        self._failures = Failures()
        # Of tools that are on: another one's bytes would cost the model's cache.
        self._notes: dict[Grant, str] = {}
        # Which memories those are of.
        self._noted: dict[Grant, set[tuple[TapName, str]]] = {}
        self._awaited: dict[str, MemorySpec] = {}
        # What is due, of which memories, in which conversation; None where something has come on.
        self._due: tuple[KnownMemories, Telling, list[PricedMemory]] | None = None

    @property
    def counts(self) -> dict[str, int]:
        """Return what the list of sessions says of it."""
        return {
            "memories": len(self._telling.told),
            "memories_left_out": len(self._telling.left_out),
            "memory_tokens": self._telling.spent,
            "memory_budget": self._telling.budget,
        }

    def on_step(self) -> None:
        """Note that something else is on."""
        self._due = None
        shown = {each.grant for each in self._state.surface.shown}
        for grant in [each for each in self._notes if each not in shown]:
            del self._notes[grant], self._noted[grant]

    # What is told

    def told(self, most_characters: int | None = None) -> str:
        """Return what is due for what is on, as one text; empty where nothing is."""
        return self._tell(self._due_now(), most_characters)

    def due(self) -> list[PricedMemory]:
        """Return what is due for what is on."""
        return list(self._due_now())

    def of(self, capability: CapabilityId, tools: Sequence[Tool]) -> list[PricedMemory]:
        """Return what would be due if a capability came on with these tools."""
        known = self._known
        found = known.of_capabilities([capability])
        for tool in tools:
            found += known.of_tool(tool).memories
        return self._telling.due(found)

    def foreseen(self, tool: Tool) -> str:
        """Return what a tool's description says at the most, if it comes on."""
        return self._known.of_tool(tool).note

    def told_alone(self, chosen: Sequence[PricedMemory]) -> str:
        """Return `chosen` as one text; what else is due by now is left out of the conversation."""
        keys = {each.key for each in chosen}
        self._telling.leave_out([each for each in self._due_now() if each.key not in keys])
        self._due = None
        return self._tell([each for each in self._due_now() if each.key in keys], MOST_OF_A_TURN)

    async def counted(self, texts: list[bytes]) -> dict[bytes, int]:
        """Return the tokens of texts, as far as they can be counted."""
        return await self._catalog.counted(texts)

    def is_due(self, shown: Shown) -> bool:
        """Tell whether the result of a tool is to come with what is known."""
        known = self._known
        if not known.all:
            return False
        return bool(self._due_now() or self._telling.due(self._of(shown).memories))

    def passed(self, shown: Shown, result: Result) -> Result:
        """Return a tool's result, with what is due behind it."""
        if not self.is_due(shown):
            return result
        return self._behind(result, [*self._of(shown).memories, *self._due_now()])

    def answered(self, result: Result) -> Result:
        """Return the answer of one of capd's own tools, with what is due behind it."""
        return self._behind(result, self._due_now())

    def note(self, grant: Grant, name: WireName) -> str:
        """Return what a tool's description is to say, the same for as long as it is on."""
        if grant not in self._notes:
            held = self._state.held(grant.server)
            if held is None or not self._known.all:
                return ""
            found = self._known.of_tool((held.spec.name, grant.tool, name))
            has_room = bool(found.note) and self._telling.noted(found.note_tokens)
            self._notes[grant] = found.note if has_room else ""
            of = (each.memory for each in found.memories if each.memory.kind == "corrective")
            self._noted[grant] = {(each.tap, each.name) for each in of} if has_room else set()
        return self._notes[grant]

    def drop_notes(self) -> bool:
        """Forget the notes that say what is known no more, and tell whether there were any.

        One whose words are others keeps its bytes, as do all the others.
        """
        known = {(each.memory.tap, each.memory.name) for each in self._known.all}
        gone = [grant for grant, of in self._noted.items() if not of <= known]
        for grant in gone:
            del self._notes[grant], self._noted[grant]
        return bool(gone)

    # Calls

    def lets_through(self, shown: Shown, members: Members) -> bool:
        """Tell whether a call is as good as without memories: no mistake, and nothing to tell.

        Raises:
            RepeatedMistakeError: as `check`.
        """
        return not self._known.all or (not self.is_due(shown) and self._passes(shown, members))

    def _passes(self, shown: Shown, members: Members) -> bool:
        self.check(shown, members)
        return True

    def check(self, shown: Shown, members: Members) -> None:
        """Pass, or refuse a call that repeats a mistake.

        Raises:
            RepeatedMistakeError: it does; the text is the correction.
        """
        refusing = self._of(shown).refusing if self._known.all else ()
        if not refusing:
            return
        memory = self._catalog.checks.repeated(refusing, bytes(members.get("arguments", b"")))
        if memory is not None:
            raise RepeatedMistakeError(memory)

    def ended(
        self,
        shown: Shown,
        server: ServerName,
        members: Members,
        outcome: str,
        error: Exception | None,
    ) -> None:
        """Note how a call has ended: whether a memory helped, and what there is to learn."""
        if isinstance(error, RepeatedMistakeError):
            self._refused(error.memory)
        if outcome not in {RESULT, TOOL_ERROR}:
            return
        if self._awaited:
            self._settle(shown, has_worked=outcome == RESULT)
        arguments = bytes(members.get("arguments", b""))
        if outcome == TOOL_ERROR:
            self._failures.failed(server, shown.grant.tool, arguments)
            return
        if self._failures.are_none:
            return
        for lesson in self._failures.worked(server, shown.grant.tool, arguments):
            self._catalog.lessons.learned(lesson)

    # Inside

    @property
    def _telling(self) -> Telling:
        return self._conversations.current.telling

    @property
    def _known(self) -> KnownMemories:
        return self._catalog.of(self._place.project)

    def _server(self, shown: Shown) -> ServerName:
        held = self._state.held(shown.grant.server)
        return held.spec.name if held is not None else ServerName("")

    def _of(self, shown: Shown) -> OfTool:
        return self._known.of_tool(self._tool(shown))

    def _tool(self, shown: Shown) -> Tool:
        return self._server(shown), shown.grant.tool, shown.name

    def _due_now(self) -> list[PricedMemory]:
        """Return what is due for what is on; pinned tools are on for everybody, and bring none."""
        known, telling = self._known, self._telling
        if self._due is not None and self._due[0] is known and self._due[1] is telling:
            return self._due[2]
        due: list[PricedMemory] = []
        if known.all:
            active = self._state.active
            granted = {grant for each in active.activations for grant in each.grants}
            granted.update(active.tools)
            due = known.of_capabilities(each.id for each in active.activations)
            for shown in self._state.surface.shown:
                if shown.grant in granted:
                    due += self._of(shown).memories
            due = telling.due(due)
        self._due = (known, telling, due)
        return due

    def _behind(self, result: Result, known: list[PricedMemory]) -> Result:
        # What a result has no place for stays due.
        if not known or not isinstance(result, bytes) or not takes_text(result):
            return result
        text = self._tell(known, None)
        return with_text(result, text) if text else result

    def _tell(self, known: list[PricedMemory], most_characters: int | None) -> str:
        if not known:
            return ""
        told: MemoryText = self._telling.tell(known, most_characters)
        self._due = None
        for each in told.memories:
            self._catalog.outcomes.add(each.memory, told=1)
            self._awaited[each.memory.name] = each.memory
        if told.memories:
            self._catalog.noted()
            self._on_told()
            log.info(
                "memories_told",
                session=self._place.key,
                memories=[each.memory.name for each in told.memories],
                spent=self._telling.spent,
                left_out=len(self._telling.left_out),
            )
        return told.text

    def _refused(self, memory: MemorySpec) -> None:
        self._catalog.outcomes.add(memory, refused=1)
        self._catalog.noted()
        self._awaited[memory.name] = memory
        log.info("call_refused_by_memory", session=self._place.key, memory=memory.name)

    def _settle(self, shown: Shown, *, has_worked: bool) -> None:
        tool = self._tool(shown)
        granting = [
            each.id for each in self._state.active.activations if shown.grant in each.grants
        ]
        for name, memory in list(self._awaited.items()):
            if memory.tool:
                is_meant = is_of_tool(memory, *tool)
            else:
                is_meant = any(is_of_capability(memory, each) for each in granting)
            if is_meant:
                del self._awaited[name]
                if has_worked:
                    self._catalog.outcomes.add(memory, worked=1)
                    self._catalog.noted()


class NoMemories:
    """Stands for the memories of a session that is told of none: one of a plain aggregator."""

    counts: Mapping[str, int] = {}

    def on_step(self) -> None:
        """Note nothing."""

    def told(self, most_characters: int | None = None) -> str:
        """Tell nothing."""
        del most_characters
        return ""

    def due(self) -> list[PricedMemory]:
        """Return nothing."""
        return []

    def of(self, capability: CapabilityId, tools: Sequence[Tool]) -> list[PricedMemory]:
        """Return nothing."""
        del capability, tools
        return []

    def foreseen(self, tool: Tool) -> str:
        """Return nothing."""
        del tool
        return ""

    def told_alone(self, chosen: Sequence[PricedMemory]) -> str:
        """Tell nothing."""
        del chosen
        return ""

    async def counted(self, texts: list[bytes]) -> dict[bytes, int]:
        """Count nothing."""
        del texts
        return {}

    def lets_through(self, shown: Shown, members: Members) -> bool:
        """Let every call through."""
        del shown, members
        return True

    def passed(self, shown: Shown, result: Result) -> Result:
        """Return the result as it came."""
        del shown
        return result

    def answered(self, result: Result) -> Result:
        """Return the result as it came."""
        return result

    def drop_notes(self) -> bool:
        """Tell that there were none."""
        return False

    def check(self, shown: Shown, members: Members) -> None:
        """Pass the call."""

    def ended(
        self,
        shown: Shown,
        server: ServerName,
        members: Members,
        outcome: str,
        error: Exception | None,
    ) -> None:
        """Note nothing."""
