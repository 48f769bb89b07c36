"""Turns the definition of a server into a running process, or a connection by URL.

This module replaces placeholders by the secrets of the instance. Only the server and the redactor
get these values. The redactor removes them from texts (docs/design/trust.md, "Secrets").
"""

import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import trio

from capd.adapters.parsing.jobs import DIRECT
from capd.adapters.parsing.parser import Parser
from capd.adapters.servers.child_environment import child_environment
from capd.adapters.servers.containers import Containers
from capd.adapters.servers.far_runners import FarRunners, far_running
from capd.adapters.servers.generation_file import GenerationFile
from capd.adapters.servers.http.logins import Logins
from capd.adapters.servers.http.remote_spec import IDLE_TIMEOUT, RemoteSpec
from capd.adapters.servers.launching import Launching
from capd.adapters.servers.processes import Contained, ProcessSpec, running
from capd.adapters.servers.sandboxing import Sandboxes
from capd.adapters.servers.server_run import ServerEnd
from capd.adapters.spool import Spool
from capd.adapters.tool_lists import ToolLists
from capd.adapters.trust.launcher_files import is_start_trusted
from capd.adapters.trust.trust_check import UntrustedError, refuse_untrusted
from capd.adapters.trust.trust_file import TrustFile
from capd.core.errors import CapdError
from capd.core.redaction import redactor
from capd.core.servers.containers import ENGINES, ContainerRefusedError, container_request
from capd.core.servers.far_starts import FarPlace, far_order
from capd.core.servers.kubernetes import PROGRAM, is_place, place_of
from capd.core.servers.placeholders import Folders, resolved, wanted_keys
from capd.core.servers.sandbox import SandboxRequest
from capd.core.servers.tree_limits import TreeLimits
from capd.core.sessions.bridges import BridgeRules
from capd_protos.types import ServerSpec

Spawn = Callable[[ProcessSpec], AbstractAsyncContextManager[ServerEnd]]
TRANSPORTS = ("stdio", "http", "sse")
_KUBECTL_VARIABLES = ("KUBECONFIG",)
"""Variables of the daemon that kubectl gets besides those of every server. kubectl may run a
program that logs in; if this program needs other variables, the definition's `env` names them."""


def _set() -> trio.Event:
    event = trio.Event()
    event.set()
    return event


@dataclass(frozen=True, slots=True)
class SupervisorSettings:
    """The configuration of instances; times are in seconds."""

    linger: float
    shared_cwd: Path
    """The working directory of shared instances: a folder outside of every project."""
    environment: Mapping[str, str]
    """The daemon's own environment, from which servers get some variables (child_environment)."""
    extra_path: str
    version: str
    tool_lists: ToolLists | None = None
    """The folder of saved tool lists, which are used while servers do not run."""
    longest_call: float = 0.0
    """Seconds after which a call ends even if its server reports progress; 0 for no limit."""
    spool: Spool | None = None
    """The folder for results that are too large for memory."""
    path_known: trio.Event = field(default_factory=_set)
    """Set when the login shell's PATH is known, or cannot be found out."""
    trust: TrustFile | None = None
    """Which servers of projects are trusted; without it none of them is started."""
    parser: Parser | None = None
    """Reads the files of projects."""
    linger_now: Callable[[], float] | None = None
    """Returns the current `linger`, the seconds for which a server without a holder is kept. None
    if that cannot change while the daemon runs."""
    client_metadata_url: Callable[[], str] = str
    """Returns the URL of capd's metadata document as an OAuth client, if it is published."""
    generations: GenerationFile | None = None
    """The file that records which servers speak the stateless generation."""
    is_vetting: bool = False
    """Whether the tools that servers list are compared with their trusted definitions."""
    tree_limits: TreeLimits | None = None
    """The limits of one server's process tree; None for no limits."""
    sandboxes: Sandboxes | None = None
    """How servers are confined; None to confine none."""
    install_cwd: Path | None = None
    """The folder where dependency scripts run; by default `shared_cwd`."""
    empty_folders: Path | None = None
    """Where empty folders are created. A launcher, such as npx, runs in one of them if it must not
    read the project's files. None to let all launchers read such files."""
    containers: Containers | None = None
    """What runs servers in containers; None to refuse such servers."""
    runners: FarRunners = field(default_factory=FarRunners)
    """What starts servers on the far sides of bridges."""
    far_rules: Callable[[str], BridgeRules] = lambda _: BridgeRules()
    """Returns the user's rules for a bridge, by the bridge's name."""


