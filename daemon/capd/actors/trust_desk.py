"""The registry's part that takes agreements: what a project would start, and who agreed to it.

Whoever asks has been looked at by the control role; here nothing is decided but by digest, so that
what is agreed to is what was shown.
"""

import msgspec
import structlog
import trio

from capd.actors.project_catalogs import ProjectCatalogs
from capd.adapters.trust.project_taps import ProjectRead
from capd.core.servers.placeholders import wanted_keys
from capd.core.servers.sandbox_rules import declared_level
from capd.core.taps.package_pins import unpinned_package
from capd.core.trust.project_tap import TOLD
from capd.core.trust.startable import Startable, agreed_with
from capd_protos import registry as messages
from capd_protos.types import ServerSpec

Request = (
    messages.ListStartables | messages.GrantTrust | messages.RevokeTrust | messages.ListTrusted
)

log = structlog.get_logger(actor="registry")


class TrustDesk:
    """Agreements, asked for and given."""

    def __init__(self, projects: ProjectCatalogs) -> None:
        self._projects = projects

    async def replied(self, request: Request) -> messages.Reply:
        """Answer one request."""
        match request:
            case messages.ListStartables(project):
                return await self.startables(project)
            case messages.GrantTrust():
                return await self.grant(request)
            case messages.RevokeTrust(project):
                return await self.revoke(project)
            case messages.ListTrusted():
                return await self.trusted()

    async def startables(self, project: str) -> messages.StartablesListed:
        """Return what a project's files would start at this moment."""
        real = await self._projects.meet(project)
        await self._projects.reload()
        read = self._projects.read(real)
        return messages.StartablesListed(
            real,
            [_entry(each, read) for each in read.startables],
            list(read.tap.findings) if read.tap is not None else [],
            read.error,
        )

    async def grant(self, request: messages.GrantTrust) -> messages.Reply:
        """Agree to servers, if they still are what was shown."""
        listed = await self.startables(request.project)
        known = {entry.digest for entry in listed.servers if not entry.problem}
        if lost := set(request.digests) - known:
            text = f"{len(lost)} of what was shown is another by now: look again"
            return messages.RegistryRefused("changed", text)
        read = self._projects.read(listed.project)
        trusted = await trio.to_thread.run_sync(self._projects.trust.read)
        agreed = agreed_with(read.startables, trusted.of(listed.project), request.digests)
        await trio.to_thread.run_sync(
            self._projects.trust.write, {**trusted.projects, listed.project: agreed}
        )
        log.info("project_trusted", project=listed.project, servers=len(request.digests))
        return await self.startables(request.project)

    async def revoke(self, project: str) -> messages.TrustedListed:
        """Agree to nothing of a project any more, also of one that is gone."""
        real = await self._projects.meet(project)
        trusted = await trio.to_thread.run_sync(self._projects.trust.read)
        kept = {
            name: each for name, each in trusted.projects.items() if name not in {project, real}
        }
        await trio.to_thread.run_sync(self._projects.trust.write, kept)
        log.info("project_revoked", project=real)
        await self._projects.reload()
        return msgspec.structs.replace(await self.trusted(), revoked=real or project)

    async def trusted(self) -> messages.TrustedListed:
        """Return what is agreed to."""
        trusted = await trio.to_thread.run_sync(self._projects.trust.read)
        return messages.TrustedListed(
            [
                messages.TrustedProject(project, sorted(each.name for each in agreed.values()))
                for project, agreed in sorted(trusted.projects.items())
            ],
            trusted.problem,
        )


def _entry(found: Startable, read: ProjectRead) -> messages.StartableEntry:
    capabilities = read.tap.capabilities if read.tap is not None else ()
    return messages.StartableEntry(
        found.server,
        found.digest,
        found.state(read.agreed),
        dict(found.files),
        found.changes(read.agreed),
        list(wanted_keys(found.server)),
        _warnings(found.server),
        found.problem,
        [each.id.name for each in capabilities if found.server in each.servers],
    )


def _warnings(server: ServerSpec) -> list[str]:
    found = []
    if server.transport == TOLD:
        found.append("it starts nothing: what these files say is told to models, word for word")
    if package := unpinned_package(server):
        found.append(
            f"{package} has no exact version: its code can change without asking you again"
        )
    if declared_level(server.sandbox)[1]:
        found.append(f"it may connect anywhere: its sandbox is {server.sandbox}")
    return found
