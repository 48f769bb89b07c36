"""The connection to a sub-agent's client: that of the conversation which started the sub-agent."""

from capd.adapters.clients.client_connection import ClientConnection
from capd.adapters.servers.callers import OnProgress
from capd_protos.types import SessionKey


class SubAgentConnection(ClientConnection):
    """Reaches a sub-agent's client over the connection of the conversation that started it.

    It sends no notifications about lists and subscriptions: the client lists the conversation's
    tools, and a sub-agent subscribes to nothing.
    """

    __slots__ = ("_conversation",)

    def __init__(self, session: SessionKey, conversation: ClientConnection) -> None:
        super().__init__(session)
        self._conversation = conversation
        self.follow()

    def follow(self) -> None:
        """Copy the present facts about the client from the conversation."""
        self.client = self._conversation.client
        self.log_level = self._conversation.log_level
        self.may_be_servers = self._conversation.may_be_servers
        self.is_far = self._conversation.is_far

    @property
    def is_connected(self) -> bool:
        """Whether the client is connected."""
        return self._conversation.is_connected

    async def ask(self, method: str, params: bytes, on_progress: OnProgress) -> bytes:
        """Send the client a server's request that belongs to no call; return the client's result.

        Raises the same errors as `ClientConnection.ask`.
        """
        return await self._conversation.ask(method, params, on_progress)

    def tell(self, method: str, params: bytes) -> None:
        """Send the client a notification that belongs to no call.

        A notification about a list or a subscription is left out.
        """
        if not method.endswith(("/list_changed", "/resources/updated", "/tasks")):
            self._conversation.tell(method, params)
