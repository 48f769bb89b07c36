"""The curator of one session: what its client asks, what its user says, where its calls go."""

import time
from collections.abc import Callable

import msgspec
import structlog
import trio

from capd.actors import reports
from capd.actors.activation import Activation, NotActivatedError, Outcome, SessionPlace
from capd.actors.relaying import Relaying
from capd.adapters.clients.conversation import Request, UnknownNameError
from capd.adapters.clients.session_environment import SessionEnvironments
from capd.adapters.clients.upstream import Upstream
from capd.adapters.servers.callers import OnProgress
from capd.adapters.servers.instance import Instance
from capd.core.protocol.eras import joined
from capd.core.protocol.outcomes import RefusedError, text_result
from capd.core.results.large_results import Result
from capd.core.sessions import hook_context, own_tools
from capd.core.sessions.active_set import ActiveSet
from capd.core.sessions.session import SessionState, Step
from capd.core.sessions.session_record import SessionRecord, recorded, restore
from capd.core.sessions.surface import Surface
from capd.core.tools.names import near_names
from capd.runtime.bus import Bus
from capd.runtime.handover import Handover
from capd_protos import curator as messages
from capd_protos import registry
from capd_protos.codec import JsonCodec, MalformedError
from capd_protos.types import CapabilityId, ClientFacts, Decision, InstanceId, SessionKey, WireName

RELIST_TIMEOUT = 1.0
"""Seconds that a hook on the session's own connection waits for the client to list again, which
took 8 to 26 ms where a client does it at all (45-clients, finding 1)."""


class _CallParams(msgspec.Struct):
    name: str
    arguments: msgspec.Raw = msgspec.Raw(b"")


class _UriParams(msgspec.Struct):
    uri: str


_CALL: JsonCodec[_CallParams] = JsonCodec(_CallParams)
_URI: JsonCodec[_UriParams] = JsonCodec(_UriParams)
_ARGUMENTS: JsonCodec[own_tools.Arguments] = JsonCodec(own_tools.Arguments)
_TURN_ARGUMENTS: JsonCodec[hook_context.TurnArguments] = JsonCodec(hook_context.TurnArguments)


