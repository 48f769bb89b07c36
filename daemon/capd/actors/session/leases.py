"""The leases of a session on servers: acquired, kept during calls, released.

    acquire ──> leased ──nothing needs it, and no call is under way──> released
                  ├──a call is under way──> postponed until the last call ends
                  └──a start needs it──> set aside until the start ends
                                         (core/sessions/pending_starts)

The supervisor grants the leases.
"""

from collections import Counter
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager

import structlog
import trio

from capd.actor_clients.names import SUPERVISOR
from capd.actors.session.asking import must_answer
from capd.actors.session.services import SessionContext
from capd.adapters.servers.instance import FOLLOWED, Instance
from capd.adapters.step_boundary import boundary
from capd.core.protocol.outcomes import NotSentError
from capd.core.protocol.resource_subscriptions import ResourceSubscriptions
from capd.core.servers.identity import server_identity
from capd.core.sessions import own_tools
from capd.core.sessions.pending_starts import PendingStarts
from capd.core.sessions.session import NO_INSTANCE, ServerLease
from capd.core.sessions.session_place import NotActivatedError
from capd.core.tools.tool_edits import edited_tools
from capd.runtime.boundary import contained
from capd.runtime.bus import ActorUnavailableError
from capd_protos import supervisor
from capd_protos.types import (
    CapabilitySpec,
    InstanceId,
    ServerIdentity,
    ServerSpec,
    SessionKey,
)

ASK_TIMEOUT = 5.0
ACQUIRE_TIMEOUT = 120.0

log = structlog.get_logger(actor="curator")


