"""The supervisor: starts an instance for its first holder, and stops it when the last has left.

A holder is a session that has a lease on an instance. `core.servers.leases` decides, and this actor
carries out the decisions. One task per instance owns the process and its server connection, from
the start until the last descendant has ended. A failed start leaves nothing behind, and the next
start waits for its back-off. Secrets are filled in at the start, from the session's own values.
"""

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from itertools import count
from random import random

import msgspec
import structlog
import trio

from capd.actor_clients.definitions import DefinitionsClient
from capd.actor_clients.names import SUPERVISOR
from capd.actors.supervisor.installs import Installs
from capd.actors.supervisor.instance_records import UNUSED, InstanceRecord
from capd.actors.supervisor.logins import LoginRequests
from capd.actors.supervisor.sharing import Sharing
from capd.actors.supervisor.starts import TRANSPORTS, Starts, SupervisorSettings
from capd.actors.supervisor.tree_watch import watch_trees
from capd.adapters.clients.session_environment import SessionEnvironments
from capd.adapters.servers.http.remote_spec import RemoteSpec
from capd.adapters.servers.instance import Instance
from capd.adapters.servers.server_run import (
    NotVettedError,
    ServerLostError,
    ServerRun,
    StartFailedError,
)
from capd.adapters.trust.trust_check import UntrustedError
from capd.core.errors import CapdError, leaves
from capd.core.servers.addresses import PATIENCE
from capd.core.servers.far_starts import FarRefusedError, far_place, refuse_here, with_roots
from capd.core.servers.identity import InstanceKey
from capd.core.servers.launchers import outside
from capd.core.servers.leases import Effect, Leases, Start, State
from capd.core.servers.placeholders import MissingValueError, wanted_keys
from capd.core.sessions.profiles import values_of
from capd.core.tools.tool_intake import AcceptedTool
from capd.runtime.boundary import contained, kept_running
from capd.runtime.bus import ActorUnavailableError, Bus
from capd.runtime.handle_table import HandleTable
from capd.runtime.mailbox import serve
from capd_protos import definitions
from capd_protos import supervisor as messages
from capd_protos.codec import MsgpackCodec
from capd_protos.curator import SessionStarted
from capd_protos.definitions import DefinitionsReviewed
from capd_protos.naming import Named, NameTable
from capd_protos.registry import CatalogChanged
from capd_protos.types import InstanceId, ServerIdentity, ServerSpec, SessionKey, ToolName

REQUESTS: MsgpackCodec[messages.Request] = MsgpackCodec(messages.Request)

HINTS: MsgpackCodec[CatalogChanged | DefinitionsReviewed] = MsgpackCodec(
    CatalogChanged | DefinitionsReviewed
)

SESSIONS: MsgpackCodec[SessionStarted] = MsgpackCodec(SessionStarted)

LONGEST_WAIT = 2.0
"""Seconds. A request waits for a back-off up to this long. If the back-off is longer, the request
is refused, and the refusal says when the next try is."""
VET_TIMEOUT = 30.0
"""Seconds for comparing a list of tools with the trusted definitions."""
_MOST_RECORDS = 256

log = structlog.get_logger(actor="supervisor")

Instances = HandleTable[InstanceId, Instance]

# Not per actor: a restarted actor must not use a number again that a session still knows.
_NUMBERS = count(1)


