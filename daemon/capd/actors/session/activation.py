"""Switches capabilities on and off in a session, as transactions (docs/design/surface.md).

    resolve -> check -> install -> acquire every server ──> check again -> filter -> commit -> evict
    └────────── starts, side by side ─────────────────┘    └───── one after the other ────────────┘

A failure before the commit leaves the session and its leases unchanged. A start takes as long as
its scripts and servers do, and nothing else in the session waits for it. So what was checked at the
beginning may have changed when the servers are ready, and the commit checks again
(`pending_starts.verdict`): the capability may be on by now, switched off, or forbidden.
"""

import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Literal

import structlog
import trio
from structlog.typing import FilteringBoundLogger

from capd.actor_clients.names import REGISTRY, SUPERVISOR
from capd.actors.session.asking import must_answer
from capd.actors.session.installing import OnProgress, install
from capd.actors.session.leases import ASK_TIMEOUT, SessionLeases
from capd.actors.session.policy import Denials
from capd.actors.session.services import SessionContext
from capd.actors.session.withheld import withheld_note
from capd.adapters.servers.instance import Instance
from capd.core.protocol.outcomes import NotSentError
from capd.core.servers.identity import server_identity
from capd.core.servers.placeholders import wanted_keys
from capd.core.sessions import own_tools
from capd.core.sessions.active_set import Grant
from capd.core.sessions.domains import is_inside
from capd.core.sessions.pending_starts import verdict
from capd.core.sessions.policy import Policy
from capd.core.sessions.policy_reach import capability_restriction, without_denied_servers
from capd.core.sessions.server_instructions import ANSWER_TOKENS, instructions_text
from capd.core.sessions.session import (
    NO_INSTANCE,
    ServerLease,
    Step,
    capabilities_of_project,
    without_project,
)
from capd.core.sessions.session_place import NotActivatedError, Outcome
from capd.core.taps.catalog import Unknown
from capd.core.tools.tool_edits import edited_tools
from capd.runtime.bus import ActorUnavailableError
from capd_protos import registry, supervisor
from capd_protos.curator import CapabilityUsed
from capd_protos.ledger import ActivationNote
from capd_protos.types import (
    CapabilityId,
    CapabilitySpec,
    InstanceId,
    ServerIdentity,
    ServerName,
    ServerSpec,
)

By = Literal["model", "person", "program", "turn", "search", "skill", "profile"]
"""Who asked for a change of what is on, as the ledger notes it."""

MOST_ROUNDS = 4
"""How many times a start is tried if policy, trust or accounts change during each try."""
LONGEST_REASON = 300
"""The longest reason of a failure in the ledger, in characters. Only the first line of a reason is
written there, so the ledger gets nothing from a server's stderr."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """The registry's answer for a capability, with a number that shows whether it is valid."""

    reply: registry.CapabilityResolved
    changes: int
    """The value of `Activation.changes` when the registry was asked. If that has changed since, the
    registry has to be asked again."""


@dataclass(slots=True, eq=False)
class _Start:
    """The start of a capability that is in progress, with what cancels it."""

    id: CapabilityId
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)


