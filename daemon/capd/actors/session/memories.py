"""Delivers memories to one session's model, each once, and refuses calls that repeat a mistake.

    something is switched on ──> due ──with the next text for the model──> delivered
    a call ──its arguments are a known mistake──> refused, and nothing is sent

Memories are short texts about a capability or a tool. The next text for the model is the text of a
turn, or the result of a tool, be it a server's or one of capd's own. The description of a tool
contains its corrections (memories about mistakes in calls) from the moment the tool is listed. The
description keeps the same bytes while the tool is listed, because a change would invalidate the
model's prompt cache.
"""

from collections.abc import Callable, Mapping, Sequence

import structlog

from capd.actors.session.memory_catalog import NO_MEMORIES, MemoryCatalog
from capd.core.memories.delivery import MemoryDelivery
from capd.core.memories.known_memories import KnownMemories, PricedMemory, Tool, ToolMemories
from capd.core.memories.lessons import Failures
from capd.core.memories.subject_matching import is_of_capability, is_of_tool
from capd.core.memories.wording import refusal
from capd.core.protocol.calls import RESULT, TOOL_ERROR
from capd.core.protocol.generations import Members
from capd.core.protocol.outcomes import RefusedError
from capd.core.results.blocks import takes_text, with_text
from capd.core.results.large_results import Result
from capd.core.sessions.active_set import Grant
from capd.core.sessions.conversations import Conversations
from capd.core.sessions.session import ServerLease, SessionState
from capd.core.sessions.session_place import SessionPlace
from capd.core.sessions.surface import ShownTool
from capd.core.tools.names import original_name
from capd_protos.ledger import RecordedOutcome
from capd_protos.types import CapabilityId, MemorySpec, ServerName, TapName, WireName

MOST_OF_A_TURN = 8000
"""Characters of memories in one turn. Clients cut the output of hooks at ten thousand."""

log = structlog.get_logger(actor="curator")


class RepeatedMistakeError(RefusedError):
    """A call is refused, because its arguments repeat a known mistake."""

    def __init__(self, memory: MemorySpec) -> None:
        super().__init__(refusal(memory))
        self.memory = memory


def counts_of(delivery: MemoryDelivery) -> dict[str, int]:
    """Return how many memories were delivered and left out, and their tokens, for the status."""
    return {
        "memories": len(delivery.delivered),
        "memories_left_out": len(delivery.left_out),
        "memory_tokens": delivery.spent,
        "memory_budget": delivery.budget,
    }


