"""Sends the requests of one session to servers, and finds the server for each.

Prompts are found by their wire name (the name under which clients know them), resources by their
URI, and MCP tasks by their id. The rest of a request, and the whole result, pass unchanged, except
that a stateless server's questions to the user get the server's name.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TypeVar

import msgspec
import structlog
import trio

from capd.actors.session.activation import Activation
from capd.actors.session.bootstrap import Bootstrapping
from capd.actors.session.services import SessionContext
from capd.actors.session.skills import NoSkills, Skills
from capd.adapters.clients.conversation import Request, UnknownNameError
from capd.adapters.fair_share import FairShare
from capd.adapters.large_frames import read_all
from capd.adapters.servers.callers import CallHooks
from capd.adapters.servers.input_rounds import answer_rounds
from capd.adapters.servers.instance import Instance
from capd.core.memories.bootstrap import PROMPT as PROMPT_OF_FILES
from capd.core.protocol.apps import SCHEME as APP_SCHEME
from capd.core.protocol.apps import OpenApps, page_of
from capd.core.protocol.elicitation import result_for_client
from capd.core.protocol.generations import Members, is_stateless, joined, members_of, raw
from capd.core.protocol.outcomes import CallFailedError, NotSentError, RefusedError, ServerError
from capd.core.protocol.resource_uris import Owners, owners
from capd.core.protocol.tasks import TaskOwners, with_tasks
from capd.core.results.half_pairs import decoded
from capd.core.results.large_results import Result
from capd.core.sessions.active_set import Grant
from capd.core.sessions.policy_reach import denied_among, prompt_restriction, resource_restriction
from capd.core.sessions.surface import PROMPT, renamed
from capd_protos.codec import JsonCodec, MalformedError
from capd_protos.types import ServerIdentity, ToolName, WireName

T = TypeVar("T")

log = structlog.get_logger(actor="curator")
LIST_PATIENCE = 10.0
"""Seconds to wait for each server's part of a list that is joined from all servers."""
LINKS_BYTES = 1 << 20
"""How many bytes of a result are searched for links."""
LINK_MARK = b'"resource_link"'
"""The bytes that occur in every result with a link to a resource."""
_MOST_LINKS = 1000
"""How many links a session remembers: the newest ones."""


class _Link(msgspec.Struct):
    type: str = ""
    uri: str = ""


class _Linking(msgspec.Struct):
    content: list[_Link] = []


class _Reference(msgspec.Struct):
    type: str
    name: str = ""
    uri: str = ""


class _CompleteParams(msgspec.Struct):
    ref: _Reference


_LINKING: JsonCodec[_Linking] = JsonCodec(_Linking)
_TEXT: JsonCodec[str] = JsonCodec(str)
_COMPLETE: JsonCodec[_CompleteParams] = JsonCodec(_CompleteParams)


