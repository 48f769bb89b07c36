"""Messages of the supervisor: leases on servers, installers, logins, and what runs.

An instance is a running connection to a server: a process, or an HTTP connection. A lease is a
session's hold on an instance. An instance without leases is stopped after a while, its linger. A
launcher is a program such as npx that fetches a package and runs it.
"""

from typing import Literal

import msgspec

from capd_protos.types import (
    ClientFacts,
    InstanceId,
    ServerIdentity,
    ServerName,
    ServerSpec,
    SessionKey,
    ToolDefinition,
)

ServerRefusal = Literal[
    "cannot_start", "backing_off", "parked", "missing_secrets", "unsupported_transport"
]
ServerState = Literal[
    "starting", "ready", "lingering", "stopping", "backing_off", "failed", "parked"
]
LoginWay = Literal["browser", "device"]
InstallOutcome = Literal["installed", "present", "failed", "cancelled"]


class AcquireServer(msgspec.Struct, frozen=True, tag="supervisor.acquire"):
    """Take a lease on a server for a session; start the server if it does not run."""

    session: SessionKey
    server: ServerSpec
    project: str
    """The session's project root, an absolute path."""
    client: ClientFacts = ClientFacts()
    """The session's client. If this request starts the server, the server is told the client's name
    and capabilities."""
    bridge: str = ""
    """The bridge that the session came over; only sessions of the same bridge share its instances.
    """
    far_folder: str = ""
    """The session's project on the far side of the bridge; empty if it named none."""


class ServerReady(msgspec.Struct, frozen=True, tag="supervisor.ready"):
    """Reply to `AcquireServer`: the server is running, and the session has a lease on `instance`.

    The session's requests go over the connection of that instance.
    """

    instance: InstanceId
    identity: ServerIdentity
    name: ServerName
    pid: int
    tools: list[ToolDefinition]


class ServerRefused(msgspec.Struct, frozen=True, tag="supervisor.refused"):
    """Reply to `AcquireServer`: the server could not be started or may not be used.

    The session holds no new lease.
    """

    name: ServerName
    code: ServerRefusal
    message: str
    stderr: list[str] = []


class ReleaseServer(msgspec.Struct, frozen=True, tag="supervisor.release"):
    """Release a session's lease on an instance; having none is no error."""

    session: SessionKey
    instance: InstanceId
    at_once: bool = False
    """Whether to stop the instance without its linger if no lease is left."""


class ReleaseSession(msgspec.Struct, frozen=True, tag="supervisor.release_session"):
    """Release every lease of a session."""

    session: SessionKey


class LeasesReleased(msgspec.Struct, frozen=True, tag="supervisor.released"):
    """Reply to a request that releases leases.

    An instance keeps running while other sessions lease it.
    """

    held_by: list[SessionKey] = []
    """Sessions that still hold a lease on the instance."""


class ListServers(msgspec.Struct, frozen=True, tag="supervisor.list"):
    """List every instance, including the newest of those that failed."""


class ServerEntry(msgspec.Struct, frozen=True):
    """One instance of a server, as the status and the list of servers show it."""

    name: ServerName
    identity: ServerIdentity
    instance: InstanceId
    scope: str
    project: str
    state: ServerState
    pid: int
    leases: list[SessionKey]
    """The sessions that have a lease on it."""
    tools: int
    """How many tools it lists."""
    restarts: int
    uptime: float
    """Seconds since it became ready; 0 if it is not ready."""
    last_error: str = ""
    counts: dict[str, int] = {}
    """How many items of this run were dropped, by kind, such as `junk_lines`."""
    sandbox: str = ""
    """The sandbox of its last run, to show to a person; empty if it is not a process of capd's."""
    findings: list[str] = []
    """Which entries of its lists are left out and why, to show to a person."""
    cwd: str = ""
    """The working directory of its last run; empty if it is not a process of capd's."""
    cwd_reason: str = ""
    """Why its launcher runs in an empty folder: the project is not trusted. Empty if it runs in the
    project."""
    membership: Literal["", "namespace", "cgroup", "sweep", "group"] = ""
    """How capd knows which processes belong to it."""
    bridge: str = ""
    """The bridge on whose far side it runs; `project` and `cwd` are paths there. Empty if it runs
    on this machine."""


