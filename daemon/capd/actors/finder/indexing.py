"""Asks every server of the catalog once for its tools, for `capd index`.

A few servers run at a time, each with a deadline. Each is stopped when it has answered, unless a
session holds a lease. A failure is reported in that server's line of the result. The supervisor
saves the lists, as after any other start.
"""

from collections.abc import Iterable
from contextlib import suppress
from itertools import count

import trio

from capd.actor_clients.supervisor import SupervisorClient
from capd.core.servers.identity import server_identity
from capd.runtime.bus import ActorUnavailableError, AskTimeoutError, Bus
from capd_protos import supervisor
from capd_protos.finder import IndexStarted, ServerIndexed
from capd_protos.types import ServerIdentity, ServerSpec, SessionKey

AT_ONCE = 4
START_TIMEOUT = 75.0
"""Seconds. A server has 60 s to be ready, and a package runner may have to download it first."""
RELEASE_TIMEOUT = 5.0

_RUNS = count(1)


def index_session() -> SessionKey:
    """Return a session key for one run, which no client's session can have."""
    return SessionKey(f"capd/index/{next(_RUNS)}")


def distinct(servers: Iterable[ServerSpec]) -> dict[ServerIdentity, ServerSpec]:
    """Return each server once, by identity, without built-in ones, which list no tools."""
    asked: dict[ServerIdentity, ServerSpec] = {}
    for server in servers:
        if server.transport != "builtin":
            asked.setdefault(server_identity(server), server)
    return asked


async def index_servers(
    bus: Bus, servers: dict[ServerIdentity, ServerSpec], session: SessionKey, project: str
) -> list[ServerIndexed]:
    """Start each of `servers` and have it list its tools; return the results, sorted by name.

    `session` leases the servers meanwhile, and holds no lease afterwards.
    """
    client = SupervisorClient(bus)
    limiter = trio.CapacityLimiter(AT_ONCE)
    results: list[ServerIndexed] = []
    bus.publish(IndexStarted(len(servers)))

    async def one(identity: ServerIdentity, server: ServerSpec) -> None:
        async with limiter:
            started_at = trio.current_time()
            tools, error = await _listed(client, server, session, project)
            seconds = round(trio.current_time() - started_at, 3)
            done = len(results) + 1
            result = ServerIndexed(server.name, identity, tools, seconds, error, done, len(servers))
            results.append(result)
            bus.publish(result)

    try:
        async with trio.open_nursery() as nursery:
            for identity, server in servers.items():
                nursery.start_soon(one, identity, server)
    finally:
        # Release everything that was started for this. If the supervisor does not answer, it
        # restarts, which ends its instances.
        with trio.move_on_after(RELEASE_TIMEOUT, shield=True), suppress(ActorUnavailableError):
            await client.release_session(session, timeout=RELEASE_TIMEOUT)
    return sorted(results, key=lambda result: (result.name, result.identity))


async def _listed(
    client: SupervisorClient, server: ServerSpec, session: SessionKey, project: str
) -> tuple[int, str]:
    """Return how many tools a server lists, and why it could not be asked; empty if it could."""
    request = supervisor.AcquireServer(session, server, project)
    try:
        reply = await client.acquire(request, timeout=START_TIMEOUT)
    except AskTimeoutError:
        return 0, f"it was not ready within {START_TIMEOUT:g} s"
    except ActorUnavailableError as error:
        return 0, str(error)
    if isinstance(reply, supervisor.ServerReady):
        with suppress(ActorUnavailableError):
            await client.release(session, reply.instance, at_once=True, timeout=RELEASE_TIMEOUT)
        return len(reply.tools), ""
    said = f" (last on stderr: {reply.stderr[-1]})" if reply.stderr else ""
    return 0, f"{reply.message}{said}"
