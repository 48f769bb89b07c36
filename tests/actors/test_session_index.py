"""The index in sessions while the index actor is slow, and after the index has changed."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from capd.actor_clients.names import INDEX
from capd.actors.session.index import IndexCache
from capd.runtime.mailbox import IncomingRequest
from capd_protos import index as messages
from capd_protos.codec import MsgpackCodec
from capd_protos.types import CapabilityId, CapabilityName, TapName

from .fakes import RecordingBus

REQUESTS: MsgpackCodec[messages.Request] = MsgpackCodec(messages.Request)
ALPHA = messages.IndexEntry(CapabilityId(TapName("mine"), CapabilityName("alpha")), "use", "")


class IndexActor:
    """A fake index actor whose behaviour the test sets."""

    def __init__(self, bus: RecordingBus) -> None:
        self.bus = bus
        self.asked: list[str] = []
        self.is_silent = False
        self.is_known = True

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        async with self.bus.mailbox(INDEX, REQUESTS) as mailbox, trio.open_nursery() as nursery:
            task_status.started()
            async for incoming in mailbox:
                assert isinstance(incoming.request, messages.ListIndex)
                self.asked.append(incoming.request.project)
                nursery.start_soon(self._answer, incoming, self.is_silent)

    async def _answer(self, incoming: IncomingRequest[messages.Request], is_silent: bool) -> None:
        async with incoming:
            if is_silent:
                await trio.sleep_forever()
            entries = [ALPHA] if self.is_known else []
            await incoming.reply(messages.IndexListed(entries, is_known=self.is_known))


@asynccontextmanager
async def cache_of(*projects: str) -> AsyncIterator[tuple[IndexCache, IndexActor]]:
    """The index of open sessions in these projects."""
    async with RecordingBus() as bus, trio.open_nursery() as nursery:
        index_actor = IndexActor(bus)
        await nursery.start(index_actor.run)
        cache = IndexCache(bus)
        cache.open_projects = lambda: set(projects)
        nursery.start_soon(cache.follow)
        await wait_all_tasks_blocked()
        yield cache, index_actor
        nursery.cancel_scope.cancel()


async def until_held(cache: IndexCache, project: str) -> None:
    with trio.fail_after(60):
        while not cache.entries(project):
            await trio.sleep(0.1)


async def test_a_session_whose_patience_ended_has_the_index_once_it_is_answered(
    autojump_clock: MockClock,
) -> None:
    async with cache_of("/p") as (cache, index_actor):
        index_actor.is_silent = True
        with trio.move_on_after(1.5):
            await cache.load("/p", "capability")

        index_actor.is_silent = False

        await until_held(cache, "/p")
        assert cache.entries("/p") == [ALPHA]


async def test_what_was_not_known_yet_is_asked_for_when_it_is_told_anew(
    autojump_clock: MockClock,
) -> None:
    async with cache_of("/p") as (cache, index_actor):
        index_actor.is_known = False
        await cache.load("/p", "capability")
        index_actor.is_known = True

        index_actor.bus.publish(messages.IndexChanged(1))

        await until_held(cache, "/p")
        assert index_actor.asked == ["/p", "/p"]