class ServersListed(msgspec.Struct, frozen=True, tag="supervisor.listed"):
    """Reply to `ListServers`: all instances, ordered by name."""

    servers: list[ServerEntry]


class ListServerTools(msgspec.Struct, frozen=True, tag="supervisor.list_tools"):
    """Return the tools that an instance lists at this moment."""

    instance: InstanceId


class ServerTools(msgspec.Struct, frozen=True, tag="supervisor.tools"):
    """Reply to `ListServerTools`: the tools; empty if the instance has ended."""

    tools: list[ToolDefinition]


class InstallDependencies(msgspec.Struct, frozen=True, tag="supervisor.install"):
    """Install those dependencies that their scripts' own checks report as missing."""

    scripts: dict[str, str]
    """Script paths by `org/tool`."""
    session: SessionKey = SessionKey("")
    """The session that waits for them. When no session waits, the scripts are stopped."""
    lacking: list[str] = []
    """Dependencies that are required and for which the tap has no script."""
    commands: list[str] = []
    """The servers' commands. If all are on the PATH, dependencies without a script are not needed.
    """
    wait: str = ""
    """An id for this wait, with which `LeaveInstall` can end it."""


class DependenciesReady(msgspec.Struct, frozen=True, tag="supervisor.installed"):
    """Reply to `InstallDependencies`: every dependency is installed."""

    installed: list[str]
    present: list[str]


class DependenciesFailed(msgspec.Struct, frozen=True, tag="supervisor.install_failed"):
    """Reply to `InstallDependencies`: a script failed, or a required one is missing.

    Dependencies that were installed before the failure stay installed.
    """

    dependency: str
    message: str


class LeaveInstall(msgspec.Struct, frozen=True, omit_defaults=True, tag="supervisor.leave_install"):
    """Stop waiting for dependencies. It is no error if the session does not wait for any.

    The answer is `LeasesReleased` with an empty `held_by`.
    """

    session: SessionKey
    wait: str = ""
    """Which wait of the session to end; empty for all of them."""


class InstallStarted(msgspec.Struct, frozen=True, tag="install.started"):
    """Event: the script that installs a dependency is running."""

    dependency: str


class InstallOutput(msgspec.Struct, frozen=True, tag="install.said"):
    """Event: the newest line of a dependency script's output; sent at most once a second."""

    dependency: str
    line: str
    seconds: float
    """Seconds since the script started."""


class InstallEnded(msgspec.Struct, frozen=True, tag="install.ended"):
    """Event: the script that installs a dependency has ended, or was not needed."""

    dependency: str
    outcome: InstallOutcome
    seconds: float
    message: str = ""


class LogIn(msgspec.Struct, frozen=True, omit_defaults=True, tag="supervisor.log_in"):
    """Begin a login at a server that is reached by URL."""

    name: ServerName
    account: str = ""
    """Which of several logins at the server; empty for the usual one."""
    way: LoginWay = "browser"
    server: ServerSpec | None = None
    """The definition, if no session has asked for the server yet."""


class LoginOpened(msgspec.Struct, frozen=True, omit_defaults=True, tag="supervisor.login_opened"):
    """Reply to `LogIn`: the person must open `address` in a browser.

    `AwaitLogin` returns the outcome of the login.
    """

    ticket: int
    address: str
    user_code: str = ""
    """The code that the person enters there, with the way `device`; otherwise empty."""


class PasteLogin(msgspec.Struct, frozen=True, tag="supervisor.paste_login"):
    """Pass on the address that the browser was redirected to at the end of a login."""

    ticket: int
    address: str


