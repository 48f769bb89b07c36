"""Messages of the server supervisor: holds on servers, and what becomes of them."""

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
    """Hold a server for a session, starting it if nobody holds it yet."""

    session: SessionKey
    server: ServerSpec
    project: str
    """The session's project root, an absolute path."""
    client: ClientFacts = ClientFacts()
    """The session's client: whoever has a server started is who it meets."""
    bridge: str = ""
    """The bridge that the session came over: its sessions share instances with each other only."""


class ServerReady(msgspec.Struct, frozen=True, tag="supervisor.ready"):
    """The server runs; its frames take the server connection of `instance`."""

    instance: InstanceId
    identity: ServerIdentity
    name: ServerName
    pid: int
    tools: list[ToolDefinition]


class ServerRefused(msgspec.Struct, frozen=True, tag="supervisor.refused"):
    """The server is not to be had; the session holds nothing more than before."""

    name: ServerName
    code: ServerRefusal
    message: str
    stderr: list[str] = []


class ReleaseServer(msgspec.Struct, frozen=True, tag="supervisor.release"):
    """Drop a session's hold on an instance; holding nothing is fine."""

    session: SessionKey
    instance: InstanceId
    at_once: bool = False
    """Whether what nobody holds then is ended without its linger."""


class ReleaseSession(msgspec.Struct, frozen=True, tag="supervisor.release_session"):
    """Drop every hold of a session."""

    session: SessionKey


class HoldsReleased(msgspec.Struct, frozen=True, tag="supervisor.released"):
    """What the release left behind."""

    held_by: list[SessionKey] = []
    """Sessions that still hold the instance."""


class ListServers(msgspec.Struct, frozen=True, tag="supervisor.list"):
    """List every instance, those that failed last included."""


class ServerEntry(msgspec.Struct, frozen=True):
    """One instance."""

    name: ServerName
    identity: ServerIdentity
    instance: InstanceId
    scope: str
    project: str
    state: ServerState
    pid: int
    leases: list[SessionKey]
    tools: int
    restarts: int
    uptime: float
    last_error: str = ""
    counts: dict[str, int] = {}
    """What was dropped on the way from this run, by kind, such as `junk_lines`."""
    sandbox: str = ""
    """What its last run is confined to, for a person; empty where it is no process of capd's."""
    findings: list[str] = []
    """What of its lists is not listed and why, for a person."""
    cwd: str = ""
    """Where its last run runs; empty where it is no process of capd's."""
    cwd_reason: str = ""
    """Why its launcher is held in a project that is not trusted; empty where it is not."""
    membership: Literal["", "namespace", "cgroup", "sweep", "group"] = ""
    """How it is known which processes are its."""


class ServersListed(msgspec.Struct, frozen=True, tag="supervisor.listed"):
    """All instances, by name."""

    servers: list[ServerEntry]


class ListServerTools(msgspec.Struct, frozen=True, tag="supervisor.list_tools"):
    """Give the tools that an instance lists at this moment."""

    instance: InstanceId


class ServerTools(msgspec.Struct, frozen=True, tag="supervisor.tools"):
    """The tools; none where the instance is gone."""

    tools: list[ToolDefinition]


class InstallDependencies(msgspec.Struct, frozen=True, tag="supervisor.install"):
    """Run the installers whose check does not pass yet."""

    scripts: dict[str, str]
    """Script paths by `org/tool`."""
    session: SessionKey = SessionKey("")
    """Who waits for them: when nobody does any more, a script is ended."""
    lacking: list[str] = []
    """What is required as well, and the tap has no script for."""
    commands: list[str] = []
    """The servers' commands: where they are on the PATH, what is lacking is not needed."""
    wait: str = ""
    """What the session calls this wait by, to end it alone."""


class DependenciesReady(msgspec.Struct, frozen=True, tag="supervisor.installed"):
    """Everything that was asked for is there."""

    installed: list[str]
    present: list[str]


class DependenciesFailed(msgspec.Struct, frozen=True, tag="supervisor.install_failed"):
    """An installer failed; those before it stay installed."""

    dependency: str
    message: str


class LeaveInstall(msgspec.Struct, frozen=True, omit_defaults=True, tag="supervisor.leave_install"):
    """Wait for no dependency any more; waiting for none is fine. `HoldsReleased` answers."""

    session: SessionKey
    wait: str = ""
    """Which wait of the session ends; empty for all of them."""


