"""A curator's part that switches capabilities on and off, as transactions (30-activation).

    resolve -> check -> install -> hold and connect every server -> filter -> commit -> evict

Whatever fails before the commit leaves the session as it was, and every lease too. Transactions
of one session come one after the other; those of different sessions run side by side.
"""

import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import msgspec
import structlog
import trio
from structlog.typing import FilteringBoundLogger

from capd.adapters.clients.session_environment import SessionEnvironments
from capd.adapters.servers.callers import Peer
from capd.adapters.servers.instance import Instance
from capd.core.errors import CapdError
from capd.core.protocol.outcomes import NotSentError
from capd.core.servers.identity import server_identity
from capd.core.sessions import own_tools
from capd.core.sessions.session import NO_INSTANCE, Held, SessionState, Step
from capd.core.taps.catalog import Unknown
from capd.runtime.bus import Bus
from capd.runtime.handover import Handover
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
    WireName,
)

REGISTRY = ActorName("registry")
SUPERVISOR = ActorName("supervisor")
REGISTRY_REPLIES: MsgpackCodec[registry.Reply] = MsgpackCodec(registry.Reply)
SUPERVISOR_REPLIES: MsgpackCodec[supervisor.Reply] = MsgpackCodec(supervisor.Reply)

ASK_TIMEOUT = 5.0
ACQUIRE_TIMEOUT = 120.0
INSTALL_TIMEOUT = 900.0

_UNANSWERED = (AskTimeoutError, PeerUnreachableError, AskFailedError)


class NotActivatedError(CapdError):
    """A capability could not be switched on; nothing has changed."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was done, in the words that a model gets, and in wire names."""

    text: str
    added: tuple[WireName, ...] = ()
    removed: tuple[WireName, ...] = ()
    is_ok: bool = True


@dataclass(frozen=True, slots=True)
class SessionPlace:
    """Who a session is and where it works."""

    key: SessionKey
    client: str
    project: str