class SessionMemories:
    """Delivers memories to one session's model, and knows which memories the model has got."""

    __slots__ = (
        "__weakref__",
        "_awaited",
        "_catalog",
        "_conversations",
        "_due",
        "_failures",
        "_noted",
        "_notes",
        "_on_delivered",
        "_place",
        "_state",
    )

    def __init__(
        self,
        catalog: MemoryCatalog,
        place: SessionPlace,
        state: SessionState,
        conversations: Conversations,
        on_delivered: Callable[[], None],
    ) -> None:
        """Create it. `on_delivered` is called when the session's record has to be saved."""
        self._catalog = catalog
        self._place = place
        self._state = state
        self._conversations = conversations
        self._on_delivered = on_delivered
        self._failures = Failures()
        # The note of each active tool: the text of memories in its description. A note is not made
        # again, because changed bytes would invalidate the model's prompt cache.
        self._notes: dict[Grant, str] = {}
        # The memories in each of these notes, as (tap, name).
        self._noted: dict[Grant, set[tuple[TapName, str]]] = {}
        # Delivered memories, by name, whose effect is counted with the next fitting call.
        self._awaited: dict[str, MemorySpec] = {}
        # A cache of what is due, with the memories and the conversation that it was computed for.
        # None after a change of what is on, and after each delivery.
        self._due: tuple[KnownMemories, MemoryDelivery, list[PricedMemory]] | None = None

    @property
    def counts(self) -> dict[str, int]:
        """The counts of memories that the list of sessions shows."""
        return counts_of(self._delivery)

    def on_step(self) -> None:
        """Note that what is on in the session has changed, so that other memories may be due."""
        self._due = None
        if not self._notes:
            return
        shown = {each.grant for each in self._state.surface.shown}
        for grant in [each for each in self._notes if each not in shown]:
            del self._notes[grant], self._noted[grant]

    # Delivery

    def deliver_due(self, most_characters: int | None = None) -> str:
        """Return the memories that the model should get now as one text; note them as delivered.

        The text is empty if there are none, and has at most `most_characters`. A memory that would
        make the text longer waits for a later text. A memory that does not fit into the
        conversation's token budget is never delivered.
        """
        return self._deliver(self._due_now(), most_characters)

    def due(self) -> list[PricedMemory]:
        """Return the memories that the model should get now, because of what is on."""
        return list(self._due_now())

    def of(self, capability: CapabilityId, tools: Sequence[Tool]) -> list[PricedMemory]:
        """Return the memories that the model would get if a capability with these tools were on."""
        known = self._known
        found = known.of_capabilities([capability])
        for tool in tools:
            found += known.of_tool(tool).memories
        return self._delivery.due(found)

    def foreseen(self, tool: Tool) -> str:
        """Return the text of memories that a tool's description would have if the tool were on."""
        return self._known.of_tool(tool).note

    def deliver_only(self, chosen: Sequence[PricedMemory]) -> str:
        """Deliver `chosen` as one text, and none of the other memories that are due.

        The others are never delivered in this conversation.
        """
        keys = {each.key for each in chosen}
        self._delivery.leave_out([each for each in self._due_now() if each.key not in keys])
        self._due = None
        return self._deliver([each for each in self._due_now() if each.key in keys], MOST_OF_A_TURN)

    async def counted(self, texts: list[bytes]) -> dict[bytes, int]:
        """Return the number of tokens of each text; a text that cannot be counted is missing."""
        return await self._catalog.counted(texts)

    def is_due(self, shown: ShownTool) -> bool:
        """Tell whether memories would be added to a result of the tool `shown`."""
        known = self._known
        if not known.all:
            return False
        return bool(self._due_now() or self._delivery.due(self._of(shown).memories))

    def passed(self, shown: ShownTool, result: Result) -> Result:
        """Return a tool's result with the memories appended that the model should get now."""
        if not self.is_due(shown):
            return result
        return self._behind(result, [*self._of(shown).memories, *self._due_now()])

    def answered(self, result: Result) -> Result:
        """Return a result of capd's own tool, with the memories that the model should get now."""
        return self._behind(result, self._due_now())

    def note(self, grant: Grant, name: WireName) -> str:
        """Return the text of memories that is added to a tool's description.

        The text stays the same while the tool is on.
        """
        if grant not in self._notes:
            lease = self._state.lease_on(grant.server) if self._known.all else None
            if lease is None:
                return ""
            found = self._known.of_tool(_known_as(lease, grant, name))
            has_room = bool(found.note) and self._delivery.take_room(found.note_tokens)
            self._notes[grant] = found.note if has_room else ""
            of = (each.memory for each in found.memories if each.memory.kind == "corrective")
            self._noted[grant] = {(each.tap, each.name) for each in of} if has_room else set()
        return self._notes[grant]

    def drop_notes(self) -> bool:
        """Forget the notes, the texts in tools' descriptions, that contain a deleted memory.

        Return whether there were any. If only the text of a memory has changed, the note keeps the
        old text.
        """
        known = {(each.memory.tap, each.memory.name) for each in self._known.all}
        gone = [grant for grant, of in self._noted.items() if not of <= known]
        for grant in gone:
            del self._notes[grant], self._noted[grant]
        return bool(gone)

    # Calls

    def lets_through(self, shown: ShownTool, members: Members) -> bool:
        """Tell whether memories leave both a call and its result unchanged.

        If the result would carry memories, return False without checking the call. `members` are
        the params of the call.

        Raises:
            RepeatedMistakeError: the call repeats a mistake.
        """
        return not self._known.all or (not self.is_due(shown) and self._passes(shown, members))

    def _passes(self, shown: ShownTool, members: Members) -> bool:
        self.check(shown, members)
        return True

    def check(self, shown: ShownTool, members: Members) -> None:
        """Check that a call with the params `members` does not repeat a known mistake.

        Raises:
            RepeatedMistakeError: the call does; the error's text is the memory's correction.
        """
        refusing = self._of(shown).refusing if self._known.all else ()
        if not refusing:
            return
        memory = self._catalog.checks.repeated(refusing, bytes(members.get("arguments", b"")))
        if memory is not None:
            raise RepeatedMistakeError(memory)

    def ended(
        self,
        shown: ShownTool,
        server: ServerName,
        members: Members,
        outcome: RecordedOutcome,
        error: Exception | None,
    ) -> None:
        """Note how a call ended: whether a memory helped it, and whether it gives a lesson.

        A lesson is the difference between a call that failed and the next call of the same tool
        that succeeded.
        """
        if isinstance(error, RepeatedMistakeError):
            self._refused(error.memory)
        if outcome not in {RESULT, TOOL_ERROR}:
            return
        if self._awaited:
            self._judge_awaited(shown, has_worked=outcome == RESULT)
        arguments = bytes(members.get("arguments", b""))
        if outcome == TOOL_ERROR:
            self._failures.failed(server, shown.grant.tool, arguments)
            return
        if self._failures.are_none:
            return
        for lesson in self._failures.worked(server, shown.grant.tool, arguments):
            self._catalog.lessons.learned(lesson)

    # Used by the methods above

    @property
    def _delivery(self) -> MemoryDelivery:
        return self._conversations.current.memories

    @property
    def _known(self) -> KnownMemories:
        return self._catalog.known.get(self._place.project, NO_MEMORIES)

    def _of(self, shown: ShownTool) -> ToolMemories:
        return self._known.of_tool(self._tool(shown))

    def _tool(self, shown: ShownTool) -> Tool:
        lease = self._state.lease_on(shown.grant.server)
        if lease is None:
            return ServerName(""), shown.grant.tool, shown.name
        return _known_as(lease, shown.grant, shown.name)

    def _due_now(self) -> list[PricedMemory]:
        """Return the memories that the model should get now.

        Pinned tools deliver none, because every session has them.
        """
        known, delivery = self._known, self._delivery
        if self._due is not None and self._due[0] is known and self._due[1] is delivery:
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
            due = delivery.due(due)
        self._due = (known, delivery, due)
        return due

    def _behind(self, result: Result, known: list[PricedMemory]) -> Result:
        # A result that takes no text, such as a large one, leaves the memories due.
        if not known or not isinstance(result, bytes) or not takes_text(result):
            return result
        text = self._deliver(known, None)
        return with_text(result, text) if text else result

    def _deliver(self, known: list[PricedMemory], most_characters: int | None) -> str:
        if not known:
            return ""
        found = self._delivery.deliver(known, most_characters)
        self._due = None
        for each in found.memories:
            self._catalog.outcomes.add(each.memory, delivered=1)
            self._awaited[each.memory.name] = each.memory
        if found.memories:
            self._catalog.save_soon()
            self._on_delivered()
            log.info(
                "memories_delivered",
                session=self._place.key,
                memories=[each.memory.name for each in found.memories],
                spent=self._delivery.spent,
                left_out=len(self._delivery.left_out),
            )
        return found.text

    def _refused(self, memory: MemorySpec) -> None:
        self._catalog.outcomes.add(memory, refused=1)
        self._catalog.save_soon()
        self._awaited[memory.name] = memory
        log.info("call_refused_by_memory", session=self._place.key, memory=memory.name)

    def _judge_awaited(self, shown: ShownTool, *, has_worked: bool) -> None:
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
                    self._catalog.save_soon()