class InstallStarted(msgspec.Struct, frozen=True, tag="install.started"):
    """A dependency's script runs."""

    dependency: str


class InstallSaid(msgspec.Struct, frozen=True, tag="install.said"):
    """The last line of what a script says, once a second at most."""

    dependency: str
    line: str
    seconds: float
    """Since it began."""


class InstallEnded(msgspec.Struct, frozen=True, tag="install.ended"):
    """A dependency's script has ended, or did not have to run."""

    dependency: str
    outcome: InstallOutcome
    seconds: float
    message: str = ""


class LogIn(msgspec.Struct, frozen=True, omit_defaults=True, tag="supervisor.log_in"):
    """Begin a person's login at a server that is reached by URL."""

    name: ServerName
    account: str = ""
    """Which of several logins at the server; empty for the usual one."""
    way: LoginWay = "browser"
    server: ServerSpec | None = None
    """The definition, for a server that no session has asked for yet."""


class LoginOpened(msgspec.Struct, frozen=True, omit_defaults=True, tag="supervisor.login_opened"):
    """The person has to open an address; ask `AwaitLogin` how it went."""

    ticket: int
    address: str
    user_code: str = ""
    """What the person enters there; empty in a login by browser."""


class PasteLogin(msgspec.Struct, frozen=True, tag="supervisor.paste_login"):
    """Hand over the address that the browser was sent to at the end of a login."""

    ticket: int
    address: str


class LoginPasted(msgspec.Struct, frozen=True, tag="supervisor.login_pasted"):
    """The address is of that login; ask `AwaitLogin` how it went."""


class LogOut(msgspec.Struct, frozen=True, omit_defaults=True, tag="supervisor.log_out"):
    """Forget a login at a server that is reached by URL."""

    name: ServerName
    account: str = ""
    server: ServerSpec | None = None
    """As of `LogIn`."""


class LoggedOut(msgspec.Struct, frozen=True, tag="supervisor.logged_out"):
    """No login is kept there now."""

    was_logged_in: bool
    is_revoked: bool = False
    """Whether the authorization server has revoked the tokens."""
    failure: str = ""
    """Why it did not, though it says that it can."""


class AwaitLogin(msgspec.Struct, frozen=True, tag="supervisor.await_login"):
    """Wait for the end of a login."""

    ticket: int


class LoggedIn(msgspec.Struct, frozen=True, tag="supervisor.logged_in"):
    """The login is kept, and used from here on."""


class LoginFailed(msgspec.Struct, frozen=True, tag="supervisor.login_failed"):
    """There is no login."""

    message: str


class ServerStarted(msgspec.Struct, frozen=True, tag="server.started"):
    """A server is ready."""

    name: ServerName
    identity: ServerIdentity
    instance: InstanceId
    pid: int


class ServerExited(msgspec.Struct, frozen=True, tag="server.exited"):
    """An instance is gone with its whole process tree."""

    name: ServerName
    identity: ServerIdentity
    instance: InstanceId
    reason: str


class ServerToolsChanged(msgspec.Struct, frozen=True, tag="server.tools_changed"):
    """A server lists other tools than before; ask `ListServerTools` for them."""

    name: ServerName
    instance: InstanceId


class ToolListKept(msgspec.Struct, frozen=True, tag="server.listed"):
    """What a server lists is on disk."""

    name: ServerName
    identity: ServerIdentity


class EndProject(msgspec.Struct, frozen=True, tag="supervisor.end_project"):
    """End every server that a project's files define, whoever holds it."""

    project: str
    """Its real path."""


class TrustChanged(msgspec.Struct, frozen=True, tag="supervisor.trust_changed"):
    """Start again the user's own servers that start otherwise since a project's trust changed."""

    project: str
    """Its real path."""


class ServersRestarted(msgspec.Struct, frozen=True, tag="supervisor.servers_restarted"):
    """They are being ended, and start again for who holds them."""

    servers: list[ServerName]


class ProjectEnded(msgspec.Struct, frozen=True, tag="supervisor.project_ended"):
    """They are being ended."""

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
    | HoldsReleased
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
    | InstallSaid
    | InstallEnded
)
