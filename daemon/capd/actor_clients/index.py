"""Asks the index for short texts on what is installed."""

from capd.actor_clients.client import ANSWER_TIMEOUT, ActorClient
from capd.actor_clients.names import INDEX
from capd_protos import index as messages
from capd_protos.codec import MsgpackCodec

_INDEX_LISTED: MsgpackCodec[messages.IndexListed] = MsgpackCodec(messages.IndexListed)
_INDEX_WRITTEN: MsgpackCodec[messages.IndexWritten | messages.IndexRefused] = MsgpackCodec(
    messages.IndexWritten | messages.IndexRefused
)
_INDEX_DESCRIBED: MsgpackCodec[messages.IndexDescribed] = MsgpackCodec(messages.IndexDescribed)


class IndexClient(ActorClient):
    """Asks the index for the entries of installed capabilities."""

    actor = INDEX

    async def entries(
        self, project: str = "", *, timeout: float = ANSWER_TIMEOUT
    ) -> messages.IndexListed:
        """Return the entries, short texts on installed capabilities, for sessions of a project."""
        return await self._ask(messages.ListIndex(project), _INDEX_LISTED, timeout)

    async def write(
        self, *, timeout: float = ANSWER_TIMEOUT
    ) -> messages.IndexWritten | messages.IndexRefused:
        """Write the file capability-index.yaml, if its contents would change."""
        return await self._ask(messages.WriteIndex(), _INDEX_WRITTEN, timeout)

    async def describe(self, *, timeout: float = ANSWER_TIMEOUT) -> messages.IndexDescribed:
        """Return the state of the index's file, and each capability's use and cost."""
        return await self._ask(messages.DescribeIndex(), _INDEX_DESCRIBED, timeout)

    async def revise(
        self, revisions: list[messages.Revision], *, timeout: float = ANSWER_TIMEOUT
    ) -> messages.IndexWritten | messages.IndexRefused:
        """Write new texts for capabilities to the file capability-index.yaml."""
        return await self._ask(messages.ReviseIndex(revisions), _INDEX_WRITTEN, timeout)
