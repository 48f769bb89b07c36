"""Methods that change something: a session, the catalog, or a server's login."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec

from capd.actor_clients.client import RELOAD_TIMEOUT
from capd.actors.control import documents
from capd.actors.control.actors import ASK_TIMEOUT, Actors, MethodError, accepted
from capd.actors.control.callers import is_person
from capd.adapters.clients.peers import Peer
from capd.adapters.clients.turn_document import turn_document
from capd.core.sessions.own_tools import for_person
from capd_protos import curator, supervisor
from capd_protos import socket as frames
from capd_protos.naming import Named, NameTable, offer
from capd_protos.types import ServerName, ServerSpec, SessionKey

T = TypeVar("T")

TURN_TIMEOUT = 150.0
CALL_TIMEOUT = 3600.0
INSTALL_TIMEOUT = 1000.0
LOGIN_TIMEOUT = 700.0

_OUTCOME_CODES = {
    "not_sent": frames.NOT_SENT,
    "outcome_unknown": frames.OUTCOME_UNKNOWN,
    "refused": frames.REFUSED,
    "not_found": frames.NOT_FOUND,
}


class ActionMethods:
    """The control methods that change a session, a server or the daemon."""

    def __init__(self, actors: Actors) -> None:
        self._actors = actors
        self.methods: dict[str, Callable[[Any], Awaitable[Any]]] = {
            "turn": self._turn,
            "routing": self._routing,
            "call": self._call,
            "reload": self._reload,
            "stop": self._stop,
            "login": self._login,
            "login_paste": self._login_paste,
            "login_wait": self._login_wait,
            "logout": self._logout,
        }
        # The methods that need to know which process calls.
        self.personal: dict[str, Callable[[Any, Peer], Awaitable[Any]]] = {
            "enable": self._enable,
            "disable": self._disable,
        }

    async def hook(self, params: frames.HookParams, peer_pid: int) -> dict[str, Any]:
        """Run the turn that a prompt hook sends; return the document `turn`.

        `peer_pid` is the pid of the hook's process.
        """
        request = curator.TakeHookTurn(
            params.text,
            params.client,
            params.client_session,
            params.project,
            peer_pid,
            params.turn,
            params.mute,
            params.patience,
            params.longest,
            params.again,
        )
        taken = accepted(await self._actors.curator.take_hook_turn(request, timeout=TURN_TIMEOUT))
        return turn_document(taken)

    async def _turn(self, params: frames.TurnParams) -> dict[str, Any]:
        request = curator.TakeTurn(
            SessionKey(params.session),
            params.text,
            params.budget,
            params.mute,
            params.patience,
            params.longest,
            params.again,
        )
        taken = accepted(await self._actors.curator.take_turn(request, timeout=TURN_TIMEOUT))
        return turn_document(taken)

    async def _enable(self, params: frames.CapabilityParams, peer: Peer) -> dict[str, Any]:
        ask, session = self._actors.curator, SessionKey(params.session)
        if await is_person(peer):
            switched = ask.switch(session, params.name, is_on=True, timeout=INSTALL_TIMEOUT)
        else:
            switched = ask.enable(session, params.name, timeout=INSTALL_TIMEOUT)
        return _switch_document(await switched)

    async def _disable(self, params: frames.CapabilityParams, peer: Peer) -> dict[str, Any]:
        ask, session = self._actors.curator, SessionKey(params.session)
        if await is_person(peer):
            switched = ask.switch(session, params.name, is_on=False, timeout=INSTALL_TIMEOUT)
        else:
            switched = ask.disable(session, params.name, timeout=INSTALL_TIMEOUT)
        return _switch_document(await switched)

    async def _routing(self, params: frames.RoutingParams) -> dict[str, Any]:
        session = SessionKey(params.session)
        return _switch_document(
            await self._actors.curator.switch_routing(session, is_on=params.enabled)
        )

    async def _call(self, params: frames.CallParams) -> dict[str, Any]:
        request = curator.CallTool(SessionKey(params.session), params.name, bytes(params.arguments))
        called = accepted(await self._actors.curator.call_tool(request, timeout=CALL_TIMEOUT))
        if called.outcome in _OUTCOME_CODES:
            raise MethodError(_OUTCOME_CODES[called.outcome], for_person(called.message))
        if called.outcome == "error":
            text = f"the server answered with an error: {called.result.decode(errors='replace')}"
            raise MethodError(frames.REFUSED, text)
        return {
            "schema": documents.SCHEMA,
            "session": called.session,
            "outcome": called.outcome,
            "result": msgspec.Raw(called.result),
        }

    async def _reload(self, _: frames.NoParams) -> dict[str, Any]:
        # Each of the two actors replies when it has read its files, however many there are.
        await self._actors.settings.reload(timeout=RELOAD_TIMEOUT)
        described = await self._actors.registry.reload(timeout=RELOAD_TIMEOUT)
        return {"schema": documents.SCHEMA, "taps": documents.taps(described)}

    async def _stop(self, _: frames.StopParams) -> dict[str, Any]:
        # `connection.py` stops the daemon before it sends this answer.
        return {"schema": documents.SCHEMA, "stopping": True}

    async def _login(self, params: frames.LoginParams) -> dict[str, Any]:
        name, server, hint = await self._remote_server(params.name)
        request = supervisor.LogIn(name, params.account, params.way, server)
        reply = await self._actors.supervisor.log_in(request, timeout=ASK_TIMEOUT * 10)
        opened = accepted(_with_hint(reply, hint))
        return {
            "schema": documents.SCHEMA,
            "ticket": opened.ticket,
            "open": opened.address,
            "user_code": opened.user_code,
        }

    async def _remote_server(self, name: str) -> tuple[ServerName, ServerSpec | None, str]:
        """Return the name, the definition and a hint for a server that is reached by URL.

        The definition is None if no tap of the user has such a server; the hint then says what may
        have been meant. Servers of projects are not looked up, because they may be untrusted: a
        person can log in at one only while it runs.
        """
        specs = await self._actors.registry.specs()
        servers = {
            str(server.name): server
            for spec in specs
            for server in spec.servers
            if server.transport != "stdio" and not server.project
        }
        meant = NameTable(servers).find(name)
        if isinstance(meant, Named):
            return ServerName(meant.name), servers[meant.name], ""
        return ServerName(name), None, offer(meant)

    async def _login_paste(self, params: frames.LoginPasteParams) -> dict[str, Any]:
        accepted(await self._actors.supervisor.paste_login(params.ticket, params.address))
        return {"schema": documents.SCHEMA, "pasted": True}

    async def _login_wait(self, params: frames.LoginWaitParams) -> dict[str, Any]:
        accepted(await self._actors.supervisor.await_login(params.ticket, timeout=LOGIN_TIMEOUT))
        return {"schema": documents.SCHEMA, "logged_in": True}

    async def _logout(self, params: frames.LogoutParams) -> dict[str, Any]:
        name, server, hint = await self._remote_server(params.name)
        request = supervisor.LogOut(name, params.account, server)
        reply = await self._actors.supervisor.log_out(request, timeout=ASK_TIMEOUT * 2)
        left = accepted(_with_hint(reply, hint))
        return {
            "schema": documents.SCHEMA,
            "was_logged_in": left.was_logged_in,
            "revoked": left.is_revoked,
            "failure": left.failure,
        }


def _with_hint(reply: T | supervisor.LoginFailed, hint: str) -> T | supervisor.LoginFailed:
    """Return `reply`; if it is a refusal, append the hint to its text."""
    if isinstance(reply, supervisor.LoginFailed) and hint:
        return supervisor.LoginFailed(f"{reply.message} ({hint})")
    return reply


def _switch_document(reply: curator.CapabilityAnswered | curator.CuratorRefused) -> dict[str, Any]:
    answered = accepted(reply)
    return {
        "schema": documents.SCHEMA,
        "session": answered.session,
        "ok": answered.is_ok,
        "text": for_person(answered.text),
        "changed": {"added": answered.added, "removed": answered.removed},
    }
