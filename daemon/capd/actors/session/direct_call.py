"""The way of one call that needs no task: kept by the connection from its line to its reply."""

import time
from typing import TYPE_CHECKING

from capd.actors.session.call_notes import Call
from capd.actors.session.leases import Holds
from capd.adapters.clients.conversation import Request
from capd.adapters.servers.lane import Lane
from capd.core.protocol.eras import Members, raw
from capd.core.results.large_results import Result
from capd.core.sessions.surface import Shown

if TYPE_CHECKING:
    from capd.actors.session.calls import Relaying


class ToolWay:
    """The way of one call of a tool."""

    __slots__ = (
        *("_began_at", "_held", "_holds", "_relaying", "_request", "_shown"),
        *("lane", "members", "timeout"),
    )

    def __init__(
        self,
        relaying: "Relaying",
        holds: Holds,
        lane: Lane,
        request: Request,
        shown: Shown,
    ) -> None:
        self._relaying = relaying
        self._holds = holds
        self._request = request
        self._shown = shown
        self._began_at = time.monotonic()
        self._held = holds.enter(shown.grant.server)
        self.lane = lane
        self.members: Members = {**request.members, "name": raw(shown.grant.tool)}
        self.timeout = self._held.spec.timeout

    def leave(
        self, result: Result | None, error: Exception | None = None, *, has_ended: bool = True
    ) -> bool:
        """Leave it with the call's outcome, if it has one here; say whether `release` is due."""
        if has_ended:
            call = Call(self._request, self._shown, self._held.spec.name, self._began_at)
            self._relaying.ended(call, result, error)
        return self._holds.leave(self._held)

    def is_left(self, result: Result) -> bool:
        """Tell whether the client gets the result as it came."""
        return self._relaying.is_left(self._shown, self._held.spec.name, result)

    async def passed(self, result: Result) -> Result:
        """Return what the client gets of the result."""
        server = self._held.spec.name
        return await self._relaying.passed(self._request, self._shown, server, result)

    async def release(self) -> None:
        """Let go of the server."""
        await self._holds.release(self._held.instance)
