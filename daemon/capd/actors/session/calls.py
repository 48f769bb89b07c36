"""Answers what a session's client requests: lists, calls, and notifications about itself.

    tools/call ──admit──> a tool that is on ──checked──> sent to its server
                  ├─────> capd's own tool ─────────────> answered here
                  └─────> nothing that is on ──found in the catalog──> switched on, then sent

In a call, only the tool's name is changed, and the arguments if the tool is edited. A result passes
unchanged unless it is too long, or memories are added to it.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property, lru_cache

import msgspec
import structlog
import trio

from capd.actors.session.call_notes import CallRecord
from capd.actors.session.leases import SessionLeases
from capd.actors.session.own_calls import OwnCalls
from capd.actors.session.parts import SessionParts
from capd.actors.session.results import NoResults, SessionResults
from capd.actors.session.scripts import SessionScripts
from capd.actors.session.server_requests import LINK_MARK, LINKS_BYTES
from capd.actors.session.turns import SessionTurns
from capd.adapters.clients.conversation import DirectRoute, Request, UnknownNameError
from capd.adapters.servers.server_connection import ServerConnection
from capd.adapters.step_boundary import boundary
from capd.core.errors import described
from capd.core.protocol.apps import page_named
from capd.core.protocol.calls import RESULT
from capd.core.protocol.extensions import session_extensions
from capd.core.protocol.generations import (
    Members,
    is_stateless,
    joined,
    members_or_none,
    raw,
    text_of,
)
from capd.core.protocol.outcomes import CallFailedError, RefusedError, ServerError
from capd.core.protocol.tasks import TASK_METHODS, task_of
from capd.core.results.large_results import Result
from capd.core.scripts.script_answers import MOST_VALUE_BYTES
from capd.core.sessions.active_set import Grant
from capd.core.sessions.admission import (
    ActiveTool,
    CallOrigin,
    CapdTool,
    NotActive,
    NotCallable,
    PromptHookCall,
    admit,
    app_only_refusal,
    check_read_only,
)
from capd.core.sessions.instructions import instructions
from capd.core.sessions.search_tools import BadCallError
from capd.core.sessions.surface import ShownTool
from capd.core.tools.tool_edits import given_arguments, sent_arguments
from capd_protos.codec import JsonCodec
from capd_protos.curator import CapabilityUsed
from capd_protos.types import CapabilityId, ClientFacts, ServerIdentity, ToolName, WireName

log = structlog.get_logger(actor="curator")

INDEX_PATIENCE = 1.5
"""Seconds for which the first answer on a connection waits for the index, which its instructions
contain."""


class _CallParams(msgspec.Struct):
    name: str
    arguments: msgspec.Raw = msgspec.Raw(b"")


_CALL: JsonCodec[_CallParams] = JsonCodec(_CallParams)


class ToolRoute:
    """One tool call that is passed on to its server without starting a task for the call."""

    __slots__ = ("_call", "_calls", "_listed", "members", "server_connection", "timeout")

    def __init__(
        self,
        calls: "SessionCalls",
        server_connection: ServerConnection,
        request: Request,
        listed: ActiveTool,
        members: Members,
    ) -> None:
        self._calls = calls
        self._listed = listed
        spec = listed.lease.spec
        self._call = CallRecord(request, listed.shown, spec.name, time.monotonic(), members)
        self.server_connection = server_connection
        self.members = members
        self.timeout = spec.timeout

    def leave(
        self, result: Result | None, error: Exception | None = None, *, has_ended: bool = True
    ) -> bool:
        """Stop using the server for this call; return whether the caller must call `release`.

        The call's outcome is recorded as well. With `has_ended=False` nothing is recorded, because
        the call goes on through `relay`, which records its outcome.
        """
        if has_ended:
            self._calls.end(self._call, result, error)
        return self._calls.leases.leave(self._listed.lease)

    def is_unchanged(self, result: Result) -> bool:
        """Tell whether the client gets the result unchanged."""
        return self._calls.results.is_unchanged(result, self._call.shown, self._call.server)

    async def passed(self, result: Result) -> Result:
        """Return the result in the form for the client: shortened, if it is too long."""
        return await self._calls.shorten(self._call, result)

    async def release(self) -> None:
        """Release the session's lease on the server of this call."""
        await self._calls.leases.release(self._listed.lease)


