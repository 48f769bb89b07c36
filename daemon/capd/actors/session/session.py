"""The curator of one session: what its client asks, what its user says, where its calls go."""

import time
import weakref
from collections.abc import Callable
from dataclasses import asdict

import msgspec
import structlog
import trio
from structlog.typing import FilteringBoundLogger

from capd.actors.control import documents
from capd.actors.session.activation import Activation
from capd.actors.session.bootstrap import Bootstrapping
from capd.actors.session.calls import CallNotes, Relaying
from capd.actors.session.index import IndexCache, SessionIndex
from capd.actors.session.initial_tools import Beginning
from capd.actors.session.memories import SessionMemories
from capd.actors.session.memory_catalog import MemoryCatalog
from capd.actors.session.own_calls import OwnCalls
from capd.actors.session.policy import Denials, rules_of
from capd.actors.session.recent_uses import RecentUses
from capd.actors.session.results import ResultStorage, SessionResults
from capd.actors.session.skills import Skills
from capd.actors.session.token_accounting import SessionTokenCount, TokenAccounting
from capd.actors.session.tool_search import Searching
from capd.actors.session.turns import TurnContext, Turns
from capd.actors.session.withheld import Withheld
from capd.adapters.argument_checks import ArgumentChecks
from capd.adapters.clients.conversation import DirectRoute, Request
from capd.adapters.clients.session_environment import SessionEnvironments
from capd.adapters.clients.upstream import Upstream
from capd.adapters.ledger.journal import Journal
from capd.adapters.servers.callers import OnProgress
from capd.adapters.servers.instance import Instance
from capd.core.back_references import weakly
from capd.core.protocol.generations import Members, is_stateless, joined, members_or_none, text_of
from capd.core.protocol.outcomes import RefusedError, text_result
from capd.core.results.large_results import Result
from capd.core.sessions import hook_context
from capd.core.sessions.active_set import ActiveSet
from capd.core.sessions.conversations import Conversations
from capd.core.sessions.instructions import instructions
from capd.core.sessions.reach import denied_among
from capd.core.sessions.recent_prompts import RecentPrompts
from capd.core.sessions.routing_switch import switched
from capd.core.sessions.session import SessionState, Step
from capd.core.sessions.session_place import Outcome, SessionPlace
from capd.core.sessions.session_record import SessionRecord, recorded, restore
from capd.core.sessions.session_rules import SessionRules
from capd.core.sessions.session_view import SessionView
from capd.core.sessions.surface import Shown, Surface
from capd.runtime.bus import Bus
from capd.runtime.handle_table import HandleTable
from capd_protos import curator as messages
from capd_protos.codec import JsonCodec, MalformedError
from capd_protos.types import (
    CapabilityId,
    CapabilityName,
    ClientFacts,
    InstanceId,
    SessionKey,
    WireName,
)


def session_entry(
    place: SessionPlace, state: SessionState, view: SessionView
) -> messages.SessionEntry:
    """Return what there is to say of a session, without its connection."""
    return messages.SessionEntry(
        key=place.key,
        client=place.client,
        pid=0,
        project=place.project,
        mode=view.plan.mode,
        is_connected=False,
        age=0.0,
        active=[*_capabilities(state), *_single_tools(state)],
        cap=state.active.cap,
        surface=len(state.surface),
        available=state.available,
        surface_chars=len(state.surface.listing()),
        tool_cap=state.active.tool_cap,
        mode_reason=view.reason,
        unlisted=len(state.surface.shown) - len(state.surface.listed),
        parent=place.parent,
        calls=state.active.uses,
        client_title=view.traits.title,
        client_line=view.line,
    )


def _capabilities(state: SessionState) -> list[messages.ActiveEntry]:
    return [
        messages.ActiveEntry(
            "capability" if activation.takes_slot else "dependencies",
            activation.id,
            activation.last_used_at,
            list(state.tools_of(activation.id)),
        )
        for activation in state.active.activations
    ]