class Curator:
    """One session; its connection may come and go."""

    def __init__(
        self,
        place: SessionPlace,
        *,
        bus: Bus,
        instances: Handover[InstanceId, Instance],
        environments: SessionEnvironments,
        cap: int,
        is_bare: bool = False,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_change` is called when there is something to write down.

        `is_bare` shows servers' own names, and nothing of capd's own: a plain pass-through.
        """
        self._is_bare = is_bare
        self.place = place
        self._on_change = on_change
        self.upstream: Upstream | None = None
        self.client = ClientFacts()
        """What the client says of itself, as far as it has said anything."""
        self.log_level = ""
        self.subscriptions: set[str] = set()
        self.is_initialized = False
        """Whether the client has completed its handshake, on this connection or an earlier one."""
        self.client_sessions: set[str] = set()
        """Ids under which the client itself knows the conversation; `/clear` brings another."""
        self.linked_by = ""
        # Set once the client has listed the tools as they are; another one for each change.
        self._relisted = trio.Event()
        self._suggested: tuple[CapabilityId, ...] = ()
        self._bus = bus
        self._environments = environments
        own = [] if is_bare else [(own_tools.CAPABILITY, own_tools.DEFINITION)]
        surface = Surface(own, is_bare=is_bare)
        self._state = SessionState(ActiveSet(cap), surface)
        self.activation = Activation(
            place,
            self._state,
            bus=bus,
            instances=instances,
            environments=environments,
            on_step=self._stepped,
            peer=self,
        )
        self._relaying = Relaying(self, self._state, self.activation, on_change)
        self._log = structlog.get_logger(actor="curator", session=place.key)

    # What outlives the daemon

    def record(self, resume: str) -> SessionRecord:
        """Return the session as it is to be written down."""
        return recorded(self.place.key, self._state, resume, time.time())

    def restore(self, record: SessionRecord) -> None:
        """Be the session that was written down."""
        restore(record, self._state)
        self._log.info("session_restored", active=len(self._state.active.activations))

    # What a connection asks

    def instructions(self) -> str:
        """Return the stable text for the model."""
        return "" if self._is_bare else own_tools.INSTRUCTIONS

    def met(self, client: ClientFacts) -> None:
        """Note what the client says of itself."""
        self.client = client

    async def listed(self, kind: str) -> list[bytes]:
        """Return the entries of a list, each as the client gets it."""
        match kind:
            case "tools":
                self._relisted.set()
                return self.definitions()
            case "prompts":
                return await self._relaying.prompts()
            case _:
                return await self._relaying.resources(kind)

    def definitions(self) -> list[bytes]:
        """Return the surface, tool by tool."""
        return self._state.surface.definitions()

    def environment(self, values: dict[str, str]) -> None:
        """Take over the client's values."""
        self._environments.put(self.place.key, values)
        self._log.info("environment_received", keys=sorted(values))

    async def turn(self, text: str) -> bytes:
        """Take a turn on the session's own connection."""
        return msgspec.json.encode(reports.turn(await self.take_turn(text)))

    async def relayed(self, request: Request) -> Result:
        """Return the result of a request that goes to a server, or to a tool of capd's own.

        Raises:
            UnknownNameError: it names nothing that is shown.
            CallFailedError, ServerError: see there.
            MalformedError: its params are none.
        """
        match request.method:
            case "prompts/get":
                return await self._relaying.prompt(request)
            case "resources/read":
                return await self._relaying.resource(request)
            case "completion/complete":
                return await self._relaying.completion(request)
        call = _CALL.decode(joined(request.members))
        if call.name == own_tools.CAPABILITY and not self._is_bare:
            return await self._call_capability(call.arguments)
        if call.name == hook_context.TURN and not self._is_bare:
            return await self._call_turn(call.arguments)
        shown = self._state.surface.find(call.name)
        if shown is None:
            raise UnknownNameError(self._unknown_tool(call.name))
        return await self._relaying.tool(request, shown)

    async def subscribed(self, uri: str) -> bytes:
        """Subscribe to a resource; raises as `relayed`."""
        return await self._relaying.subscribe(uri)

    async def unsubscribed(self, uri: str) -> bytes:
        """End a subscription; raises as `relayed`."""
        return await self._relaying.unsubscribe(uri)

    async def wants_level(self, level: str) -> None:
        """Take over from which level on the client wants log messages."""
        self.log_level = level
        await self._relaying.follow_level()

    def roots_changed(self) -> None:
        """Pass on that the client's roots are others."""
        self._relaying.tell_all("notifications/roots/list_changed")

    # What a server asks of the client, and tells it

    @property
    def session(self) -> SessionKey:
        """The session's key."""
        return self.place.key

    async def ask(self, method: str, params: bytes, on_progress: OnProgress) -> bytes:
        """Ask the client outside of any call.

        Raises:
            ServerError, RefusedError: it answered with an error; it cannot be asked.
        """
        if self.upstream is None:
            raise RefusedError("the client is not connected at this moment")
        return await self.upstream.ask(method, params, on_progress)

    def tell(self, method: str, params: bytes) -> None:
        """Tell the client outside of any call; what it cannot hear now is gone."""
        if self.upstream is None:
            return
        match method.removeprefix("notifications/").split("/"):
            case ["prompts" | "resources" as what, "list_changed"]:
                self.upstream.list_changed(what)
            case ["resources", "updated"]:
                self.upstream.resource_updated(_URI.decode(params).uri, params)
            case _ if self.is_initialized or self.upstream.is_initialized:
                self.upstream.notify(method, params)

    # What a user says

    async def take_turn(self, text: str) -> messages.TurnTaken:
        """Decide on a user's message, and switch on what it asks for."""
        started_at = time.monotonic()
        decision = await self._routed(text)
        outcome = Outcome("")
        if decision.id is not None and decision.outcome == "activate":
            outcome = await self.activation.enable(str(decision.id))
        elif decision.id is not None:
            self._state.active.touch(decision.id, time.time())
        return messages.TurnTaken(
            session=self.place.key,
            decision=decision,
            added=list(outcome.added),
            removed=list(outcome.removed),
            ms=round((time.monotonic() - started_at) * 1000, 3),
            problem="" if outcome.is_ok else outcome.text,
            suggestion=self._suggestion(decision),
        )

    def _suggestion(self, decision: Decision) -> str:
        """Return the words for what is suggested, unless they were the last that were said."""
        if not decision.suggested or decision.suggested == self._suggested:
            return ""
        self._suggested = decision.suggested
        return hook_context.suggestion([id_.name for id_ in decision.suggested])

    def entry(self, now: float, opened_at: float, pid: int) -> messages.SessionEntry:
        """Return the session as the status shows it; times in seconds since the epoch."""
        state = self._state
        return messages.SessionEntry(
            key=self.place.key,
            client=self.place.client,
            pid=pid,
            project=self.place.project,
            mode="dynamic",
            is_connected=self.upstream is not None,
            age=now - opened_at,
            active=[
                messages.ActiveEntry(
                    "capability" if activation.takes_slot else "dependencies",
                    activation.id,
                    activation.last_used_at,
                    list(state.tools_of(activation.id)),
                )
                for activation in state.active.activations
            ],
            cap=state.active.cap,
            surface=len(state.surface),
            available=state.available,
            surface_chars=len(state.surface.listing()),
            client_sessions=sorted(self.client_sessions),
            linked_by=self.linked_by,
        )

    async def _routed(self, text: str) -> Decision:
        request = registry.RouteMessage(
            session=self.place.key,
            text=text,
            active=[activation.id for activation in self._state.active.activations],
            keys=self._environments.keys(self.place.key),
            project=self.place.project,
        )
        try:
            reply = await self.activation.ask_registry(request)
        except NotActivatedError as error:
            self._log.warning("not_routed", reason=str(error))
            return Decision("abstain", "model_not_ready")
        assert isinstance(reply, registry.MessageRouted)
        return reply.decision

    def _stepped(self, step: Step) -> None:
        self._on_change()
        for what in self._relaying.followed():
            self.tell(f"notifications/{what}/list_changed", b"")
        if not step.changes_list:
            return
        self._relisted = trio.Event()
        if self.upstream is not None:
            self.upstream.list_changed("tools")
        self._bus.publish(
            messages.SurfaceChanged(self.place.key, list(step.added), list(step.removed))
        )

    def _unknown_tool(self, name: str) -> str:
        shown = [tool.name for tool in self._state.surface.shown]
        if self._is_bare:
            return f"No tool {own_tools.echo(name)}."
        near = near_names(name, [*shown, own_tools.CAPABILITY])
        hint = f" Near names: {', '.join(near)}." if near else ""
        return (
            f"No tool {own_tools.echo(name)} is switched on in this session.{hint} "
            "The tool `capability` finds and switches on others."
        )

    async def _call_turn(self, arguments: msgspec.Raw) -> bytes:
        """Answer a prompt hook on the session's own connection."""
        try:
            hook = _TURN_ARGUMENTS.decode(arguments if len(arguments) else b"{}")
        except MalformedError as error:
            return text_result(f"The arguments are wrong: {error}", is_error=True)
        if hook.session_id:
            self.client_sessions.add(hook.session_id)
        self.linked_by = "its own connection"
        taken = await self.take_turn(hook.prompt)
        if taken.added or taken.removed:
            # Answered now, the hook would let the client ask its model with the old list.
            with trio.move_on_after(RELIST_TIMEOUT):
                await self._relisted.wait()
        chosen = taken.decision.id
        added = [WireName(name) for name in taken.added]
        text = hook_context.context(chosen.name, added) if chosen is not None else ""
        text = text or taken.suggestion
        return text_result(hook_context.hook_output(text))

    # The tool `capability`

    async def _call_capability(self, arguments: msgspec.Raw) -> bytes:
        try:
            wanted = own_tools.checked(_ARGUMENTS.decode(arguments if len(arguments) else b"{}"))
        except MalformedError as error:
            return text_result(f"The arguments are wrong: {error}", is_error=True)
        except own_tools.BadArgumentsError as error:
            return text_result(str(error), is_error=True)
        try:
            match wanted.action:
                case "list":
                    outcome = await self._listed()
                case "discover":
                    outcome = await self._discovered(wanted.intent)
                case "enable":
                    outcome = await self.activation.enable(wanted.name)
                case _:
                    outcome = await self.activation.disable(wanted.name)
        except NotActivatedError as error:
            outcome = Outcome(str(error), is_ok=False)
        return text_result(outcome.text, is_error=not outcome.is_ok)

    async def _listed(self) -> Outcome:
        reply = await self.activation.ask_registry(registry.ListCapabilities())
        assert isinstance(reply, registry.CapabilitiesListed)
        # Reversed: where two taps have one name, the first tap's entry stays.
        shown = {
            entry.name: self._entry_of(
                CapabilityId(entry.tap, entry.name), entry.triggers, entry.wanted_keys
            )
            for entry in reversed(reply.capabilities)
            if entry.is_routable
        }
        return Outcome(own_tools.listing([shown[name] for name in sorted(shown)], 0, ""))

    async def _discovered(self, intent: str) -> Outcome:
        reply = await self.activation.ask_registry(registry.DiscoverCapabilities(intent))
        if not isinstance(reply, registry.CapabilitiesFound):
            return Outcome(own_tools.MODEL_NOT_READY, is_ok=False)
        hits = [
            self._entry_of(hit.id, hit.triggers, hit.wanted_keys, hit.score) for hit in reply.hits
        ]
        return Outcome(own_tools.discovered(intent, hits))

    def _entry_of(
        self,
        capability: CapabilityId,
        triggers: list[str],
        wanted: list[str],
        score: float | None = None,
    ) -> own_tools.Listed:
        values = self._environments.values(self.place.key)
        missing = [key for key in wanted if not values.get(key)]
        is_active = capability in self._state.active
        return own_tools.Listed(capability, triggers, missing, is_active, score)
