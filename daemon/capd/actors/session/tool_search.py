"""Finds tools that are not switched on in a session, by a search or by name.

A tool that is found is switched on as a single tool, by its cached definition. Its server is
started by the first call. If a server has never listed its tools, and no tap records them, they
cannot be found. The answer names such servers. A wire name is the name under which clients know a
tool.
"""

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec
import structlog
from structlog.typing import FilteringBoundLogger

from capd.actor_clients.finder import FinderClient
from capd.actors.session.activation import Activation, By
from capd.actors.session.call_notes import CallNotes
from capd.actors.session.curation import Curation, single
from capd.actors.session.policy import rules_of
from capd.actors.session.services import SessionContext
from capd.actors.session.withheld import WithheldTools
from capd.adapters.clients.conversation import UnknownNameError
from capd.core.protocol.outcomes import CallFailedError, NotSentError, RefusedError
from capd.core.scripts.script_tool import SCRIPT_RUN
from capd.core.sessions.active_set import Grant
from capd.core.sessions.admission import ActiveTool, active_tool, denied, refusal_of
from capd.core.sessions.conversations import Conversations, card_key
from capd.core.sessions.own_tools import echo
from capd.core.sessions.search_tools import SearchArguments
from capd.core.sessions.session_place import NotActivatedError
from capd.core.sessions.session_view import SessionView
from capd.core.sessions.turn_cards import further_cards
from capd.core.tools.tool_question import SELECT
from capd.core.tools.tool_search import Restriction
from capd.runtime.bus import ActorUnavailableError
from capd_protos import finder
from capd_protos.naming import near_names
from capd_protos.types import Decision, ServerIdentity, WireName

if TYPE_CHECKING:
    from capd.core.sessions import search_reply

ASK_TIMEOUT = 10.0
DESCRIBE_TIMEOUT = 4.0
"""Seconds; less than the gateway allows for opening a session."""


HITS_OF_EACH = 3
"""Hits for each question, if one call has several."""
RELATED_TOKENS = 80
"""The most tokens of the signatures of related tools, which follow the hits."""
SKILL_THRESHOLD = 0.35
"""The score that a skill needs to be named in a search."""


class NotSearchedError(Exception):
    """The search could not be made; the text says why."""


