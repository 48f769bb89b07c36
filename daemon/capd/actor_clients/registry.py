"""Asks the registry what is installed, and which capability a message asks for."""

from capd.actor_clients.client import ANSWER_TIMEOUT, ActorClient
from capd.actor_clients.names import REGISTRY
from capd_protos import registry as messages
from capd_protos.codec import MsgpackCodec
from capd_protos.types import CapabilitySpec, ServerIdentity, ToolDefinition

_MESSAGE_ROUTED: MsgpackCodec[messages.MessageRouted] = MsgpackCodec(messages.MessageRouted)
_CAPABILITY_RESOLVED: MsgpackCodec[messages.CapabilityResolved | messages.CapabilityUnknown] = (
    MsgpackCodec(messages.CapabilityResolved | messages.CapabilityUnknown)
)
_CAPABILITIES_LISTED: MsgpackCodec[messages.CapabilitiesListed] = MsgpackCodec(
    messages.CapabilitiesListed
)
_CAPABILITIES_FOUND: MsgpackCodec[messages.CapabilitiesFound | messages.RegistryRefused] = (
    MsgpackCodec(messages.CapabilitiesFound | messages.RegistryRefused)
)
_REGISTRY_DESCRIBED: MsgpackCodec[messages.RegistryDescribed] = MsgpackCodec(
    messages.RegistryDescribed
)
_SKILLS_LISTED: MsgpackCodec[messages.SkillsListed] = MsgpackCodec(messages.SkillsListed)
_TOOL_SNAPSHOTS: MsgpackCodec[messages.ToolSnapshotsListed] = MsgpackCodec(
    messages.ToolSnapshotsListed
)
_SKILL_TEXT: MsgpackCodec[messages.SkillText | messages.SkillUnknown] = MsgpackCodec(
    messages.SkillText | messages.SkillUnknown
)
_STARTABLES_LISTED: MsgpackCodec[messages.StartablesListed] = MsgpackCodec(
    messages.StartablesListed
)
_TRUST_GRANTED: MsgpackCodec[messages.StartablesListed | messages.RegistryRefused] = MsgpackCodec(
    messages.StartablesListed | messages.RegistryRefused
)
_TRUST_REVOKED: MsgpackCodec[messages.TrustedListed | messages.RegistryRefused] = MsgpackCodec(
    messages.TrustedListed | messages.RegistryRefused
)
_TRUSTED_LISTED: MsgpackCodec[messages.TrustedListed] = MsgpackCodec(messages.TrustedListed)
_MEMORIES_LISTED: MsgpackCodec[messages.MemoriesListed] = MsgpackCodec(messages.MemoriesListed)


_LEARNING_DESCRIBED: MsgpackCodec[messages.LearningDescribed] = MsgpackCodec(
    messages.LearningDescribed
)
_LEARNING_FORGOTTEN: MsgpackCodec[messages.LearningForgotten] = MsgpackCodec(
    messages.LearningForgotten
)


_PROGRESS_DESCRIBED: MsgpackCodec[messages.ProgressDescribed] = MsgpackCodec(
    messages.ProgressDescribed
)
_SPECS_LISTED: MsgpackCodec[messages.SpecsListed] = MsgpackCodec(messages.SpecsListed)


