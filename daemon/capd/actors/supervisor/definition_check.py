"""Compares the tools that servers list with their trusted definitions."""

from collections.abc import Callable, Collection, Sequence

from capd.actor_clients.definitions import DefinitionsClient
from capd.adapters.servers.server_run import NotVettedError
from capd.core.tools.tool_intake import Taken
from capd.runtime.bus import Bus
from capd.runtime.peer import ActorUnavailableError
from capd_protos import definitions
from capd_protos.types import InstanceId, ServerIdentity, ServerSpec, ToolName

VET_TIMEOUT = 30.0


class Vetting:
    """Asks the definitions actor. If it does not answer, every tool is withheld."""

    def __init__(self, bus: Bus, running: Callable[[ServerIdentity], list[InstanceId]]) -> None:
        """Compare with the trusted definitions; `running` returns a server's running instances."""
        self._definitions = DefinitionsClient(bus)
        self._running = running

    async def withheld(
        self,
        server: ServerSpec,
        identity: ServerIdentity,
        instance: InstanceId,
        taken: Sequence[Taken],
    ) -> Collection[ToolName]:
        """Return the tools of an instance's list that must not be shown or called.

        Raises:
            NotVettedError: there is no answer.
        """
        tools = [definitions.ListedTool(each.definition.name, each.written) for each in taken]
        request = definitions.VetTools(server, identity, tools, instance, self._running(identity))
        try:
            return frozenset(await self._definitions.vet(request, timeout=VET_TIMEOUT))
        except ActorUnavailableError as error:
            raise NotVettedError(
                f"its tools could not be compared with the trusted ones: {error}"
            ) from None
