"""Takes the turns that prompt hooks send, and answers each hook before the hook gives up.

Starting a server takes seconds, but a hook waits only a quarter of a second. So the turn goes on
after the hook was answered. The answer tells the model which tools are coming, and how to call
them. If the turn waits for the embedding model, and the hook's client lets the hook wait, the hook
is told to ask again later (`held_turns`).
"""

import time
import weakref
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

import msgspec
import structlog
import trio

from capd.actors.session.held_turns import FIRST_LOOK, TurnInProgress
from capd.actors.session.session import Session
from capd.actors.session.turns import TurnContext
from capd.adapters.clients.turn_document import turn_words
from capd.runtime.boundary import contained
from capd_protos import curator as messages
from capd_protos.types import Decision

START_PATIENCE = 1.0
"""Seconds for which an answer waits for servers that start, if it can name their tools anyway."""
OWN_PATIENCE = 5.0
"""Seconds within which a hook on the session's own connection is answered. Such a hook states no
limit."""
EARLY_ANSWER = 0.04
"""Seconds at the end of a hook's patience, reserved for writing the answer for an unfinished turn.
"""

log = structlog.get_logger(actor="curator")


@dataclass(frozen=True, slots=True)
class _Prompt:
    """A user's message that was sent by a prompt hook, or by a caller with the session's key."""

    text: str
    turn_context: TurnContext
    patience: float
    """Seconds for which the hook waits."""
    longest: float = 0.0
    """Seconds for which the hook can wait if its turn is held; 0 if the turn may not be held."""
    is_again: bool = False
    """Whether the hook asks again for its held turn."""
    turn: str = ""
    """The client's id for the prompt; empty if it sent none."""
    budget: int = 0
    """The most tokens for the turn's tools and memories; 0 for no budget."""


async def hook_turn(
    session: Session, request: messages.TakeHookTurn, nursery: trio.Nursery
) -> messages.TurnTaken:
    """Run the turn that a prompt hook sends, and return its result before the hook gives up.

    The turn runs in `nursery`, so it can go on afterwards.
    """
    turn_context = TurnContext(
        is_delivered=not request.has_no_output, is_hook=True, longest=request.longest
    )
    prompt = _Prompt(
        request.text,
        turn_context,
        request.patience,
        request.longest,
        request.is_again,
        turn=request.turn,
    )
    return await _answer_in_time(session, prompt, nursery)


async def keyed_turn(
    session: Session, request: messages.TakeTurn, nursery: trio.Nursery
) -> messages.TurnTaken:
    """Run the turn of a caller that knows the session's key; return its result.

    A caller that sends `patience` (seconds) is treated as a hook, and answered within it.
    """
    turn_context = TurnContext(
        is_delivered=not request.has_no_output,
        is_hook=bool(request.patience),
        longest=request.longest,
    )
    if turn_context.is_hook or turn_context.is_delivered:
        session.connection.linked_by = "its key"
    if not turn_context.is_hook:
        return await session.turns.take(request.text, turn_context, budget=request.budget)
    prompt = _Prompt(
        request.text,
        turn_context,
        request.patience,
        request.longest,
        request.is_again,
        budget=request.budget,
    )
    return await _answer_in_time(session, prompt, nursery)


async def _answer_in_time(
    session: Session, prompt: _Prompt, nursery: trio.Nursery
) -> messages.TurnTaken:
    """Run a turn in `nursery`; return its result, or what is known of it at the deadline."""
    is_delivered = prompt.turn_context.is_delivered
    held = session.held_turns.returned(prompt.text, prompt.turn) if prompt.is_again else None
    if held is not None:
        taken = await _awaited(session, held, trio.current_time() + prompt.patience)
        if is_delivered:
            session.tokens.turned(turn_words(taken))
        return taken
    # A hook that asks again too late has got no text for its held turn, so its prompt is taken as a
    # new one, not as a repeated one.
    recent = session.turns.recent_prompts
    if not prompt.is_again and recent.is_again(prompt.text, prompt.turn, time.monotonic()):
        log.info("prompt_repeated", session=session.place.key)
        return _empty(session, Decision("abstain", "repeated"))
    taken = await _taken_in_time(session, prompt, nursery)
    if is_delivered:
        session.tokens.turned(turn_words(taken))
    return taken


