"""The interface of a session towards its connection; `SessionCalls` implements it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import msgspec

from capd.adapters.servers.callers import Caller
from capd.adapters.servers.server_connection import ServerConnection
from capd.core.protocol.generations import Members
from capd.core.protocol.tasks import TASK_METHODS
from capd.core.results.large_results import Result
from capd_protos.types import ClientFacts

RELAYED = TASK_METHODS | {"tools/call", "prompts/get", "resources/read", "completion/complete"}
"""Requests that are passed on to the server whose tool, prompt, resource or task they name."""

HANDSHAKE_ONLY = frozenset(
    {"initialize", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"}
)
"""Requests that the stateless generation does not know."""

LISTS = {
    "tools/list": "tools",
    "capd/tools": "seen tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resources/templates",
}


_MEMBER = {
    "tools/list": b"tools",
    "capd/tools": b"tools",
    "prompts/list": b"prompts",
    "resources/list": b"resources",
    "resources/templates/list": b"resourceTemplates",
}


def listing(method: str, entries: list[bytes]) -> bytes:
    """Return the result of the list request `method`; equal `entries` give equal bytes."""
    return b'{"%s":[%s]}' % (_MEMBER[method], b",".join(entries))


class UnknownNameError(Exception):
    """The session has no tool, prompt or resource of this name; the text may suggest others."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request for the session. `members` are its params as the client wrote them."""

    method: str
    members: Members
    caller: Caller


class DirectRoute(Protocol):
    """The route of a call that the daemon passes on unchanged.

    Its user calls `leave` exactly once.
    """

    server_connection: ServerConnection
    members: Members
    """The call's params, as the server gets them."""
    timeout: float | None

    def leave(
        self, result: Result | None, error: Exception | None = None, *, has_ended: bool = True
    ) -> bool:
        """End the call's use of its server; return whether the caller must then call `release`.

        Either `result` or `error` is the call's outcome, which is noted for the session. With
        `has_ended=False` no outcome is noted: the call was not begun, or goes on in a task of its
        own.
        """
        ...

    def is_unchanged(self, result: Result) -> bool:
        """Tell whether the client gets `result` exactly as the server wrote it."""
        ...

    async def passed(self, result: Result) -> Result:
        """Return the result as the client gets it: unchanged, shortened, or with an addition."""
        ...

    async def release(self) -> None:
        """Release the lease of a server that was kept for this call only."""
        ...


class Conversation(Protocol):
    """What a connection may request of its session."""

    def on_client_info(self, client: ClientFacts) -> None:
        """Note the client info of the handshake or of a stateless request."""
        ...

    async def renew_subscriptions(self) -> None:
        """Start the stopped servers that have the client's subscriptions; subscribe there again.

        The client may have subscribed on an earlier connection.
        """
        ...

    async def start(self) -> None:
        """Wait briefly for the index of capabilities, a part of the answer to `initialize`."""
        ...

    async def wait_ready(self) -> None:
        """Wait for the index of capabilities again, if client info has changed the policy."""
        ...

    def instructions(self) -> str:
        """Return the instructions for the model, for the answer to `initialize`."""
        ...

    def extensions(self) -> Mapping[str, msgspec.Raw]:
        """Return the extensions of the protocol that are supported, with their settings."""
        ...

    async def list_entries(self, kind: str) -> list[bytes]:
        """Return the entries of a list as JSON for the client; `kind` is a value in `LISTS`."""
        ...

    async def relay(self, request: Request) -> Result:
        """Pass a request on to the server of the item that it names; return the server's result.

        Raises:
            UnknownNameError: the request names nothing that is listed.
            CallFailedError, ServerError: the call failed, as these classes describe.
            MalformedError: the params of the request are not valid.
        """
        ...

    def direct_route(self, request: Request) -> DirectRoute | None:
        """Return the route of a `tools/call` that `relay` would pass on unchanged. Never waits.

        Return None for every other request; `relay` handles it.
        """
        ...

    async def subscribe(self, uri: str) -> bytes:
        """Subscribe to the resource `uri` at its server; return the server's result.

        Raises the same errors as `relay`.
        """
        ...

    async def unsubscribe(self, uri: str) -> bytes:
        """End the subscription to the resource `uri`; return the server's result.

        Raises the same errors as `relay`.
        """
        ...

    async def watch_task(self, task: str) -> bytes | None:
        """Listen for changes of a task; return its state as JSON.

        Return None if the task's server does not announce changes, or if that server is not known.
        The state is empty if the server answers without one. Raises the same errors as `relay`.
        """
        ...

    def unwatch_task(self, task: str) -> None:
        """Stop listening for changes of the task with the id `task`."""
        ...

    async def follow_level(self) -> None:
        """Tell the servers the log level that the client has just set."""
        ...

    def on_roots_changed(self) -> None:
        """Tell servers that the client's roots have changed."""
        ...

    async def turn(self, text: str) -> bytes:
        """Return the result of the request `capd/turn`; `text` is what the user has written."""
        ...

    def on_environment(self, values: dict[str, str]) -> None:
        """Note the values of environment variables that the client has sent on request."""
        ...
