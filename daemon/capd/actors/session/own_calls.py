"""A curator's part that answers calls of capd's own tools, each by a method of its own.

The tools themselves are listed in `core/sessions/own_tool_list.py`.
"""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec

from capd.actors.session.activation import Activation
from capd.actors.session.calls import Relaying
from capd.actors.session.installing import reported
from capd.actors.session.leases import NotActivatedError
from capd.actors.session.policy import Denials
from capd.actors.session.results import SessionResults
from capd.actors.session.skills import Skills
from capd.actors.session.tool_search import NotSearchedError, Searching
from capd.adapters.clients.conversation import Request, UnknownNameError
from capd.adapters.clients.session_environment import SessionEnvironments
from capd.core.protocol.generations import raw
from capd.core.protocol.outcomes import text_result
from capd.core.results import reading
from capd.core.results.large_results import Result
from capd.core.sessions import own_tools, search_tools
from capd.core.sessions.domains import is_inside
from capd.core.sessions.own_tool_list import OwnTool, schema_of
from capd.core.sessions.session import SessionState
from capd.core.sessions.session_place import Outcome, SessionPlace
from capd.core.sessions.session_view import SessionView
from capd.core.sessions.skill_prompts import PREFIX
from capd_protos import registry
from capd_protos.codec import JsonCodec, MalformedError
from capd_protos.types import CapabilityId, WireName

T = TypeVar("T")

_CAPABILITY: JsonCodec[own_tools.Arguments] = JsonCodec(own_tools.Arguments)
_SEARCH: JsonCodec[search_tools.SearchArguments] = JsonCodec(search_tools.SearchArguments)
_CALL: JsonCodec[search_tools.CallArguments] = JsonCodec(search_tools.CallArguments)


class OwnCalls:
    """The own tools of one session."""

    def __init__(
        self,
        place: SessionPlace,
        state: SessionState,
        view: SessionView,
        activation: Activation,
        *,
        searching: Searching,
        relaying: Relaying,
        environments: SessionEnvironments,
        skills: Skills | None,
        results: SessionResults | None,
        denials: Denials,
    ) -> None:
        self._denials = denials
        self._place = place
        self._state = state
        self._view = view
        self._activation = activation
        self._searching = searching
        self._relaying = relaying
        self._environments = environments
        self._skills = skills
        self._results = results

    async def called(self, own: OwnTool, request: Request, arguments: msgspec.Raw) -> Result:
        """Return the result of a call of an own tool; raises as `relayed`.

        Arguments that lead to nothing are answered with the tool's schema.
        """
        given = arguments if len(arguments) else msgspec.Raw(b"{}")
        try:
            return await self._answering(own.name)(request, given)
        except MalformedError as error:
            why = f"The arguments are wrong: {error}"
        except (own_tools.BadArgumentsError, search_tools.BadCallError) as error:
            why = str(error)
        except NotSearchedError as error:
            why = str(error)
        schema = schema_of(own).decode()
        name = next((name for name, each in self._view.own.items() if each is own), own.name)
        return text_result(f"{why}\nThe arguments of {name}: {schema}", is_error=True)

    def _answering(self, name: WireName) -> Callable[[Request, msgspec.Raw], Awaitable[Result]]:
        # Made for each call: an object that holds its own methods stays in memory after its end.
        return {
            own_tools.CAPABILITY: self._capability,
            search_tools.TOOL_SEARCH: self._search,
            search_tools.TOOL_CALL: self._call,
            reading.RESULT_READ: self._read,
        }[name]

    # tool_search, tool_call

    async def _search(self, request: Request, arguments: msgspec.Raw) -> Result:
        del request
        asked = search_tools.checked_search(_SEARCH.decode(arguments))
        return text_result(await self._searching.search(asked))

    async def _call(self, request: Request, arguments: msgspec.Raw) -> Result:
        name, inner = search_tools.called(_CALL.decode(arguments))
        if name in self._view.own:
            raise search_tools.BadCallError(f"{name} is capd's own: call it by its name.")
        shown = self._searching.granted(name)
        try:
            shown = shown or await self._searching.reached(name)
        except UnknownNameError as error:
            return text_result(str(error), is_error=True)
        members = {**request.members, "name": raw(name), "arguments": inner}
        return await self._relaying.tool(Request(request.method, members, request.caller), shown)

    # result_read

    async def _read(self, request: Request, arguments: msgspec.Raw) -> Result:
        del request
        assert self._results is not None, "offered only where results are kept"
        return await self._results.read(arguments)

    # capability

    async def _capability(self, request: Request, arguments: msgspec.Raw) -> Result:
        wanted = own_tools.checked(_CAPABILITY.decode(arguments))
        try:
            match wanted.action:
                case "list":
                    outcome = await self._listed()
                case "discover":
                    outcome = await self._discovered(wanted.intent)
                case "enable" if self._skills and wanted.name.startswith(PREFIX):
                    outcome = await self._skills.use(wanted.name.removeprefix(PREFIX))
                case "enable":
                    on_progress = reported(request.caller.progress)
                    outcome = await self._activation.enable(wanted.name, on_progress)
                case _:
                    outcome = await self._activation.disable(wanted.name)
        except NotActivatedError as error:
            outcome = Outcome(str(error), is_ok=False)
        how = self._view.names_to_call(outcome.added, at_border=False)
        text = f"{outcome.text} {how}" if how else outcome.text
        return text_result(text, is_error=not outcome.is_ok)

    async def _listed(self) -> Outcome:
        reply = await self._activation.leases.ask_registry(
            registry.ListCapabilities(self._place.project)
        )
        assert isinstance(reply, registry.CapabilitiesListed)
        # Reversed: where two taps have one name, the first tap's entry stays.
        winners = {e.name: e for e in reversed(reply.capabilities) if e.is_routable}
        domain, denied = self._place.domain, await self._denials.all()
        inside = [e for _, e in sorted(winners.items()) if is_inside(domain, e.domains)]
        shown = [
            self._entry_of(id_, e.triggers, e.wanted_keys)
            for e in inside
            if (id_ := CapabilityId(e.tap, e.name)) not in denied
        ]
        outside = len(winners) - len(inside)
        return Outcome(own_tools.listing(shown, outside, domain, len(inside) - len(shown)))

    async def _discovered(self, intent: str) -> Outcome:
        denied = await self._denials.all()
        reply = await self._activation.leases.ask_registry(
            registry.DiscoverCapabilities(
                intent, domain=self._place.domain, project=self._place.project, denied=denied
            )
        )
        if not isinstance(reply, registry.CapabilitiesFound):
            return Outcome(own_tools.MODEL_NOT_READY, is_ok=False)
        hits = [
            self._entry_of(hit.id, hit.triggers, hit.wanted_keys, hit.score) for hit in reply.hits
        ]
        skills = await self._skills.found(intent, denied) if self._skills else ""
        return Outcome(own_tools.discovered(intent, hits, len(denied)) + skills)

    def _entry_of(
        self,
        capability: CapabilityId,
        triggers: list[str],
        wanted: list[str],
        score: float | None = None,
    ) -> own_tools.Listed:
        values = self._environments.values(self._place.key)
        missing = [key for key in wanted if not values.get(key)]
        is_active = capability in self._state.active
        return own_tools.Listed(capability, triggers, missing, is_active, score)