class RegistryClient(ActorClient):
    """Asks the registry what is installed, and which capability a message asks for."""

    actor = REGISTRY

    async def route(
        self, request: messages.RouteMessage, *, timeout: float
    ) -> messages.MessageRouted:
        """Return the decision on which capability a user's message asks for."""
        return await self._ask(request, _MESSAGE_ROUTED, timeout)

    async def resolve(
        self, name: str, project: str = "", *, timeout: float = ANSWER_TIMEOUT
    ) -> messages.CapabilityResolved | messages.CapabilityUnknown:
        """Return the capability called `name` or `tap/name`, or why there is none."""
        return await self._ask(
            messages.ResolveCapability(name, project), _CAPABILITY_RESOLVED, timeout
        )

    async def capabilities(
        self, project: str = "", *, all_projects: bool = False, timeout: float = ANSWER_TIMEOUT
    ) -> list[messages.CapabilityEntry]:
        """List every capability that taps define, usable or not.

        With `all_projects`, the list includes those that other known projects define.
        """
        reply = await self._ask(
            messages.ListCapabilities(project, all_projects), _CAPABILITIES_LISTED, timeout
        )
        return reply.capabilities

    async def specs(self, *, timeout: float = ANSWER_TIMEOUT) -> list[CapabilitySpec]:
        """List every capability that can be used, including those of all known projects."""
        return (await self._ask(messages.ListSpecs(), _SPECS_LISTED, timeout)).capabilities

    async def progress(self, *, timeout: float = ANSWER_TIMEOUT) -> messages.ProgressDescribed:
        """Return what share of the catalog's texts has vectors.

        The reply also has the decisions that were made while some vectors were missing.
        """
        return await self._ask(messages.DescribeProgress(), _PROGRESS_DESCRIBED, timeout)

    async def discover(
        self, request: messages.DiscoverCapabilities, *, timeout: float = ANSWER_TIMEOUT
    ) -> messages.CapabilitiesFound | messages.RegistryRefused:
        """Rank capabilities by how well they fit what somebody wants to do; activate none."""
        return await self._ask(request, _CAPABILITIES_FOUND, timeout)

    async def tool_snapshots(
        self, *, timeout: float = ANSWER_TIMEOUT
    ) -> dict[ServerIdentity, list[ToolDefinition]]:
        """Return the tools that the user's taps record for their servers."""
        reply = await self._ask(messages.ListToolSnapshots(), _TOOL_SNAPSHOTS, timeout)
        return reply.lists

    async def reload(self, *, timeout: float) -> messages.RegistryDescribed:
        """Read the list of taps and all taps again; return what is loaded."""
        return await self._ask(messages.ReloadCatalog(), _REGISTRY_DESCRIBED, timeout)

    async def describe(
        self, project: str = "", *, all_projects: bool = False, timeout: float = ANSWER_TIMEOUT
    ) -> messages.RegistryDescribed:
        """Return the loaded taps, the secrets that they need, and the newest routing decisions.

        With `all_projects`, the secrets include those that other known projects need.
        """
        return await self._ask(
            messages.DescribeRegistry(project, all_projects), _REGISTRY_DESCRIBED, timeout
        )

    async def skills(self, *, timeout: float = ANSWER_TIMEOUT) -> list[messages.SkillEntry]:
        """List the skills of all taps."""
        return (await self._ask(messages.ListSkills(), _SKILLS_LISTED, timeout)).skills

    async def read_skill(
        self, name: str, *, timeout: float = ANSWER_TIMEOUT
    ) -> messages.SkillText | messages.SkillUnknown:
        """Read the text of a skill; `name` is `tap/name` or the name of the skill's prompt."""
        return await self._ask(messages.ReadSkill(name), _SKILL_TEXT, timeout)

    async def startables(
        self, project: str, *, timeout: float = ANSWER_TIMEOUT
    ) -> messages.StartablesListed:
        """Return what a project's files would start, and what of it is trusted."""
        return await self._ask(messages.ListStartables(project), _STARTABLES_LISTED, timeout)

    async def grant_trust(
        self, project: str, digests: list[str], *, timeout: float = ANSWER_TIMEOUT
    ) -> messages.StartablesListed | messages.RegistryRefused:
        """Trust servers of a project, each by the digest that the user was shown."""
        return await self._ask(messages.GrantTrust(project, digests), _TRUST_GRANTED, timeout)

    async def revoke_trust(
        self, project: str, *, timeout: float = ANSWER_TIMEOUT
    ) -> messages.TrustedListed | messages.RegistryRefused:
        """Withdraw all trust in a project; return what is still trusted."""
        return await self._ask(messages.RevokeTrust(project), _TRUST_REVOKED, timeout)

    async def trusted(self, *, timeout: float = ANSWER_TIMEOUT) -> messages.TrustedListed:
        """Return every trusted project, with the names of its trusted servers."""
        return await self._ask(messages.ListTrusted(), _TRUSTED_LISTED, timeout)

    async def memories(
        self, project: str = "", *, timeout: float = ANSWER_TIMEOUT
    ) -> messages.MemoriesListed:
        """List the memories of all taps and the user's own."""
        return await self._ask(messages.ListMemories(project), _MEMORIES_LISTED, timeout)

    async def learning(
        self, project: str = "", *, timeout: float = ANSWER_TIMEOUT
    ) -> messages.LearningDescribed:
        """Return what routing has learnt from use."""
        return await self._ask(messages.DescribeLearning(project), _LEARNING_DESCRIBED, timeout)

    async def forget_learning(
        self, request: messages.ForgetLearning, *, timeout: float = ANSWER_TIMEOUT
    ) -> messages.LearningForgotten:
        """Forget what routing has learnt from use, or a part of it."""
        return await self._ask(request, _LEARNING_FORGOTTEN, timeout)
