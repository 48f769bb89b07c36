"""Methods on calls that wait for a person's approval.

Any process of the user may read them. Only a person may answer: the calling process must have a
terminal, and capd must not have started it. The same holds for trust in a project
(docs/design/trust.md).
"""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from capd.actors.control import documents
from capd.actors.control.actors import Actors, accepted
from capd.actors.control.callers import check_person
from capd.adapters.clients.peers import Peer
from capd_protos import curator
from capd_protos import socket as frames


class ApprovalMethods:
    """The methods on approvals. Those that change something check the calling process first."""

    def __init__(self, actors: Actors) -> None:
        self._actors = actors
        self.methods: dict[str, Callable[[Any], Awaitable[Any]]] = {"approvals": self._approvals}
        self.personal: dict[str, Callable[[Any, Peer], Awaitable[Any]]] = {
            "approve": self._approve,
            "approvals_forget": self._forget,
        }

    async def _approvals(self, _: frames.NoParams) -> dict[str, Any]:
        listed = await self._actors.curator.approvals()
        return {"schema": documents.SCHEMA, **msgspec.to_builtins(listed, str_keys=True)}

    async def _approve(self, params: frames.ApproveParams, peer: Peer) -> dict[str, Any]:
        await check_person("approve", peer, "capd approve")
        request = curator.AnswerApproval(params.number, params.answer)
        answered = accepted(await self._actors.curator.approve(request))
        return {"schema": documents.SCHEMA, "answered": answered.numbers}

    async def _forget(self, params: frames.ForgetApprovalsParams, peer: Peer) -> dict[str, Any]:
        await check_person("approvals_forget", peer, "capd approve")
        forgotten = await self._actors.curator.forget_approvals(params.name)
        return {"schema": documents.SCHEMA, "forgotten": forgotten.names}