def _single_tools(state: SessionState) -> list[messages.ActiveEntry]:
    entries: list[messages.ActiveEntry] = []
    for grant, used_at in state.active.tools.items():
        name, held = state.surface.names[grant], state.held(grant.server)
        assert held is not None
        id_ = CapabilityId(held.spec.tap, CapabilityName(name))
        entries.append(messages.ActiveEntry("tool", id_, used_at, [name]))
    return entries


INDEX_PATIENCE = 1.5


"""Seconds for which a connection's first answer waits for what its instructions are to name."""


RELIST_TIMEOUT = 1.0


"""Seconds that a hook on the session's own connection waits for the client to list again, which
took 8 to 26 ms where a client does it at all (docs/design/clients.md, finding 1)."""


class _CallParams(msgspec.Struct):
    name: str
    arguments: msgspec.Raw = msgspec.Raw(b"")


class _UriParams(msgspec.Struct):
    uri: str


_CALL: JsonCodec[_CallParams] = JsonCodec(_CallParams)


_URI: JsonCodec[_UriParams] = JsonCodec(_UriParams)


_TURN_ARGUMENTS: JsonCodec[hook_context.TurnArguments] = JsonCodec(hook_context.TurnArguments)


class Curator:
    """One session; its connection may come and go."""

    def __init__(
        self,
        place: SessionPlace,
        *,
        bus: Bus,
        instances: HandleTable[InstanceId, Instance],
        environments: SessionEnvironments,
        view: SessionView,
        on_change: Callable[[], None] = lambda: None,
        journal: Journal,
        uses: RecentUses,
        checks: ArgumentChecks | None = None,
        results: ResultStorage | None = None,
        tokens: TokenAccounting | None = None,
        memories: MemoryCatalog | None = None,
        index: IndexCache | None = None,
    ) -> None:
        """`on_change` is called when there is something to write down."""
        self.view = view
        self.tokens = SessionTokenCount(tokens or TokenAccounting(bus), place, view)
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
        self.heard = RecentPrompts()
        # Set once the client has listed the tools as they are; another for each change.
        self._relisted = trio.Event()
        self._bus = bus
        self._environments = environments
        surface = Surface((), is_bare=view.is_bare)
        view.settle(surface)
        active = ActiveSet(view.rules.cap, view.rules.tool_cap)
        self._state = SessionState(active, surface, view.policy)
        self._denials = Denials(bus, view)
        self.index = SessionIndex(index or IndexCache(bus), place, self._state, view, self._denials)
        # Its parts know their session weakly: it ends when nothing uses it, not with a collection.
        peer = weakref.proxy(self)
        self.activation = Activation(
            place,
            self._state,
            bus=bus,
            instances=instances,
            environments=environments,
            on_step=weakly(self._stepped),
            peer=peer,
            journal=journal,
            denials=self._denials,
        )
        self._checks = checks
        self._results: SessionResults | None = None
        self._skills: Skills | None = None
        if not view.is_bare:
            self._skills = Skills(self._state, self.activation, bus)
            if results is not None:
                self._results = SessionResults(results, place.key, bus.publish, lambda: view.reader)
        self._conversations = Conversations(view.rules.memory_tokens)
        self._memories: SessionMemories | None = None
        self._bootstrap: Bootstrapping | None = None
        if memories is not None and not view.is_bare:
            self._bootstrap = Bootstrapping(place, lambda: view.bootstrap, memories.reads)
            self._memories = SessionMemories(
                memories, place, self._state, self._conversations, on_change
            )
            surface.note = weakly(self._memories.note)
        notes = CallNotes(journal, place, active)
        self._relaying = Relaying(
            peer,
            self._state,
            self.activation,
            on_change,
            notes=notes,
            skills=self._skills,
            results=self._results,
            checked=weakly(self._checked),
            withheld=Withheld(bus, self._state),
            memories=self._memories,
            bootstrap=self._bootstrap,
        )
        session = (place, self._state, view, self.activation)
        self.searching = Searching(*session, bus=bus, environments=environments, notes=notes)
        self._turns = Turns(
            *session,
            bus=bus,
            environments=environments,
            uses=uses,
            index=self.index,
            conversations=self._conversations,
            memories=self._memories,
            bootstrap=self._bootstrap,
            on_change=weakly(self._tell_changed),
        )
        self.beginning = Beginning(place, self._state, view, self.activation, environments)
        self._own_calls = OwnCalls(
            *session,
            searching=self.searching,
            relaying=self._relaying,
            environments=environments,
            skills=self._skills,
            results=self._results,
            denials=self._denials,
        )

    @property
    def _log(self) -> FilteringBoundLogger:
        log: FilteringBoundLogger = structlog.get_logger(actor="curator", session=self.place.key)
        return log

    # What outlives the daemon

    def record(self, resume: str) -> SessionRecord:
        """Return the session as it is to be written down."""
        subscribed = self.activation.leases.subscribed.among(self.subscriptions)
        record = recorded(self.place.key, self._state, resume, time.time(), subscribed)
        told, view = self._conversations.kept(), self.view
        return msgspec.structs.replace(
            record, is_routed=view.own_routing, view=view.saved(), **told
        )

    def restore(self, record: SessionRecord, *, is_same_client: bool) -> None:
        """Be the session that was written down; what its client subscribed to is that client's."""
        restore(record, self._state)
        self.view.own_routing = record.is_routed
        if is_same_client:
            self._conversations.restore(record)
            self.subscriptions.update(record.subscriptions)
            self.activation.leases.subscribed.restore(record.subscriptions)
            self._forget_denied()
        self._log.info("session_restored", active=len(self._state.active.activations))

    def _settle(self, client: ClientFacts) -> None:
        """Decide again how the client sees the session, by what it says of itself."""
        # What stands there for a client that says nothing of itself is no client's name.
        info = members_or_none(client.info) if client.info != ClientFacts().info else {}
        self.view.settle(
            self._state.surface,
            text_of(info.get("name")),
            text_of(info.get("version")),
            is_stateless=is_stateless(client),
        )
        if self.view.policy != self._state.policy:
            self.activation.restrict(self.view.policy)
            self._forget_denied()

    def _forget_denied(self) -> None:
        """Hear no more of resources that policy denies by now."""
        subscribed = self.activation.leases.subscribed
        for uri in denied_among(self._state, subscribed.among(self.subscriptions)):
            self.subscriptions.discard(uri)
            subscribed.discard(uri)

    def follow(self, rules: SessionRules) -> None:
        """Go by other rules, as far as they may change for a client that has listed."""
        self.view.follow(rules)
        self._state.active.cap, self._state.active.tool_cap = rules.cap, rules.tool_cap
        self._conversations.follow(rules.memory_tokens)
        if self.view.policy != self._state.policy:
            self.activation.restrict(self.view.policy)

    # What a connection asks

    async def ready(self) -> None:
        """Wait, a moment at most, for what the instructions are to name."""
        with trio.move_on_after(INDEX_PATIENCE):
            await self.index.meet()

    async def settled(self) -> None:
        """Wait as long once more where the client's own words have brought another policy."""
        if self.index.met_as != self.view.policy:
            await self.ready()

    def instructions(self) -> str:
        """Return the stable text for the model."""
        if self.view.plan.mode == "pass-through":
            return ""
        text = instructions(
            dict(self.view.own), is_fixed=self._state.surface.is_fixed, index=self.index.map()
        )
        return self.tokens.instructed(text)

    def met(self, client: ClientFacts) -> None:
        """Note what the client says of itself."""
        if client == self.client:
            return
        self.client = client
        if not self.view.is_settled:
            self._settle(client)

    async def renew_subscriptions(self) -> None:
        """Have servers that ended tell again of what the session wants to hear of."""
        await self._relaying.renew()

    async def listed(self, kind: str) -> list[bytes]:
        """Return the entries of a list, each as the client gets it."""
        match kind:
            case "tools":
                self._relisted.set()
                self.view.listed()
                surface, listed = self._state.surface, self.definitions()
                self.tokens.listed(listed, len(surface) - len(surface.listed), time.time())
                return listed
            case "seen tools":
                return self.definitions()
            case "prompts":
                return await self._relaying.prompts()
            case _:
                return await self._relaying.resources(kind)

    def reach(self) -> messages.ReachDescribed:
        """Return what the session may use."""
        keys = self._environments.keys(self.place.key)
        return messages.ReachDescribed(self.place.key, rules_of(self.view), keys, self.place.domain)

    def switch_routing(self, *, is_on: bool) -> Outcome:
        """Have messages switch capabilities on by themselves, or not."""
        self.view.own_routing = is_on
        self._on_change()
        return Outcome(switched(is_on=is_on))

    def definitions(self) -> list[bytes]:
        """Return the surface, tool by tool."""
        return self._state.surface.definitions()

    def environment(self, values: dict[str, str]) -> None:
        """Take over the client's values."""
        self._environments.put(self.place.key, values)
        self.beginning.heard_values()
        self._log.info("environment_received", keys=sorted(values))

    async def turn(self, text: str) -> bytes:
        """Take a turn on the session's own connection."""
        # It always counts; a hook that hands over the same words behind it does not.
        self.heard.is_again(text, "", time.monotonic())
        taken = await self.take_turn(text)
        self.tokens.turned(documents.words(taken))
        return msgspec.json.encode(documents.turn(taken))

    async def relayed(self, request: Request) -> Result:
        """Return the result of a request of the client's; raises as `replied`."""
        result = await self.replied(request)
        if request.method == "tools/call":
            own = self.view.own.get(WireName(text_of(request.members.get("name"))))
            if own is not None:
                told = self._memories.answered(result) if self._memories else result
                return self.tokens.answered(own.name, told)
        return result

    async def replied(self, request: Request) -> Result:
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
                media = await self._media(request)
                return await self._relaying.resource(request) if media is None else media
            case "completion/complete":
                return await self._relaying.completion(request)
        call = _CALL.decode(joined(request.members))
        shown = self._state.surface.find(call.name)
        if shown is None or self._state.is_leaving(shown.grant):
            own = self.view.own.get(WireName(call.name))
            if own is not None:
                self._ask_for_list()
                return await self._own_calls.called(own, request, call.arguments)
            if call.name == hook_context.TURN and not self.view.is_bare:
                return await self._call_turn(call.arguments)
            shown = await self.searching.reached(call.name)
        return await self._relaying.tool(request, shown)

    def way(self, request: Request) -> DirectRoute | None:
        """Return the way of a tool's call that `relayed` would only pass on, without a wait."""
        shown = self._state.surface.find(text_of(request.members.get("name")))
        if shown is None or self._state.is_leaving(shown.grant):
            return None
        return self._relaying.way(request, shown)

    async def _media(self, request: Request) -> bytes | None:
        """Return an image or audio that became a link, None where the resource is a server's."""
        if self._results is None:
            return None
        return await self._results.media(text_of(request.members.get("uri")))

    def _checked(self, shown: Shown, members: Members) -> None:
        if self._memories is not None:
            self._memories.check(shown, members)
        held = self._state.held(shown.grant.server)
        if self._checks is None or held is None or not self.view.checks_arguments:
            return
        if self.view.is_unchecked(held.spec.name):
            return
        arguments = bytes(members.get("arguments", msgspec.Raw(b"")))
        self._checks.check(shown.name, shown.json, arguments)

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

    def skills_changed(self) -> None:
        """Tell the client that the prompts of skills are others."""
        if self._skills is not None:
            self.tell("notifications/prompts/list_changed", b"")

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

    async def take_turn(
        self, text: str, turn_context: TurnContext | None = None, *, budget: int = 0
    ) -> messages.TurnTaken:
        """Decide on a user's message, and switch on what it asks for."""
        self._ask_for_list()
        taken = await self._turns.taken(text, turn_context, budget=budget)
        if taken.index or taken.bootstrap:
            self._on_change()
        return taken

    async def coming(self, turn_context: TurnContext) -> str:
        """Return what is told of a turn that takes longer than its hook has time."""
        return await self._turns.coming(turn_context)

    def first_words(self, turn_context: TurnContext) -> str:
        """Return what is installed, once a conversation."""
        text = self._turns.index(turn_context)
        if text:
            self._on_change()
        return text

    async def project_files(self, turn_context: TurnContext) -> str:
        """Return the project's own files, once a conversation."""
        text = await self._turns.bootstrap(turn_context)
        if text:
            self._on_change()
        return text

    def heard_in(self, client_session: str) -> None:
        """Note in which of the client's own conversations a message was said, where it is known."""
        if not client_session:
            return
        self.client_sessions.add(client_session)
        if client_session != self._conversations.current.id:
            self._conversations.heard_in(client_session)
            self._on_change()

    async def correct_again(self) -> None:
        """Have tools described without corrections that are known no more."""
        if self._memories is not None and self._memories.drop_notes():
            # By the same policy nothing comes or goes, and every tool is described again.
            await self.activation.step(lambda: self._state.restrict(self._state.policy))

    def entry(self, now: float, opened_at: float, pid: int) -> messages.SessionEntry:
        """Return the session as the status shows it; times in seconds since the epoch."""
        shown = session_entry(self.place, self._state, self.view)
        return msgspec.structs.replace(
            shown,
            pid=pid,
            age=now - opened_at,
            is_connected=self.upstream is not None,
            client_sessions=sorted(self.client_sessions),
            linked_by=self.linked_by,
            **self.tokens.entry(),
            **(self._memories.counts if self._memories is not None else {}),
            **self.index.entry(),
            **(asdict(self._results.counts) if self._results is not None else {}),
        )

    def _stepped(self, step: Step) -> None:
        self._on_change()
        for what in self._relaying.followed():
            self.tell(f"notifications/{what}/list_changed", b"")
        if step.added and self._checks is not None:
            self._checks.expect()
        if self._memories is not None:
            self._memories.stepped()
        self._turns.stepped(step)

    def _tell_changed(self, step: Step) -> None:
        if not step.changes_list:
            return
        self._relisted = trio.Event()
        if self.upstream is not None:
            self.upstream.list_changed("tools")
            self.view.changed()
        self._bus.publish(
            messages.SurfaceChanged(self.place.key, list(step.added), list(step.removed))
        )

    def _ask_for_list(self) -> None:
        """See whether a client lists again of which only the table says that it does not."""
        if self.upstream is not None and self.view.is_to_be_asked:
            self.upstream.list_changed("tools")
            self.view.changed()

    async def _call_turn(self, arguments: msgspec.Raw) -> bytes:
        """Answer a prompt hook on the session's own connection."""
        try:
            hook = _TURN_ARGUMENTS.decode(arguments if len(arguments) else b"{}")
        except MalformedError as error:
            return text_result(f"The arguments are wrong: {error}", is_error=True)
        self.heard_in(hook.session_id)
        self.linked_by = "its own connection"
        if self.heard.is_again(hook.prompt, "", time.monotonic()):
            return text_result(hook_context.hook_output(""))
        taken = await self.take_turn(hook.prompt, TurnContext(is_hook=True))
        is_awaited = self.view.lists_at_once(at_border=True)
        if is_awaited and (taken.added or taken.removed):
            # Answered now, the hook would let the client ask its model with the old list.
            with trio.move_on_after(RELIST_TIMEOUT):
                await self._relisted.wait()
        text = self.tokens.turned(documents.words(taken))
        return text_result(hook_context.hook_output(text))
