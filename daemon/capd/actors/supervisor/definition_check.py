"""The supervisor's part that has what servers list compared with what is trusted."""

from collections.abc import Callable, Collection, Sequence

from capd.adapters.servers.server_run import NotVettedError
from capd.core.tools.tool_intake import Taken
from capd.runtime.bus import Bus
from capd.runtime.peer import AskFailedError, AskTimeoutError, PeerUnreachableError
from capd_protos import definitions
from capd_protos.codec import MsgpackCodec
from capd_protos.types import ActorName, InstanceId, ServerIdentity, ServerSpec, ToolName

DEFINITIONS = ActorName("definitions")
REPLIES: MsgpackCodec[definitions.Reply] = MsgpackCodec(definitions.Reply)
VET_TIMEOUT = 30.0

_UNANSWERED = (AskTimeoutError, PeerUnreachableError, AskFailedError)


class Vetting:
    """Asks the definitions actor; without its word no tool is shown."""

    def __init__(self, bus: Bus, running: Callable[[ServerIdentity], list[InstanceId]]) -> None:
        """Ask by `bus`; `running` tells which instances of a server run."""
        self._bus = bus
        self._running = running

    async def withheld(
        self,
        server: ServerSpec,
        identity: ServerIdentity,
        instance: InstanceId,
        taken: Sequence[Taken],
    ) -> Collection[ToolName]:
        """Return which tools of an instance's list nobody may see or call.

        Raises:
            NotVettedError: there is no answer.
        """
        tools = [definitions.ListedTool(each.definition.name, each.written) for each in taken]
        request = definitions.VetTools(server, identity, tools, instance, self._running(identity))
        try:
            reply = await self._bus.ask(DEFINITIONS, request, REPLIES, VET_TIMEOUT)
        except _UNANSWERED as error:
            raise NotVettedError(
                f"its tools could not be compared with those before: {error}"
            ) from None
        assert isinstance(reply, definitions.ToolsVetted)
        return frozenset(reply.withheld)