class Supervisor:
    """The supervisor's mailbox: receives requests, starts and stops servers as leases decide."""

    def __init__(
        self,
        bus: Bus,
        instances: Instances,
        environments: SessionEnvironments,
        settings: SupervisorSettings,
        starts: Starts,
    ) -> None:
        self._bus = bus
        self._running = instances
        self._environments = environments
        self._settings = settings
        self._starts = starts
        self._definitions = DefinitionsClient(bus)
        self._logins = LoginRequests(starts.logins)
        # In a folder that no server writes to: npm and uv read files of their working directory.
        self._installs = Installs(bus, settings.install_cwd or settings.shared_cwd)
        self._leases: Leases[InstanceKey] = Leases(settings.linger)
        self._instances: dict[InstanceKey, InstanceRecord] = {}
        self._sharing = Sharing(self._leases, starts.sandbox_request, settings.generations)
        self._linger_changed = trio.Event()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled. When this returns, every server's process tree is gone."""
        await self._sharing.load()
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            keep = partial(kept_running, log=log)
            nursery.start_soon(keep, "linger", self._end_idle)
            nursery.start_soon(keep, "generations", self._sharing.run)
            nursery.start_soon(keep, "hints", self._listen)
            await nursery.start(self._try_machine)
            nursery.start_soon(
                partial(contained, log=log), "container sweep", self._starts.sweep_containers
            )
            if self._settings.tree_limits is not None:
                nursery.start_soon(
                    keep, "trees", watch_trees, self._runs, self._settings.tree_limits
                )
            await serve(
                self._bus, SUPERVISOR, REQUESTS, self._replied, log=log, task_status=task_status
            )

    async def _replied(self, request: messages.Request) -> messages.Reply:
        if self._settings.linger_now is not None:
            self._leases.linger = self._settings.linger_now()
        match request:
            case messages.AcquireServer():
                return await self._acquire(request)
            case messages.ReleaseServer():
                return self._release(request)
            case messages.ReleaseSession():
                now = trio.current_time()
                self._carry_out(self._leases.release_session(request.session, now))
                self._installs.leave(request.session)
                return messages.LeasesReleased()
            case messages.EndProject() | messages.TrustChanged():
                return await self._on_trust(request)
            case messages.ListServers():
                return messages.ServersListed(self._entries())
            case messages.ListServerTools():
                instance = self._by_id(request.instance)
                return messages.ServerTools(instance.tools if instance else [])
            case messages.InstallDependencies():
                environment = self._starts.environment({})
                environment["PATH"] = outside(environment["PATH"], "")
                return await self._installs.ensure(request, environment, self._nursery)
            case messages.LeaveInstall():
                self._installs.leave(request.session, request.wait)
                return messages.LeasesReleased()
            case _:
                return await self._on_login(request)

    # Leases

    async def _acquire(self, request: messages.AcquireServer) -> messages.Reply:
        server, session = request.server, request.session
        if server.transport not in TRANSPORTS:
            return messages.ServerRefused(
                server.name,
                "unsupported_transport",
                f"it is reached by {server.transport}, which is none of {', '.join(TRANSPORTS)}",
            )
        try:
            refuse_here(server, request.bridge)
        except FarRefusedError as error:
            return messages.ServerRefused(server.name, "cannot_start", str(error))
        far = far_place(server, request.bridge, request.far_folder)
        known_values = self._environments.values(session)
        # Only the values that the server asks for, because the copy outlives the session.
        wanted = wanted_keys(server)
        values = {name: known_values[name] for name in wanted if name in known_values}
        least = self._environments.least_sandbox(session)
        if least != server.least_sandbox:
            server = msgspec.structs.replace(server, least_sandbox=least)
            request = msgspec.structs.replace(request, server=server)
        account = await self._account(session, server, values, request.project)
        key, server = self._sharing.chosen(request, values, account)
        while self._is_dying(key):
            await self._instances[key].changed.wait()
        known = self._instances.get(key)
        if known is None:
            self._instances[key] = InstanceRecord(
                key, server, request.project, values, request.client, far, account=account
            )
        else:
            now = trio.current_time()
            is_down = self._leases.state(key) in {None, State.DOWN}
            if is_down and known.attempts.wait(now) > LONGEST_WAIT:
                code: messages.ServerRefusal = (
                    "parked" if known.attempts.is_parked else "backing_off"
                )
                return messages.ServerRefused(server.name, code, known.attempts.refusal(now))
            known.client = request.client
        self._carry_out(self._leases.acquire(key, session))
        instance = self._instances[key]
        while self._leases.state(key) in {State.STARTING, State.STOPPING}:
            # Looked up in each round: the record may have been replaced meanwhile.
            instance = self._instances[key]
            await instance.changed.wait()
        if self._leases.serves(key, session):
            link = self._running.get(instance.id)
            is_by_generation = instance.server.scope != request.server.scope
            if is_by_generation and link is not None and not link.server_connection.is_stateless:
                # The instance was shared because an earlier version of the server was stateless.
                # This version is not.
                self._carry_out(self._leases.release(key, session, trio.current_time()))
                return await self._acquire(request)
            instance.known_runs[session] = instance.id
            return messages.ServerReady(
                instance.id, key.identity, server.name, instance.pid, instance.tools
            )
        # The instance may have died just when it was ready. A refused session must hold no lease.
        self._carry_out(self._leases.release(key, session, trio.current_time()))
        return instance.refusal or messages.ServerRefused(
            server.name, "cannot_start", "it was released before it was ready"
        )

    def _is_dying(self, key: InstanceKey) -> bool:
        """Tell whether an instance has died while some processes of its tree still run."""
        if self._leases.state(key) is not State.READY:
            return False
        link = self._running.get(self._instances[key].id)
        return link is None or not link.server_connection.is_alive

    def _release(self, request: messages.ReleaseServer) -> messages.LeasesReleased:
        session, known = request.session, self._instances.values()
        instance = next(
            (i for i in known if request.instance in {i.id, i.known_runs.get(session)}), None
        )
        if instance is None:
            return messages.LeasesReleased()
        instance.known_runs.pop(session, None)
        self._carry_out(self._leases.release(instance.key, session, trio.current_time()))
        if request.at_once:
            self._carry_out(self._leases.end_unheld(instance.key))
        return messages.LeasesReleased(list(self._leases.holders(instance.key)))

    async def _on_trust(
        self, request: messages.EndProject | messages.TrustChanged
    ) -> messages.Reply:
        if isinstance(request, messages.EndProject):
            return self._end_project(request.project)
        return await self._restart_launched(request.project)

    def _end_project(self, project: str) -> messages.ProjectEnded:
        known = self._instances.values()
        theirs = [i for i in known if i.server.project == project and self._leases.state(i.key)]
        for instance in theirs:
            instance.known_runs.clear()
            self._carry_out(self._leases.give_up(instance.key, trio.current_time()))
        return messages.ProjectEnded([instance.key.name for instance in theirs])

    async def _restart_launched(self, project: str) -> messages.ServersRestarted:
        """Restart the user's own servers whose start depends on trust in `project`, which changed.

        A launcher such as npx reads files of the folder in which it runs. So it runs in a project's
        folder only if the project is trusted (docs/configuration.md, "Files that launchers read").
        """
        restarted = []
        for instance in list(self._instances.values()):
            server, key = instance.server, instance.key
            if server.project or server.scope == "shared" or server.transport != "stdio":
                continue
            if instance.far is not None:
                continue
            started_as = instance.id
            is_otherwise = await trio.to_thread.run_sync(
                partial(
                    self._starts.is_launched_otherwise,
                    *(server, instance.values, instance.project, project),
                    is_held=bool(instance.facts.cwd_reason),
                )
            )
            if is_otherwise and instance.id == started_as and self._instances.get(key) is instance:
                instance.ending = "trust in its project has changed"
                self._carry_out(self._leases.restart(key))
                restarted.append(key.name)
        return messages.ServersRestarted(restarted)

    def _carry_out(self, effects: list[Effect[InstanceKey]]) -> None:
        for effect in effects:
            instance = self._instances[effect.key]
            if isinstance(effect, Start):
                instance.id = InstanceId(f"{instance.server.name}-{next(_NUMBERS)}")
                instance.scope = trio.CancelScope()
                instance.refusal = None
                self._nursery.start_soon(self._contained, instance)
            else:
                instance.scope.cancel()
        self._linger_changed.set()

    async def _contained(self, instance: InstanceRecord) -> None:
        await contained(f"server {instance.key.name}", self._serve, instance, log=log)

    async def _end_idle(self) -> None:
        while True:
            self._linger_changed = trio.Event()
            due_at = self._leases.next_due()
            with trio.move_on_at(due_at if due_at is not None else float("inf")):
                await self._linger_changed.wait()
            self._carry_out(self._leases.due(trio.current_time()))

    async def _try_machine(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Find out how this machine can confine servers, once the first session starts."""
        async with self._bus.subscribe(SESSIONS, "session.started") as sessions:
            task_status.started()
            if self._settings.sandboxes is None:
                return
            await anext(aiter(sessions))
        machine = self._settings.sandboxes.machine
        await contained("machine", trio.to_thread.run_sync, machine, log=log)

    async def _listen(self) -> None:
        """Follow two events until cancelled.

        After the catalog has changed, failed servers may start again without delay. After a person
        has decided on tool definitions, the tools of that server are compared again.
        """
        async with self._bus.subscribe(HINTS, "registry.changed", "definitions.settled") as hints:
            async for hint in hints:
                for instance in self._instances.values():
                    if isinstance(hint, CatalogChanged):
                        instance.attempts.forgive()
                    elif instance.key.identity == hint.identity and instance.run is not None:
                        instance.run.vet_again()

    def _runs(self) -> list[ServerRun]:
        return [each.run for each in self._instances.values() if each.run and each.run.pid]

    def _running_of(self, server: ServerIdentity) -> list[InstanceId]:
        keys = [key for key in self._instances if key.identity == server]
        return [self._instances[key].id for key in keys if self._leases.is_up(key)]

    # One instance

    async def _serve(self, instance: InstanceRecord) -> None:
        """Run an instance from its start to the end of its process tree, and end its lease."""
        problem: CapdError | None = CapdError("capd itself failed over it; its log says where")
        try:
            with instance.scope:
                await trio.sleep(instance.attempts.wait(trio.current_time()))
                await self._starts.wait_for_path(instance.server, instance.far)
                await self._starts.check_trust(instance.server)
                await self._serve_run(instance)
            problem = None
        except* CapdError as errors:
            problem = next(iter(leaves(errors)))
        finally:
            # If the whole actor is cancelled, the leases end with it.
            if trio.current_effective_deadline() != float("-inf"):
                self._on_ended(instance, problem)

    async def _serve_run(self, instance: InstanceRecord) -> None:
        """Run an instance at the first of its addresses that becomes ready.

        Raises:
            CapdError: no address became ready, or the instance was lost after it had been ready.
        """
        addresses, tried = instance.addresses, set[int]()
        problem: CapdError | None = None
        while (at := addresses.choose(trio.current_time(), tried)) is not None:
            tried.add(at)
            lost: BaseExceptionGroup[CapdError] | None = None
            try:
                await self._serve_at(instance, at, is_last=len(tried) > len(_urls(instance)) - 1)
            except* CapdError as errors:
                # Raised below: Python before 3.11.4 puts what is raised here into a group.
                lost = errors
            if lost is None:
                return
            problem = next(iter(leaves(lost)))
            addresses.failed(at, trio.current_time(), random())  # noqa: S311 - jitter
            # No other address is tried in two cases: if the instance was ready, because sessions
            # may have called it and must learn of the loss; and if it is parked, because a person
            # must act first, whatever the address.
            is_parked = isinstance(problem, StartFailedError) and problem.is_parked
            if instance.ready_at is not None or is_parked:
                break
            if len(_urls(instance)) > 1:
                log.info("address_failed", server=instance.key.name, address=at + 1)
        assert problem is not None
        raise problem

    async def _serve_at(self, instance: InstanceRecord, at: int, *, is_last: bool) -> None:
        """Run an instance at the address with index `at`, from its start to its end.

        With `is_last`, no other address is left, so the start may take longer.
        """
        key = instance.key
        server = instance.server
        if at:
            server = msgspec.structs.replace(server, url=_urls(instance)[at])
        has_failed = bool(instance.attempts.failures)
        wants_stateless = self._sharing.is_tried_stateless(
            key, instance.client, has_failed=has_failed
        )
        vet = partial(self._withheld, instance) if self._settings.is_vetting else None
        project = instance.project if instance.server.scope != "shared" else ""
        run = ServerRun(
            key.name,
            instance.client if instance.far is None else with_roots(instance.client),
            log.bind(server=key.name, instance=instance.id),
            self._starts.redactor(instance.server, instance.values),
            project=project if instance.far is None else instance.far.folder,
            wants_stateless=wants_stateless,
            probe_patience=self._sharing.probe_patience(key, instance.server.transport),
            longest_call=self._settings.longest_call,
            spool=self._settings.spool.of_server() if self._settings.spool is not None else None,
            vet=vet,
            check_trust=partial(self._starts.check_trust, instance.server),
            start_timeout=None if is_last else PATIENCE,
        )
        instance.run, instance.facts = run, run.facts
        instance.runs += 1

        def on_ready(link: Instance) -> None:
            instance.ready_at = trio.current_time()
            instance.addresses.served(at)
            self._running.put(instance.id, link)
            self._leases.ready(key)
            self._sharing.on_started(key, link, tried_stateless=wants_stateless)
            instance.wake()
            self._nursery.start_soon(self._keep_tools, instance, run, link)
            log.info(
                "server_started",
                server=key.name,
                instance=instance.id,
                pid=run.pid,
                tools=len(run.tools),
                protocol=link.server_connection.protocol_version,
            )
            self._bus.publish(messages.ServerStarted(key.name, key.identity, instance.id, run.pid))

        def on_tools() -> None:
            link = self._running.get(instance.id)
            if link is not None:
                self._nursery.start_soon(self._keep_tools, instance, run, link)
            self._bus.publish(messages.ServerToolsChanged(key.name, instance.id))

        try:
            await run.serve(
                self._starts.opened(
                    server,
                    instance.values,
                    instance.project,
                    instance.account,
                    instance.far,
                ),
                on_ready=on_ready,
                on_tools=on_tools,
            )
        finally:
            self._running.take(instance.id)
            instance.run, run.pid = None, 0

    async def _withheld(
        self, instance: InstanceRecord, taken: Sequence[AcceptedTool]
    ) -> Collection[ToolName]:
        """Return the tools of an instance that must not be shown or called.

        The definitions actor decides that by comparing them with the trusted definitions.

        Raises:
            NotVettedError: the tools could not be compared, so every one is withheld.
        """
        tools = [definitions.ListedTool(each.definition.name, each.written) for each in taken]
        identity = instance.key.identity
        request = definitions.VetTools(
            instance.server, identity, tools, instance.id, self._running_of(identity)
        )
        try:
            return frozenset(await self._definitions.vet(request, timeout=VET_TIMEOUT))
        except ActorUnavailableError as error:
            raise NotVettedError(
                f"its tools could not be compared with the trusted ones: {error}"
            ) from None

    async def _keep_tools(self, instance: InstanceRecord, run: ServerRun, link: Instance) -> None:
        lists, key = self._settings.tool_lists, instance.key
        if lists is None:
            return
        version = link.server_connection.server_version
        # If the list cannot be saved, searches do not find these tools, but the server goes on.
        await contained(
            "tool list", lists.keep, key.identity, key.name, version, run.tools, log=log
        )
        self._bus.publish(messages.ToolListKept(key.name, key.identity))

    def _on_ended(self, instance: InstanceRecord, problem: CapdError | None) -> None:
        """Note in the leases and the log that an instance has ended, and publish an event."""
        key = instance.key
        was_ready_at, instance.ready_at = instance.ready_at, None
        redact = self._starts.redactor(instance.server, instance.values)
        reason = instance.ending if problem is None else redact(str(problem))
        instance.ending = UNUSED
        log.info("server_exited", server=key.name, instance=instance.id, reason=reason)
        if was_ready_at is not None:
            self._bus.publish(messages.ServerExited(key.name, key.identity, instance.id, reason))
        if problem is None:
            self._carry_out(self._leases.stopped(key))
        else:
            self._failed(instance, problem, reason, was_ready_at)
        if self._leases.state(key) is None:
            instance.known_runs.clear()
        instance.wake()
        self._forget_old()

    def _failed(
        self, instance: InstanceRecord, problem: CapdError, reason: str, was_ready_at: float | None
    ) -> None:
        now = trio.current_time()
        # An untrusted server was not started, and may start as soon as a person trusts it: no
        # back-off.
        if not isinstance(problem, UntrustedError):
            instance.attempts.failed(
                reason,
                now,
                served=None if was_ready_at is None else now - was_ready_at,
                jitter=random(),  # noqa: S311 - jitter
                parks=isinstance(problem, StartFailedError | ServerLostError) and problem.is_parked,
            )
        if was_ready_at is not None:
            self._carry_out(self._leases.died(instance.key))
            return
        self._leases.failed(instance.key)
        is_missing = isinstance(problem, MissingValueError)
        instance.refusal = messages.ServerRefused(
            instance.key.name,
            "missing_secrets" if is_missing else "cannot_start",
            reason,
            problem.stderr if isinstance(problem, StartFailedError) else [],
        )

    # Logins

    async def _account(
        self, session: SessionKey, server: ServerSpec, values: Mapping[str, str], project: str
    ) -> str:
        """Return the account by which a session uses a server; empty for the default account."""
        if server.transport == "stdio":
            return ""
        namespace = self._environments.namespace(session)
        if not namespace:
            return ""
        try:
            spec = self._starts.remote_spec(server, values, project)
        except MissingValueError:
            # The start reports what is missing.
            return ""
        return await self._starts.logins.account(spec, namespace)

    def _remote_spec(self, request: messages.LogIn | messages.LogOut) -> RemoteSpec:
        """Return what is needed to connect to the server that a login or logout is for.

        The connection is for the account in `request`.

        Raises:
            CapdError: no known server of that name is reached by URL, or a placeholder's key has
                no value.
        """
        meant = NameTable(i.key.name for i in self._instances.values()).find(request.name)
        name = meant.name if isinstance(meant, Named) else request.name
        known = [i for i in self._instances.values() if i.key.name == name]
        remote = [i for i in known if i.server.transport != "stdio"]
        account = request.account.casefold()
        stored = self._environments.stored.values()
        own = values_of(stored, account) if account else {}
        # Prefer an instance with this account, then the latest one.
        found = max(reversed(remote), key=lambda each: each.account == account, default=None)
        if found is not None:
            values = {**found.values, **own}
            return self._starts.remote_spec(found.server, values, found.project, account)
        if request.server is not None:
            return self._starts.remote_spec(request.server, {**stored, **own}, "", account)
        if known:
            raise CapdError(f"{name} is a process on this machine: it needs no login")
        raise CapdError(
            f"no capability reaches a server {name[:100]!a} by URL: `capd list` shows what is"
            " installed, `capd find` looks for more"
        )

    async def _on_login(
        self,
        request: messages.LogIn | messages.PasteLogin | messages.AwaitLogin | messages.LogOut,
    ) -> messages.Reply:
        match request:
            case messages.LogIn():
                return await self._log_in(request)
            case messages.PasteLogin():
                return self._logins.paste(request.ticket, request.address)
            case messages.AwaitLogin():
                return await self._logins.wait(request.ticket)
            case messages.LogOut():
                return await self._log_out(request)

    async def _log_in(self, request: messages.LogIn) -> messages.Reply:
        try:
            spec = self._remote_spec(request)
        except CapdError as error:
            return messages.LoginFailed(str(error))
        on_success = partial(self._logged_in, spec.name, spec.account)
        return await self._logins.open(spec, request.way, self._nursery, on_success)

    def _logged_in(self, name: str, account: str) -> None:
        """Note a new login of `account` at the server `name`: failed instances may start again.

        Sessions with this account move to an instance that uses the login.
        """
        now = trio.current_time()
        for instance in list(self._instances.values()):
            if instance.key.name != name or instance.server.transport == "stdio":
                continue
            instance.attempts.forgive()
            holders = self._leases.holders(instance.key)
            namespaces = {self._environments.namespace(each).casefold() for each in holders}
            if account and account in namespaces and instance.account != account:
                # The next use finds the login, and so gets another instance.
                instance.ending = f"the account {account} has logged in"
                instance.known_runs.clear()
                self._carry_out(self._leases.give_up(instance.key, now))

    async def _log_out(self, request: messages.LogOut) -> messages.Reply:
        try:
            spec = self._remote_spec(request)
        except CapdError as error:
            return messages.LoginFailed(str(error))
        try:
            left = await self._starts.logins.of(spec).forget()
        except OSError as error:
            return messages.LoginFailed(f"the login cannot be deleted ({error.strerror})")
        return messages.LoggedOut(left.was_kept, left.is_revoked, left.failure)

    # Records of instances

    def _by_id(self, instance_id: InstanceId) -> InstanceRecord | None:
        return next((i for i in self._instances.values() if i.id == instance_id), None)

    def _entries(self) -> list[messages.ServerEntry]:
        now = trio.current_time()
        by_name = sorted(self._instances.values(), key=lambda i: (i.key.name, i.id))
        return [
            each.entry(self._leases.state(each.key), self._leases.holders(each.key), now)
            for each in by_name
        ]

    def _forget_old(self) -> None:
        """Forget instances that have ended; keep a limited number of failed ones for the status."""
        for key, instance in list(self._instances.items()):
            is_over = self._leases.state(key) is None
            if is_over and (
                not instance.attempts.last_error or len(self._instances) > _MOST_RECORDS
            ):
                del self._instances[key]


def _urls(instance: InstanceRecord) -> tuple[str, ...]:
    """Return the addresses of an instance's server, the main one first; `("",)` for stdio."""
    return (instance.server.url, *instance.server.further_urls)
