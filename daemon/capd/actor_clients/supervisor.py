"""Asks the supervisor to lease servers, install what they need, and log in to them."""

from capd.actor_clients.client import ANSWER_TIMEOUT, ActorClient
from capd.actor_clients.names import SUPERVISOR
from capd_protos import supervisor as messages
from capd_protos.codec import MsgpackCodec
from capd_protos.types import InstanceId, ServerName, SessionKey, ToolDefinition

_SERVER_READY: MsgpackCodec[messages.ServerReady | messages.ServerRefused] = MsgpackCodec(
    messages.ServerReady | messages.ServerRefused
)
_HOLDS_RELEASED: MsgpackCodec[messages.LeasesReleased] = MsgpackCodec(messages.LeasesReleased)
_SERVERS_LISTED: MsgpackCodec[messages.ServersListed] = MsgpackCodec(messages.ServersListed)
_SERVER_TOOLS: MsgpackCodec[messages.ServerTools] = MsgpackCodec(messages.ServerTools)
_DEPENDENCIES_READY: MsgpackCodec[messages.DependenciesReady | messages.DependenciesFailed] = (
    MsgpackCodec(messages.DependenciesReady | messages.DependenciesFailed)
)
_LOGIN_OPENED: MsgpackCodec[messages.LoginOpened | messages.LoginFailed] = MsgpackCodec(
    messages.LoginOpened | messages.LoginFailed
)
_LOGIN_PASTED: MsgpackCodec[messages.LoginPasted | messages.LoginFailed] = MsgpackCodec(
    messages.LoginPasted | messages.LoginFailed
)
_LOGGED_OUT: MsgpackCodec[messages.LoggedOut | messages.LoginFailed] = MsgpackCodec(
    messages.LoggedOut | messages.LoginFailed
)
_LOGGED_IN: MsgpackCodec[messages.LoggedIn | messages.LoginFailed] = MsgpackCodec(
    messages.LoggedIn | messages.LoginFailed
)
_SERVERS_RESTARTED: MsgpackCodec[messages.ServersRestarted] = MsgpackCodec(
    messages.ServersRestarted
)
_PROJECT_ENDED: MsgpackCodec[messages.ProjectEnded] = MsgpackCodec(messages.ProjectEnded)


class SupervisorClient(ActorClient):
    """Asks the supervisor to lease servers, install what they need, and log in to them."""

    actor = SUPERVISOR

    async def acquire(
        self, request: messages.AcquireServer, *, timeout: float
    ) -> messages.ServerReady | messages.ServerRefused:
        """Lease a server for a session, starting it if necessary; return when it is ready."""
        return await self._ask(request, _SERVER_READY, timeout)

    async def release(
        self,
        session: SessionKey,
        instance: InstanceId,
        *,
        at_once: bool = False,
        timeout: float = ANSWER_TIMEOUT,
    ) -> list[SessionKey]:
        """Release a session's lease on an instance; return the sessions that still hold it.

        With `at_once`, an instance that no session holds is stopped immediately. Otherwise it is
        kept for some seconds.
        """
        reply = await self._ask(
            messages.ReleaseServer(session, instance, at_once), _HOLDS_RELEASED, timeout
        )
        return reply.held_by

    async def release_session(
        self, session: SessionKey, *, timeout: float = ANSWER_TIMEOUT
    ) -> None:
        """Release every lease of a session."""
        await self._ask(messages.ReleaseSession(session), _HOLDS_RELEASED, timeout)

    async def servers(self, *, timeout: float = ANSWER_TIMEOUT) -> list[messages.ServerEntry]:
        """List every instance, including those that failed lately."""
        return (await self._ask(messages.ListServers(), _SERVERS_LISTED, timeout)).servers

    async def tools(
        self, instance: InstanceId, *, timeout: float = ANSWER_TIMEOUT
    ) -> list[ToolDefinition]:
        """Return the tools that an instance lists; none if it is gone."""
        return (await self._ask(messages.ListServerTools(instance), _SERVER_TOOLS, timeout)).tools

    async def install(
        self, request: messages.InstallDependencies, *, timeout: float
    ) -> messages.DependenciesReady | messages.DependenciesFailed:
        """Run the scripts that install what servers need; skip those whose check passes."""
        return await self._ask(request, _DEPENDENCIES_READY, timeout)

    async def leave_install(self, session: SessionKey, wait: str, *, timeout: float) -> None:
        """End a session's wait for dependency scripts; `wait` is the id in its request."""
        await self._ask(messages.LeaveInstall(session, wait), _HOLDS_RELEASED, timeout)

    async def log_in(
        self, request: messages.LogIn, *, timeout: float
    ) -> messages.LoginOpened | messages.LoginFailed:
        """Begin a login at a server that is reached by URL.

        Return the address that the person opens, and the login's ticket: a number that
        `paste_login` and `await_login` take.
        """
        return await self._ask(request, _LOGIN_OPENED, timeout)

    async def paste_login(
        self, ticket: int, address: str, *, timeout: float = ANSWER_TIMEOUT
    ) -> messages.LoginPasted | messages.LoginFailed:
        """Finish the login `ticket` with the address to which the browser was redirected."""
        return await self._ask(messages.PasteLogin(ticket, address), _LOGIN_PASTED, timeout)

    async def log_out(
        self, request: messages.LogOut, *, timeout: float
    ) -> messages.LoggedOut | messages.LoginFailed:
        """Delete the saved login at a server that is reached by URL."""
        return await self._ask(request, _LOGGED_OUT, timeout)

    async def await_login(
        self, ticket: int, *, timeout: float
    ) -> messages.LoggedIn | messages.LoginFailed:
        """Wait for the login `ticket` to end, and return its outcome."""
        return await self._ask(messages.AwaitLogin(ticket), _LOGGED_IN, timeout)

    async def trust_changed(
        self, project: str, *, timeout: float = ANSWER_TIMEOUT
    ) -> list[ServerName]:
        """Restart the user's servers whose start depends on a project's trust; return the names."""
        reply = await self._ask(messages.TrustChanged(project), _SERVERS_RESTARTED, timeout)
        return reply.servers

    async def end_project(
        self, project: str, *, timeout: float = ANSWER_TIMEOUT
    ) -> list[ServerName]:
        """Stop every server that a project's files define; return their names."""
        return (await self._ask(messages.EndProject(project), _PROJECT_ENDED, timeout)).servers
