"""Switches on what a client's own skill names, when the skill is used (docs/skills.md).

    the client's hook for a skill, or its name in a message
        ──> its SKILL.md, read in the parser process ──> tools by name, then capabilities

The same rules apply as when a model switches them on: the session's policy, and trust in what a
project's files define. A tool starts no server before its first call.
"""

from dataclasses import dataclass, field
from functools import partial

import structlog
import trio

from capd.actors.session.activation import Activation
from capd.actors.session.services import SessionContext
from capd.actors.session.tool_search import ToolSearch
from capd.adapters.client_skill_files import ClientSkill
from capd.core.protocol.outcomes import CallFailedError
from capd.core.sessions.client_skills import SkillNeeds, brought, is_skill_name, named_in
from capd.core.sessions.session_place import Outcome
from capd.runtime.boundary import contained
from capd_protos.types import WireName

START_PATIENCE = 3.0
"""Seconds for which an answer waits for servers. What takes longer is switched on afterwards."""
USE_TIMEOUT = 45.0
"""Seconds for all capabilities of one skill."""

NOTHING = Outcome("")

log = structlog.get_logger(actor="curator")


@dataclass(slots=True)
class SkillTools:
    """What a client's skill switched on: its tools, and the reasons why others stayed off."""

    skill: str
    names: list[WireName] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    is_over: trio.Event = field(default_factory=trio.Event)
    """Set when the skill's tools and capabilities were tried, or `USE_TIMEOUT` has passed."""


def reads_skills(context: SessionContext) -> bool:
    """Tell whether a session uses the skills of its client."""
    # The skills of a client behind a bridge are in folders of the other machine. A bare session
    # switches nothing on.
    return not context.place.bridge and not context.view.is_bare


class ClientSkills:
    """Finds and uses the skills of the client, in one session."""

    def __init__(self, context: SessionContext, activation: Activation, search: ToolSearch) -> None:
        self._context = context
        self._activation = activation
        self._search = search
        self.nursery: trio.Nursery | None = None
        """Runs the starts that take longer than an answer may wait."""

    async def use(self, name: str) -> Outcome:
        """Switch on the tools and capabilities that a client's skill names.

        The outcome has the text for the model, and the names of the tools that are new. Both are
        empty if there is no skill called `name`, or if the skill names no tool or capability.
        """
        if not is_skill_name(name) or not self._is_able:
            return NOTHING
        known = await self._context.services.client_skills.known(self._context.place.project)
        skill = known.get(name)
        return await self._used(skill) if skill is not None else NOTHING

    async def use_named(self, message: str) -> Outcome:
        """Use the client's skills that a user's message names, at most three, as `use` does.

        Return the outcomes as one.
        """
        if not self._is_able:
            return NOTHING
        known = await self._context.services.client_skills.known(self._context.place.project)
        of_project = {name for name, skill in known.items() if skill.is_of_project}
        used = [await self._used(known[name]) for name in named_in(message, known, of_project)]
        text = "\n".join(each.text for each in used if each.text)
        return Outcome(text, tuple(name for each in used for name in each.added))

    @property
    def _is_able(self) -> bool:
        return reads_skills(self._context)

    async def _used(self, skill: ClientSkill) -> Outcome:
        needs = await self._context.services.client_skills.needs(skill)
        key = self._context.place.key
        if needs.error:
            log.info("skill_not_read", session=key, skill=skill.name, reason=needs.error)
        if needs.is_empty:
            return NOTHING
        before = {each.name for each in self._context.state.surface.shown}
        done = SkillTools(skill.name)
        switch_on = partial(self._switch_on, needs, done)
        switch = partial(contained, "skill", switch_on, log=log)
        if self.nursery is None:
            await switch()
        else:
            self.nursery.start_soon(switch)
            with trio.move_on_after(START_PATIENCE):
                await done.is_over.wait()
        log.info("skill_used", session=key, skill=skill.name, tools=list(done.names))
        listed = {each.name for each in self._context.state.surface.listed}
        how = self._context.view.names_to_call(done.names, listed, at_border=True)
        text = brought(done.skill, done.names, done.failed, how)
        return Outcome(text, tuple(name for name in done.names if name not in before))

    async def _switch_on(self, needs: SkillNeeds, done: SkillTools) -> None:
        try:
            unknown = await self._bring_tools(needs, done)
            wanted = dict.fromkeys((*needs.capabilities, *unknown))
            with trio.move_on_after(USE_TIMEOUT):
                for capability in wanted:
                    await self._enable(capability, done)
        finally:
            done.is_over.set()

    async def _bring_tools(self, needs: SkillNeeds, done: SkillTools) -> list[str]:
        """Switch on the tools that a skill names.

        Return the servers of the tools that are unknown, as the tools' names (`SERVER__TOOL`) give
        them. The tools of a server that has never run are unknown, unless a tap records them. The
        caller then tries the server's name as the name of a capability.
        """
        unknown: list[str] = []
        for name in needs.tools:
            try:
                brought_tool = await self._search.bring(name)
            except CallFailedError as error:
                done.failed.append(str(error))
                continue
            if brought_tool is None:
                unknown.append(name.partition("__")[0])
            else:
                done.names.append(brought_tool)
        return unknown

    async def _enable(self, capability: str, done: SkillTools) -> None:
        outcome = await self._activation.enable(capability, by="skill")
        if not outcome.is_ok:
            done.failed.append(outcome.text.partition("\n")[0])
            return
        active = self._context.state.find_active(capability)
        tools = self._context.state.tools_of(active) if active is not None else outcome.added
        done.names += [name for name in tools if name not in done.names]
