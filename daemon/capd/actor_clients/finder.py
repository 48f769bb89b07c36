"""Asks the finder which tools and skills exist, and which of them fit a query or a message."""

from capd.actor_clients.client import ANSWER_TIMEOUT, ActorClient
from capd.actor_clients.names import FINDER
from capd_protos import finder as messages
from capd_protos.codec import MsgpackCodec
from capd_protos.types import SessionKey

_TOOLS_FOUND: MsgpackCodec[messages.ToolsFound | messages.FinderRefused] = MsgpackCodec(
    messages.ToolsFound | messages.FinderRefused
)
_SKILLS_FOUND: MsgpackCodec[messages.SkillsFound] = MsgpackCodec(messages.SkillsFound)
_SERVERS_INDEXED: MsgpackCodec[messages.ServersIndexed] = MsgpackCodec(messages.ServersIndexed)
_TOOL_LOOKED_UP: MsgpackCodec[messages.ToolLookedUp] = MsgpackCodec(messages.ToolLookedUp)
_TOOLS_CURATED: MsgpackCodec[messages.ToolsCurated] = MsgpackCodec(messages.ToolsCurated)
_TOOLS_RANKED: MsgpackCodec[messages.ToolsRanked] = MsgpackCodec(messages.ToolsRanked)
_TOOLS_DESCRIBED: MsgpackCodec[messages.ToolsDescribed] = MsgpackCodec(messages.ToolsDescribed)
_DENIED_LISTED: MsgpackCodec[messages.DeniedListed] = MsgpackCodec(messages.DeniedListed)
_TOOLS_COUNTED: MsgpackCodec[messages.ToolsCounted] = MsgpackCodec(messages.ToolsCounted)
_GRANTED_LISTED: MsgpackCodec[messages.GrantedListed] = MsgpackCodec(messages.GrantedListed)
_CAPABILITIES_DESCRIBED: MsgpackCodec[messages.CapabilitiesDescribed] = MsgpackCodec(
    messages.CapabilitiesDescribed
)


class FinderClient(ActorClient):
    """Asks the finder which tools and skills exist, and which of them fit a query or a message."""

    actor = FINDER

    async def find_tools(
        self, request: messages.FindTools, *, timeout: float = ANSWER_TIMEOUT
    ) -> messages.ToolsFound | messages.FinderRefused:
        """Rank tools for a query; for the query `select:a,b`, return the tools `a` and `b`."""
        return await self._ask(request, _TOOLS_FOUND, timeout)

    async def find_skills(
        self, query: str, max_results: int = 3, *, timeout: float = ANSWER_TIMEOUT
    ) -> list[messages.SkillHit]:
        """Return at most `max_results` skills for a query, best first."""
        reply = await self._ask(messages.FindSkills(query, max_results), _SKILLS_FOUND, timeout)
        return reply.hits

    async def index_servers(
        self, session: SessionKey, project: str = "", *, timeout: float
    ) -> list[messages.ServerIndexed]:
        """Start each server of the catalog once and ask for its tools; return each server's result.

        The servers get the environment values of `session`.
        """
        reply = await self._ask(messages.IndexServers(session, project), _SERVERS_INDEXED, timeout)
        return reply.servers

    async def look_up(
        self, request: messages.LookUpTool, *, timeout: float = ANSWER_TIMEOUT
    ) -> messages.ToolLookedUp:
        """Return the definition of a tool, or why a session may not use it."""
        return await self._ask(request, _TOOL_LOOKED_UP, timeout)

    async def curate(
        self, request: messages.CurateTools, *, timeout: float = ANSWER_TIMEOUT
    ) -> list[messages.CuratedTool]:
        """Rank the tools outside the active capabilities by how well they fit a user's message."""
        return (await self._ask(request, _TOOLS_CURATED, timeout)).tools

    async def rank(
        self, request: messages.RankTools, *, timeout: float = ANSWER_TIMEOUT
    ) -> messages.ToolsRanked:
        """Rank the tools of given capabilities by how well they fit a user's message."""
        return await self._ask(request, _TOOLS_RANKED, timeout)

    async def describe(
        self, request: messages.DescribeTools, *, timeout: float = ANSWER_TIMEOUT
    ) -> messages.ToolsDescribed:
        """Return how many tools a session may use, and those that match the request's patterns."""
        return await self._ask(request, _TOOLS_DESCRIBED, timeout)

    async def denied(
        self,
        rules: list[messages.PolicyTable],
        project: str = "",
        *,
        timeout: float = ANSWER_TIMEOUT,
    ) -> messages.DeniedListed:
        """Return the capabilities that the policy `rules` denies completely."""
        return await self._ask(messages.ListDenied(rules, project), _DENIED_LISTED, timeout)

    async def count(
        self, rules: list[messages.PolicyTable], project: str = "", *, timeout: float
    ) -> messages.ToolsCounted:
        """Count the tokens of every tool that the policy `rules` allows in a project."""
        return await self._ask(messages.CountTools(rules, project), _TOOLS_COUNTED, timeout)

    async def granted(
        self, request: messages.ListGranted, *, timeout: float = ANSWER_TIMEOUT
    ) -> list[messages.Granted]:
        """Return the tools that each capability in `request` would bring to a session."""
        return (await self._ask(request, _GRANTED_LISTED, timeout)).capabilities

    async def capabilities(
        self,
        project: str = "",
        *,
        waits: bool = False,
        counts: bool = False,
        timeout: float = ANSWER_TIMEOUT,
    ) -> messages.CapabilitiesDescribed:
        """Return the tools of each capability; with `counts`, also their tokens.

        With `waits`, wait a few seconds for the catalog to be read.
        """
        return await self._ask(
            messages.DescribeCapabilities(project, waits, counts), _CAPABILITIES_DESCRIBED, timeout
        )