def answering(
    session: Session, nursery: trio.Nursery
) -> Callable[[str, TurnContext], Awaitable[messages.TurnTaken]]:
    """Return the function that handles prompts from the session's own connection.

    The function answers each prompt before the hook that sent it gives up. It refers to the session
    weakly, because the session holds the function.
    """
    owner = weakref.ref(session)

    async def answer(text: str, turn_context: TurnContext) -> messages.TurnTaken:
        alive = owner()
        if alive is None:
            raise ReferenceError("the session is gone")
        prompt = _Prompt(text, turn_context, OWN_PATIENCE)
        return await _taken_in_time(alive, prompt, nursery)

    return answer


async def _taken_in_time(
    session: Session, prompt: _Prompt, nursery: trio.Nursery
) -> messages.TurnTaken:
    turn_context = prompt.turn_context
    take_turn = partial(session.turns.take, prompt.text, turn_context, budget=prompt.budget)
    if not prompt.patience:
        return await take_turn()
    # Even if `patience` is very short or negative, the hook gets what is known by then.
    patient_until = trio.current_time() + prompt.patience
    turn = TurnInProgress(prompt.text, prompt.turn, turn_context)
    nursery.start_soon(partial(contained, "hook_turn", partial(turn.run, take_turn), log=log))
    if prompt.longest > prompt.patience:
        with trio.move_on_after(max(0.0, min(FIRST_LOOK, prompt.patience - EARLY_ANSWER))):
            await turn_context.is_decided.wait()
        if not turn_context.is_decided.is_set():
            # Added before another task runs. Otherwise the turn could end as if it were not held.
            session.held_turns.add(turn)
            nursery.start_soon(session.held_turns.keep, turn)
            log.info("hook_held", session=session.place.key)
            undecided = _empty(session, Decision("abstain", "unfinished"))
            return msgspec.structs.replace(undecided, is_held=True)
    return await _awaited(session, turn, patient_until)


async def _awaited(
    session: Session, turn: TurnInProgress, patient_until: float
) -> messages.TurnTaken:
    """Wait for a turn; return its result, or what is known of it by `patient_until`.

    `patient_until` is a time of trio's clock.
    """
    turn_context = turn.context
    with trio.move_on_at(patient_until - EARLY_ANSWER):
        while not turn.is_over.is_set():
            with trio.move_on_after(START_PATIENCE):
                await turn.is_over.wait()
            # A decided turn that is not over waits for a server: the answer can name its tools.
            if _is_coming(turn_context.decision) and session.view.has_caller:
                break
    if turn.taken is not None:
        return turn.taken
    early = _empty(session, turn_context.decision or Decision("abstain", "unfinished"))
    if not turn_context.is_delivered:
        return early
    early_context = TurnContext(
        is_hook=True,
        decision=turn_context.decision,
        conversation=turn_context.conversation,
        text=turn_context.text,
    )
    # From here on the text of the turn itself reaches nobody.
    turn_context.is_delivered = False
    early = msgspec.structs.replace(early, index=session.turns.index_text(early_context))
    # Each part is stored as soon as it is known, so that a slow part does not lose the others.
    with trio.move_on_at(patient_until):
        early = msgspec.structs.replace(early, context=await session.turns.coming(early_context))
        early = msgspec.structs.replace(
            early, bootstrap=await session.turns.project_files(early_context)
        )
    said = turn_words(early)
    log.info("hook_answered_early", session=session.place.key, is_told=bool(said))
    return early


def _is_coming(decision: Decision | None) -> bool:
    return decision is not None and decision.outcome == "activate"


def _empty(session: Session, decision: Decision) -> messages.TurnTaken:
    notice = session.turns.notice(decision)
    return messages.TurnTaken(session.place.key, decision, [], [], 0.0, notice=notice)