class LoginPasted(msgspec.Struct, frozen=True, tag="supervisor.login_pasted"):
    """Reply to `PasteLogin`: the address belongs to that login.

    `AwaitLogin` returns the outcome.
    """


class LogOut(msgspec.Struct, frozen=True, omit_defaults=True, tag="supervisor.log_out"):
    """Delete the login at a server that is reached by URL."""

    name: ServerName
    account: str = ""
    server: ServerSpec | None = None
    """The server's definition, if no session has asked for the server yet."""


class LoggedOut(msgspec.Struct, frozen=True, tag="supervisor.logged_out"):
    """Reply to `LogOut`: no login at that server is stored any longer."""

    was_logged_in: bool
    is_revoked: bool = False
    """Whether the authorization server has revoked the tokens."""
    failure: str = ""
    """Why revoking the tokens failed; empty if it succeeded, or if the authorization server does
    not offer it."""


class AwaitLogin(msgspec.Struct, frozen=True, tag="supervisor.await_login"):
    """Wait until a login that has begun succeeds or fails."""

    ticket: int


class LoggedIn(msgspec.Struct, frozen=True, tag="supervisor.logged_in"):
    """Reply to `AwaitLogin`: the login has succeeded; it is stored and will be used."""


class LoginFailed(msgspec.Struct, frozen=True, tag="supervisor.login_failed"):
    """Reply to a request about a login that failed or does not exist; `message` says why."""

    message: str


class ServerStarted(msgspec.Struct, frozen=True, tag="server.started"):
    """Event: a server is ready."""

    name: ServerName
    identity: ServerIdentity
    instance: InstanceId
    pid: int


class ServerExited(msgspec.Struct, frozen=True, tag="server.exited"):
    """Event: an instance that was ready has ended, with its whole process tree."""

    name: ServerName
    identity: ServerIdentity
    instance: InstanceId
    reason: str


class ServerToolsChanged(msgspec.Struct, frozen=True, tag="server.tools_changed"):
    """Event: a server's list of tools has changed; `ListServerTools` returns it."""

    name: ServerName
    instance: InstanceId


class ToolListKept(msgspec.Struct, frozen=True, tag="server.listed"):
    """Event: a server's list of tools was written to disk."""

    name: ServerName
    identity: ServerIdentity


class EndProject(msgspec.Struct, frozen=True, tag="supervisor.end_project"):
    """Stop every server that a project's files define, whoever holds a lease on it."""

    project: str
    """The project's path with links resolved."""


class TrustChanged(msgspec.Struct, frozen=True, tag="supervisor.trust_changed"):
    """Restart the user's own servers that start differently in a trusted project.

    The trust of `project` has changed. In a project that is not trusted, launchers are restricted.
    """

    project: str
    """The project's path with links resolved."""


class ServersRestarted(msgspec.Struct, frozen=True, tag="supervisor.servers_restarted"):
    """Reply to `TrustChanged`: the servers that are being stopped.

    They start again for the sessions that lease them.
    """

    servers: list[ServerName]


class ProjectEnded(msgspec.Struct, frozen=True, tag="supervisor.project_ended"):
    """Reply to `EndProject`: the project's servers, which are being stopped."""

    servers: list[ServerName]


Request = (
    AcquireServer
    | ReleaseServer
    | ReleaseSession
    | ListServers
    | ListServerTools
    | InstallDependencies
    | LeaveInstall
    | LogIn
    | PasteLogin
    | AwaitLogin
    | LogOut
    | EndProject
    | TrustChanged
)
Reply = (
    ServerReady
    | ServerRefused
    | LeasesReleased
    | ServersListed
    | ServerTools
    | DependenciesReady
    | DependenciesFailed
    | LoginOpened
    | LoginPasted
    | LoggedIn
    | LoggedOut
    | LoginFailed
    | ProjectEnded
    | ServersRestarted
)
Event = (
    ServerStarted
    | ServerExited
    | ServerToolsChanged
    | ToolListKept
    | InstallStarted
    | InstallOutput
    | InstallEnded
)