class Activation:
    """Switches capabilities, tools and servers on and off in one session.

    The changes are made one at a time.
    """

    def __init__(
        self, context: SessionContext, denials: Denials, on_step: Callable[[Step], None]
    ) -> None:
        """Create it. `on_step` is called with each change of what is on."""
        self._journal = context.services.journal
        self._denials = denials
        self.leases = SessionLeases(context)
        self._place = context.place
        self._state = context.state
        self._bus = context.services.bus
        self._registry = context.services.registry
        self._supervisor = context.services.supervisor
        self._definitions = context.services.definitions
        self._environments = context.services.environments
        self._on_step = on_step
        self._transaction = trio.Lock()
        self._left: list[ServerLease] = []
        self._starts: list[_Start] = []
        self.changes = 0
        """Counts changes of policy, trust and accounts. A start checks again if the number has
        changed since it began."""
        self.turns_waiting = 0
        """The number of turns that wait for a start. Meanwhile a change that somebody else makes is
        announced at once, and not when those turns end."""

    @property
    def _log(self) -> FilteringBoundLogger:
        # Bound when it is used: two bound loggers are 1 KB of an idle session.
        log: FilteringBoundLogger = structlog.get_logger(actor="curator", session=self._place.key)
        return log

    async def enable(
        self,
        name: str,
        on_progress: OnProgress = lambda _: None,
        *,
        by: By = "model",
        known: Resolved | None = None,
    ) -> Outcome:
        """Switch on a capability, given as `name` or `tap/name`.

        If it is on already, mark it as used. A refusal or a failed start is an `Outcome` with
        `is_ok=False` and the reason as its text.

        `on_progress` receives lines about the progress of dependency scripts. `by` says who asked.
        `known` is the registry's recent answer for this name. The registry is asked again if
        policy, trust or the account have changed since.
        """
        try:
            if known is not None and known.changes == self.changes:
                resolved = known.reply
            else:
                resolved = await self._resolve(name)
        except NotActivatedError as error:
            # An unknown name may be words of the model or the user, so it is not logged.
            self._log.info("capability_unknown", by=by)
            return Outcome(str(error), is_ok=False)
        start = _Start(resolved.capability.id)
        self._starts.append(start)
        self.turns_waiting += by == "turn"
        try:
            with start.scope:
                return await self._enable(resolved, on_progress, start, by)
            return Outcome(own_tools.withdrawn(start.id.name), is_ok=False)
        except NotActivatedError as error:
            self._log.info("not_activated", capability=str(start.id), reason=str(error))
            self._note(str(start.id), "failed", _first_line(str(error)))
            return Outcome(str(error), is_ok=False)
        finally:
            self._end(start, by)

    @property
    def pinned(self) -> list[tuple[ServerLease, tuple[str, ...]]]:
        """The servers with pinned tools, each with the patterns of its pins.

        A new sub-agent gets the same pins.
        """
        return self._state.pinned

    def _end(self, start: _Start, by: By) -> None:
        """Forget a start that has been committed or has failed. A second call does nothing.

        `by` says who asked for the start.
        """
        if start in self._starts:
            self._starts.remove(start)
            self.turns_waiting -= by == "turn"

    async def disable(self, name: str, *, by: By = "model") -> Outcome:
        """Switch a capability or a single tool off, or cancel the start of a capability.

        If nothing has this name, nothing changes, and the outcome's text says so. `by` says who
        asked, as in `enable`.
        """
        async with self._transaction:
            # `name` means, in this order: an active capability, an active tool, or a capability
            # that only the catalog finds by that name.
            tool = self._state.find_tool(name) if self._state.find_active(name) is None else None
            if tool is not None:
                return await self._disable_tool(tool, by)
            found = await self._active(name)
            withdrawn = self._cancel_starts(name)
            if found is None:
                if withdrawn is not None:
                    self._note(str(withdrawn), "off", by)
                    return Outcome(own_tools.withdrawn(withdrawn.name))
                return await self._answer_not_active(name)
            step = self._state.deactivate(found)
            self._on_step(step)
            self._note(str(found), "off", by)
            text = own_tools.disabled(found.name, *await self._release_unheld(step))
            return Outcome(text, step.added, step.removed)

    async def _answer_not_active(self, name: str) -> Outcome:
        """Return the answer to switching off `name`, when nothing of that name is on.

        The outcome is an error if the catalog has no such capability. A tool's name (with `__`) is
        not looked up.
        """
        # `SERVER__TOOL` names a tool, which the catalog of capabilities does not contain.
        if "__" not in name:
            try:
                await self._resolve(name)
            except NotActivatedError as error:
                return Outcome(str(error), is_ok=False)
        return Outcome(own_tools.not_active(name))

    def _cancel_starts(self, name: str) -> CapabilityId | None:
        """Cancel the starts of the capability called `name` (or `tap/name`).

        Return its id; None if it has no start in progress.
        """
        ended = [each for each in self._starts if name in {str(each.id.name), str(each.id)}]
        for start in ended:
            start.scope.cancel()
        return ended[0].id if ended else None

    async def _disable_tool(self, tool: Grant, by: By) -> Outcome:
        name = self._state.surface.names[tool]
        if tool in self._state.active.tools:
            step = self._state.deactivate_tool(tool)
            self._on_step(step)
            self._note(str(name), "off", by)
            stopped, kept = await self._release_unheld(step)
        else:
            step, stopped, kept = Step(), [], []
        left = [str(each.name) for each in self._state.active.granting(tool)]
        is_pinned = tool in self._state.active.pinned
        if left or is_pinned:
            return Outcome(own_tools.tool_stays(name, left, is_pinned=is_pinned), is_ok=False)
        return Outcome(own_tools.tool_disabled(name, stopped, kept), step.added, step.removed)

    async def _release_unheld(
        self, step: Step
    ) -> tuple[list[ServerName], list[tuple[ServerName, str]]]:
        """Release the servers that nothing in this session needs after a step.

        Return the names of those that no session uses any more. Return also the others, each with a
        text such as "2 other sessions", which says who still uses it.
        """
        stopped, kept = [], []
        for held in step.unheld:
            others = await self.leases.release(held)
            if others:
                who = f"{len(others)} other session{'s' if len(others) > 1 else ''}"
                kept.append((held.spec.name, who))
            else:
                stopped.append(held.spec.name)
        return stopped, kept

    async def step(self, decide: Callable[[], Step], *, by: By = "turn") -> Step:
        """Call `decide` while no other change runs; apply and return the step that it returns.

        A step is a change of what is switched on. `by` says who asked for the single tools that it
        switches on.
        """
        async with self._transaction:
            step = decide()
            if step != Step():
                for name in step.added:
                    self._note(name, "on", by)
                self._note_evicted(step, "other tools")
                await self._apply(step)
            return step

    def instructions_of(self, capability: CapabilityId) -> list[tuple[str, str]]:
        """Return the name of each server of an active capability, and the `instructions` it sent.

        Servers that sent none are left out.
        """
        activation = next(
            (each for each in self._state.active.activations if each.id == capability), None
        )
        said: list[tuple[str, str]] = []
        if activation is None:
            return said
        granting = {grant.server for grant in activation.grants}
        for server in activation.servers:
            # A server whose tools are all withheld or denied is left out.
            held = self._state.lease_on(server) if server in granting else None
            running = self.leases.found(held.instance) if held is not None else None
            connection = running.server_connection if running is not None else None
            if held is None or connection is None or not connection.is_alive:
                continue
            if connection.instructions:
                said.append((held.spec.name, connection.instructions))
        return said

    async def leave_project(self, project: str) -> None:
        """Drop everything that a project's files define, after trust in it was revoked."""
        self.changes += 1

        def decide() -> Step:
            for id_ in capabilities_of_project(self._state, project):
                self._note(str(id_), "off", "its project is not trusted any more")
            return without_project(self._state, project)

        await self.step(decide)

    async def pin(self, server: ServerSpec, via: CapabilityId) -> None:
        """Start a server that the definition marks as `lazy = false`, and pin its tools.

        `via` is the capability that defines the server.

        Raises:
            NotActivatedError: the server could not be started.
        """
        identity = server_identity(server)
        async with self._started(ServerLease(server, identity, NO_INSTANCE, (), via)) as ready:
            tools = edited_tools(ready.tools, server.edits)
            held = ServerLease(server, ready.identity, ready.instance, tools)
            await self._apply(self._state.pin(held, ["*"]))

    def restrict(self, policy: Policy) -> None:
        """Apply another policy.

        Servers that nothing needs any more are released by `release_left`.
        """
        self.changes += 1
        step = self._state.restrict(policy)
        # Nothing of a denied server can be called. If it is permitted again, a call starts it.
        denied = [h for h in self._state.servers if policy.restrict_server(h.spec.name) is not None]
        self._left += [*step.unheld, *denied]
        self._on_step(step)

    async def leave_instances(self, *, are_all: bool = False) -> None:
        """Release the servers that need secrets or are reached by URL, after a change of account.

        With `are_all`, release the other servers too, because their sandbox changes. A server with
        a call in progress is released at the end of that call. The next use starts a released
        server again.
        """
        async with self._transaction:
            self.changes += 1
            left = [
                held
                for held in self._state.servers
                if held.instance != NO_INSTANCE
                and (are_all or wanted_keys(held.spec) or held.spec.transport != "stdio")
            ]
            for held in left:
                self._state.update_server(held.identity, NO_INSTANCE, held.tools)
            for held in left:
                await self.leases.release(held)

    async def release_left(self) -> None:
        """Release the servers that nothing uses after a change of policy."""
        async with self._transaction:
            left, self._left = self._left, []
            for held in left:
                await self.leases.release(held)

    async def instance(self, server: ServerIdentity) -> Instance:
        """Return the running instance of a server that the session leases; start a dead one again.

        Raises:
            NotSentError: the server could not be started.
        """
        running = self.leases.running(server)
        if running is not None:
            return running
        held = self._state.lease_on(server)
        if held is None:
            raise NotSentError("Its capability was switched off. The call was not sent.")
        try:
            async with self._started(held) as ready:
                if self._state.lease_on(server) is None:
                    raise NotSentError("Its capability was switched off. The call was not sent.")
                # Another call may have started it while this one waited.
                running = self.leases.running(server)
                if running is not None:
                    return running
                tools = edited_tools(ready.tools, held.spec.edits)
                await self._apply(self._state.update_server(server, ready.instance, tools))
        except NotActivatedError as error:
            raise NotSentError(f"{error} The call was not sent.") from None
        running = self.leases.found(ready.instance)
        if running is None:
            raise NotSentError(f"{held.spec.name} ended again at once. The call was not sent.")
        return running

    async def server_tools_changed(self, instance: InstanceId) -> None:
        """Filter the tools of a leased server again, after it has listed different ones."""
        async with self._transaction:
            held = self._state.lease_served_by(instance)
            if held is None:
                return
            try:
                listed = await self._supervisor.tools(instance, timeout=ASK_TIMEOUT)
            except ActorUnavailableError as error:
                # Nobody waits for the consequences of an event, so the failure is only logged.
                self._log.warning("tools_not_followed", instance=instance, reason=str(error))
                return
            tools = edited_tools(listed, held.spec.edits)
            step = self._state.update_server(held.identity, instance, tools)
            await self._apply(step)

    async def _active(self, name: str) -> CapabilityId | None:
        """Return the id of the active capability that `name` means; None if it means no active one.

        The registry resolves a name that is neither the name nor the id of an active capability.
        """
        found = self._state.find_active(name)
        if found is not None or not self._state.active.activations:
            return found
        try:
            meant = (await self._resolve(name)).capability.id
        except NotActivatedError:
            return None
        return meant if meant in self._state.active else None

    async def still_has(self, capability: CapabilityId, server: ServerIdentity) -> bool:
        """Tell whether the current catalog has a capability with this server.

        Raises:
            NotActivatedError: the registry does not answer.
        """
        with must_answer(REGISTRY):
            resolved = await self._registry.resolve(str(capability), self._place.project)
        return isinstance(resolved, registry.CapabilityResolved) and any(
            server_identity(each) == server for each in resolved.capability.servers
        )

    async def _resolve(self, name: str) -> registry.CapabilityResolved:
        with must_answer(REGISTRY):
            resolved = await self._registry.resolve(name, self._place.project)
        if isinstance(resolved, registry.CapabilityUnknown):
            why = Unknown(resolved.reason, await self._denials.permitted(resolved.near))
            raise NotActivatedError(own_tools.unknown(name, why))
        return resolved

    async def _enable(
        self,
        resolved: registry.CapabilityResolved,
        on_progress: OnProgress,
        start: _Start,
        by: By,
    ) -> Outcome:
        installed: list[str] = []
        for _ in range(MOST_ROUNDS):
            seen, capability = self.changes, resolved.capability
            if capability.id in self._state.active:
                self._end(start, by)
                return self._already_on(capability.id)
            permitted = await self._permitted(capability)
            async with self.leases.starting(permitted.servers):
                installed += await self._install(capability, resolved.scripts, on_progress)
                servers = await self.leases.acquire_all(permitted)
                async with self._transaction:
                    match verdict(
                        is_over=self.leases.is_over,
                        is_on=capability.id in self._state.active,
                        has_changed=self.changes != seen,
                    ):
                        case "over":
                            raise NotActivatedError("The session is over.")
                        case "on already":
                            self._end(start, by)
                            return self._already_on(capability.id)
                        case "commit":
                            self._end(start, by)
                            return await self._commit(capability, permitted, servers, installed, by)
                        case "again":
                            pass
            resolved = await self._resolve(str(capability.id))
        raise NotActivatedError(own_tools.keeps_changing(start.id.name))

    def _already_on(self, capability: CapabilityId) -> Outcome:
        self._state.active.touch(capability, time.time())
        text = own_tools.already_active(capability.name, self._state.tools_of(capability))
        return Outcome(self._with_instructions(text, capability))

    async def _commit(
        self,
        capability: CapabilitySpec,
        permitted: CapabilitySpec,
        servers: Sequence[ServerLease],
        installed: Sequence[str],
        by: By,
    ) -> Outcome:
        restriction = capability_restriction(capability, servers, self._state.policy)
        if restriction is not None:
            raise NotActivatedError(
                own_tools.denied_by_policy(capability.id.name, restriction.reason)
            )
        step = self._state.activate(capability, servers, time.time())
        more = f"; {step.denied} of its tools are denied by policy" if step.denied else ""
        self._note(str(capability.id), "on", by + more)
        self._bus.publish(CapabilityUsed(self._place.key, self._place.project, capability.id))
        self._note_evicted(step, str(capability.id))
        await self._apply(step)
        self._log.info(
            "capability_enabled",
            capability=str(capability.id),
            tools=len(step.added),
            evicted=[str(evicted) for evicted in step.evicted],
        )
        if by == "turn":
            # A turn makes its own texts about what it has switched on.
            return Outcome("", step.added, step.removed)
        text = own_tools.enabled(
            capability.id.name,
            [held.spec.name for held in servers],
            self._state.tools_of(capability.id),
            offered=sum(len(held.tools) for held in servers),
            evicted=step.evicted,
            installed=installed,
            denied=step.denied,
            denied_servers=[s.name for s in capability.servers if s not in permitted.servers],
        )
        text += await withheld_note(self._definitions, filter(self._withholds_tools, servers))
        return Outcome(self._with_instructions(text, capability.id), step.added, step.removed)

    def _withholds_tools(self, held: ServerLease) -> bool:
        """Tell whether a leased server has tools that are withheld, or has died.

        A tool is withheld if its definition is not trusted.
        """
        running = self.leases.running(held.identity)
        return running is None or running.server_connection.withholds_tools

    def _with_instructions(self, text: str, capability: CapabilityId) -> str:
        instructions = instructions_text(self.instructions_of(capability), ANSWER_TOKENS)
        return f"{text}\n{instructions}" if instructions else text

    async def _permitted(self, capability: CapabilitySpec) -> CapabilitySpec:
        """Return a capability without the servers that policy denies.

        Raises:
            NotActivatedError: the capability cannot be switched on in this session.
        """
        name = capability.id.name
        off = self._state.policy.restrict_capability(capability.id)
        if off is not None:
            raise NotActivatedError(own_tools.denied_by_policy(name, off.reason))
        if any(server.transport == "builtin" for server in capability.servers):
            raise NotActivatedError(own_tools.builtin_unsupported(name))
        if not capability.servers and not capability.requires:
            raise NotActivatedError(own_tools.nothing_to_activate(name))
        permitted = without_denied_servers(capability, self._state.policy)
        restriction = capability_restriction(capability, (), self._state.policy)
        if restriction is not None and not permitted.servers:
            raise NotActivatedError(own_tools.denied_by_policy(name, restriction.reason))
        if not is_inside(self._place.domain, capability.domains):
            text = own_tools.outside_domain(name, capability.domains, self._place.domain)
            raise NotActivatedError(text)
        if missing := self._missing(permitted):
            # A secret may have been stored, or the keyring unlocked, a moment ago.
            await self._environments.stored.ask_again(missing)
            missing = self._missing(permitted)
        if missing:
            raise NotActivatedError(own_tools.missing_keys(name, missing))
        return permitted

    def _missing(self, capability: CapabilitySpec) -> list[str]:
        values = self._environments.values(self._place.key)
        return [key for key in capability.wanted_keys if not values.get(key)]

    async def _install(
        self,
        capability: CapabilitySpec,
        scripts: dict[str, str],
        on_progress: OnProgress = lambda _: None,
    ) -> list[str]:
        if not capability.requires:
            return []
        request = supervisor.InstallDependencies(
            scripts,
            self._place.key,
            [each for each in capability.requires if each not in scripts],
            [server.program for server in capability.servers if server.program],
        )
        with must_answer(SUPERVISOR):
            reply = await install(self._bus, self._supervisor, request, on_progress)
        if isinstance(reply, supervisor.DependenciesFailed):
            name = capability.id.name
            text = own_tools.dependency_failed(name, reply.dependency, reply.message)
            raise NotActivatedError(text)
        return reply.installed

    @asynccontextmanager
    async def _started(self, lease: ServerLease) -> AsyncIterator[supervisor.ServerReady]:
        """Start the server of a lease, and yield the supervisor's reply.

        If the server was never started, its dependencies are installed first (`ServerLease.via`).

        The block under `async with` applies the start. Nothing else in the session changes while
        the block runs.

        Raises:
            NotActivatedError: the server could not be started, or may not be used any longer.
        """
        async with self.leases.starting([lease.spec]):
            for _ in range(MOST_ROUNDS):
                seen = self.changes
                if lease.via is not None:
                    barred = self._state.policy.restrict_capability(lease.via)
                    if barred is not None:
                        raise NotActivatedError(f"'{lease.spec.name}' is {barred.reason}.")
                    with must_answer(REGISTRY):
                        resolved = await self._registry.resolve(str(lease.via), self._place.project)
                    if isinstance(resolved, registry.CapabilityResolved):
                        await self._install(resolved.capability, resolved.scripts)
                ready = await self.leases.acquire(lease.spec)
                async with self._transaction:
                    if self.leases.is_over:
                        raise NotActivatedError("The session is over.")
                    denied = self._state.policy.restrict_server(lease.spec.name)
                    if denied is None and lease.via is not None:
                        denied = self._state.policy.restrict_capability(lease.via)
                    if denied is not None:
                        raise NotActivatedError(f"'{lease.spec.name}' is denied: {denied.reason}.")
                    if self.changes == seen:
                        yield ready
                        return
        raise NotActivatedError(own_tools.keeps_changing(lease.spec.name))

    def _note(self, name: str, action: str, why: str) -> None:
        self._journal.note(ActivationNote(time.time(), self._place.key, name, action, why))

    def _note_evicted(self, step: Step, room_for: str) -> None:
        for evicted in (*step.evicted, *step.evicted_tools):
            self._note(str(evicted), "evicted", f"room for {room_for}")

    async def _apply(self, step: Step) -> None:
        self._on_step(step)
        left, self._left = self._left, []
        for held in (*left, *step.unheld):
            await self.leases.release(held)


def _first_line(text: str) -> str:
    return text.partition("\n")[0][:LONGEST_REASON]
