"""Answers calls of capd's own tools; each tool has a method that answers its calls.

The tools themselves are listed in `core/sessions/own_tool_list.py`.
"""

from collections.abc import Awaitable, Callable

import msgspec

from capd.actor_clients.names import REGISTRY
from capd.actors.session.asking import must_answer
from capd.actors.session.installing import progress_callback
from capd.actors.session.parts import SessionParts
from capd.actors.session.scripts import SessionScripts
from capd.actors.session.tool_search import NotSearchedError, ToolSearch
from capd.adapters.clients.conversation import Request, UnknownNameError
from capd.core.protocol.generations import raw
from capd.core.protocol.outcomes import text_result
from capd.core.results import reading
from capd.core.results.large_results import Result
from capd.core.scripts import script_tool
from capd.core.sessions import own_tools, search_tools
from capd.core.sessions.domains import is_inside
from capd.core.sessions.own_tool_list import OwnTool, schema_of
from capd.core.sessions.session_place import NotActivatedError, Outcome
from capd.core.sessions.skill_prompts import PREFIX
from capd_protos import registry
from capd_protos.codec import JsonCodec, MalformedError
from capd_protos.types import CapabilityId, WireName

CallByName = Callable[[str, Request, bool], Awaitable[Result]]
"""Calls a tool by its name; the last argument says whether it has to be read-only."""

_CAPABILITY: JsonCodec[own_tools.Arguments] = JsonCodec(own_tools.Arguments)
_SEARCH: JsonCodec[search_tools.SearchArguments] = JsonCodec(search_tools.SearchArguments)
_CALL: JsonCodec[search_tools.CallArguments] = JsonCodec(search_tools.CallArguments)


class OwnCalls:
    """Answers calls of capd's own tools, for one session."""

    def __init__(self, parts: SessionParts, search: ToolSearch, scripts: SessionScripts) -> None:
        self._scripts = scripts
        self._denials = parts.denials
        self._place = parts.context.place
        self._state = parts.context.state
        self._view = parts.context.view
        self._activation = parts.activation
        self._search_tools = search
        self._environments = parts.context.services.environments
        self._registry = parts.context.services.registry
        self._skills = parts.skills
        self._results = parts.results

    async def call(
        self, own: OwnTool, request: Request, arguments: msgspec.Raw, call_by_name: CallByName
    ) -> Result:
        """Call one of capd's own tools; return its result, or raise as `Conversation.relay`.

        If the arguments are invalid, the answer contains the tool's schema. `call_by_name` carries
        out the call that `tool_call` or `tool_call_readonly` names.
        """
        given = arguments if len(arguments) else msgspec.Raw(b"{}")
        try:
            if own.name in {search_tools.TOOL_CALL, search_tools.TOOL_CALL_READONLY}:
                is_read_only = own.name == search_tools.TOOL_CALL_READONLY
                return await self._call(request, given, call_by_name, is_read_only=is_read_only)
            return await self._answering(own.name)(request, given)
        except MalformedError as error:
            why = f"The arguments are wrong: {error}"
        except (own_tools.BadArgumentsError, search_tools.BadCallError) as error:
            why = str(error)
        except (NotSearchedError, script_tool.BadScriptError) as error:
            why = str(error)
        schema = schema_of(own).decode()
        name = next((name for name, each in self._view.own.items() if each is own), own.name)
        return text_result(f"{why}\nThe arguments of {name}: {schema}", is_error=True)

    def _answering(self, name: WireName) -> Callable[[Request, msgspec.Raw], Awaitable[Result]]:
        # Built for each call: a stored table of bound methods would be a reference cycle, which
        # only the garbage collector ends.
        return {
            own_tools.CAPABILITY: self._capability,
            search_tools.TOOL_SEARCH: self._search,
            reading.RESULT_READ: self._read,
            script_tool.SCRIPT_RUN: self._scripts.run,
        }[name]

    # tool_search, tool_call

    async def _search(self, request: Request, arguments: msgspec.Raw) -> Result:
        del request
        asked = search_tools.checked_search(_SEARCH.decode(arguments))
        return text_result(await self._search_tools.search(asked))

    async def _call(
        self,
        request: Request,
        arguments: msgspec.Raw,
        call_by_name: CallByName,
        *,
        is_read_only: bool,
    ) -> Result:
        name, inner = search_tools.called(_CALL.decode(arguments))
        members = {**request.members, "name": raw(name), "arguments": inner}
        try:
            inside = Request(request.method, members, request.caller)
            return await call_by_name(name, inside, is_read_only)
        except UnknownNameError as error:
            return text_result(str(error), is_error=True)

    # result_read

    async def _read(self, request: Request, arguments: msgspec.Raw) -> Result:
        del request
        return await self._results.read(arguments)

    # capability

    async def _capability(self, request: Request, arguments: msgspec.Raw) -> Result:
        wanted = own_tools.checked(_CAPABILITY.decode(arguments))
        try:
            match wanted.action:
                case "list":
                    outcome = await self._list()
                case "discover":
                    outcome = await self._discover(wanted.intent)
                case "enable" if wanted.name.startswith(PREFIX):
                    outcome = await self._skills.use(wanted.name.removeprefix(PREFIX))
                case "enable":
                    on_progress = progress_callback(request.caller.progress)
                    outcome = await self._activation.enable(wanted.name, on_progress)
                case _:
                    outcome = await self._activation.disable(wanted.name)
        except NotActivatedError as error:
            outcome = Outcome(str(error), is_ok=False)
        listed = {each.name for each in self._state.surface.listed}
        how = self._view.names_to_call(outcome.added, listed, at_border=False)
        text = f"{outcome.text} {how}" if how else outcome.text
        return text_result(text, is_error=not outcome.is_ok)

    async def _list(self) -> Outcome:
        with must_answer(REGISTRY):
            entries = await self._registry.capabilities(self._place.project)
        # Reversed, so that of two capabilities with the same name the first tap's stays.
        winners = {e.name: e for e in reversed(entries) if e.is_routable}
        domain, denied = self._place.domain, await self._denials.all()
        inside = [e for _, e in sorted(winners.items()) if is_inside(domain, e.domains)]
        shown = [
            self._entry_of(id_, e.triggers, e.wanted_keys)
            for e in inside
            if (id_ := CapabilityId(e.tap, e.name)) not in denied
        ]
        outside = len(winners) - len(inside)
        return Outcome(own_tools.listing(shown, outside, domain, len(inside) - len(shown)))

    async def _discover(self, intent: str) -> Outcome:
        denied = await self._denials.all()
        request = registry.DiscoverCapabilities(
            intent, domain=self._place.domain, project=self._place.project, denied=denied
        )
        with must_answer(REGISTRY):
            reply = await self._registry.discover(request)
        if not isinstance(reply, registry.CapabilitiesFound):
            return Outcome(own_tools.MODEL_NOT_READY, is_ok=False)
        hits = [
            self._entry_of(hit.id, hit.triggers, hit.wanted_keys, hit.score) for hit in reply.hits
        ]
        skills = await self._skills.found(intent, denied)
        return Outcome(own_tools.discovered(intent, hits, len(denied)) + skills)

    def _entry_of(
        self,
        capability: CapabilityId,
        triggers: list[str],
        wanted: list[str],
        score: float | None = None,
    ) -> own_tools.ListedCapability:
        values = self._environments.values(self._place.key)
        missing = [key for key in wanted if not values.get(key)]
        is_active = capability in self._state.active
        return own_tools.ListedCapability(capability, triggers, missing, is_active, score)
