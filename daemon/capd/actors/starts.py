"""The supervisor's part that reaches a server: a process, or a connection by URL.

Placeholders are filled at this moment, from the values of the session that asks; what they were
is known to the redactor, and to nothing else (10-catalog, "Secrets and placeholders").
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path

from capd.adapters.clients.session_environment import SessionEnvironments
from capd.adapters.servers.child_environment import child_environment
from capd.adapters.servers.era_file import EraFile
from capd.adapters.servers.http.logins import Logins
from capd.adapters.servers.http.remote_server import connected
from capd.adapters.servers.http.remote_spec import IDLE_TIMEOUT, RemoteSpec
from capd.adapters.servers.processes import ProcessSpec, running
from capd.adapters.servers.server_run import ServerEnd
from capd.adapters.spool import Spool
from capd.adapters.tool_lists import ToolLists
from capd.core.redaction import redactor
from capd.core.servers.placeholders import Folders, resolved, wanted_keys
from capd_protos.types import ServerSpec, SessionKey

Spawn = Callable[[ProcessSpec], AbstractAsyncContextManager[ServerEnd]]
TRANSPORTS = ("stdio", "http", "sse")


@dataclass(frozen=True, slots=True)
class SupervisorSettings:
    """What the configuration says about instances; times in seconds."""

    linger: float
    shared_cwd: Path
    """Where shared instances run: a folder that belongs to no project."""
    environment: Mapping[str, str]
    """The daemon's own, of which servers get the known families."""
    extra_path: str
    version: str
    tool_lists: ToolLists | None = None
    """Where what servers list is kept for the time when they do not run."""
    longest_call: float = 0.0
    """Seconds after which a call is given up whatever its progress; 0 for never."""
    spool: Spool | None = None
    """Where results go that are too large to hold."""
    eras: EraFile | None = None
    """Where is written down which servers answer in the stateless era."""


class Starts:
    """How the definitions of sessions become running servers."""

    def __init__(
        self,
        settings: SupervisorSettings,
        environments: SessionEnvironments,
        logins: Logins,
        spawn: Spawn = running,
    ) -> None:
        self.logins = logins
        self._settings = settings
        self._environments = environments
        self._spawn = spawn

    def opened(
        self, server: ServerSpec, session: SessionKey, project: str
    ) -> AbstractAsyncContextManager[ServerEnd]:
        """Return the server, to be entered.

        Raises:
            MissingValueError: a placeholder's key has no value.
        """
        if server.transport == "stdio":
            return self._spawn(self._process_spec(server, session, project))
        return connected(self.remote_spec(server, session, project), self.logins)

    def redactor(self, server: ServerSpec, session: SessionKey) -> Callable[[str], str]:
        """Return what takes a session's secrets out of a text."""
        values = self._environments.values(session)
        return redactor(values.get(key, "") for key in wanted_keys(server))

    def environment(self, declared: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of a process that capd starts for a server."""
        return child_environment(
            self._settings.environment, declared, extra_path=self._settings.extra_path
        )

    def remote_spec(self, server: ServerSpec, session: SessionKey, project: str) -> RemoteSpec:
        """Return what a connection by URL starts from.

        Raises:
            MissingValueError: a placeholder's key has no value.
        """
        filled = self._filled(server, session, project)
        return RemoteSpec(
            name=filled.name,
            url=filled.url,
            headers=filled.headers,
            transport="sse" if filled.transport == "sse" else "",
            idle_timeout=max(IDLE_TIMEOUT, filled.timeout or 0.0),
            client=filled.oauth,
        )

    def _filled(self, server: ServerSpec, session: SessionKey, project: str) -> ServerSpec:
        folders = Folders(cwd=project, project=project)
        return resolved(server, self._environments.values(session), folders)

    def _process_spec(self, server: ServerSpec, session: SessionKey, project: str) -> ProcessSpec:
        filled = self._filled(server, session, project)
        # A client that named no folder has no project: its servers run where shared ones do.
        is_nowhere = server.scope == "shared" or not project
        cwd = self._settings.shared_cwd if is_nowhere else Path(project)
        return ProcessSpec((filled.command, *filled.args), self.environment(filled.env), cwd)
