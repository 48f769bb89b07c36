"""A curator's part that reaches tools that are not switched on: by a search, or by their name.

What it finds is switched on as single tools, from what is known of them: no server is started
before a call needs it. Whose list is not known is not found here, and every answer says so.
"""

import time

import structlog

from capd.actors.session.activation import Activation
from capd.actors.session.calls import CallNotes
from capd.actors.session.policy import rules_of
from capd.actors.session.withheld import Withheld
from capd.adapters.clients.conversation import UnknownNameError
from capd.adapters.clients.session_environment import SessionEnvironments
from capd.core.protocol.outcomes import CallFailedError, NotSentError, RefusedError
from capd.core.sessions import search_reply
from capd.core.sessions.active_set import Grant
from capd.core.sessions.own_tools import echo
from capd.core.sessions.search_tools import SearchArguments
from capd.core.sessions.session import SessionState, SingleTool
from capd.core.sessions.session_place import SessionPlace
from capd.core.sessions.session_view import SessionView
from capd.core.sessions.surface import Shown
from capd.core.tools.tool_question import SELECT
from capd.runtime.bus import Bus
from capd.runtime.peer import AskFailedError, AskTimeoutError, PeerUnreachableError
from capd_protos import finder
from capd_protos.codec import MsgpackCodec
from capd_protos.naming import near_names
from capd_protos.types import ActorName, ServerIdentity, ToolDefinition, WireName

FINDER = ActorName("finder")
REPLIES: MsgpackCodec[finder.Reply] = MsgpackCodec(finder.Reply)
ASK_TIMEOUT = 10.0
DESCRIBE_TIMEOUT = 4.0
"""Less than the gateway gives a session to begin."""
_UNANSWERED = (AskTimeoutError, PeerUnreachableError, AskFailedError)


class NotSearchedError(Exception):
    """No search took place; the text says why."""


