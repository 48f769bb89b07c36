"""The leases of a session on servers: acquired, kept during calls, released.

    acquire ──> held ──nothing needs it, and no call is under way──> released
                  └──a call is under way──> postponed until the last one ends

What is asked of the supervisor and the registry for a session is asked here.
"""

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import msgspec
import structlog
import trio

from capd.actors.session.services import SessionContext
from capd.adapters.servers.instance import Instance
from capd.core.protocol.outcomes import NotSentError
from capd.core.protocol.subscribed import Subscribed
from capd.core.servers.identity import server_identity
from capd.core.sessions import own_tools
from capd.core.sessions.session import NO_INSTANCE, ServerLease
from capd.core.sessions.session_place import NotActivatedError
from capd.runtime.peer import AskFailedError, AskTimeoutError, PeerUnreachableError
from capd_protos import registry, supervisor
from capd_protos.codec import MsgpackCodec
from capd_protos.types import (
    ActorName,
    CapabilitySpec,
    InstanceId,
    ServerIdentity,
    ServerSpec,
    SessionKey,
)

REGISTRY = ActorName("registry")
SUPERVISOR = ActorName("supervisor")
REGISTRY_REPLIES: MsgpackCodec[registry.Reply] = MsgpackCodec(registry.Reply)
SUPERVISOR_REPLIES: MsgpackCodec[supervisor.Reply] = MsgpackCodec(supervisor.Reply)

ASK_TIMEOUT = 5.0
ACQUIRE_TIMEOUT = 120.0

_UNANSWERED = (AskTimeoutError, PeerUnreachableError, AskFailedError)

log = structlog.get_logger(actor="curator")