class Starts:
    """Starts servers by their definitions, as processes or as connections to URLs."""

    def __init__(
        self,
        settings: SupervisorSettings,
        logins: Logins,
        spawn: Spawn = running,
    ) -> None:
        self.logins = logins
        self._settings = settings
        self._spawn = spawn

    async def wait_for_path(self, server: ServerSpec, far: FarPlace | None = None) -> None:
        """Wait until the PATH of the login shell is known, if the server's command needs it.

        With `far`, the server runs on another host or in a container, and needs no PATH of this
        machine.
        """
        known = self._settings.path_known
        is_forwarded = is_place(server.url)
        is_process = server.transport == "stdio" or is_forwarded
        if known.is_set() or not is_process or far is not None:
            return
        path = self.environment({})["PATH"]
        programs = (PROGRAM,) if is_forwarded else (server.program,) if server.program else ENGINES
        for program in programs:
            found = await trio.to_thread.run_sync(partial(shutil.which, program, path=path))
            if found is not None:
                return
        await known.wait()

    async def sweep_containers(self) -> None:
        """Remove the containers that an earlier daemon has left."""
        if self._settings.containers is not None:
            await trio.to_thread.run_sync(self._settings.containers.sweep)

    async def check_trust(self, server: ServerSpec) -> None:
        """Check that a person trusts `server`, if the files of a project define it.

        Raises:
            UntrustedError: nobody trusts the server, or its definition or a file that it names has
                changed since.
        """
        if not server.project:
            return
        await trio.to_thread.run_sync(self._check_trust, server)

    def _check_trust(self, server: ServerSpec) -> None:
        if self._settings.trust is None:
            raise UntrustedError(f"{server.name} of the project {server.project} is not trusted")
        parser = self._settings.parser
        reader = parser.reading() if parser is not None else DIRECT
        refuse_untrusted(server, self._settings.trust, reader)

    def opened(
        self,
        server: ServerSpec,
        values: Mapping[str, str],
        project: str,
        account: str = "",
        far: FarPlace | None = None,
    ) -> AbstractAsyncContextManager[ServerEnd]:
        """Return a context manager that starts the server; `values` are its secrets, by key.

        `account` is the login that a server by URL is reached with. With `far` the server runs on
        the other side of a bridge.

        Raises:
            MissingValueError: a placeholder's key has no value.
            FarRefusedError: the server cannot run on the far side.
        """
        if far is not None:
            rules = self._settings.far_rules(far.bridge)
            order = far_order(
                server,
                values,
                far,
                may_start=rules.may_start(server.tap, server.name),
                has_secrets=rules.has_secrets,
                is_strict=self.sandbox_request(server).level == "strict",
            )
            return far_running(order, far, self._settings.runners)
        if server.transport == "stdio":
            return self._spawn(self._process_spec(server, values, project))
        # Imported here, because few users have servers by URL.
        from capd.adapters.servers.http.remote_server import connected  # noqa: PLC0415

        spec = self.remote_spec(server, values, project, account)
        if is_place(server.url):
            return self._forwarded(server, values, project, spec)
        return connected(spec, self.logins)

    def _forwarded(
        self, server: ServerSpec, values: Mapping[str, str], project: str, spec: RemoteSpec
    ) -> AbstractAsyncContextManager[ServerEnd]:
        """Return a context manager that connects to a service of a Kubernetes cluster."""
        from capd.adapters.servers.http.remote_server import connected  # noqa: PLC0415
        from capd.adapters.servers.kubernetes import forwarded  # noqa: PLC0415

        filled = resolved(server, values, Folders(cwd=project, project=project))
        place = place_of(filled.url)
        own = self._settings.environment
        found = {key: own[key] for key in _KUBECTL_VARIABLES if key in own}
        environment = self.environment({**found, **filled.env})
        check_trust = None
        if server.project and self._settings.trust is not None:
            check_trust = partial(self._check_trust, server)
        process = ProcessSpec(
            place.command, environment, self._settings.shared_cwd, check_trust=check_trust
        )

        def connect(url: str) -> AbstractAsyncContextManager[ServerEnd]:
            # No login: the port differs each time, so a saved login would never be found.
            return connected(replace(spec, url=url, auth="none", transport="http"), self.logins)

        return forwarded(place, self._spawn(process), connect)

    def sandbox_request(self, server: ServerSpec) -> SandboxRequest:
        """Return the sandbox that `server` runs in."""
        sandboxes = self._settings.sandboxes
        return sandboxes.sandbox_request(server) if sandboxes is not None else SandboxRequest()

    def redactor(self, server: ServerSpec, values: Mapping[str, str]) -> Callable[[str], str]:
        """Return a function that removes from a text those of `values` that the server needs."""
        return redactor([values.get(key, "") for key in wanted_keys(server)])

    def environment(self, declared: Mapping[str, str]) -> dict[str, str]:
        """Return the environment variables of a process that capd starts for a server.

        `declared` are those of the server's definition.
        """
        return child_environment(
            self._settings.environment, declared, extra_path=self._settings.extra_path
        )

    def remote_spec(
        self, server: ServerSpec, values: Mapping[str, str], project: str, account: str = ""
    ) -> RemoteSpec:
        """Return what is needed to connect to a server by URL: address, headers and login.

        Raises:
            MissingValueError: a placeholder's key has no value.
        """
        filled = resolved(server, values, Folders(cwd=project, project=project))
        return RemoteSpec(
            name=filled.name,
            url=filled.url,
            headers=filled.headers,
            transport="sse" if filled.transport == "sse" else "",
            idle_timeout=max(IDLE_TIMEOUT, filled.timeout or 0.0),
            client=filled.oauth,
            account=account,
            has_others=bool(filled.further_urls),
            client_metadata_url=self._settings.client_metadata_url(),
        )

    def _process_spec(
        self, server: ServerSpec, values: Mapping[str, str], project: str
    ) -> ProcessSpec:
        # A project's own server runs at the real path that was read, not at a link to it.
        project = server.project or project
        if server.container is not None:
            return self._contained_spec(server, values, project)
        filled = resolved(server, values, Folders(cwd=project, project=project))
        # A client that names no folder has no project; its servers run where shared ones do.
        is_nowhere = server.scope == "shared" or not project
        cwd = self._settings.shared_cwd if is_nowhere else Path(project)
        box = None
        if self._settings.sandboxes is not None:
            box = self._settings.sandboxes.box(
                server, "" if is_nowhere else project, self.environment({})
            )
        environment = self.environment(filled.env)
        check_trust = None
        if server.project and self._settings.trust is not None:
            check_trust = partial(self._check_trust, server)
        launching = self._launching(server, cwd, "" if is_nowhere else project)
        argv = (filled.command, *filled.args)
        return ProcessSpec(argv, environment, cwd, box, check_trust, launching)

    def _contained_spec(
        self, server: ServerSpec, values: Mapping[str, str], project: str
    ) -> ProcessSpec:
        containers = self._settings.containers
        if containers is None:
            raise ContainerRefusedError(f"{server.name} cannot run in a container here")
        is_nowhere = server.scope == "shared" or not project
        mounted = "" if is_nowhere else os.path.realpath(project)
        # Mounted at the same path as outside, because arguments of tools contain paths.
        request = container_request(server, values, mounted, mounted)
        cwd = self._settings.shared_cwd
        launching = self._launching(server, Path(mounted or cwd), mounted)
        if launching is not None:
            launching.refuse_in_container()
        check_trust = None
        if server.project and self._settings.trust is not None:
            check_trust = partial(self._check_trust, server)
        contained = Contained(containers, request)
        words = (server.name,)
        return ProcessSpec(
            words, self.environment({}), cwd, check_trust=check_trust, contained=contained
        )

    def is_launched_otherwise(
        self,
        server: ServerSpec,
        values: Mapping[str, str],
        folder: str,
        project: str,
        *,
        is_held: bool,
    ) -> bool:
        """Tell whether a server in `folder` would now be started in another way than it was.

        `values` are its secrets. `project` is the real path of the project whose trust has changed.
        `is_held` tells whether the server's launcher runs outside the folder. This blocks.
        """
        real = os.path.realpath(folder) if folder else ""
        if not f"{real}/".startswith(f"{project.rstrip('/')}/"):
            return False
        try:
            spec = self._process_spec(server, values, folder)
        except CapdError:
            # The next start reports what is missing.
            return False
        launching = spec.launching
        if launching is None or launching.is_trusted_now(spec.argv, spec.env) is not is_held:
            return False
        return launching.rests_on_trust(spec.argv, spec.env)

    def _launching(self, server: ServerSpec, cwd: Path, project: str) -> Launching | None:
        # A project's own server was trusted together with the files that its launcher reads.
        if self._settings.empty_folders is None or server.project:
            return None
        home = self._settings.environment.get("HOME") or str(Path.home())
        trust = self._settings.trust
        return Launching(
            server.name,
            (server.command, *server.args),
            server.env,
            cwd,
            project,
            home,
            self._settings.empty_folders,
            lambda real, found: (
                trust is not None and is_start_trusted(server, found, real, home, trust)
            ),
            # A program of capd's enters the project. In the strict sandbox its file may be hidden.
            can_enter=self.sandbox_request(server).level != "strict",
        )
