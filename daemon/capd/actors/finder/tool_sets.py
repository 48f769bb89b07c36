"""The tools that a session can find: those of the user's taps, and those of its project.

A project's own tools are in the set of its own sessions only. Neither their names nor their number
appear anywhere else.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

import trio

from capd.actors.finder.tool_vectors import ToolVectors
from capd.adapters.model.vector_graph import most_tools
from capd.adapters.trust.real_paths import RealPaths
from capd.core.records.leftovers import project_mark
from capd.core.servers.identity import server_identity
from capd.core.sessions.policy import Policy
from capd.core.tools import search_answers
from capd.core.tools.known_tools import KnownTools
from capd.core.tools.tool_search import Restriction, ToolIndex
from capd.core.trust.project_tap import project_of
from capd_protos.finder import FindTools, LookUpTool
from capd_protos.types import (
    CapabilityId,
    CapabilitySpec,
    ServerIdentity,
    ServerName,
    ToolDefinition,
    WireName,
)

Lists = Mapping[ServerIdentity, Sequence[ToolDefinition]]


class ToolSet:
    """The tools that sessions of one project can find."""

    def __init__(self, vectors: ToolVectors) -> None:
        self.vectors = vectors
        self.index = ToolIndex()
        self.known = KnownTools()
        self.unlisted: dict[ServerName, frozenset[CapabilityId]] = {}
        """Servers whose tools are unknown, each with the capabilities that use it."""
        self.unseen: frozenset[ServerIdentity] = frozenset()
        """Servers that have not been asked yet: their tools are known from their tap alone."""

    async def take(
        self,
        capabilities: Sequence[CapabilitySpec],
        lists: Lists,
        unseen: frozenset[ServerIdentity] = frozenset(),
    ) -> None:
        """Replace the set with the tools of `capabilities`, which `lists` has by server.

        `unseen` are servers whose tools are known only from their tap.
        """
        made = await trio.to_thread.run_sync(
            partial(_made, capabilities, lists, is_in_use=self.vectors.is_in_use)
        )
        self.known, self.index, self.unlisted = made
        self.unseen = unseen
        self.vectors.wanted(self.index)

    async def prepare(self) -> None:
        """Index the words of the tools, unless that is done."""
        if not self.index.is_prepared:
            await trio.to_thread.run_sync(self.index.prepare)

    def searched(self, policy: Policy) -> search_answers.Searched:
        """Return how many tools and servers a search covers, and what it leaves out."""
        return search_answers.searched(self.index, self.unlisted_for(policy))

    def unlisted_for(self, policy: Policy) -> list[ServerName]:
        """Return the servers permitted by `policy` whose tools are unknown."""
        return [
            name
            for name, capabilities in self.unlisted.items()
            if policy.restrict_server(name) is None and _permits_any(policy, capabilities)
        ]

    def unseen_tools(self) -> set[WireName]:
        """Return the tools that are known only from their tap, never from their server."""
        sources = self.known.sources.items()
        return {wire for wire, source in sources if source.identity in self.unseen}

    def never_listed(self, policy: Policy) -> list[ServerName]:
        """Return the servers permitted by `policy` that have never listed their tools."""
        sources = (self.known.sources[wire] for wire in self.unseen_tools())
        unseen = {
            source.spec.name for source in sources if _permits_any(policy, source.capabilities)
        }
        permitted = {name for name in unseen if policy.restrict_server(name) is None}
        return sorted({*self.unlisted_for(policy), *permitted})

    def locked(
        self, asked: str, request: FindTools | LookUpTool, policy: Policy
    ) -> dict[ServerName, tuple[str, ...]]:
        """Return the servers named in `asked` that lack secrets, each with the secrets' names.

        Only servers whose tools are unknown are included. `request` has the secrets and the domain
        of the session.
        """
        keys = None if request.keys is None else frozenset(request.keys)
        return self.known.locked(asked, policy, keys, request.domain)

    def restrictions(
        self, policy: Policy, keys: Sequence[str] | None, domain: str = ""
    ) -> dict[WireName, Restriction]:
        """Return every tool that a session may not use, with the reason.

        `keys` are the names of the secrets that the session has; None to ignore missing secrets.
        The session's `domain`, such as `work`, limits which capabilities it may use.
        """
        return self.known.restrictions(policy, None if keys is None else frozenset(keys), domain)


class ToolSets:
    """All tool sets: one for the user's taps, and one for each project that adds tools."""

    def __init__(self, users: ToolSet, vectors: Callable[[str], ToolVectors]) -> None:
        """Create it. `users` is the set for the user's taps.

        `vectors(name)` creates the vectors of one more set, saved in a file of that name.
        """
        self.paths = RealPaths()
        self.users = users
        self._make_vectors = vectors
        self._projects: dict[str, ToolSet] = {}
        self._scopes: dict[str, trio.CancelScope] = {}

    async def of(self, project: str) -> ToolSet:
        """Return the tools that sessions of `project` can find."""
        if not self._projects or not project:
            return self.users
        return self._projects.get(await self.paths.of(project), self.users)

    async def searchable(self, project: str) -> ToolSet:
        """Return the set that `of` returns, with the words of its tools indexed."""
        found = await self.of(project)
        await found.prepare()
        return found

    async def use(self) -> None:
        """Prepare all sets for searches, now and whenever they are replaced."""
        for each in (self.users, *self._projects.values()):
            each.vectors.use()
        for each in (self.users, *self._projects.values()):
            await each.prepare()

    async def take(
        self,
        capabilities: Iterable[CapabilitySpec],
        lists: Lists,
        nursery: trio.Nursery,
        unseen: frozenset[ServerIdentity] = frozenset(),
    ) -> None:
        """Replace all sets with the tools of `capabilities`, each in the set where it belongs.

        `lists` has the tools by server. `unseen` are servers whose tools are known only from their
        tap. `nursery` runs the tasks that compute the vectors of a project's tools.
        """
        self.paths.forget()
        by_project: dict[str, list[CapabilitySpec]] = {"": []}
        for each in capabilities:
            by_project.setdefault(project_of(each.id.tap), []).append(each)
        users = by_project.pop("")
        for gone in self._projects.keys() - by_project.keys():
            del self._projects[gone]
            self._scopes.pop(gone).cancel()
        await self.users.take(users, lists, unseen)
        for project, own in by_project.items():
            made = self._projects.get(project)
            if made is None:
                made = ToolSet(self._make_vectors(project_mark(project)))
                self._scopes[project] = trio.CancelScope()
                nursery.start_soon(_kept, made.vectors, self._scopes[project])
            await made.take([*users, *own], lists, unseen)
            self._projects[project] = made


def _made(
    capabilities: Sequence[CapabilitySpec], lists: Lists, *, is_in_use: bool
) -> tuple[KnownTools, ToolIndex, dict[ServerName, frozenset[CapabilityId]]]:
    known = KnownTools(capabilities, lists)
    unlisted: dict[ServerName, set[CapabilityId]] = {}
    for each in capabilities:
        for server in each.servers:
            if server_identity(server) not in lists:
                unlisted.setdefault(server.name, set()).add(each.id)
    named = {name: frozenset(unlisted[name]) for name in sorted(unlisted)}
    index = ToolIndex(known.tools, most_tools())
    if is_in_use:
        index.prepare()
    return known, index, named


def _permits_any(policy: Policy, capabilities: Iterable[CapabilityId]) -> bool:
    return any(policy.restrict_capability(each) is None for each in capabilities)


async def _kept(vectors: ToolVectors, scope: trio.CancelScope) -> None:
    with scope:
        await vectors.follow()
