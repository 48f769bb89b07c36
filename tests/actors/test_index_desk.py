"""What the curators hold of the index, where its keeper is slow or says it anew."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from capd.actors.session.index import INDEX, IndexDesk
from capd.runtime.mailbox import Letter
from capd_protos import index as messages
from capd_protos.codec import MsgpackCodec
from capd_protos.types import CapabilityId, CapabilityName, TapName

from .fakes import RecordingBus

REQUESTS: MsgpackCodec[messages.Request] = MsgpackCodec(messages.Request)
ALPHA = messages.IndexEntry(CapabilityId(TapName("mine"), CapabilityName("alpha")), "use", "")


class Keeper:
    """The index as the desk sees it, told how to be."""

    def __init__(self, bus: RecordingBus) -> None:
        self.bus = bus
        self.asked: list[str] = []
        self.is_silent = False
        self.is_known = True

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        async with self.bus.mailbox(INDEX, REQUESTS) as mailbox, trio.open_nursery() as nursery:
            task_status.started()
            async for letter in mailbox:
                assert isinstance(letter.request, messages.ListIndex)
                self.asked.append(letter.request.project)
                nursery.start_soon(self._answer, letter, self.is_silent)

    async def _answer(self, letter: Letter[messages.Request], is_silent: bool) -> None:
        async with letter:
            if is_silent:
                await trio.sleep_forever()
            entries = [ALPHA] if self.is_known else []
            await letter.reply(messages.IndexListed(entries, is_known=self.is_known))


@asynccontextmanager
async def desk_of(*projects: str) -> AsyncIterator[tuple[IndexDesk, Keeper]]:
    """A desk while sessions of these projects are open."""
    async with RecordingBus() as bus, trio.open_nursery() as nursery:
        keeper = Keeper(bus)
        await nursery.start(keeper.run)
        desk = IndexDesk(bus)
        desk.open_projects = lambda: set(projects)
        nursery.start_soon(desk.follow)
        await wait_all_tasks_blocked()
        yield desk, keeper
        nursery.cancel_scope.cancel()


async def until_held(desk: IndexDesk, project: str) -> None:
    with trio.fail_after(60):
        while not desk.entries(project):
            await trio.sleep(0.1)


async def test_a_session_whose_patience_ended_has_the_index_once_it_is_answered(
    autojump_clock: MockClock,
) -> None:
    async with desk_of("/p") as (desk, keeper):
        keeper.is_silent = True
        with trio.move_on_after(1.5):
            await desk.meet("/p", "capability")

        keeper.is_silent = False

        await until_held(desk, "/p")
        assert desk.entries("/p") == [ALPHA]


async def test_what_was_not_known_yet_is_asked_for_when_it_is_told_anew(
    autojump_clock: MockClock,
) -> None:
    async with desk_of("/p") as (desk, keeper):
        keeper.is_known = False
        await desk.meet("/p", "capability")
        keeper.is_known = True

        keeper.bus.publish(messages.IndexChanged(1))

        await until_held(desk, "/p")
        assert keeper.asked == ["/p", "/p"]
