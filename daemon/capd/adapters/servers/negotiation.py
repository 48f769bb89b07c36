"""Agrees with a server on a generation of MCP, and performs the handshake.

The generations are the handshake one (versions until 2025-11-25) and the stateless one
(2026-07-28).

    wants handshake:   initialize ──error──> server/discover
    wants stateless:   server/discover ──error──> initialize
                                       └─silence─> initialize as well; the first answer counts

If only the version is refused (-32022) and the refusal names a version that capd speaks, the
request is repeated once with that version. The first exchange that succeeds decides the generation.
capd starts a server for a client, and tries the generation of this client first. So a server that
supports both is used as that client would use it directly.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import msgspec
import trio

from capd.adapters.servers.server_connection import ServerConnection
from capd.adapters.servers.server_lines import (
    DISCOVERED,
    INITIALIZED,
    VERSION_REFUSED,
    discovered_version,
    handshake_version,
)
from capd.core.errors import CapdError
from capd.core.protocol.generations import (
    HANDSHAKE_VERSIONS,
    NEWEST_HANDSHAKE,
    NEWEST_STATELESS,
    PROTOCOL_VERSION,
    STATELESS_VERSIONS,
    UNSUPPORTED_VERSION,
    Members,
    raw,
)
from capd.core.protocol.outcomes import NotSentError, OutcomeUnknownError, ServerError
from capd.core.results.half_pairs import decoded
from capd.core.servers.generation_memory import PROBE_PATIENCE
from capd_protos.codec import MalformedError
from capd_protos.types import ClientFacts

_HANDSHAKE_VERSIONS = ("2024-10-07", *HANDSHAKE_VERSIONS)
"""The versions that a server may speak. Nothing that capd reads differs between the first and the
second. The clients of the TypeScript SDK accept the first, too."""
PROBE_GRACE = 0.5
"""Seconds for which a handshake that succeeded waits for the answer to the earlier
`server/discover`. A server that is slow may answer both at once, in either order."""


class HandshakeError(CapdError):
    """The server completed no handshake of either generation, or does not list its tools."""


@dataclass(frozen=True, slots=True)
class _ServerFacts:
    """The facts about a server that it gave in the handshake."""

    version: str
    is_stateless: bool
    capabilities: dict[str, msgspec.Raw]
    instructions: str
    server_version: str


async def negotiate(
    server_connection: ServerConnection,
    client: ClientFacts,
    *,
    wants_stateless: bool,
    timeout: float,
    probe_patience: float = PROBE_PATIENCE,
) -> None:
    """Agree with a server on a generation of MCP, and record its facts on the connection.

    `client` is the client info to send. `wants_stateless` says which generation to try first.
    `probe_patience` is the number of seconds for which `server/discover` may stay unanswered.

    Raises:
        HandshakeError: there was no answer in `timeout` seconds, both requests were answered with
            errors, or the server speaks no version that capd knows.
    """
    server_connection.client = client
    if wants_stateless:
        facts = await _race(server_connection, client, timeout, probe_patience)
    else:
        facts = await _in_turn(server_connection, client, timeout)
    server_connection.is_stateless, server_connection.protocol_version = (
        facts.is_stateless,
        facts.version,
    )
    server_connection.capabilities, server_connection.instructions = (
        facts.capabilities,
        facts.instructions,
    )
    server_connection.server_version = facts.server_version
    if not facts.is_stateless:
        try:
            await server_connection.notify("notifications/initialized")
        except NotSentError as error:
            raise HandshakeError(str(error)) from None


async def _in_turn(
    server_connection: ServerConnection, client: ClientFacts, timeout: float
) -> _ServerFacts:
    """Send `initialize`; if the answer is an error, send `server/discover`.

    Return what the server said about itself in the exchange that succeeded.
    """
    try:
        return await _initialize(server_connection, client, timeout)
    except _DeclinedError as error:
        # A server that knows only the stateless generation refuses the handshake.
        try:
            return await _discover(server_connection, timeout)
        except HandshakeError:
            raise HandshakeError(str(error)) from None


async def _race(
    server_connection: ServerConnection, client: ClientFacts, timeout: float, probe_patience: float
) -> _ServerFacts:
    """Send `server/discover`; on an error, or if it is slow, send `initialize` too.

    It is slow if there is no answer in `probe_patience` seconds. Its answer counts if it comes
    before the end of the handshake, or within `PROBE_GRACE` seconds after that. Otherwise the
    handshake counts. Return what the server said about itself in the exchange that counts.
    """
    found: list[_ServerFacts] = []
    declined = trio.Event()
    failures: list[HandshakeError] = []

    async def attempt(act: Callable[[], Awaitable[_ServerFacts]], scope: trio.CancelScope) -> None:
        try:
            found.append(await act())
        except HandshakeError as error:
            failures.append(error)
            declined.set()
        else:
            scope.cancel()

    async def later() -> _ServerFacts:
        with trio.move_on_after(probe_patience):
            await declined.wait()
        met = await _initialize(server_connection, client, timeout)
        with trio.move_on_after(PROBE_GRACE):
            await declined.wait()
        return met

    async with trio.open_nursery() as nursery:
        scope = nursery.cancel_scope
        nursery.start_soon(attempt, lambda: _discover(server_connection, timeout), scope)
        nursery.start_soon(attempt, later, scope)
    if not found:
        raise failures[-1]
    return found[0]


async def _discover(server_connection: ServerConnection, timeout: float) -> _ServerFacts:
    try:
        return await _discover_as(server_connection, NEWEST_STATELESS, timeout)
    except _DeclinedError as error:
        named = _newest(STATELESS_VERSIONS, error.supported)
        if not named:
            raise
        return await _discover_as(server_connection, named, timeout)


async def _discover_as(
    server_connection: ServerConnection, version: str, timeout: float
) -> _ServerFacts:
    params = {"_meta": raw({PROTOCOL_VERSION: version})}
    try:
        found = decoded(
            DISCOVERED,
            await _ask(server_connection, "server/discover", params, timeout, stateless=True),
        )
    except MalformedError as error:
        raise HandshakeError(
            f"{server_connection.name} answered server/discover with {error}"
        ) from None
    spoken = _newest(STATELESS_VERSIONS, found.supportedVersions)
    if not spoken:
        raise HandshakeError(
            f"{server_connection.name} knows server/discover, but no version of MCP "
            "that capd speaks: update the server"
        )
    return _ServerFacts(
        spoken,
        True,
        found.capabilities,
        found.instructions or "",
        discovered_version(found),
    )


async def _initialize(
    server_connection: ServerConnection, client: ClientFacts, timeout: float
) -> _ServerFacts:
    try:
        return await _initialize_as(server_connection, client, NEWEST_HANDSHAKE, timeout)
    except _DeclinedError as error:
        named = _newest(_HANDSHAKE_VERSIONS, error.supported)
        if not named:
            raise
        return await _initialize_as(server_connection, client, named, timeout)


async def _initialize_as(
    server_connection: ServerConnection, client: ClientFacts, version: str, timeout: float
) -> _ServerFacts:
    params: Members = {
        "protocolVersion": raw(version),
        "capabilities": msgspec.Raw(client.capabilities),
        "clientInfo": msgspec.Raw(client.info),
    }
    try:
        found = decoded(INITIALIZED, await _ask(server_connection, "initialize", params, timeout))
    except MalformedError as error:
        raise HandshakeError(f"{server_connection.name} answered initialize with {error}") from None
    if found.protocolVersion not in _HANDSHAKE_VERSIONS:
        raise HandshakeError(
            f"{server_connection.name} speaks protocol {found.protocolVersion[:40]!r}, none of "
            f"{', '.join(_HANDSHAKE_VERSIONS)}: update the server"
        )
    return _ServerFacts(
        found.protocolVersion,
        False,
        found.capabilities,
        found.instructions or "",
        handshake_version(found),
    )


async def _ask(
    server_connection: ServerConnection,
    method: str,
    params: Members,
    timeout: float,
    *,
    stateless: bool = False,
) -> bytes:
    try:
        return await server_connection.ask(method, params, timeout, stateless=stateless)
    except ServerError as error:
        text = error.error[:300].decode(errors="replace")
        why = f"{server_connection.name} answered {method} with error {text}"
        raise _DeclinedError(why, _supported(error.error)) from None
    except (NotSentError, OutcomeUnknownError) as error:
        raise HandshakeError(str(error)) from None


def _newest(known: Sequence[str], named: Sequence[str]) -> str:
    """Return the newest of the versions that are in both lists; empty if there is none."""
    return next((each for each in reversed(known) if each in named), "")


def _supported(error: bytes) -> Sequence[str]:
    """Return the versions that an error names as supported, if it refuses a version; else none."""
    try:
        refused = decoded(VERSION_REFUSED, error)
    except MalformedError:
        return ()
    return refused.data.supported if refused.code == UNSUPPORTED_VERSION else ()


class _DeclinedError(HandshakeError):
    """The server answered `initialize` or `server/discover` with an error.

    It may accept the other generation, or another version.
    """

    def __init__(self, text: str, supported: Sequence[str]) -> None:
        super().__init__(text)
        self.supported = supported