class SessionLeases:
    """The servers that one session leases."""

    def __init__(self, context: SessionContext) -> None:
        self.subscribed = Subscribed()
        """What the session wants to hear of, whichever instance tells of it."""
        self._place = context.place
        self._state = context.state
        self._bus = context.services.bus
        self._instances = context.services.instances
        self._connection = context.connection
        self._calls: Counter[InstanceId] = Counter()
        # What nothing needs any more, but a call is still under way there.
        self._postponed: set[InstanceId] = set()
        self._is_over = False

    def found(self, instance: InstanceId) -> Instance | None:
        """Return a running instance."""
        return self._instances.get(instance)

    def running(self, server: ServerIdentity) -> Instance | None:
        """Return the instance of a held server, None where none runs for the session."""
        held = self._state.held(server)
        instance = self._instances.get(held.instance) if held is not None else None
        return instance if instance is not None and instance.is_alive else None

    @asynccontextmanager
    async def in_call(self, server: ServerIdentity) -> AsyncIterator[ServerLease]:
        """Keep a server for the length of a call, also where its capability goes meanwhile.

        Raises:
            NotSentError: it has gone already.
        """
        held = self._state.held(server)
        if held is None:
            raise NotSentError("Its capability was switched off. The call was not sent.")
        self.keep(held)
        try:
            yield held
        finally:
            if self.leave(held):
                await self.release(held.instance)

    def keep(self, lease: ServerLease) -> None:
        """Keep a server until `leave`, also where its capability goes meanwhile."""
        self._calls[lease.instance] += 1

    def leave(self, held: ServerLease) -> bool:
        """End a call; say whether it was the last that kept the server, which has to `release`."""
        self._calls[held.instance] -= 1
        if self._calls[held.instance]:
            return False
        del self._calls[held.instance]
        is_due = held.instance in self._postponed
        self._postponed.discard(held.instance)
        return is_due

    async def release_all(self) -> None:
        """Let go of every server; the session is not used again."""
        # What a transaction under way asks for after this would be held by nobody.
        self._is_over = True
        for held in self._state.servers:
            left = self._instances.get(held.instance)
            if left is not None:
                left.leave(self._place.key)
        with trio.CancelScope(shield=True), trio.move_on_after(ASK_TIMEOUT):
            try:
                await self.ask_supervisor(supervisor.ReleaseSession(self._place.key), ASK_TIMEOUT)
            except NotActivatedError as error:
                log.warning("release_failed", session=self._place.key, reason=str(error))

    async def ask_registry(self, request: msgspec.Struct) -> registry.Reply:
        """Return the registry's reply.

        Raises:
            NotActivatedError: it does not answer.
        """
        try:
            return await self._bus.ask(REGISTRY, request, REGISTRY_REPLIES, ASK_TIMEOUT)
        except _UNANSWERED as error:
            raise NotActivatedError(f"capd's registry does not answer: {error}") from None

    async def ask_supervisor(self, request: msgspec.Struct, timeout: float) -> supervisor.Reply:
        """Return the supervisor's reply.

        Raises:
            NotActivatedError: it does not answer within `timeout` seconds.
        """
        try:
            return await self._bus.ask(SUPERVISOR, request, SUPERVISOR_REPLIES, timeout)
        except _UNANSWERED as error:
            raise NotActivatedError(f"capd's supervisor does not answer: {error}") from None

    async def acquire_all(self, capability: CapabilitySpec) -> Sequence[ServerLease]:
        """Hold every server of `capability`, or none more than before; raises as `acquire`."""
        servers: list[ServerLease] = []
        try:
            for spec in capability.servers:
                ready = await self.acquire(spec)
                servers.append(
                    ServerLease(spec, ready.identity, ready.instance, tuple(ready.tools))
                )
        except BaseException:
            with trio.CancelScope(shield=True), trio.move_on_after(ASK_TIMEOUT):
                for held in servers:
                    if self._state.held(held.identity) is None:
                        await self.release(held.instance)
            raise
        return servers

    async def acquire(self, server: ServerSpec) -> supervisor.ServerReady:
        """Hold a server, which is started where it does not run.

        Raises:
            NotActivatedError: it cannot be had.
        """
        if self._is_over:
            raise NotActivatedError("The session is over.")
        request = supervisor.AcquireServer(
            self._place.key, server, self._place.project, self._connection.client
        )
        try:
            reply = await self.ask_supervisor(request, ACQUIRE_TIMEOUT)
        except BaseException:
            # Cancelled or out of patience: it may be held all the same, or be about to.
            with trio.CancelScope(shield=True), trio.move_on_after(ASK_TIMEOUT):
                await self._release_unanswered(server)
            raise
        if isinstance(reply, supervisor.ServerReady):
            self._postponed.discard(reply.instance)
            instance = self._instances.get(reply.instance)
            if instance is not None:
                instance.join(self._connection, self.subscribed.at(reply.identity))
            return reply
        assert isinstance(reply, supervisor.ServerRefused)
        raise NotActivatedError(own_tools.server_failed(server.name, reply.message, reply.stderr))

    async def _release_unanswered(self, server: ServerSpec) -> None:
        """Let go of `server`, whose instance we were never told, unless it was held before."""
        identity = server_identity(server)
        if self._state.held(identity) is not None:
            return
        try:
            listed = await self.ask_supervisor(supervisor.ListServers(), ASK_TIMEOUT)
        except NotActivatedError as error:
            log.warning("release_failed", session=self._place.key, reason=str(error))
            return
        assert isinstance(listed, supervisor.ServersListed)
        for entry in listed.servers:
            if entry.identity == identity and self._place.key in entry.leases:
                await self.release(entry.instance)

    async def release(self, instance: InstanceId) -> list[SessionKey]:
        """Let go of an instance, also for a caller that is cancelled; after its last call."""
        if instance == NO_INSTANCE:
            return []
        if self._calls[instance]:
            self._postponed.add(instance)
            return []
        left = self._instances.get(instance)
        if left is not None:
            left.leave(self._place.key)
        request = supervisor.ReleaseServer(self._place.key, instance)
        held_by: list[SessionKey] = []
        with trio.CancelScope(shield=True):
            try:
                reply = await self.ask_supervisor(request, ASK_TIMEOUT)
            except NotActivatedError as error:
                log.warning("release_failed", session=self._place.key, reason=str(error))
            else:
                held_by = reply.held_by if isinstance(reply, supervisor.HoldsReleased) else []
        return held_by