class SessionLeases:
    """The leases of one session on servers: acquires, keeps and releases them."""

    def __init__(self, context: SessionContext) -> None:
        self.subscribed = ResourceSubscriptions()
        """The resources that the session subscribed to, by server. The subscriptions outlive the
        instances."""
        self.watched = ResourceSubscriptions()
        """The tasks that the session listens for, by their ids."""
        self._place = context.place
        self._state = context.state
        self._supervisor = context.services.supervisor
        self._instances = context.services.instances
        self._connection = context.connection
        self._calls: Counter[InstanceId] = Counter()
        # Instances to be released when the last call in progress there ends.
        self._postponed: set[InstanceId] = set()
        self._pending = PendingStarts()
        # Servers of acquire requests without a reply. The supervisor may have granted a lease.
        self._unanswered: dict[ServerIdentity, ServerSpec] = {}
        # For each list, the servers that offered it when `changed_lists` was last called.
        self._offering: dict[str, list[ServerIdentity]] = {what: [] for what in FOLLOWED}
        self._releasing: Counter[ServerIdentity] = Counter()
        self._released = trio.Event()
        self.is_over = False
        """Whether the session has ended. After that it gets no more leases."""

    def found(self, instance: InstanceId) -> Instance | None:
        """Return the running instance with this id; None if there is none."""
        return self._instances.get(instance)

    def running(self, server: ServerIdentity) -> Instance | None:
        """Return the instance of a leased server; None if none is running."""
        lease = self._state.lease_on(server)
        instance = self._instances.get(lease.instance) if lease is not None else None
        is_alive = instance is not None and instance.server_connection.is_alive
        return instance if is_alive else None

    def changed_lists(self) -> list[str]:
        """Return the lists (`prompts`, `resources`) whose servers have changed since the last call.

        The servers of a list are those that run and offer it.
        """
        before, self._offering = self._offering, {what: [] for what in FOLLOWED}
        for lease in self._state.servers:
            instance = self._instances.get(lease.instance)
            if instance is not None and instance.server_connection.is_alive:
                for what in FOLLOWED:
                    if what in instance.server_connection.capabilities:
                        self._offering[what].append(lease.identity)
        return [what for what in FOLLOWED if before[what] != self._offering[what]]

    @asynccontextmanager
    async def in_call(self, server: ServerIdentity) -> AsyncIterator[ServerLease]:
        """Keep a server's lease while the block runs, even if its capability is switched off.

        Raises:
            NotSentError: the server has been released already.
        """
        lease = self._state.lease_on(server)
        if lease is None:
            raise NotSentError("Its capability was switched off. The call was not sent.")
        self.keep(lease)
        try:
            yield lease
        finally:
            # The call has its outcome already, so an error here must not change it.
            await contained("release", self._leave_call, lease, log=log)

    async def _leave_call(self, lease: ServerLease) -> None:
        if self.leave(lease):
            await self.release(lease)

    def keep(self, lease: ServerLease) -> None:
        """Keep a server's lease for one call, even if its capability is switched off meanwhile.

        `leave` ends this.
        """
        self._calls[lease.instance] += 1

    def leave(self, lease: ServerLease) -> bool:
        """End a call that `keep` began; return whether the server's lease must be released now."""
        self._calls[lease.instance] -= 1
        if self._calls[lease.instance]:
            return False
        del self._calls[lease.instance]
        is_due = lease.instance in self._postponed
        self._postponed.discard(lease.instance)
        return is_due

    async def release_all(self) -> None:
        """Release every server. The session must not be used afterwards."""
        # Set first. Otherwise a transaction in progress could acquire a lease after this, which
        # nobody would release.
        self.is_over = True
        for lease in self._state.servers:
            left = self._instances.get(lease.instance)
            if left is not None:
                with boundary("leave", log=log):
                    left.leave(self._place.key)
        with trio.CancelScope(shield=True), trio.move_on_after(ASK_TIMEOUT):
            try:
                await self._supervisor.release_session(self._place.key, timeout=ASK_TIMEOUT)
            except ActorUnavailableError as error:
                log.warning("release_failed", session=self._place.key, reason=str(error))

    @asynccontextmanager
    async def starting(self, servers: Collection[ServerSpec]) -> AsyncIterator[None]:
        """Let the session lease `servers` while the block runs, to switch capabilities on.

        After the block, release those that nothing needs. Several such blocks may run at the same
        time. None releases a server that another one needs.
        """
        identities = [server_identity(each) for each in servers]
        for identity in identities:
            self._pending.begin(identity)
        try:
            yield
        finally:
            with trio.CancelScope(shield=True), trio.move_on_after(ASK_TIMEOUT):
                for identity in identities:
                    await self._end_start(identity)

    async def _end_start(self, server: ServerIdentity) -> None:
        lease = None if self.is_over else self._state.lease_on(server)
        for instance in self._pending.end(server, lease.instance if lease is not None else None):
            await self._release_now(server, instance)
        if server in self._unanswered and not self._pending.is_wanted(server):
            await self._release_unanswered(server, self._unanswered.pop(server))

    async def acquire_all(self, capability: CapabilitySpec) -> Sequence[ServerLease]:
        """Lease every server of `capability`, inside a `starting` block.

        Raises: as `acquire`.
        """
        servers: list[ServerLease] = []
        for spec in capability.servers:
            ready = await self.acquire(spec)
            tools = edited_tools(ready.tools, spec.edits)
            servers.append(ServerLease(spec, ready.identity, ready.instance, tools))
        return servers

    async def acquire(self, server: ServerSpec) -> supervisor.ServerReady:
        """Lease a server inside a `starting` block; the supervisor starts it if necessary.

        Raises:
            NotActivatedError: the server could not be started.
        """
        identity = server_identity(server)
        # The supervisor handles requests side by side: a release that is in progress could take
        # effect after this acquire.
        while self._releasing[identity]:
            await self._released.wait()
        if self.is_over:
            raise NotActivatedError("The session is over.")
        place = self._place
        request = supervisor.AcquireServer(
            place.key,
            server,
            place.project,
            self._connection.client,
            place.bridge,
            place.far_folder,
        )
        try:
            with must_answer(SUPERVISOR):
                reply = await self._supervisor.acquire(request, timeout=ACQUIRE_TIMEOUT)
        except BaseException:
            # Cancelled or timed out: the supervisor may still grant the lease.
            self._unanswered[identity] = server
            raise
        if isinstance(reply, supervisor.ServerReady):
            self._pending.acquired(identity, reply.instance)
            self._postponed.discard(reply.instance)
            instance = self._instances.get(reply.instance)
            if instance is not None:
                uris, tasks = self.subscribed.at(reply.identity), self.watched.at(reply.identity)
                instance.join(self._connection, uris, tasks)
            return reply
        raise NotActivatedError(own_tools.server_failed(server.name, reply.message, reply.stderr))

    async def _release_unanswered(self, identity: ServerIdentity, server: ServerSpec) -> None:
        """Release `server` after an acquire that got no answer, unless the session leases it."""
        lease = self._state.lease_on(identity)
        if lease is not None and lease.instance != NO_INSTANCE:
            return
        try:
            entries = await self._supervisor.servers(timeout=ASK_TIMEOUT)
        except ActorUnavailableError as error:
            log.warning("release_failed", session=self._place.key, reason=str(error))
            return
        for entry in entries:
            if entry.identity == identity and self._place.key in entry.leases:
                log.info("start_given_up", session=self._place.key, server=server.name)
                await self._release_now(identity, entry.instance)

    async def release(self, lease: ServerLease) -> list[SessionKey]:
        """Release a lease, even if the caller is cancelled; return the sessions that still hold it.

        If a call on the server is in progress, or a start needs the server, the lease is released
        when that call or start ends, and the returned list is empty.
        """
        if lease.instance == NO_INSTANCE:
            return []
        if self._calls[lease.instance]:
            self._postponed.add(lease.instance)
            return []
        if self._pending.set_aside(lease.identity, lease.instance):
            return []
        return await self._release_now(lease.identity, lease.instance)

    async def _release_now(self, server: ServerIdentity, instance: InstanceId) -> list[SessionKey]:
        if self._calls[instance]:
            self._postponed.add(instance)
            return []
        left = self._instances.get(instance)
        if left is not None:
            left.leave(self._place.key)
        held_by: list[SessionKey] = []
        self._releasing[server] += 1
        try:
            with trio.CancelScope(shield=True):
                held_by = await self._supervisor.release(
                    self._place.key, instance, timeout=ASK_TIMEOUT
                )
        except ActorUnavailableError as error:
            log.warning("release_failed", session=self._place.key, reason=str(error))
        finally:
            self._releasing[server] -= 1
            if not self._releasing[server]:
                del self._releasing[server]
            self._released.set()
            self._released = trio.Event()
        return held_by
