"""What a session has when it opens: pins, servers that start immediately, and inherited tools.

A pin is a tool that the user's settings put on the list of every session. It is listed by its
cached definition, and its server starts with the first call. A server that is defined with
`lazy = false` is started as soon as its secrets are there.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress

import structlog
import trio
from structlog.typing import FilteringBoundLogger

from capd.actors.session.activation import Activation
from capd.actors.session.curation import single
from capd.actors.session.services import SessionContext
from capd.core.protocol.outcomes import NotSentError
from capd.core.servers.placeholders import wanted_keys
from capd.core.sessions.session import NO_INSTANCE, ServerLease
from capd.core.sessions.session_place import NotActivatedError
from capd_protos import finder
from capd_protos.types import ServerSpec

LOOK_AGAIN = 2.0
"""Seconds between two checks for the secrets of a server that waits for them."""


class InitialTools:
    """Sets up the tools that a session has when it opens."""

    # Slots save memory: every idle session has one of these objects.
    __slots__ = ("_activation", "_environments", "_has_new_values", "_place", "_state", "_view")

    def __init__(self, context: SessionContext, activation: Callable[[], Activation]) -> None:
        """Create it.

        `activation` returns the object that switches servers on, which most sessions never need.
        """
        self._place = context.place
        self._state = context.state
        self._view = context.view
        self._activation = activation
        self._environments = context.services.environments
        self._has_new_values: trio.Event | None = None

    @property
    def _log(self) -> FilteringBoundLogger:
        # Most sessions log nothing here, and a kept logger is 200 bytes.
        log: FilteringBoundLogger = structlog.get_logger(actor="curator", session=self._place.key)
        return log

    def pin(self, found: finder.ToolsDescribed) -> None:
        """Pin the tools that are always listed, as far as the client's list has room."""
        view = self._view
        known = found.everything if view.plan.is_whole else found.matching
        pinned = [hit for hit in known if view.is_pinned(hit.server, hit.name, hit.wire_name)]
        room = max(0, view.traits.tool_limit - len(self._state.surface.own))
        if refused := [hit.wire_name for hit in pinned[room:]]:
            self._log.warning("pins_refused", cap=view.traits.tool_limit, refused=refused)
            view.refused_pins = len(refused)
        for hit in pinned[:room]:
            # A project's settings may take the user's pins off the list. This is checked after the
            # cut at `room`, so that a pin taken off makes no room for another.
            if not view.keeps_pin(hit.server, hit.name, hit.wire_name):
                continue
            tool = single(hit)
            lease = ServerLease(tool.spec, tool.identity, NO_INSTANCE, (tool.definition,), tool.via)
            self._state.pin(lease, [tool.definition.name])

    async def lease_eager(self, servers: Sequence[finder.EagerServer]) -> None:
        """Start the servers that are defined as not lazy, each when its secrets are there."""
        async with trio.open_nursery() as nursery:
            for server in servers:
                nursery.start_soon(self._lease_when_ready, server)

    async def _lease_when_ready(self, server: finder.EagerServer) -> None:
        while not self._has_values(server.spec):
            # Neither keyring nor file announces a new secret. A check costs one `stat`.
            if self._has_new_values is None:
                self._has_new_values = trio.Event()
            with trio.move_on_after(LOOK_AGAIN):
                await self._has_new_values.wait()
        # The client info may have arrived meanwhile, and changed the policy.
        policy = self._view.policy
        is_off = policy.restrict_capability(server.via) is not None
        if is_off or policy.restrict_server(server.spec.name) is not None:
            return
        try:
            await self._activation().pin(server.spec, server.via)
        except NotActivatedError as error:
            self._log.warning("eager_not_held", server=server.spec.name, reason=str(error))

    async def lease_inherited(self) -> None:
        """Lease the servers of the tools that the session has inherited from its parent.

        This happens before the parent's session can release them. A server is left out if its
        secrets are missing, or if policy denies it.
        """
        for lease in self._state.servers:
            is_denied = self._view.policy.restrict_server(lease.spec.name) is not None
            if self._has_values(lease.spec) and not is_denied:
                with suppress(NotSentError):
                    await self._activation().instance(lease.identity)

    def on_environment(self) -> None:
        """Check again whether the secrets of waiting servers are there."""
        before, self._has_new_values = self._has_new_values, None
        if before is not None:
            before.set()

    def _has_values(self, server: ServerSpec) -> bool:
        values = self._environments.values(self._place.key)
        return all(values.get(key) for key in wanted_keys(server))