class SessionCalls:
    """Answers everything that a session's connection may request; implements `Conversation`."""

    def __init__(self, parts: SessionParts, turns: Callable[[], SessionTurns]) -> None:
        """Create it. `turns` returns the turns of the session."""
        self._context = parts.context
        self._state = parts.context.state
        self._view = parts.context.view
        self._instances = parts.context.services.instances
        self._checks = parts.context.services.checks
        self._published_used: list[CapabilityId] = []
        self._parts = parts
        self._turns = turns

    @property
    def leases(self) -> SessionLeases:
        """The leases of the session on servers."""
        return self._parts.activation.leases

    @property
    def results(self) -> SessionResults | NoResults:
        """The part that shortens and stores the session's long results."""
        return self._parts.results

    @cached_property
    def _own_calls(self) -> OwnCalls:
        search = self._parts.search
        return OwnCalls(
            self._parts, search, SessionScripts(self._parts, search, self.call_for_script)
        )

    # The connection begins

    async def start(self) -> None:
        """Wait up to `INDEX_PATIENCE` seconds for the index, which the instructions contain."""
        with trio.move_on_after(INDEX_PATIENCE):
            await self._parts.index.load()

    async def wait_ready(self) -> None:
        """Wait for the index if the policy has changed because of the client info."""
        if self._parts.index.loaded_for != self._view.policy:
            await self.start()

    def instructions(self) -> str:
        """Return the instructions for the model, and record that they were sent.

        They are empty in the mode `pass-through`.
        """
        if self._view.plan.mode == "pass-through":
            return ""
        is_fixed, index = self._state.surface.is_fixed, self._parts.index.map()
        has_scripts = self._view.names_scripts
        text = instructions(
            dict(self._view.own), is_fixed=is_fixed, index=index, has_scripts=has_scripts
        )
        return self._parts.tokens.instructed(text)

    def extensions(self) -> Mapping[str, msgspec.Raw]:
        """Return the MCP extensions that capd or a running server supports, with their settings."""
        running = (self.leases.running(held.identity) for held in self._state.servers)
        return session_extensions(
            bytes(each.server_connection.capabilities.get("extensions", b""))
            for each in running
            if each is not None
        )

    def on_client_info(self, client: ClientFacts) -> None:
        """Note the client info from the handshake."""
        connection = self._context.connection
        if client == connection.client:
            return
        connection.client = client
        if not self._view.has_listed:
            self._decide_surface(client)

    def _decide_surface(self, client: ClientFacts) -> None:
        """Decide again which tools the session lists, now that the client info is known."""
        # The default client info stands for a client that sent none; its name is not a client's.
        info = members_or_none(client.info) if client.info != ClientFacts().info else {}
        self._view.decide(
            self._state.surface,
            text_of(info.get("name")),
            text_of(info.get("version")),
            is_stateless=is_stateless(client),
        )
        if self._view.policy != self._state.policy:
            self._parts.activation.restrict(self._view.policy)
            if self._parts.is_made("requests"):
                self._parts.requests.drop_denied()

    def on_environment(self, values: dict[str, str]) -> None:
        """Adopt the values of the client's environment.

        Values that come over a bridge are ignored: they could choose where servers on this machine
        connect, and as whom.
        """
        place = self._context.place
        if place.bridge:
            return
        self._context.services.environments.put(place.key, values)
        for agent in self._parts.agents.sessions if self._parts.is_made("agents") else ():
            agent.calls.on_environment(values)
        if self._parts.is_made("initial_tools"):
            self._parts.initial_tools.on_environment()
        log = structlog.get_logger(actor="curator", session=place.key)
        log.info("environment_received", keys=sorted(values))

    def on_roots_changed(self) -> None:
        """Tell servers that the client's roots have changed."""
        if self._parts.is_made("activation"):
            self._parts.requests.notify_all("notifications/roots/list_changed")

    # Lists and subscriptions

    async def list_entries(self, kind: str) -> list[bytes]:
        """Return the entries of a list, each as the JSON for the client.

        `kind` is `tools`, `prompts`, `resources`, `resources/templates` or `seen tools`. The last
        means the tools, too, but does not note that the client has listed them.
        """
        match kind:
            case "tools":
                self._context.connection.on_listed()
                self._view.listed()
                surface, listed = self._state.surface, self.definitions()
                own = len(surface) - len(surface.listed)
                self._parts.tokens.listed(listed, own, time.time())
                return listed
            case "seen tools":
                return self.definitions()
            case "prompts":
                return await self._parts.requests.prompts()
            case _:
                return await self._parts.requests.resources(kind)

    def definitions(self) -> list[bytes]:
        """Return the definitions of all tools on the surface."""
        return self._state.surface.definitions()

    async def subscribe(self, uri: str) -> bytes:
        """Subscribe to the resource `uri` at its server; return the result.

        Raises: as `answer`.
        """
        return await self._parts.requests.subscribe(uri)

    async def unsubscribe(self, uri: str) -> bytes:
        """End the subscription to the resource `uri`; return the result.

        Raises: as `answer`.
        """
        return await self._parts.requests.unsubscribe(uri)

    async def watch_task(self, task: str) -> bytes | None:
        """Listen for changes of an MCP task; return its state as JSON.

        None if its server is not known, or announces no changes. Raises: as `answer`.
        """
        return await self._parts.requests.watch_task(task)

    def unwatch_task(self, task: str) -> None:
        """Stop listening for changes of an MCP task."""
        self._parts.requests.unwatch_task(task)

    async def renew_subscriptions(self) -> None:
        """Start the stopped servers that have the client's subscriptions; subscribe there again."""
        if self._parts.is_made("activation"):
            await self._parts.requests.renew()

    async def follow_level(self) -> None:
        """Set the log level that the client wants at every server of the session."""
        await self._parts.requests.follow_level()

    # Requests

    async def turn(self, text: str) -> bytes:
        """Handle a user's message from the session's own connection; return the answer."""
        return await self._turns().take_own(text)

    async def relay(self, request: Request) -> Result:
        """Answer a request, and append notices for the model to the results of capd's own tools.

        Raises: as `answer`.
        """
        if request.method != "tools/call":
            return await self.answer(request)
        agent = await self._parts.agents.session(request)
        if agent is not None:
            return await agent.calls.relay(request)
        result = await self.answer(request)
        own = self._view.own.get(WireName(text_of(request.members.get("name"))))
        if own is not None:
            with boundary("notices", log=log):
                result = self._parts.memories.answered(result)
                result = self._parts.tokens.answered(own.name, result)
        return result

    async def answer(self, request: Request) -> Result:
        """Return the result of a request to a server, or to one of capd's own tools.

        Raises:
            UnknownNameError: the request names nothing that is known.
            CallFailedError, ServerError: as their classes say.
            MalformedError: its params are not valid.
        """
        match request.method:
            case "prompts/get":
                return await self._parts.requests.prompt(request)
            case "resources/read":
                media = await self.results.media(text_of(request.members.get("uri")))
                return await self._parts.requests.resource(request) if media is None else media
            case "completion/complete":
                return await self._parts.requests.completion(request)
            case method if method in TASK_METHODS:
                return await self._parts.requests.task(request)
        call = _CALL.decode(joined(request.members))
        app_tool = self._app_tool(call.name, request)
        if app_tool:
            request = self._of_app(request, app_tool)
        return await self._call(app_tool or call.name, "client", request, call.arguments)

    def _of_app(self, request: Request, name: str) -> Request:
        """Return an app's call in the form of a client's call.

        An app is a page of a server that the client shows. An app uses the arguments that the
        server defines, but an edit of the tool may define others for clients. `name` is the tool's
        name on the surface.
        """
        shown = self._state.surface.find(name)
        if shown is None or shown.edit is None or not shown.edit.arguments:
            return request
        own = bytes(request.members.get("arguments", b""))
        given = msgspec.Raw(given_arguments(shown.edit, own))
        return replace(request, members={**request.members, "arguments": given})

    def _page_named(self, request: Request) -> str:
        meta = request.members.get("_meta")
        return page_named(bytes(meta)) if meta is not None else ""

    def _app_tool(self, name: str, request: Request) -> str:
        """Return the wire name of the tool that an app calls; empty if the call is not an app's.

        A wire name is the name under which clients know a tool. `name` is the tool's name at its
        server.

        Raises:
            RefusedError: the call may come from several apps, and does not say from which.
            UnknownNameError: the app that the call names has no such tool.
        """
        page = self._page_named(request)
        surface = self._state.surface
        is_given = surface.find(name) is not None or WireName(name) in self._view.own
        if not page and (is_given or not self._parts.requests.apps):
            return ""
        having = {
            held.identity: held
            for held in self._state.servers
            if any(tool.name == name for tool in held.tools)
        }
        named = self._parts.requests.with_app(page) if page else None
        caller = self._parts.requests.apps.caller(list(having), named)

        def given(server: ServerIdentity) -> WireName:
            held, tool = having[server], ToolName(name)
            shown_name = next(each.shown_name for each in held.tools if each.name == name)
            return surface.name(Grant(server, tool), held.spec.name, shown_name)

        if caller.server is not None:
            return given(caller.server)
        if caller.rivals:
            raise RefusedError(
                f"{name} is a tool of {len(caller.rivals)} servers with an app, and the call does"
                " not say whose app makes it. It was not sent. Say it in"
                " `_meta.ui.resourceUri`, or call"
                f" {' or '.join(given(each) for each in caller.rivals)}."
            )
        if page and not is_given:
            raise UnknownNameError(f"no server with the app {page[:200]} has a tool {name[:100]!r}")
        return ""

    def direct_route(self, request: Request) -> DirectRoute | None:
        """Return how to pass a tool call on to its server without starting a trio task for it.

        None for a call that cannot be passed on like this; `relay` handles it.
        """
        if self._parts.agents.has_any and self._parts.agents.is_agents(request):
            agent = self._parts.agents.open_session(request)
            return agent.calls.direct_route(request) if agent is not None else None
        if self._page_named(request):
            return None
        listed = admit(text_of(request.members.get("name")), "client", self._state, self._view)
        if not isinstance(listed, ActiveTool):
            return None
        instance = self._instances.get(listed.lease.instance)
        if instance is None or not instance.server_connection.is_direct:
            return None
        if self._parts.approvals.rule(listed) is not None:
            return None
        try:
            members = _sent_members(listed.shown, request)
            if not self._parts.memories.lets_through(listed.shown, members):
                return None
            self._check_arguments(listed, request.members)
        except CallFailedError:
            # `relay` raises the same error, and reports it.
            return None
        self.leases.keep(listed.lease)
        return ToolRoute(self, instance.server_connection, request, listed, members)

    # Calls of tools

    async def call_by_name(self, name: str, request: Request, is_read_only: bool = False) -> Result:
        """Call the tool `name`, for a call of `tool_call` or (`is_read_only`) `tool_call_readonly`.

        Return the tool's result. Raises: as `answer`, and BadCallError.
        """
        by: CallOrigin = "tool_call_readonly" if is_read_only else "tool_call"
        arguments = request.members.get("arguments", msgspec.Raw(b""))
        return await self._call(name, by, request, arguments)

    async def _call(
        self, name: str, by: CallOrigin, request: Request, arguments: msgspec.Raw
    ) -> Result:
        admitted = admit(name, by, self._state, self._view)
        match admitted:
            case ActiveTool():
                return await self._call_listed(admitted, by, request)
            case CapdTool():
                self._context.probe_relisting()
                call_by_name = self.call_by_name
                return await self._own_calls.call(admitted.tool, request, arguments, call_by_name)
            case PromptHookCall():
                return await self._turns().call_turn(arguments)
            case NotCallable():
                raise BadCallError(admitted.reason)
            case NotActive():
                return await self._call_listed(await self._reached(name, by), by, request)

    async def call_for_script(self, name: str, request: Request) -> Result:
        """Call a tool for a script and return the result.

        The result is shortened only if it is too large for a script.

        Raises:
            UnknownNameError, CallFailedError, ServerError: as `answer`.
        """
        admitted = admit(name, "script", self._state, self._view)
        match admitted:
            case ActiveTool():
                listed = admitted
            case NotActive():
                listed = await self._reached(name, "script")
            case NotCallable():
                raise RefusedError(admitted.reason)
            case _:
                raise RefusedError(f"{name} cannot be called by a script.")
        call, result = await self._sent(listed, "script", request)
        is_small = isinstance(result, bytes) and len(result) <= MOST_VALUE_BYTES
        return result if is_small else await self.shorten(call, result)

    async def _reached(self, name: str, by: CallOrigin) -> ActiveTool:
        """Switch on the tool called `name`, unless it is on, and return it.

        Raises: as `ToolSearch.reach`, and RefusedError.
        """
        listed = await self._parts.search.reach(name)
        # Only the server's definition says that a tool is for apps, so this is known only now.
        if reason := app_only_refusal(listed.shown, by):
            raise RefusedError(reason)
        return listed

    async def _call_listed(self, listed: ActiveTool, by: CallOrigin, request: Request) -> Result:
        call, result = await self._sent(listed, by, request)
        result = await self.shorten(call, result)
        with boundary("memories", log=log):
            return self._parts.memories.passed(listed.shown, result)
        return result

    async def _sent(
        self, listed: ActiveTool, by: CallOrigin, request: Request
    ) -> tuple[CallRecord, Result]:
        """Send a call to its server; return the call and the server's result.

        Raises: as `answer`.
        """
        shown, server = listed.shown, listed.shown.grant.server
        call = CallRecord(request, shown, listed.lease.spec.name, time.monotonic(), request.members)
        try:
            check_read_only(shown, by, self._view)
            call.sent = _sent_members(shown, request)
            self._check(listed, request.members, call.sent)
            is_approved = await self._parts.approvals.check(listed, request, call.sent)
            # The time that a person took to approve is not part of the call's duration.
            call.began_at = time.monotonic()
            if self.leases.running(server) is None:
                await self._start_server(listed)
                # The started server may define the tool differently from its cached definition.
                fresh = replace(listed, shown=self._state.surface.find(shown.name) or shown)
                check_read_only(fresh.shown, by, self._view)
                is_other = fresh.shown.edit != shown.edit
                if is_other:
                    call.sent = _sent_members(fresh.shown, request)
                    self._check(fresh, request.members, call.sent)
                if is_other or not is_approved:
                    await self._parts.approvals.check(fresh, request, call.sent)
            result = await self._parts.requests.send(server, request, call.sent)
        except (CallFailedError, ServerError) as error:
            self.end(call, None, error)
            raise
        except trio.Cancelled:
            self.end(call, None)
            raise
        self.end(call, result)
        return call, result

    async def _start_server(self, listed: ActiveTool) -> None:
        """Start the server of a tool, and check that the tool is not withheld by now.

        Raises:
            RefusedError: the tool is withheld, because its definition is not trusted.
            NotSentError: the server could not be started.
        """
        server, tool = listed.shown.grant.server, listed.shown.grant.tool
        await self._parts.activation.instance(server)
        lease = self._state.lease_on(server)
        if lease is None or all(each.name != tool for each in lease.tools):
            await self._parts.withheld.refuse(listed.shown.name)

    def _check(self, listed: ActiveTool, given: Members, sent: Members) -> None:
        """Check that a call's arguments are no known mistake and fit the tool's schema.

        `given` are the params from the client. `sent` are those for the server, which differ if the
        tool is edited. Mistakes are looked for in `sent`. The schema is the one that the client
        sees, so `given` is checked against it.

        Raises:
            RefusedError: the arguments are a known mistake, or do not fit.
        """
        self._parts.memories.check(listed.shown, sent)
        self._check_arguments(listed, given)

    def _check_arguments(self, listed: ActiveTool, members: Members) -> None:
        if listed.checks_arguments:
            arguments = bytes(members.get("arguments", b""))
            self._checks.check(listed.shown.name, listed.shown.json, arguments)

    def end(self, call: CallRecord, result: Result | None, error: Exception | None = None) -> None:
        """Record the end of a call. A call that worked counts as a use of its tool.

        The call has its outcome already, so an error in this method must not change it.
        """
        try:
            self._note_end(call, result, error)
        except Exception as failure:  # noqa: BLE001 - the boundary
            log.error("task_failed", task="call notes", **described(failure))

    def _note_end(self, call: CallRecord, result: Result | None, error: Exception | None) -> None:
        grant = call.shown.grant
        granting = self._state.active.granting(grant)
        outcome = self._parts.notes.ended(call, granting, result, error)
        if isinstance(result, bytes) and LINK_MARK in result[:LINKS_BYTES]:
            self._parts.requests.note_links(grant.server, result)
        if result is not None:
            self._note_extensions(call, result)
        self._parts.memories.ended(call.shown, call.server, call.sent, outcome, error)
        if outcome == RESULT:
            self._state.active.used(grant, time.time())
            self._publish_used(granting)
            self._parts.feedback.on_called(granting)
            self._context.on_change()

    def _note_extensions(self, call: CallRecord, result: Result) -> None:
        """Remember the server of a task that a result names, and the app that shows the result."""
        server, page = call.shown.grant.server, call.shown.page
        task = task_of(result)
        if task:
            self._parts.requests.tasks.add(task, server)
        if page:
            self._parts.requests.apps.on_called(page, server)
        if task or page:
            self._context.on_change()

    def _publish_used(self, used: list[CapabilityId]) -> None:
        """Publish which capabilities grant the called tool, if they differ from the last call's."""
        if used == self._published_used:
            return
        self._published_used = used
        place = self._context.place
        for each in used:
            self._context.services.bus.publish(CapabilityUsed(place.key, place.project, each))

    async def shorten(self, call: CallRecord, result: Result) -> Result:
        """Return a server's result, shortened if it is too long."""
        client = call.request.caller.client
        try:
            return await self.results.passed(result, call.shown, call.server, client)
        except Exception as failure:  # noqa: BLE001 - the boundary
            # The server has answered, so the client gets the whole result, not this error.
            log.error("task_failed", task="long result", **described(failure))
            return result


@lru_cache(maxsize=1024)
def _json_name(tool: ToolName) -> msgspec.Raw:
    return raw(tool)


def _sent_members(shown: ShownTool, request: Request) -> Members:
    """Return the params of a call for its server.

    They have the server's own names of the tool and its arguments, and those arguments that an edit
    of the tool presets.

    Raises:
        NotSentError: see `sent_arguments`.
    """
    members = {**request.members, "name": _json_name(shown.grant.tool)}
    if shown.edit is None or not shown.edit.arguments:
        return members
    given = bytes(members.get("arguments", b""))
    members["arguments"] = msgspec.Raw(sent_arguments(shown.name, shown.edit, given))
    return members
