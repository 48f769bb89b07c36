"""Names the tools that are withheld because of their definitions, and refuses calls of them."""

from collections.abc import Iterable

import structlog

from capd.actor_clients.definitions import DefinitionsClient
from capd.core.protocol.outcomes import RefusedError
from capd.core.sessions.session import ServerLease, SessionState
from capd.runtime.bus import ActorUnavailableError
from capd_protos import definitions
from capd_protos.types import ServerIdentity, ToolName, WireName

ASK_TIMEOUT = 2.0
_NAMES_SHOWN = 5


log = structlog.get_logger(actor="curator")


async def withheld_note(
    definitions_client: DefinitionsClient, servers: Iterable[ServerLease]
) -> str:
    """Return a text for the model that names the withheld tools of these servers.

    A tool is withheld if its definition is not trusted. The text is empty if there are none.
    """
    notes: list[str] = []
    for lease in servers:
        request = definitions.ListDefinitions(lease.identity)
        try:
            reply = await definitions_client.describe(request, timeout=ASK_TIMEOUT)
        except ActorUnavailableError as error:
            log.warning("not_looked_up", reason=str(error))
            continue
        names = [c.tool for each in reply.servers for c in each.changes if c.is_withheld]
        if names:
            shown = ", ".join(names[:_NAMES_SHOWN]) + (", ..." if names[_NAMES_SHOWN:] else "")
            notes.append(
                f" Withheld for their definitions: {shown}. The person sees why with: "
                f"capd trust definitions {lease.spec.name}"
            )
    return "".join(notes)


class WithheldTools:
    """Refuses calls of tools that are withheld because their definitions are not trusted."""

    def __init__(self, definitions_client: DefinitionsClient, state: SessionState) -> None:
        self._definitions = definitions_client
        self._state = state

    async def refuse(self, name: str) -> None:
        """Raise if a tool called `name` is withheld because its definition is not trusted.

        If the definitions actor does not answer, this returns, because nothing is known then.

        Raises:
            RefusedError: the tool is withheld.
        """
        known = self._state.surface.known(name)
        request = definitions.LookUpWithheld(
            WireName(name),
            known.server if known else ServerIdentity(""),
            known.tool if known else ToolName(""),
        )
        try:
            reason = await self._definitions.look_up(request, timeout=ASK_TIMEOUT)
        except ActorUnavailableError as error:
            log.warning("not_looked_up", reason=str(error))
            return
        if reason:
            raise RefusedError(f"{reason} The call was not sent.")
