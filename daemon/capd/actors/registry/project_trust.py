"""Grants and revokes trust in the servers that a project's files would start.

`actors/control/trust.py` has already checked that the request comes from a person's process. A
grant names digests, so that only the definitions and files that the person was shown are trusted.
"""

import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import TypeVar

import msgspec
import structlog
import trio

from capd.actors.registry.project_catalogs import ProjectCatalogs
from capd.adapters.trust.launcher_files import read_by_launchers
from capd.adapters.trust.project_taps import ProjectRead
from capd.adapters.trust.trust_file import NotReadError
from capd.core.servers.placeholders import wanted_keys
from capd.core.servers.sandbox_rules import declared_level
from capd.core.taps.package_pins import unpinned_package
from capd.core.trust.project_tap import (
    LAUNCHERS,
    MEMORY_TRANSPORT,
    MODULES,
    READ_BY_LAUNCHERS,
)
from capd.core.trust.startable import Agreement, Startable, agreements_after
from capd_protos import registry as messages
from capd_protos.types import ServerSpec

Request = (
    messages.ListStartables | messages.GrantTrust | messages.RevokeTrust | messages.ListTrusted
)

T = TypeVar("T")

log = structlog.get_logger(actor="registry")


class ProjectTrust:
    """Answers requests about trust in projects."""

    def __init__(self, projects: ProjectCatalogs, own: Callable[[], Iterable[ServerSpec]]) -> None:
        """Create it. `own` returns the servers that the user's taps define."""
        self._projects = projects
        self._own = own

    async def reply(self, request: Request) -> messages.Reply:
        """List, grant or revoke trust, as the request asks; return its reply."""
        match request:
            case messages.ListStartables(project):
                return await self.startables(project)
            case messages.GrantTrust():
                return await self._written(self.grant, request)
            case messages.RevokeTrust(project):
                return await self._written(self.revoke, project)
            case messages.ListTrusted():
                return await self.trusted()

    async def _written(
        self, change: Callable[[T], Awaitable[messages.Reply]], request: T
    ) -> messages.Reply:
        """Return the reply of `change`, or a refusal if the trust file cannot be written."""
        try:
            return await change(request)
        except NotReadError as error:
            text = f"nothing has changed: {error}. See who owns it, and try again"
            return messages.RegistryRefused("not_written", text)
        except OSError as error:
            text = (
                f"nothing has changed: {self._projects.trust.path} cannot be written:"
                f" {error.strerror}. Make room, or see who owns its folder: capd doctor"
            )
            return messages.RegistryRefused("not_written", text)

    async def startables(self, project: str) -> messages.StartablesListed:
        """Read a project's files again; return the servers that they would start.

        The last entries stand for the project's files that launchers, such as npx, would read.
        """
        real = await self._projects.load(project)
        await self._projects.reload()
        read = self._projects.read(real)
        trusted = await trio.to_thread.run_sync(self._projects.trust.read)
        agreed = trusted.of(real)
        found = [*read.startables, *await self._read_by_launchers(real)]
        return messages.StartablesListed(
            real,
            [_entry(each, read, agreed) for each in found],
            list(read.tap.findings) if read.tap is not None else [],
            read.error,
        )

    async def grant(self, request: messages.GrantTrust) -> messages.Reply:
        """Trust the servers with these digests; refuse if one has changed since it was shown."""
        listed = await self.startables(request.project)
        known = {entry.digest for entry in listed.servers if not entry.problem}
        if lost := set(request.digests) - known:
            text = f"servers changed since they were shown ({len(lost)}): look at them again"
            return messages.RegistryRefused("changed", text)
        read = self._projects.read(listed.project)
        trusted = await trio.to_thread.run_sync(self._projects.trust.read_to_change)
        found = [*read.startables, *await self._read_by_launchers(listed.project)]
        agreed = agreements_after(found, trusted.of(listed.project), request.digests)
        await trio.to_thread.run_sync(
            self._projects.trust.write, {**trusted.projects, listed.project: agreed}
        )
        log.info("project_trusted", project=listed.project, servers=len(request.digests))
        return await self.startables(request.project)

    async def _read_by_launchers(self, project: str) -> list[Startable]:
        if not project:
            return []
        home = os.environ.get("HOME") or str(Path.home())
        own = list(self._own())
        return await trio.to_thread.run_sync(read_by_launchers, project, home, own)

    async def revoke(self, project: str) -> messages.TrustedListed:
        """Withdraw all trust in a project, whose folder need not exist any more.

        Return what is still trusted.
        """
        real = await self._projects.load(project)
        trusted = await trio.to_thread.run_sync(self._projects.trust.read_to_change)
        kept = {
            name: each for name, each in trusted.projects.items() if name not in {project, real}
        }
        await trio.to_thread.run_sync(self._projects.trust.write, kept)
        log.info("project_revoked", project=real)
        await self._projects.reload()
        return msgspec.structs.replace(await self.trusted(), revoked=real or project)

    async def trusted(self) -> messages.TrustedListed:
        """Return every trusted project, with the names of its trusted servers."""
        trusted = await trio.to_thread.run_sync(self._projects.trust.read)
        return messages.TrustedListed(
            [
                messages.TrustedProject(project, sorted(each.name for each in agreed.values()))
                for project, agreed in sorted(trusted.projects.items())
            ],
            trusted.problem,
        )


def _entry(
    found: Startable, read: ProjectRead, agreed: Mapping[str, Agreement]
) -> messages.StartableEntry:
    capabilities = read.tap.capabilities if read.tap is not None else ()
    return messages.StartableEntry(
        found.server,
        found.digest,
        found.state(agreed),
        dict(found.files),
        found.changes(agreed),
        list(wanted_keys(found.server)),
        _warnings(found.server),
        found.problem,
        [each.id.name for each in capabilities if found.server in each.servers],
    )


def _warnings(server: ServerSpec) -> list[str]:
    found = []
    if server.transport == MEMORY_TRANSPORT:
        found.append("it starts nothing: models are given the text of these files, word for word")
    if server.name == MODULES:
        found.append("python -m, which starts servers of yours, may then import these")
    elif server.name == LAUNCHERS:
        found.append(
            "your own servers are then started here as without capd: npx, uv, python -m and others"
            " read these files, and may run code of this folder"
        )
    elif server.transport == READ_BY_LAUNCHERS:
        found.append("a server of your own starts these files of the folder")
    if package := unpinned_package(server):
        found.append(
            f"{package} has no exact version: its code can change without asking you again"
        )
    if declared_level(server.sandbox)[1]:
        found.append(f"it may connect anywhere: its sandbox is {server.sandbox}")
    if server.container is not None and server.container.has_network:
        found.append("it may connect anywhere: its container has a network")
    return found