class Searching:
    """The tools of the catalog, as one session may use them."""

    def __init__(
        self,
        place: SessionPlace,
        state: SessionState,
        view: SessionView,
        activation: Activation,
        *,
        bus: Bus,
        environments: SessionEnvironments,
        notes: CallNotes,
    ) -> None:
        self._place = place
        self._state = state
        self._view = view
        self._activation = activation
        self._bus = bus
        self._environments = environments
        self._notes = notes
        self._withheld = Withheld(bus, state)
        self._log = structlog.get_logger(actor="curator", session=place.key)

    async def search(self, asked: SearchArguments) -> str:
        """Return the answer of `tool_search`, with what fits best switched on.

        Raises:
            NotSearchedError: the question leads to none, or nobody answers it.
        """
        request = finder.FindTools(
            asked.query,
            asked.max_results,
            self._state.active.tool_cap,
            rules=rules_of(self._view),
            keys=self._environments.keys(self._place.key),
            project=self._place.project,
            domain=self._place.domain,
        )
        try:
            found = await self._bus.ask(FINDER, request, REPLIES, ASK_TIMEOUT)
        except _UNANSWERED as error:
            raise NotSearchedError(f"capd's finder does not answer: {error}") from None
        if isinstance(found, finder.FinderRefused):
            raise NotSearchedError(found.message)
        assert isinstance(found, finder.ToolsFound)
        names = [self._name(hit) for hit in found.hits]
        detail = asked.detail
        if asked.query.strip().startswith(SELECT):
            detail = detail or "full"
        shown = [
            search_reply.Shown(name, hit.definition)
            for name, hit in zip(names, found.hits, strict=True)
        ]
        reply = search_reply.laid_out(shown, detail)
        full = set(reply.full)
        tools = [single(hit) for name, hit in zip(names, found.hits, strict=True) if name in full]
        step = await self._activation.step(
            lambda: self._state.activate_tools(tools, time.time()), by="search"
        )
        on = [name for name in reply.full if self.granted(name) is not None]
        listed = {each.name for each in self._state.surface.listed}
        return search_reply.written(
            reply,
            on=on,
            evicted=step.evicted_tools,
            notes=found.text,
            is_listed=self._view.lists_at_once(at_border=False) and listed.issuperset(on),
            caller=self._view.caller,
        )

    async def reached(self, name: str) -> Shown:
        """Return a tool that was not on, switched on by itself and with its server running.

        Raises:
            UnknownNameError: no known tool has this name.
            RefusedError: the session may not use it.
            NotSentError: its server cannot be had, or has it no longer.
        """
        if self._view.is_bare:
            await self._withheld.refuse(name)
            self._refuse_what_left(name)
            raise UnknownNameError(f"No tool {echo(name)}.")
        looked_up = await self._looked_up(name)
        hit = looked_up.hit
        if hit is None:
            await self._withheld.refuse(name)
            self._refuse_what_left(name)
            raise UnknownNameError(self._unknown(name, looked_up))
        try:
            return await self._switched_on(name, hit, looked_up.restriction)
        except CallFailedError as error:
            self._notes.not_sent(Grant(hit.identity, hit.name), hit.server, error)
            raise

    async def _switched_on(
        self, name: str, hit: finder.ToolHit, restriction: finder.ToolRestriction | None
    ) -> Shown:
        if restriction is not None:
            raise RefusedError(f"{name} cannot be called: {restriction.reason}.")
        tool = single(hit)
        wire = self._name(hit)
        await self._activation.step(
            lambda: self._state.activate_tools([tool], time.time()), by="search"
        )
        if self.granted(wire) is not None:
            # Only the running server says whether it still has the tool.
            await self._activation.instance(hit.identity)
        shown = self.granted(wire)
        if shown is None:
            await self._withheld.refuse(name)
            raise NotSentError(
                f"{tool.spec.name} does not offer {hit.name} any more. The call was not sent."
            )
        self._log.info("tool_reached", tool=wire)
        return shown

    def granted(self, name: str) -> Shown | None:
        """Return the tool of this name, if it is on."""
        shown = self._state.surface.find(name)
        return None if shown is None or self._state.is_leaving(shown.grant) else shown

    def _refuse_what_left(self, name: str) -> None:
        """Say of a tool that the session had how its call ends: it is no unknown name.

        Raises:
            RefusedError: it was on, and is denied by now.
            NotSentError: it was on.
        """
        known = self._state.surface.known(name)
        if known is None:
            return
        held = self._state.held(known.server)
        if held is not None:
            restriction = self._state.policy.restriction(held.spec.name, known.tool)
            if restriction is not None:
                raise RefusedError(f"{name} cannot be called: {restriction.reason}.")
        why = (
            f"{held.spec.name} does not offer {known.tool} any more"
            if held is not None
            else "its server was switched off, replaced or removed"
        )
        raise NotSentError(f"{name} is not on any more: {why}. The call was not sent.")

    async def _looked_up(self, name: str) -> finder.ToolLookedUp:
        known = self._state.surface.known(name)
        request = finder.LookUpTool(
            known.tool if known else name,
            known.server if known else ServerIdentity(""),
            rules_of(self._view),
            self._environments.keys(self._place.key),
            self._place.project,
            self._place.domain,
        )
        try:
            reply = await self._bus.ask(FINDER, request, REPLIES, ASK_TIMEOUT)
        except _UNANSWERED as error:
            self._log.warning("not_looked_up", reason=str(error))
            return finder.ToolLookedUp()
        assert isinstance(reply, finder.ToolLookedUp)
        return reply

    def _unknown(self, name: str, looked_up: finder.ToolLookedUp) -> str:
        shown = [tool.name for tool in self._state.surface.shown]
        close = near_names(name, [*shown, *self._state.surface.own])
        near = list(dict.fromkeys([*close, *looked_up.near]))[:3]
        hint = f" Near names: {', '.join(near)}." if near else ""
        where = f"No tool {echo(name)} is on, and none of the {looked_up.searched} known tools"
        unlisted = looked_up.unlisted
        gap = f" {unlisted} servers were never asked for theirs (capd index)." if unlisted else ""
        finds = next(iter(self._view.own), "capd search")
        return f"{where} has that name.{hint}{gap} The tool `{finds}` finds others."

    def _name(self, hit: finder.ToolHit) -> WireName:
        return self._state.surface.name(Grant(hit.identity, hit.name), hit.server, hit.name)


def single(hit: finder.ToolHit) -> SingleTool:
    """Return a hit as what can be switched on."""
    assert hit.spec is not None
    assert hit.via is not None
    definition = ToolDefinition(hit.name, hit.definition)
    return SingleTool(hit.spec, hit.identity, definition, hit.via)


async def described(
    bus: Bus, view: SessionView, *, waits: bool = False
) -> finder.ToolsDescribed | None:
    """Return what there is for a session, None where nobody says.

    With `waits`, or where it has pins, not before the catalog was read, or a few seconds.
    """
    patterns = list(view.patterns)
    request = finder.DescribeTools(
        patterns,
        rules_of(view),
        waits=waits or bool(patterns),
        project=view.project,
        domain=view.domain,
    )
    try:
        reply = await bus.ask(FINDER, request, REPLIES, DESCRIBE_TIMEOUT)
    except _UNANSWERED:
        return None
    return reply if isinstance(reply, finder.ToolsDescribed) else None