def _known_as(lease: ServerLease, grant: Grant, name: WireName) -> Tool:
    """Return a tool with the names that memories use: those that its server gives it."""
    is_new = any(edit.tool == grant.tool and edit.name for edit in lease.spec.edits)
    server = lease.spec.name
    known = original_name(name, server, grant.server, grant.tool, is_new=is_new)
    return server, grant.tool, known


class NoMemories:
    """Stands in for `SessionMemories` in a session without memories, such as a bare one.

    A bare session lists its tools under their servers' own names, and none of capd's tools.
    """

    counts: Mapping[str, int] = {}

    def on_step(self) -> None:
        """Do nothing."""

    def deliver_due(self, most_characters: int | None = None) -> str:
        """Return an empty text."""
        del most_characters
        return ""

    def due(self) -> list[PricedMemory]:
        """Return an empty list."""
        return []

    def of(self, capability: CapabilityId, tools: Sequence[Tool]) -> list[PricedMemory]:
        """Return an empty list."""
        del capability, tools
        return []

    def foreseen(self, tool: Tool) -> str:
        """Return an empty text."""
        del tool
        return ""

    def deliver_only(self, chosen: Sequence[PricedMemory]) -> str:
        """Return an empty text."""
        del chosen
        return ""

    async def counted(self, texts: list[bytes]) -> dict[bytes, int]:
        """Return no counts."""
        del texts
        return {}

    def lets_through(self, shown: ShownTool, members: Members) -> bool:
        """Return True: every call may go on."""
        del shown, members
        return True

    def passed(self, shown: ShownTool, result: Result) -> Result:
        """Return the result unchanged."""
        del shown
        return result

    def answered(self, result: Result) -> Result:
        """Return the result unchanged."""
        return result

    def drop_notes(self) -> bool:
        """Return False: there are no notes."""
        return False

    def check(self, shown: ShownTool, members: Members) -> None:
        """Accept the call."""

    def ended(
        self,
        shown: ShownTool,
        server: ServerName,
        members: Members,
        outcome: RecordedOutcome,
        error: Exception | None,
    ) -> None:
        """Do nothing."""