class ServerRequests:
    """Sends the requests of one session to servers."""

    def __init__(
        self,
        context: SessionContext,
        activation: Activation,
        skills: Skills | NoSkills,
        bootstrap: Bootstrapping,
    ) -> None:
        self._skills = skills
        self._bootstrap = bootstrap
        self._connection = context.connection
        self._state = context.state
        self._activation = activation
        self._leases = activation.leases
        self._on_use = context.on_change
        self._subscribed = activation.leases.subscribed
        self.tasks = TaskOwners()
        self.apps = OpenApps()
        # By URI, the servers with a result that links to the resource. A linked resource need not
        # be on its server's list (MCP, "Resource Links").
        self._linked: dict[str, set[ServerIdentity]] = {}

    # Lists

    async def prompts(self) -> list[bytes]:
        """Return the prompts that the client may use, each as an entry of `prompts/list`.

        They are the bootstrap files, the skills of taps, and the prompts of the session's servers
        under their wire names.
        """
        skills = await self._skills.prompts()
        found = await self._entries("prompts")
        known = len(self._state.surface.names)
        prompts: list[bytes] = []
        share = FairShare()
        for identity, entries in found.items():
            for own_name, entry in entries.items():
                name = self._prompt(identity, own_name)
                if name and prompt_restriction(self._state, identity, own_name) is None:
                    with suppress(msgspec.MsgspecError):
                        prompts.append(renamed(entry, name))
                await share.give_way()
        if len(self._state.surface.names) != known:
            self._state.forget_old_names()
            self._on_use()
        own = self._bootstrap.entry()
        return [*own, *skills, *prompts]

    async def resources(self, kind: str) -> list[bytes]:
        """Return the entries of `kind`, `resources` or `resources/templates`, each URI once.

        Resources that policy denies are left out.
        """
        found: dict[str, bytes] = {}
        listed = await self._entries(kind)
        share = FairShare()
        for identity, entries in listed.items():
            for uri, entry in entries.items():
                if uri not in found and resource_restriction(self._state, identity, uri) is None:
                    found[uri] = entry
                await share.give_way()
        return list(found.values())

    async def _entries(self, kind: str) -> dict[ServerIdentity, Mapping[str, bytes]]:
        """Request the list `kind`, such as `prompts`, from all running servers at the same time.

        Return the entries of each server. They are empty for a server that is not running or takes
        too long; the client is notified when its list arrives.
        """
        found: dict[ServerIdentity, Mapping[str, bytes]] = {
            lease.identity: {} for lease in self._state.servers
        }

        async def ask(identity: ServerIdentity, instance: Instance) -> None:
            found[identity] = await instance.listings.entries(kind, LIST_PATIENCE)

        async with trio.open_nursery() as nursery:
            for identity in found:
                # Listing starts no server. A restored session shows its tools from the cache.
                instance = self._leases.running(identity)
                if instance is not None:
                    nursery.start_soon(ask, identity, instance)
        return found

    # Requests

    async def prompt(self, request: Request) -> Result:
        """Return the result of `prompts/get`.

        Raises: as `SessionCalls.answer`.
        """
        wanted = _text(request.members, "name")
        skill = await self._skills.prompt(wanted)
        if skill is not None:
            return skill
        if wanted == PROMPT_OF_FILES:
            files = await self._bootstrap.prompt()
            if files is not None:
                return files
        identity, name = await self._find_prompt(wanted)
        return await self.send(identity, request, {**request.members, "name": raw(name)})

    async def resource(self, request: Request) -> Result:
        """Return the result of `resources/read`.

        Raises: as `SessionCalls.answer`.
        """
        uri = _text(request.members, "uri")

        async def read(each: ServerIdentity) -> Result:
            result = await self.send(each, request, request.members)
            if uri.startswith(APP_SCHEME):
                self.apps.on_read(uri, each)
                self._on_use()
            return result

        return await self._first_that_has(await self._owners(uri), read)

    async def task(self, request: Request) -> Result:
        """Return the result of a request about an MCP task, such as `tasks/get`.

        Raises: as `SessionCalls.answer`.
        """
        task = _text(request.members, "taskId")
        found = self.tasks.of(task)
        if not found:
            raise UnknownNameError(f"no server of this session has given a task {task[:100]!r}")
        if len(found) > 1:
            raise RefusedError(
                f"{_and(map(self._name_of, found))} have each given a task {task[:100]!r}: nothing"
                " says which of them is meant, so neither was asked."
            )
        return await self.send(found[0], request, request.members)

    async def watch_task(self, task: str) -> bytes | None:
        """Listen for changes of an MCP task, then ask for its state and return that as JSON.

        In this order no change is missed. Return None if it is not known which single server has
        the task, or if that server does not announce its changes. Return empty bytes if the server
        answers with no state. Raises: as `ServerConnection.relay`.
        """
        found = self.tasks.of(task)
        if len(found) != 1:
            return None
        instance = await self._activation.instance(found[0])
        self._leases.watched.add(task, found[0])
        is_agreed = False
        try:
            is_agreed = await instance.subscriptions.watch(task, self._connection)
        finally:
            if not is_agreed:
                self._leases.watched.discard(task)
        return await self._state_of(task, found[0]) if is_agreed else None

    async def _state_of(self, task: str, server: ServerIdentity) -> bytes:
        session, client = self._connection.session, with_tasks(self._connection.client)
        caller = CallHooks(session=session, client=client)
        asked = Request("tasks/get", {"taskId": raw(task)}, caller)
        try:
            members = members_of(await read_all(await self.send(server, asked, asked.members)))
        except (ServerError, CallFailedError, MalformedError):
            return b""
        members.pop("resultType", None)
        return joined(members)

    def unwatch_task(self, task: str) -> None:
        """Stop listening for changes of an MCP task."""
        self._leases.watched.discard(task)
        for lease in self._state.servers:
            instance = self._leases.running(lease.identity)
            if instance is not None:
                instance.subscriptions.unwatch(task, self._connection.session)

    async def completion(self, request: Request) -> Result:
        """Return the result of `completion/complete`.

        Raises: as `SessionCalls.answer`.
        """
        reference = _COMPLETE.decode(joined(request.members)).ref
        if reference.type == "ref/prompt":
            identity, name = await self._find_prompt(reference.name)
            members = members_of(request.members["ref"])
            named = msgspec.Raw(joined({**members, "name": raw(name)}))
            return await self.send(identity, request, {**request.members, "ref": named})
        return await self._first_that_has(
            await self._owners(reference.uri),
            lambda each: self.send(each, request, request.members),
        )

    async def subscribe(self, uri: str) -> bytes:
        """Subscribe to the resource `uri` at its server; return the result.

        Raises: as `SessionCalls.answer`.
        """

        async def subscribed(identity: ServerIdentity) -> bytes:
            instance = await self._activation.instance(identity)
            result = await instance.subscriptions.subscribe(uri, self._connection)
            self._subscribed.add(uri, identity)
            self._on_use()
            return result

        return await self._first_that_has(await self._owners(uri), subscribed)

    async def unsubscribe(self, uri: str) -> bytes:
        """End the subscription to the resource `uri` at every server that has it.

        Return the result. Raises: as `SessionCalls.answer`.
        """
        self._subscribed.discard(uri)
        self._on_use()
        result = b"{}"
        for lease in self._state.servers:
            instance = self._leases.running(lease.identity)
            if instance is not None:
                result = await instance.subscriptions.unsubscribe(uri, self._connection.session)
        return result

    async def renew(self) -> None:
        """Start the stopped servers that have subscriptions.

        Each start renews its server's subscriptions.
        """
        for server in self._subscribed.servers:
            if self._state.lease_on(server) is None or self._leases.running(server) is not None:
                continue
            try:
                await self._activation.instance(server)
            except NotSentError as error:
                # The next call that starts the server renews its subscriptions as well.
                log.info(
                    "subscriptions_not_renewed",
                    session=self._connection.session,
                    server=server,
                    reason=str(error),
                )

    def drop_denied(self) -> None:
        """End the client's subscriptions to resources that policy denies."""
        subscriptions = self._connection.subscriptions
        for uri in denied_among(self._state, self._subscribed.among(subscriptions)):
            subscriptions.pop(uri, None)
            self._subscribed.discard(uri)

    async def follow_level(self) -> None:
        """Tell each running server of the session which log messages to send.

        A server gets the lowest level that any of its sessions wants.
        """
        for lease in self._state.servers:
            instance = self._leases.running(lease.identity)
            if instance is not None:
                with suppress(ServerError, CallFailedError):
                    await instance.subscriptions.follow_level()

    def notify_all(self, method: str) -> None:
        """Send a notification to every server of the session that can receive it.

        Such a server has had a handshake, and serves this session only.
        """
        for lease in self._state.servers:
            instance = self._leases.running(lease.identity)
            if instance is None or instance.server_connection.is_stateless:
                continue
            if list(instance.server_connection.holders) == [self._connection.session]:
                instance.server_connection.tell(method)

    async def send(self, identity: ServerIdentity, request: Request, members: Members) -> Result:
        """Send `request` to a server, with `members` as its params, and return the result.

        The server is started if needed.

        Raises: as `ServerConnection.relay`, and what `Activation.instance` raises.
        """
        instance = await self._activation.instance(identity)
        caller = request.caller
        async with self._leases.in_call(identity) as lease:

            async def relay(sent: Members) -> Result:
                result = await instance.server_connection.relay(
                    request.method, sent, caller, timeout=lease.spec.timeout
                )
                return result_for_client(lease.spec.name, result)

            if instance.server_connection.is_stateless and not is_stateless(caller.client):
                return await answer_rounds(relay, members, caller)
            return await relay(members)

    # Owners of prompts and resources

    def _prompt(self, identity: ServerIdentity, name: str) -> WireName | None:
        """Return the wire name of a prompt; None if its server is gone."""
        lease = self._state.lease_on(identity)
        if lease is None:
            return None
        grant = Grant(identity, ToolName(PROMPT + name))
        return self._state.surface.name(grant, lease.spec.name, name)

    async def _find_prompt(self, wanted: str) -> tuple[ServerIdentity, str]:
        # Names given earlier also find prompts of a stopped server, which `send` then starts.
        for grant, given in self._state.surface.names.items():
            is_meant = given == wanted and grant.tool.startswith(PROMPT)
            if is_meant and self._state.lease_on(grant.server) is not None:
                return self._permitted(grant.server, grant.tool.removeprefix(PROMPT), wanted)
        for identity, entries in (await self._entries("prompts")).items():
            share = FairShare()
            for name in entries:
                if self._prompt(identity, name) == wanted:
                    return self._permitted(identity, name, wanted)
                await share.give_way()
        raise UnknownNameError(f"no prompt {wanted[:100]!r} is on in this session")

    def _permitted(
        self, identity: ServerIdentity, name: str, wanted: str
    ) -> tuple[ServerIdentity, str]:
        restriction = prompt_restriction(self._state, identity, name)
        if restriction is not None:
            raise RefusedError(f"Prompt {wanted} cannot be used: {restriction.reason}.")
        return identity, name

    async def _owners(self, uri: str) -> list[ServerIdentity]:
        """Return the servers that have a resource.

        Raises:
            UnknownNameError: no server has it.
            RefusedError: two servers may have it, or policy denies it.
            NotSentError: the only server that may have it cannot be started.
        """
        last = self.apps.server_of(uri)
        if last is not None and self._state.lease_on(last) is not None:
            # Two servers may use one URI for their pages. The tool called last decides.
            found = Owners([last], [])
        else:
            found = owners(uri, self._cached("resources"), self._cached("resources/templates"))
        if last is None and (
            not found.servers or uri not in self._cached("resources")[found.servers[0]]
        ):
            found = await self._search_owners(uri)
        if found.rivals:
            raise RefusedError(
                f"Resource {uri[:200]} could belong to {_and(map(self._name_of, found.rivals))}: "
                "none of them lists it, and their templates fit equally well."
            )
        restrictions = {
            identity: resource_restriction(self._state, identity, uri) for identity in found.servers
        }
        permitted = [identity for identity in found.servers if restrictions[identity] is None]
        if permitted:
            return permitted
        denied = next(
            (restriction for restriction in restrictions.values() if restriction is not None), None
        )
        if denied is not None:
            raise RefusedError(f"Resource {uri[:200]} cannot be read: {denied.reason}.")
        raise UnknownNameError(
            f"no server that is on in this session lists {uri[:200]!r} or has a template for it"
        )

    async def _first_that_has(
        self,
        candidates: Sequence[ServerIdentity],
        ask: Callable[[ServerIdentity], Awaitable[T]],
    ) -> T:
        """Call `ask` for each candidate until one succeeds; return its result.

        Raises:
            ServerError, NotSentError: the first error, if all fail.
            UnknownNameError: there is no candidate that offers resources.
        """
        first: ServerError | NotSentError | None = None
        for identity in candidates:
            try:
                instance = await self._activation.instance(identity)
                # A server that had to be started has said only now whether it has resources.
                if "resources" in instance.server_connection.capabilities:
                    return await ask(identity)
            except (ServerError, NotSentError) as error:
                first = first or error
        raise first or UnknownNameError("no server that is on in this session has this resource")

    async def _search_owners(self, uri: str) -> Owners:
        """Return which servers to ask for `uri`, after loading missing lists.

        Servers that are not running are started one by one until one of them lists it.
        """
        failure: NotSentError | None = None
        waiting = [
            h.identity for h in self._state.servers if self._leases.running(h.identity) is None
        ]
        while True:
            listed = await self._entries("resources")
            templates = await self._entries("resources/templates")
            candidates = {i: uris for i, uris in listed.items() if self._may_have_resources(i)}
            found = owners(uri, candidates, templates, self._linking(uri))
            is_listed = bool(found.servers) and uri in candidates[found.servers[0]]
            if is_listed or not waiting:
                if not found.servers and not found.rivals and failure is not None:
                    raise failure
                return found
            # A restored session may ask for a resource of a server that is not running yet.
            try:
                await self._activation.instance(waiting.pop(0))
            except NotSentError as error:
                failure = failure or error

    def _linking(self, uri: str) -> set[ServerIdentity]:
        """Return the servers that linked to a resource: in a result, or as a tool's app page."""
        linking = set(self._linked.get(uri, ()))
        return linking | set(self.with_app(uri)) if uri.startswith(APP_SCHEME) else linking

    def with_app(self, page: str) -> list[ServerIdentity]:
        """Return the servers with a tool whose app has this page."""
        return [
            lease.identity
            for lease in self._state.servers
            if any(page_of(tool.json) == page for tool in lease.tools)
        ]

    def _cached(self, kind: str) -> dict[ServerIdentity, Mapping[str, bytes]]:
        """Return the lists that are cached for each server, without asking any server."""
        found: dict[ServerIdentity, Mapping[str, bytes]] = {}
        for lease in self._state.servers:
            instance = self._leases.running(lease.identity)
            found[lease.identity] = (instance.listings.cached(kind) if instance else None) or {}
        return found

    def _may_have_resources(self, identity: ServerIdentity) -> bool:
        instance = self._leases.running(identity)
        return instance is None or "resources" in instance.server_connection.capabilities

    def _name_of(self, identity: ServerIdentity) -> str:
        lease = self._state.lease_on(identity)
        return lease.spec.name if lease is not None else identity

    def note_links(self, server: ServerIdentity, result: bytes) -> None:
        """Remember the resources that a result links to, because a server need not list them."""
        with suppress(MalformedError):
            content = decoded(_LINKING, result[:LINKS_BYTES]).content
            for link in content[:_MOST_LINKS]:
                if link.type == "resource_link" and link.uri:
                    self._linked.setdefault(link.uri, set()).add(server)
        while len(self._linked) > _MOST_LINKS:
            del self._linked[next(iter(self._linked))]


def _and(names: Iterable[str]) -> str:
    return " and ".join(names)


def _text(members: Members, key: str) -> str:
    if key not in members:
        raise MalformedError(f"{key} is missing")
    return _TEXT.decode(members[key])