class ToolSearch:
    """Searches the catalog's tools on behalf of one session."""

    def __init__(
        self,
        context: SessionContext,
        activation: Activation,
        notes: CallNotes,
        withheld: WithheldTools,
        conversations: Conversations,
    ) -> None:
        self._place = context.place
        self._state = context.state
        self._view = context.view
        self._activation = activation
        self._finder = context.services.finder
        self._environments = context.services.environments
        self._notes = notes
        self._withheld = withheld
        self._curation = Curation(context, activation)
        self._costs = context.services.index.costs
        self._conversations = conversations

    @property
    def _log(self) -> FilteringBoundLogger:
        # Most sessions log nothing here, and a kept logger is 200 bytes.
        log: FilteringBoundLogger = structlog.get_logger(actor="curator", session=self._place.key)
        return log

    async def search(self, asked: SearchArguments) -> str:
        """Answer a call of `tool_search` with a text, and switch on the tools that fit best.

        Raises:
            NotSearchedError: the arguments contain no question, or the finder does not answer.
        """
        questions = asked.questions
        found = [await self._find(asked, each) for each in questions]
        # A tool that two questions find is shown with the first one.
        hits: dict[WireName, finder.ToolHit] = {}
        # Imported with the first search, because it brings the code that writes signatures.
        from capd.core.sessions import search_reply  # noqa: PLC0415

        answers: list[search_reply.QuestionAnswer] = []
        for question, each in zip(questions, found, strict=True):
            new = {self._name(hit): hit for hit in each.hits}
            shown = [
                search_reply.ShownHit(name, hit.definition, hit.server, hit.name)
                for name, hit in new.items()
                if name not in hits
            ]
            hits = {**new, **hits}
            detail = asked.detail
            if question.strip().startswith(SELECT):
                detail = detail or "full"
            reply = search_reply.lay_out(shown, detail)
            answers.append(search_reply.QuestionAnswer(question, reply, each.text))
        full = [name for answer in answers for name in answer.reply.full]
        tools = [single(hits[name]) for name in full]
        # The answer says how the tools are called, so a later turn needs no card for them.
        self._conversations.current.note_cards(
            card_key(Grant(each.identity, each.definition.name), each.definition.json)
            for each in tools
        )
        grants = [Grant(each.identity, each.definition.name) for each in tools]
        # Tools of the same answer do not evict each other.
        step = await self._activation.step(
            lambda: self._state.activate_tools(tools, time.time(), grants), by="search"
        )
        beside = await self._related_signatures(asked, answers, hits)
        on = [name for name in full if self._listed(name) is not None]
        listed = {each.name for each in self._state.surface.listed}
        skills = [hit for each in found for hit in each.skills]
        written = search_reply.reply_text(
            answers,
            on=on,
            evicted=step.evicted_tools,
            skills={
                hit.prompt: hit.skill.description for hit in skills if hit.score >= SKILL_THRESHOLD
            },
            is_listed=self._view.lists_at_once(at_border=False) and listed.issuperset(on),
            names=search_reply.OwnNames(
                self._view.caller, self._view.enabler, self._view.read_only_caller or ""
            ),
            beside=beside,
        )
        is_many = len(hits) > 1 and self._view.has_caller and not self._view.scripts_refusal
        return f"{written}\n{self._script_hint()}" if is_many else written

    def _script_hint(self) -> str:
        """Return the hint that one script can make several calls."""
        if self._view.has_script_tool:
            return f"Three or more calls: one {SCRIPT_RUN}."
        return f"Three or more calls: {self._view.caller} {SCRIPT_RUN}, code: Python."

    async def _related_signatures(
        self,
        asked: SearchArguments,
        answers: "Sequence[search_reply.QuestionAnswer]",
        hits: Mapping[WireName, finder.ToolHit],
    ) -> str:
        """Return the signatures of more tools of the best result's capability, as a text.

        The model may call these next. The text is empty if the client lists active tools by itself,
        if the question selects tools by name, or if the call names a level of detail.
        """
        first = next((each for each in answers if each.reply.full), None)
        is_listed = self._view.lists_at_once(at_border=False)
        if first is None or asked.detail or is_listed or first.question.startswith(SELECT):
            return ""
        via = hits[first.reply.full[0]].via
        conversation = self._conversations.current
        ranked = await self._curation.within(first.question, Decision("activate", id=via))
        others = [
            each
            for each in self._curation.candidates(ranked.hits)
            if each.key not in conversation.cards and each.card.name not in hits
        ]
        used = frozenset(each.card.name for each in others if each.is_used)
        cards = further_cards([each.card for each in others], self._costs, RELATED_TOKENS, used)
        conversation.note_cards(each.key for each in others if each.card.name in cards.names)
        return cards.text

    async def _find(self, asked: SearchArguments, question: str) -> finder.ToolsFound:
        is_alone = len(asked.questions) == 1
        request = finder.FindTools(
            question,
            asked.max_results if is_alone else min(asked.max_results, HITS_OF_EACH),
            self._state.active.tool_cap,
            rules=rules_of(self._view),
            keys=self._environments.keys(self._place.key),
            project=self._place.project,
            domain=self._place.domain,
            capability=asked.capability,
            category=asked.category,
        )
        try:
            found = await self._finder.find_tools(request, timeout=ASK_TIMEOUT)
        except ActorUnavailableError as error:
            raise NotSearchedError(f"capd's finder does not answer: {error}. Try again.") from None
        if isinstance(found, finder.FinderRefused):
            raise NotSearchedError(found.message)
        hits = [hit for hit in found.hits if self._off(hit) is None]
        return found if hits == found.hits else msgspec.structs.replace(found, hits=hits)

    def _off(self, hit: finder.ToolHit) -> Restriction | None:
        """Return why policy or profile forbid a tool's whole capability; None if they do not."""
        return None if hit.via is None else self._view.policy.restrict_capability(hit.via)

    async def reach(self, name: str) -> ActiveTool:
        """Switch on a single tool by name, start its server, and return it.

        Raises:
            UnknownNameError: no known tool has this name.
            RefusedError: the session may not use the tool.
            NotSentError: the tool's server could not be started, no longer has the tool, or is not
                in the catalog any more.
        """
        looked_up = finder.ToolLookedUp() if self._view.is_bare else await self._look_up(name)
        hit = looked_up.hit
        if hit is None:
            await self._withheld.refuse(name)
            if looked_up.restriction is not None:
                raise RefusedError(denied(name, looked_up.restriction.reason))
            refusal = refusal_of(name, self._state)
            raise refusal or UnknownNameError(self._unknown(name, looked_up))
        try:
            return await self._switch_on(name, hit, looked_up.restriction)
        except CallFailedError as error:
            self._notes.not_sent(Grant(hit.identity, hit.name), hit.server, error)
            raise

    async def bring(self, name: str) -> WireName | None:
        """Switch on a single tool by name, without starting its server; return its wire name.

        Return None if no known tool has this name.

        Raises:
            RefusedError: the session may not use the tool.
            NotSentError: the tool's server is not in the catalog any more, or the registry does not
                answer.
        """
        shown = self._listed(WireName(name))
        if shown is not None:
            return shown.shown.name
        looked_up = await self._look_up(name)
        hit = looked_up.hit
        if hit is None:
            if looked_up.restriction is not None:
                raise RefusedError(denied(name, looked_up.restriction.reason))
            return None
        wire = await self._add(name, hit, looked_up.restriction, by="skill")
        return wire if self._listed(wire) is not None else None

    async def _add(
        self,
        name: str,
        hit: finder.ToolHit,
        restriction: finder.ToolRestriction | None,
        *,
        by: By = "search",
    ) -> WireName:
        """Switch on a tool that the finder has looked up; return the tool's wire name.

        Raises:
            RefusedError: the session may not use the tool.
            NotSentError: the tool's server is not in the catalog any more, or the registry does not
                answer.
        """
        off = self._off(hit)
        reason = restriction.reason if restriction is not None else off.reason if off else ""
        if reason:
            raise RefusedError(denied(name, reason))
        tool = single(hit)
        await self._check_catalog(hit)
        await self._activation.step(lambda: self._state.activate_tools([tool], time.time()), by=by)
        return self._name(hit)

    async def _switch_on(
        self, name: str, hit: finder.ToolHit, restriction: finder.ToolRestriction | None
    ) -> ActiveTool:
        wire = await self._add(name, hit, restriction)
        if self._listed(wire) is not None:
            # Only the running server says whether it still has the tool.
            await self._activation.instance(hit.identity)
        listed = self._listed(wire)
        if listed is None:
            await self._withheld.refuse(name)
            raise NotSentError(f"{hit.server} no longer offers {hit.name}. The call was not sent.")
        self._log.info("tool_reached", tool=wire)
        return listed

    async def _check_catalog(self, hit: finder.ToolHit) -> None:
        """Check with the registry that the catalog still has a tool's server.

        The finder follows changes of the catalog a moment later than the registry.

        Raises:
            NotSentError: the server is gone, or the registry does not answer.
        """
        if hit.via is None:
            return
        try:
            is_there = await self._activation.still_has(hit.via, hit.identity)
        except NotActivatedError as error:
            raise NotSentError(f"{error} The call was not sent.") from None
        if not is_there:
            raise NotSentError(f"{hit.server} is no longer in the catalog. The call was not sent.")

    async def known_tools(self, names: Sequence[str]) -> dict[str, finder.ToolHit]:
        """Return the known tools that `names` name, by name, whether permitted or not."""
        found: dict[str, finder.ToolHit] = {}
        for name in names:
            hit = (await self._look_up(name)).hit
            if hit is not None:
                found[name] = hit
        return found

    def _listed(self, name: str) -> ActiveTool | None:
        return active_tool(self._state.surface.find(name), self._state, self._view)

    async def _look_up(self, name: str) -> finder.ToolLookedUp:
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
            return await self._finder.look_up(request, timeout=ASK_TIMEOUT)
        except ActorUnavailableError as error:
            self._log.warning("not_looked_up", reason=str(error))
            return finder.ToolLookedUp()

    def _unknown(self, name: str, looked_up: finder.ToolLookedUp) -> str:
        if self._view.is_bare:
            return f"No tool {echo(name)}."
        shown = [tool.name for tool in self._state.surface.shown]
        close = near_names(name, [*shown, *self._state.surface.own])
        near = list(dict.fromkeys([*close, *looked_up.near]))[:3]
        hint = f" Near names: {', '.join(near)}." if near else ""
        where = f"No tool {echo(name)} is on, and none of the {looked_up.searched} known tools"
        unlisted = looked_up.unlisted
        servers = "1 server was" if unlisted == 1 else f"{unlisted} servers were"
        gap = f" {servers} never asked for theirs (capd index)." if unlisted else ""
        finds = next(iter(self._view.own), "capd search")
        return f"{where} has that name.{hint}{gap} The tool `{finds}` finds others."

    def _name(self, hit: finder.ToolHit) -> WireName:
        return self._state.surface.name(Grant(hit.identity, hit.name), hit.server, hit.shown_name)


async def described(
    finder_client: FinderClient, view: SessionView, *, waits: bool = False
) -> finder.ToolsDescribed | None:
    """Ask the finder how many tools a session may use, and which of them match its pins.

    Return the answer; None if the finder does not answer.

    With `waits`, or if the session has pins, wait a few seconds for the catalog to load.
    """
    patterns = list(view.patterns)
    request = finder.DescribeTools(
        patterns,
        rules_of(view),
        waits=waits or bool(patterns),
        project=view.project,
        domain=view.domain,
        whole_bytes=view.whole_bytes,
    )
    try:
        return await finder_client.describe(request, timeout=DESCRIBE_TIMEOUT)
    except ActorUnavailableError:
        return None
