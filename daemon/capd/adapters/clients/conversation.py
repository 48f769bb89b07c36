"""What a session offers to its connection."""

from dataclasses import dataclass
from typing import Protocol

from capd.adapters.servers.callers import Caller
from capd.adapters.servers.server_connection import ServerConnection
from capd.core.protocol.generations import Members
from capd.core.results.large_results import Result
from capd_protos.types import ClientFacts

RELAYED = frozenset({"tools/call", "prompts/get", "resources/read", "completion/complete"})
"""Requests that go to a server, each to the one that owns what it names."""

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
    """Return the result of a list, the same bytes while nothing changes."""
    return b'{"%s":[%s]}' % (_MEMBER[method], b",".join(entries))


class UnknownNameError(Exception):
    """Nothing of this name is on the surface; the text has near names."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request that is passed on; `members` are its params as the client wrote them."""

    method: str
    members: Members
    caller: Caller


class DirectRoute(Protocol):
    """The route of a call that needs nothing but to be passed on; it is left exactly once."""

    server_connection: ServerConnection
    members: Members
    """The call's params, as the server gets them."""
    timeout: float | None

    def leave(
        self, result: Result | None, error: Exception | None = None, *, has_ended: bool = True
    ) -> bool:
        """Leave it with the call's outcome, if it has one here; say whether `release` is due.

        Without `has_ended` the call was not begun, or goes another way.
        """
        ...

    def is_left(self, result: Result) -> bool:
        """Tell whether the client gets the result as it came."""
        ...

    async def passed(self, result: Result) -> Result:
        """Return what the client gets of the result."""
        ...

    async def release(self) -> None:
        """Let go of what was kept for the length of the call alone."""
        ...


class Conversation(Protocol):
    """A session, as its connection sees it."""

    def on_client_info(self, client: ClientFacts) -> None:
        """Note what the client says of itself."""
        ...

    async def renew_subscriptions(self) -> None:
        """Have what the client subscribed to before its connection told to it again."""
        ...

    async def start(self) -> None:
        """Wait, a moment at most, for what the first answers are to say."""
        ...

    async def wait_ready(self) -> None:
        """Wait, a moment at most, for what the client's words about itself change of that."""
        ...

    def instructions(self) -> str:
        """Return the text for the model in the answer to `initialize`."""
        ...

    async def list_entries(self, kind: str) -> list[bytes]:
        """Return the entries of one of `LISTS`, each as the client gets it."""
        ...

    async def relay(self, request: Request) -> Result:
        """Return the result of a request of `RELAYED`.

        Raises:
            UnknownNameError: it names nothing that is shown.
            CallFailedError, ServerError: see there.
            MalformedError: its params are none.
        """
        ...

    def direct_route(self, request: Request) -> DirectRoute | None:
        """Return the route of a `tools/call` that `relay` would only pass on, without a wait.

        None for every other: `relay` knows what becomes of it.
        """
        ...

    async def subscribe(self, uri: str) -> bytes:
        """Subscribe to a resource; raises as `relay`."""
        ...

    async def unsubscribe(self, uri: str) -> bytes:
        """End a subscription; raises as `relay`."""
        ...

    async def follow_level(self) -> None:
        """Have servers log from the level on that the client has just set."""
        ...

    def on_roots_changed(self) -> None:
        """Pass on that the client's roots are others."""
        ...

    async def turn(self, text: str) -> bytes:
        """Return the result of `capd/turn`."""
        ...

    def on_environment(self, values: dict[str, str]) -> None:
        """Take over what the client sent for the keys it was asked for."""
        ...
