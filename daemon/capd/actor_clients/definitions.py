"""Asks the definitions actor which tool definitions are trusted, and records decisions."""

from capd.actor_clients.client import ANSWER_TIMEOUT, ActorClient
from capd.actor_clients.names import DEFINITIONS
from capd_protos import definitions as messages
from capd_protos.codec import MsgpackCodec
from capd_protos.types import ServerIdentity, ToolName

_TOOLS_VETTED: MsgpackCodec[messages.ToolsVetted] = MsgpackCodec(messages.ToolsVetted)
_TOOLS_SCREENED: MsgpackCodec[messages.ToolsScreened] = MsgpackCodec(messages.ToolsScreened)
_WITHHELD_LOOKED_UP: MsgpackCodec[messages.WithheldLookedUp] = MsgpackCodec(
    messages.WithheldLookedUp
)
_DEFINITIONS_LISTED: MsgpackCodec[messages.DefinitionsListed] = MsgpackCodec(
    messages.DefinitionsListed
)
_DEFINITIONS_DECIDED: MsgpackCodec[messages.DefinitionsDecided] = MsgpackCodec(
    messages.DefinitionsDecided
)


class DefinitionsClient(ActorClient):
    """Asks the definitions actor which tool definitions are trusted, and records decisions."""

    actor = DEFINITIONS

    async def vet(
        self, request: messages.VetTools, *, timeout: float = ANSWER_TIMEOUT
    ) -> list[ToolName]:
        """Compare a server's tools with the trusted ones; return the tools to withhold."""
        return (await self._ask(request, _TOOLS_VETTED, timeout)).withheld

    async def screen(
        self, tools: dict[ServerIdentity, list[ToolName]], *, timeout: float = ANSWER_TIMEOUT
    ) -> dict[ServerIdentity, list[ToolName]]:
        """Return which of `tools` are withheld, by server.

        `tools` has the names from saved tool lists, also by server.
        """
        return (await self._ask(messages.ScreenTools(tools), _TOOLS_SCREENED, timeout)).withheld

    async def look_up(
        self, request: messages.LookUpWithheld, *, timeout: float = ANSWER_TIMEOUT
    ) -> str:
        """Return why a tool is withheld; empty if it is not."""
        return (await self._ask(request, _WITHHELD_LOOKED_UP, timeout)).reason

    async def describe(
        self, request: messages.ListDefinitions, *, timeout: float = ANSWER_TIMEOUT
    ) -> messages.DefinitionsListed:
        """Return the changes in the tool definitions of servers, for a person to decide on."""
        return await self._ask(request, _DEFINITIONS_LISTED, timeout)

    async def decide(
        self, request: messages.DecideDefinitions, *, timeout: float = ANSWER_TIMEOUT
    ) -> messages.DefinitionsDecided:
        """Record what a person decided on changed definitions."""
        return await self._ask(request, _DEFINITIONS_DECIDED, timeout)
