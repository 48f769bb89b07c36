"""The model stays loaded while a user may send a message and memory suffices."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import trio
from trio.testing import MockClock

from capd.actor_clients.embedder import EmbedderClient
from capd.actors.embedder.embedder import Embedder
from capd.actors.session.model_keeping import LEAST_AVAILABLE, ModelKeeping

from .fakes import RecordingBus
from .test_embedder import IDLE, FakeModel


@dataclass
class Machine:
    """What `ModelKeeping` reads of the machine and the model. A test changes it."""

    has_prompts: bool = True
    available: int | None = LEAST_AVAILABLE
    model: FakeModel = field(default_factory=FakeModel)
    ended: trio.Event = field(default_factory=trio.Event)


@asynccontextmanager
async def kept(*, idle: float = IDLE) -> AsyncIterator[Machine]:
    """Run an embedder that ends when it is idle, with a loaded model, and the keeping."""
    machine = Machine()
    async with RecordingBus() as bus, trio.open_nursery() as nursery:

        async def embed(*, task_status: trio.TaskStatus[None]) -> None:
            actor = Embedder(bus, machine.model.load, idle=IDLE, on_idle="end")
            await actor.run(task_status=task_status)
            machine.ended.set()

        await nursery.start(embed)
        embedder = EmbedderClient(bus)
        keeping = ModelKeeping(
            embedder,
            lambda: machine.has_prompts,
            idle=idle,
            available=lambda: machine.available,
        )
        nursery.start_soon(keeping.run)
        await embedder.warm_up(timeout=60)
        yield machine
        nursery.cancel_scope.cancel()


async def test_the_model_stays_while_a_client_hands_over_prompts(
    autojump_clock: MockClock,
) -> None:
    async with kept() as machine:
        await trio.sleep(20 * IDLE)

        assert not machine.ended.is_set()
        assert machine.model.journal == ["load"]


async def test_the_model_goes_once_no_client_does(autojump_clock: MockClock) -> None:
    async with kept() as machine:
        await trio.sleep(5 * IDLE)

        machine.has_prompts = False
        await machine.ended.wait()


async def test_the_model_goes_where_memory_is_scarce(autojump_clock: MockClock) -> None:
    async with kept() as machine:
        machine.available = LEAST_AVAILABLE - 1
        await machine.ended.wait()


async def test_the_model_goes_where_nobody_says_what_memory_there_is(
    autojump_clock: MockClock,
) -> None:
    async with kept() as machine:
        machine.available = None
        await machine.ended.wait()


async def test_the_model_goes_where_it_is_not_to_be_kept(autojump_clock: MockClock) -> None:
    async with kept(idle=0.0) as machine:
        await machine.ended.wait()
