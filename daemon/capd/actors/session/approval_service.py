"""The calls of all sessions that wait for approval, and the tools that are approved permanently."""

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import structlog
import trio

from capd.adapters.clients.session_environment import SessionEnvironments
from capd.core.redaction import general_redactor
from capd.core.sessions.approval import Answer, Approvals, PermanentApproval, Question
from capd.runtime.bus import Bus
from capd.runtime.saver import Saver, not_saved
from capd_protos import curator as messages

SAVE_PAUSE = 0.05
"""Seconds from an answer to its save."""
_KEY = "approvals"

log = structlog.get_logger(actor="curator")


class ApprovalStore(Protocol):
    """Saves and loads permanent approvals."""

    @property
    def problem(self) -> str:
        """Why the saved approvals cannot be used; empty if they can."""
        ...

    async def load(self) -> Sequence[PermanentApproval]:
        """Return the saved approvals."""
        ...

    async def save(self, lasting: Sequence[PermanentApproval], /) -> bool:
        """Save the approvals; return whether that worked."""
        ...


@dataclass(slots=True)
class _Waiting:
    question: Question
    until: float
    """When the wait for an answer ends, in seconds since the epoch."""
    answered: trio.Event = field(default_factory=trio.Event)


class ApprovalService:
    """The questions of all sessions that wait for a person, and the permanent approvals."""

    def __init__(
        self, bus: Bus, environments: SessionEnvironments, store: ApprovalStore | None = None
    ) -> None:
        """Create it. Without a `store`, permanent approvals are lost when the daemon ends."""
        self.approvals = Approvals()
        self._bus = bus
        self._environments = environments
        self._store = store
        self._saver = Saver(self._save, pause=SAVE_PAUSE)
        self._waiting: dict[int, _Waiting] = {}

    @property
    def problem(self) -> str:
        """Why approvals were not loaded, or will be lost at a restart; empty if neither."""
        if self._saver.refused:
            return not_saved("which tools you approved for always")
        return self._store.problem if self._store is not None else ""

    async def load(self) -> None:
        """Load the permanent approvals that an earlier daemon saved."""
        if self._store is not None:
            self.approvals = Approvals(await self._store.load())

    async def run(self) -> None:
        """Save changed approvals until cancelled, and once more at the end."""
        await self._saver.run()

    async def _save(self, _: str) -> bool:
        return self._store is None or await self._store.save(self.approvals.lasting)

    def redact(self, text: str) -> str:
        """Return a text without the values of secrets."""
        return general_redactor(self._environments.all_values())(text)

    async def ask(
        self, question: Question, within: float, elicit: Callable[[int], Awaitable[Answer | None]]
    ) -> Answer | None:
        """Return a person's answer; None if there is none within `within` seconds.

        `elicit` asks in the client, and returns None if it gets no answer there.
        """
        number = self.approvals.ask(question)
        waiting = self._waiting[number] = _Waiting(question, time.time() + within)
        asked = messages.ApprovalAsked(question.session, number, question.name)
        self._bus.publish(asked)
        answer: Answer | None = None
        try:
            with trio.move_on_after(within):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._elicit, number, elicit)
                    await waiting.answered.wait()
                    nursery.cancel_scope.cancel()
        finally:
            del self._waiting[number]
            answer = self.approvals.close(number)
            ended = messages.ApprovalEnded(question.session, number, question.name, answer or "")
            self._bus.publish(ended)
        log.info("approval", session=question.session, tool=question.name, answer=answer or "none")
        return answer

    async def _elicit(self, number: int, elicit: Callable[[int], Awaitable[Answer | None]]) -> None:
        answer = await elicit(number)
        if answer is not None:
            self.answer(number, answer)

    def answer(self, number: int, answer: Answer) -> list[int]:
        """Take a person's answer to question `number`; return the numbers of answered questions.

        The answers `session` and `always` also answer open questions about the same tool. The list
        is empty if the question is not open.
        """
        answered = sorted(self.approvals.answer(number, answer))
        for each in answered:
            self._waiting[each].answered.set()
        if answered and answer == "always":
            self._saver.changed(_KEY)
        return answered

    def forget(self, name: str) -> list[str]:
        """Withdraw the permanent approvals of `server:tool`, or of a server; return the tools."""
        forgotten = self.approvals.forget(name)
        if forgotten:
            self._saver.changed(_KEY)
        return [each.name for each in forgotten]

    def listed(self) -> messages.ApprovalsListed:
        """Return the open questions and the permanent approvals."""
        waiting = self._waiting.items()
        return messages.ApprovalsListed(
            [_entry(number, each.question, each.until) for number, each in waiting],
            [each.name for each in self.approvals.lasting],
            self.problem,
        )


def _entry(number: int, question: Question, until: float) -> messages.ApprovalEntry:
    return messages.ApprovalEntry(
        number,
        question.session,
        question.client,
        question.project,
        question.server,
        question.key.tool,
        question.name,
        question.arguments,
        question.hint,
        question.rule.pattern,
        question.rule.place,
        until,
    )
