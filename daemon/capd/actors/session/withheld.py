"""Why a tool is withheld for its definition, for whoever calls it all the same."""

from collections.abc import Sequence

import structlog

from capd.core.protocol.outcomes import RefusedError
from capd.core.sessions.session import ServerLease, SessionState
from capd.runtime.bus import Bus
from capd.runtime.peer import AskFailedError, AskTimeoutError, PeerUnreachableError
from capd_protos import definitions
from capd_protos.codec import MsgpackCodec
from capd_protos.types import ActorName, ServerIdentity, ToolName, WireName

DEFINITIONS = ActorName("definitions")
REPLIES: MsgpackCodec[definitions.Reply] = MsgpackCodec(definitions.Reply)
ASK_TIMEOUT = 2.0
_NAMES_SHOWN = 5

_UNANSWERED = (AskTimeoutError, PeerUnreachableError, AskFailedError)

log = structlog.get_logger(actor="curator")


async def withheld_note(bus: Bus, servers: Sequence[ServerLease]) -> str:
    """Return what is to be said of servers that are switched on and have withheld tools."""
    notes: list[str] = []
    for held in servers:
        request = definitions.ListDefinitions(held.identity)
        try:
            reply = await bus.ask(DEFINITIONS, request, REPLIES, ASK_TIMEOUT)
        except _UNANSWERED as error:
            log.warning("not_looked_up", reason=str(error))
            continue
        assert isinstance(reply, definitions.DefinitionsListed)
        names = [c.tool for each in reply.servers for c in each.changes if c.is_withheld]
        if names:
            shown = ", ".join(names[:_NAMES_SHOWN]) + (", ..." if names[_NAMES_SHOWN:] else "")
            notes.append(
                f" Withheld for their definitions: {shown}. The person sees why with: "
                f"capd trust definitions {held.spec.name}"
            )
    return "".join(notes)


class Withheld:
    """What one session may not call because of its definition."""

    def __init__(self, bus: Bus, state: SessionState) -> None:
        self._bus = bus
        self._state = state

    async def refuse(self, name: str) -> None:
        """Say why, where a tool is withheld; do nothing where it is not.

        Raises:
            RefusedError: it is withheld.
        """
        known = self._state.surface.known(name)
        request = definitions.LookUpWithheld(
            WireName(name),
            known.server if known else ServerIdentity(""),
            known.tool if known else ToolName(""),
        )
        try:
            reply = await self._bus.ask(DEFINITIONS, request, REPLIES, ASK_TIMEOUT)
        except _UNANSWERED as error:
            log.warning("not_looked_up", reason=str(error))
            return
        assert isinstance(reply, definitions.WithheldLookedUp)
        if reply.reason:
            raise RefusedError(f"{reply.reason} The call was not sent.")
