"""The skills of a session: listed as prompts, and used together with their capabilities.

Using a skill switches on its capabilities, each in a transaction of its own. If one fails, the
skill's text is returned all the same, and says what failed.
"""

from collections.abc import Collection

import trio

from capd.actor_clients.names import REGISTRY
from capd.actors.session.activation import Activation
from capd.actors.session.asking import must_answer
from capd.actors.session.services import SessionContext
from capd.core.protocol.outcomes import RefusedError
from capd.core.sessions.session_place import NotActivatedError, Outcome
from capd.core.sessions.skill_prompts import (
    FoundSkill,
    Switched,
    found_skills,
    no_room,
    out_of_time,
    prompt,
    prompt_result,
    skill_text,
    unknown_skill,
)
from capd.core.taps.catalog import Unknown
from capd.runtime.bus import ActorUnavailableError
from capd_protos import registry
from capd_protos.types import CapabilityId

FIND_TIMEOUT = 2.0

USE_TIMEOUT = 45.0
"""Seconds for all capabilities of a skill together. Clients wait a minute for a prompt."""


class Skills:
    """Lists, finds and uses the skills of taps in one session."""

    are_listed = True
    """Whether the client sees skills as prompts."""

    def __init__(self, context: SessionContext, activation: Activation) -> None:
        self._finder = context.services.finder
        self._registry = context.services.registry
        self._state = context.state
        self._activation = activation

    async def prompts(self) -> list[bytes]:
        """Return every skill as an entry of `prompts/list`; none if they could not be loaded."""
        try:
            entries = await self._registry.skills()
        except ActorUnavailableError:
            return []
        return [prompt(each.prompt, each.skill) for each in entries]

    async def prompt(self, name: str) -> bytes | None:
        """Use the skill whose prompt has this name: switch on what it needs, and return its text.

        The text is the result of `prompts/get`. None if no skill has this name.

        Raises:
            RefusedError: the skill's text cannot be read, or the registry does not answer.
        """
        try:
            used = await self._used(name)
        except NotActivatedError as error:
            raise RefusedError(str(error)) from None
        if isinstance(used, registry.SkillUnknown):
            if used.is_there:
                raise RefusedError(unknown_skill(name, Unknown(used.reason)))
            return None
        return prompt_result(used.entry.skill, used.text)

    async def use(self, name: str) -> Outcome:
        """Switch on what a skill needs, for a model that asked for it by name.

        Return the outcome, with the skill's text or why there is none.

        Raises:
            NotActivatedError: the registry does not answer.
        """
        used = await self._used(name)
        if isinstance(used, registry.SkillUnknown):
            why = Unknown(used.reason, tuple(used.near))
            return Outcome(unknown_skill(name, why), is_ok=False)
        return Outcome(used.text)

    async def found(self, intent: str, denied: Collection[CapabilityId] = ()) -> str:
        """Search skills that fit `intent`; return a text that names them for the model.

        The text is empty if the search failed. Capabilities in `denied` are never named, not even
        as part of a skill.
        """
        try:
            hits = await self._finder.find_skills(intent, timeout=FIND_TIMEOUT)
        except ActorUnavailableError:
            return ""
        unnamed = {form for id_ in denied for form in (str(id_.name), str(id_))}
        return found_skills(
            [
                FoundSkill(
                    hit.prompt,
                    hit.skill.description,
                    [name for name in hit.skill.capabilities if name not in unnamed],
                )
                for hit in hits
            ]
        )

    async def _used(self, name: str) -> registry.SkillText | registry.SkillUnknown:
        with must_answer(REGISTRY):
            reply = await self._registry.read_skill(name)
        if isinstance(reply, registry.SkillUnknown):
            return reply
        switched = await self._switch_on(reply.entry.skill.capabilities)
        return registry.SkillText(reply.entry, skill_text(reply.text, switched))

    async def _switch_on(self, names: tuple[str, ...]) -> list[Switched]:
        done: dict[str, Switched] = {}
        own: set[CapabilityId] = set()
        # Active capabilities come first. Using them marks them as recent, so that the others of
        # this skill do not evict them.
        ordered = sorted(names, key=lambda name: self._state.find_active(name) is None)
        with trio.move_on_after(USE_TIMEOUT):
            for name in ordered:
                if self._state.find_active(name) is None and self._fills(own):
                    done[name] = Switched(name, no_room(name, self._state.active.cap), is_ok=False)
                    continue
                outcome = await self._activation.enable(name)
                done[name] = Switched(name, outcome.text, outcome.is_ok)
                active = self._state.find_active(name)
                if outcome.is_ok and active is not None:
                    own.add(active)
        late = {name: Switched(name, out_of_time(name), is_ok=False) for name in names}
        return [done.get(name, late[name]) for name in names]

    def _fills(self, own: set[CapabilityId]) -> bool:
        """Tell whether the capabilities `own` fill the active set.

        One more capability would then evict one of them.
        """
        taken = [a for a in self._state.active.activations if a.takes_slot and a.id in own]
        return len(taken) >= self._state.active.cap


class NoSkills:
    """Stands in for `Skills` in a session without skills, such as a bare one (`is_bare`)."""

    are_listed = False

    async def prompts(self) -> list[bytes]:
        """Return an empty list."""
        return []

    async def prompt(self, name: str) -> None:
        """Return None."""
        del name

    async def use(self, name: str) -> Outcome:
        """Return the answer for an unknown skill."""
        return Outcome(unknown_skill(name, Unknown("unknown")), is_ok=False)

    async def found(self, intent: str, denied: Collection[CapabilityId] = ()) -> str:
        """Return an empty text."""
        del intent, denied
        return ""
