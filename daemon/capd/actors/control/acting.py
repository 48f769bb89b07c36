"""Methods that act: on a session, on the catalog, on a server's login."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import msgspec

from capd.actors.control import documents
from capd.actors.control.questions import (
    ASK_TIMEOUT,
    MethodError,
    Questions,
)
from capd_protos import curator, registry, settings, supervisor
from capd_protos import socket as frames
from capd_protos.types import ServerName, SessionKey

TURN_TIMEOUT = 150.0
CALL_TIMEOUT = 3600.0
INSTALL_TIMEOUT = 1000.0
LOGIN_TIMEOUT = 700.0
RELOAD_TIMEOUT = 3600.0
"""A bound on a daemon that hangs, not on how many files there are."""

_OUTCOME_CODES = {
    "not_sent": frames.NOT_SENT,
    "outcome_unknown": frames.OUTCOME_UNKNOWN,
    "refused": frames.REFUSED,
    "not_found": frames.NOT_FOUND,
}


class Acting:
    """What changes something."""

    def __init__(self, questions: Questions) -> None:
        self._ask = questions
        self.methods: dict[str, Callable[[Any], Awaitable[Any]]] = {
            "turn": self._turn,
            "enable": partial(self._change, curator.EnableCapability),
            "disable": partial(self._change, curator.DisableCapability),
            "routing": self._routing,
            "call": self._call,
            "reload": self._reload,
            "stop": self._stop,
            "login": self._login,
            "login_wait": self._login_wait,
        }

    async def hook(self, params: frames.HookParams, peer_pid: int) -> dict[str, Any]:
        """Take a turn that a client's prompt hook brings; `peer_pid` is the hook's process."""
        request = curator.TakeHookTurn(
            params.text,
            params.client,
            params.client_session,
            params.project,
            peer_pid,
            params.turn,
            params.mute,
            params.patience,
        )
        taken = await self._ask.curator(request, curator.TurnTaken, TURN_TIMEOUT)
        return documents.turn(taken)

    async def _turn(self, params: frames.TurnParams) -> dict[str, Any]:
        request = curator.TakeTurn(
            SessionKey(params.session), params.text, params.budget, params.mute, params.patience
        )
        return documents.turn(await self._ask.curator(request, curator.TurnTaken, TURN_TIMEOUT))

    async def _change(
        self,
        change: type[curator.EnableCapability | curator.DisableCapability],
        params: frames.CapabilityParams,
    ) -> dict[str, Any]:
        request = change(SessionKey(params.session), params.name)
        return await self._answered(request, INSTALL_TIMEOUT)

    async def _routing(self, params: frames.RoutingParams) -> dict[str, Any]:
        request = curator.SwitchRouting(SessionKey(params.session), params.enabled)
        return await self._answered(request, ASK_TIMEOUT)

    async def _answered(self, request: msgspec.Struct, timeout: float) -> dict[str, Any]:
        answered = await self._ask.curator(request, curator.CapabilityAnswered, timeout)
        return {
            "schema": documents.SCHEMA,
            "session": answered.session,
            "ok": answered.is_ok,
            "text": answered.text,
            "changed": {"added": answered.added, "removed": answered.removed},
        }

    async def _call(self, params: frames.CallParams) -> dict[str, Any]:
        request = curator.CallTool(SessionKey(params.session), params.name, bytes(params.arguments))
        called = await self._ask.curator(request, curator.ToolCalled, CALL_TIMEOUT)
        if called.outcome in _OUTCOME_CODES:
            raise MethodError(_OUTCOME_CODES[called.outcome], called.message)
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
        # It has begun when it is asked for, and takes as long as there are files.
        await self._ask.settings(settings.ReloadSettings(), RELOAD_TIMEOUT)
        described = await self._ask.registry(
            registry.ReloadCatalog(), registry.RegistryDescribed, RELOAD_TIMEOUT
        )
        return {"schema": documents.SCHEMA, "taps": documents.taps(described)}

    async def _stop(self, _: frames.StopParams) -> dict[str, Any]:
        # The connection stops the daemon, before it sends this.
        return {"schema": documents.SCHEMA, "stopping": True}

    async def _login(self, params: frames.LoginParams) -> dict[str, Any]:
        begin = supervisor.LogIn(ServerName(params.name))
        opened = await self._ask.supervisor(begin, supervisor.LoginOpened, ASK_TIMEOUT * 10)
        return {"schema": documents.SCHEMA, "ticket": opened.ticket, "open": opened.address}

    async def _login_wait(self, params: frames.LoginWaitParams) -> dict[str, Any]:
        wait = supervisor.AwaitLogin(params.ticket)
        await self._ask.supervisor(wait, supervisor.LoggedIn, LOGIN_TIMEOUT)
        return {"schema": documents.SCHEMA, "logged_in": True}
