"""Tells a service manager's watchdog whether every actor reads its mailbox."""

from collections.abc import Callable, Sequence

import structlog
import trio

from capd.runtime.bus import ActorUnavailableError, Bus
from capd_protos.codec import MsgpackCodec
from capd_protos.envelope import Ping, Pong
from capd_protos.types import ActorName

PONGS: MsgpackCodec[Pong] = MsgpackCodec(Pong)
BEATS_PER_WATCHDOG = 3
"""How many beats are sent within the watchdog's time, so that one may be late or lost."""

log = structlog.get_logger()


async def beat(
    bus: Bus, actors: Sequence[ActorName], watchdog: float, alive: Callable[[], None]
) -> None:
    """Call `alive` up to three times in `watchdog` seconds, as long as every actor answers a ping.

    `alive` is not called while the event loop is blocked, or while an actor does not read its
    mailbox.
    """
    pause = watchdog / BEATS_PER_WATCHDOG
    while True:
        if await _all_answer(bus, actors, pause):
            alive()
        await trio.sleep(pause)


async def _all_answer(bus: Bus, actors: Sequence[ActorName], timeout: float) -> bool:
    silent: list[ActorName] = []

    async def ask(actor: ActorName) -> None:
        try:
            await bus.ask(actor, Ping(), PONGS, timeout)
        except ActorUnavailableError:
            silent.append(actor)

    async with trio.open_nursery() as nursery:
        for actor in actors:
            nursery.start_soon(ask, actor)
    if silent:
        log.error("actors_silent", actors=sorted(silent))
    return not silent