class Activation:
    """The transactions of one session on its state."""

    def __init__(
        self,
        place: SessionPlace,
        state: SessionState,
        *,
        bus: Bus,
        instances: Handover[InstanceId, Instance],
        environments: SessionEnvironments,
        on_step: Callable[[Step], None],
        peer: Peer,
    ) -> None:
        """`peer` is who servers of the session may speak to."""
        self._peer = peer
        self._place = place
        self._state = state
        self._bus = bus
        self._instances = instances
        self._environments = environments
        self._on_step = on_step
        self._transaction = trio.Lock()
        self._calls: Counter[InstanceId] = Counter()
        # What nothing needs any more, but a call is still under way there.
        self._postponed: set[InstanceId] = set()
        self._is_over = False

    @property
    def _log(self) -> FilteringBoundLogger:
        # Bound when it is used: two bound loggers are 1 KB of an idle session.
        log: FilteringBoundLogger = structlog.get_logger(actor="curator", session=self._place.key)
        return log

    async def enable(self, name: str) -> Outcome:
        """Switch a capability on, by `name` or `tap/name`; one that is on is touched."""
        async with self._transaction:
            try:
                return await self._enable(name)
            except NotActivatedError as error:
                self._log.info("not_activated", capability=name, reason=str(error))
                return Outcome(str(error), is_ok=False)

    async def disable(self, name: str) -> Outcome:
        """Switch a capability off; one that is not on is fine."""
        async with self._transaction:
            found = self._state.find_active(name)
            if found is None:
                return Outcome(own_tools.not_active(name))
            step = self._state.deactivate(found)
            self._on_step(step)
            stopped, kept = [], []
            for held in step.unheld:
                others = await self._release(held.instance)
                if others:
                    who = f"{len(others)} other session{'s' if len(others) > 1 else ''}"
                    kept.append((held.spec.name, who))
                else:
                    stopped.append(held.spec.name)
            text = own_tools.disabled(found.name, stopped, kept)
            return Outcome(text, step.added, step.removed)

    def running(self, server: ServerIdentity) -> Instance | None:
        """Return the instance of a held server, None where none runs for the session."""
        held = self._state.held(server)
        instance = self._instances.get(held.instance) if held is not None else None
        return instance if instance is not None and instance.is_alive else None

    async def instance(self, server: ServerIdentity) -> Instance:
        """Return the instance of a held server, starting the server again where it has died.

        Raises:
            NotSentError: it cannot be had.
        """
        running = self.running(server)
        if running is not None:
            return running
        async with self._transaction:
            held = self._state.held(server)
            if held is None:
                raise NotSentError("Its capability was switched off. The call was not sent.")
            # Another call may have had it started while this one waited.
            running = self.running(server)
            if running is not None:
                return running
            try:
                ready = await self._acquire(held.spec)
            except NotActivatedError as error:
                raise NotSentError(f"{error} The call was not sent.") from None
            self._on_step(self._state.server_lists(server, ready.instance, ready.tools))
        running = self._instances.get(ready.instance)
        if running is None:
            raise NotSentError(f"{held.spec.name} ended again at once. The call was not sent.")
        return running

    @asynccontextmanager
    async def in_call(self, server: ServerIdentity) -> AsyncIterator[Held]:
        """Keep a server for the length of a call, also where its capability goes meanwhile.

        Raises:
            NotSentError: it has gone already.
        """
        held = self.enter(server)
        try:
            yield held
        finally:
            if self.leave(held):
                await self.release(held)

    def enter(self, server: ServerIdentity) -> Held:
        """Keep a server until `leave`; raises as `in_call`."""
        held = self._state.held(server)
        if held is None:
            raise NotSentError("Its capability was switched off. The call was not sent.")
        self._calls[held.instance] += 1
        return held

    def leave(self, held: Held) -> bool:
        """End a call; say whether it was the last that kept the server, which has to `release`."""
        self._calls[held.instance] -= 1
        if self._calls[held.instance]:
            return False
        del self._calls[held.instance]
        is_due = held.instance in self._postponed
        self._postponed.discard(held.instance)
        return is_due

    async def release(self, held: Held) -> None:
        """Let go of a server that no call keeps any more."""
        await self._release(held.instance)

    async def server_tools_changed(self, instance: InstanceId) -> None:
        """Filter again what a held server lists now."""
        async with self._transaction:
            held = self._state.held_as(instance)
            if held is None:
                return
            request = supervisor.ListServerTools(instance)
            try:
                reply = await self.ask_supervisor(request, ASK_TIMEOUT)
            except NotActivatedError as error:
                # An event is a hint, and nobody waits for what comes of it.
                self._log.warning("tools_not_followed", instance=instance, reason=str(error))
                return
            if isinstance(reply, supervisor.ServerTools):
                self._on_step(self._state.server_lists(held.identity, instance, reply.tools))

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
                self._log.warning("release_failed", reason=str(error))

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

    async def _enable(self, name: str) -> Outcome:
        resolved = await self.ask_registry(registry.ResolveCapability(name))
        if isinstance(resolved, registry.CapabilityUnknown):
            why = Unknown(resolved.reason, tuple(resolved.near))
            raise NotActivatedError(own_tools.unknown(name, why))
        assert isinstance(resolved, registry.CapabilityResolved)
        capability = resolved.capability
        if capability.id in self._state.active:
            self._state.active.touch(capability.id, time.time())
            tools = self._state.tools_of(capability.id)
            return Outcome(own_tools.already_active(capability.id.name, tools))
        self._check(capability)
        installed = await self._install(capability, resolved.scripts)
        servers = await self._acquire_all(capability)
        step = self._state.activate(capability, servers, time.time())
        self._on_step(step)
        for held in step.unheld:
            await self._release(held.instance)
        self._log.info(
            "capability_enabled",
            capability=str(capability.id),
            tools=len(step.added),
            evicted=[str(evicted) for evicted in step.evicted],
        )
        text = own_tools.enabled(
            capability.id.name,
            [held.spec.name for held in servers],
            self._state.tools_of(capability.id),
            offered=sum(len(held.tools) for held in servers),
            evicted=step.evicted,
            installed=installed,
        )
        return Outcome(text, step.added, step.removed)

    def _check(self, capability: CapabilitySpec) -> None:
        name = capability.id.name
        if any(server.transport == "builtin" for server in capability.servers):
            raise NotActivatedError(own_tools.builtin_unsupported(name))
        if not capability.servers and not capability.requires:
            raise NotActivatedError(own_tools.nothing_to_activate(name))
        values = self._environments.values(self._place.key)
        if missing := [key for key in capability.wanted_keys if not values.get(key)]:
            raise NotActivatedError(own_tools.missing_keys(name, missing))

    async def _install(self, capability: CapabilitySpec, scripts: dict[str, str]) -> list[str]:
        name = capability.id.name
        lacking = [each for each in capability.requires if each not in scripts]
        if lacking and not capability.servers:
            why = "the tap has no script for it"
            raise NotActivatedError(own_tools.dependency_failed(name, lacking[0], why))
        if not scripts:
            return []
        request = supervisor.InstallDependencies(scripts)
        reply = await self.ask_supervisor(request, INSTALL_TIMEOUT)
        if isinstance(reply, supervisor.DependenciesFailed):
            text = own_tools.dependency_failed(name, reply.dependency, reply.message)
            raise NotActivatedError(text)
        assert isinstance(reply, supervisor.DependenciesReady)
        return reply.installed

    async def _acquire_all(self, capability: CapabilitySpec) -> Sequence[Held]:
        """Hold every server of `capability`, or none more than before."""
        servers: list[Held] = []
        try:
            for spec in capability.servers:
                ready = await self._acquire(spec)
                servers.append(Held(spec, ready.identity, ready.instance, tuple(ready.tools)))
        except BaseException:
            with trio.CancelScope(shield=True), trio.move_on_after(ASK_TIMEOUT):
                for held in servers:
                    if self._state.held(held.identity) is None:
                        await self._release(held.instance)
            raise
        return servers

    async def _acquire(self, server: ServerSpec) -> supervisor.ServerReady:
        if self._is_over:
            raise NotActivatedError("The session is over.")
        request = supervisor.AcquireServer(
            self._place.key, server, self._place.project, self._peer.client
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
                instance.join(self._peer)
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
            self._log.warning("release_failed", reason=str(error))
            return
        assert isinstance(listed, supervisor.ServersListed)
        for entry in listed.servers:
            if entry.identity == identity and self._place.key in entry.leases:
                await self._release(entry.instance)

    async def _release(self, instance: InstanceId) -> list[SessionKey]:
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
                self._log.warning("release_failed", reason=str(error))
            else:
                held_by = reply.held_by if isinstance(reply, supervisor.HoldsReleased) else []
        return held_by
