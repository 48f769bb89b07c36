"""Waits for dependency scripts on behalf of a session, and passes their progress on."""

from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager, suppress
from itertools import count

import msgspec
import trio

from capd.actor_clients.supervisor import SupervisorClient
from capd.core.errors import CapdError
from capd.runtime.bus import Bus
from capd_protos import supervisor
from capd_protos.codec import MsgpackCodec

InstallEvent = supervisor.InstallStarted | supervisor.InstallOutput | supervisor.InstallEnded
INSTALL_EVENTS: MsgpackCodec[InstallEvent] = MsgpackCodec(InstallEvent)

INSTALL_TIMEOUT = 900.0
LEAVE_TIMEOUT = 5.0

OnProgress = Callable[[str], None]

_WAITS = count(1)
"""Ids of waits, unique in this process: several starts of a session may wait at a time."""


async def install(
    bus: Bus,
    client: SupervisorClient,
    request: supervisor.InstallDependencies,
    on_progress: OnProgress,
) -> supervisor.DependenciesReady | supervisor.DependenciesFailed:
    """Have the dependencies in `request` installed, and return how that ended.

    Until the reply comes, call `on_progress` with each line of progress. If the wait ends without a
    reply, the supervisor is told that this session waits no longer.

    Raises:
        ActorUnavailableError: the supervisor does not answer.
    """
    request = msgspec.structs.replace(request, wait=str(next(_WAITS)))
    try:
        async with _reporting(bus, request.scripts, on_progress):
            return await client.install(request, timeout=INSTALL_TIMEOUT)
    except BaseException:
        # Cancelled or timed out: the supervisor ends a script that nobody waits for.
        limit = trio.move_on_after(LEAVE_TIMEOUT)
        with trio.CancelScope(shield=True), limit, suppress(CapdError):
            await client.leave_install(request.session, request.wait, timeout=LEAVE_TIMEOUT)
        raise


@asynccontextmanager
async def _reporting(
    bus: Bus, dependencies: Collection[str], on_progress: OnProgress
) -> AsyncIterator[None]:
    """Call `on_progress` with each line of progress while the block runs."""
    async with bus.subscribe(INSTALL_EVENTS, "install.") as events:

        async def follow() -> None:
            async for event in events:
                if event.dependency in dependencies:
                    on_progress(_line(event))

        # Not `async with`: a nursery would wrap the block's own exception in a group.
        manager = trio.open_nursery()
        nursery = await manager.__aenter__()
        nursery.start_soon(follow)
        try:
            yield
        finally:
            nursery.cancel_scope.cancel()
            await manager.__aexit__(None, None, None)


def progress_callback(progress: Callable[[bytes], None]) -> OnProgress:
    """Return a callback that sends each line as the params of a progress notification."""
    steps = count(1)

    def report(line: str) -> None:
        progress(msgspec.json.encode({"progress": next(steps), "message": line}))

    return report


def _line(event: InstallEvent) -> str:
    match event:
        case supervisor.InstallStarted(dependency):
            return f"{dependency}: installing"
        case supervisor.InstallOutput(dependency, line, seconds):
            return f"{dependency}: {line} ({seconds:.0f} s)"
        case supervisor.InstallEnded(dependency, outcome, seconds):
            return f"{dependency}: {outcome} ({seconds:.0f} s)"
