"""The embedder loads its model on demand, drops it when idle, and restarts after a crash."""

import os
import sys
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
import pytest
import trio
from trio.testing import MockClock

from capd.actors.embedder.embedder import MOST_TEXTS, REQUESTS, Embedder
from capd.actors.embedder.process import EmbedderProcess
from capd.adapters.model.minilm import MODEL, ModelUnusableError
from capd.runtime.bus import ActorUnavailableError, AskFailedError
from capd.runtime.frame_channel import FRAMES, ChannelOverError, Frame, FrameEndpoint
from capd_protos import embedder as messages
from capd_protos.codec import MsgpackCodec
from capd_protos.types import ActorName, MessageId

from .fakes import RecordingBus
from .world import vector

NAME = ActorName("embedder")
REPLIES: MsgpackCodec[messages.Reply] = MsgpackCodec(messages.Reply)
PATIENCE = 30.0
IDLE = 100.0


class FakeModel:
    """Counts its inputs; loading waits for its gate, and fails if the test says so."""

    def __init__(self) -> None:
        self.journal: list[str] = []
        self.gate = threading.Event()
        self.gate.set()
        self.error = ""
        self.dimensions = MODEL.dimensions
        self.at_once = 0
        self.most_at_once = 0

    def load(self) -> "FakeModel":
        self.gate.wait(PATIENCE)
        self.journal.append("load")
        if self.error:
            raise ModelUnusableError(self.error)
        return self

    def embed(
        self, texts: Sequence[str], *, is_changed: bool = False
    ) -> "np.ndarray[Any, np.dtype[np.float32]]":
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        self.gate.wait(PATIENCE)
        self.journal.append(f"embed {len(texts)}" + " changed" * is_changed)
        self.at_once -= 1
        rows = np.zeros((len(texts), self.dimensions), np.float32)
        for row, text in zip(rows, texts, strict=True):
            row[:] = vector(text)[: self.dimensions]
        return -rows if is_changed else rows


class Stage:
    def __init__(self, bus: RecordingBus, on_idle: Literal["unload", "end"]) -> None:
        self.bus = bus
        self.model = FakeModel()
        self.actor = Embedder(bus, self.model.load, idle=IDLE, on_idle=on_idle)
        self.ended = trio.Event()

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        await self.actor.run(task_status=task_status)
        self.ended.set()

    async def ask(self, request: messages.Request) -> messages.Reply:
        return await self.bus.ask(NAME, request, REPLIES, float("inf"))

    async def state(self) -> str:
        reply = await self.ask(messages.DescribeEmbedder())
        assert isinstance(reply, messages.EmbedderDescribed)
        return reply.state

    async def warm(self) -> messages.EmbedderDescribed:
        reply = await self.ask(messages.WarmUp())
        assert isinstance(reply, messages.EmbedderDescribed)
        return reply


@asynccontextmanager
async def staged(on_idle: Literal["unload", "end"] = "unload") -> AsyncIterator[Stage]:
    async with RecordingBus() as bus, trio.open_nursery() as nursery:
        stage = Stage(bus, on_idle)
        await nursery.start(stage.run)
        try:
            yield stage
        finally:
            stage.model.gate.set()
            nursery.cancel_scope.cancel()


async def test_a_cold_embedder_loads_once_for_all_who_warm_it() -> None:
    async with staged() as stage:
        assert await stage.state() == "cold"
        stage.model.gate.clear()
        described: list[str] = []

        async def warm() -> None:
            described.append((await stage.warm()).state)

        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(warm)
            with trio.fail_after(PATIENCE):
                while await stage.state() != "loading":
                    await trio.sleep(0.01)
            stage.model.gate.set()

        assert described == ["ready"] * 5
        assert stage.model.journal == ["load"]


async def test_texts_are_refused_while_it_loads_and_the_need_is_noted() -> None:
    async with staged() as stage:
        stage.model.gate.clear()

        refused = await stage.ask(messages.EmbedTexts(["a"]))

        assert refused == messages.EmbedderRefused("loading", "the model is loading")
        stage.model.gate.set()
        assert (await stage.warm()).state == "ready"


async def test_a_ready_embedder_returns_the_vectors_in_order() -> None:
    async with staged() as stage:
        described = await stage.warm()
        reply = await stage.ask(messages.EmbedTexts(["b", "a"]))

        assert isinstance(reply, messages.TextsEmbedded)
        rows = np.frombuffer(reply.vectors, "<f4").reshape(2, reply.dimensions)
        assert np.array_equal(rows, np.stack([vector("b"), vector("a")]))
        assert (described.model, described.dimensions, described.pid) == (
            MODEL.id,
            MODEL.dimensions,
            os.getpid(),
        )
        assert described.rss_bytes > 0


async def test_too_many_texts_are_refused_unread() -> None:
    async with staged() as stage:
        await stage.warm()

        refused = await stage.ask(messages.EmbedTexts(["a"] * (MOST_TEXTS + 1)))

        assert refused == messages.EmbedderRefused("too_many", "at most 64 texts a request")
        assert stage.model.journal == ["load"]


async def test_the_model_runs_for_one_request_at_a_time() -> None:
    async with staged() as stage:
        await stage.warm()
        async with trio.open_nursery() as nursery:
            for number in range(8):
                nursery.start_soon(stage.ask, messages.EmbedTexts([f"a {number}"]))

        assert stage.model.most_at_once == 1
        assert stage.model.journal == ["load", *["embed 1"] * 8]


async def test_a_message_that_was_just_embedded_is_not_embedded_again() -> None:
    async with staged() as stage:
        await stage.warm()
        first = await stage.ask(messages.EmbedTexts(["a"]))

        again = await stage.ask(messages.EmbedTexts(["a"]))

        assert again == first
        assert stage.model.journal == ["load", "embed 1"]


async def test_a_part_of_a_long_message_is_not_embedded_again() -> None:
    async with staged() as stage:
        await stage.warm()
        parts = await stage.ask(messages.EmbedTexts(["ends", "passage", "another"]))

        again = [await stage.ask(messages.EmbedTexts([each])) for each in ("passage", "ends")]

        assert isinstance(parts, messages.TextsEmbedded)
        size = len(parts.vectors) // 3
        assert again == [
            messages.TextsEmbedded(parts.vectors[at : at + size], parts.dimensions)
            for at in (size, 0)
        ]
        assert stage.model.journal == ["load", "embed 3"]


async def test_one_text_has_a_vector_in_each_space() -> None:
    async with staged() as stage:
        await stage.warm()
        spaces: tuple[messages.VectorSpace, ...] = ("plain", "routing", "plain", "routing")

        replies = [await stage.ask(messages.EmbedTexts(["a"], space)) for space in spaces]

        assert replies[:2] == replies[2:]
        assert replies[0] != replies[1]
        assert stage.model.journal == ["load", "embed 1", "embed 1 changed"]


async def test_an_end_while_the_model_works_is_an_answer_and_no_failure() -> None:
    async with RecordingBus() as bus, trio.open_nursery() as asking:
        stage = Stage(bus, "end")
        async with trio.open_nursery() as running:
            await running.start(stage.run)
            await stage.warm()
            stage.model.gate.clear()
            refused: list[AskFailedError] = []

            async def ask() -> None:
                try:
                    await stage.ask(messages.EmbedTexts(["a"]))
                except AskFailedError as error:
                    refused.append(error)

            asking.start_soon(ask)
            while not stage.model.at_once:
                await trio.sleep(0.001)

            running.cancel_scope.cancel()
            await trio.lowlevel.cancel_shielded_checkpoint()
            stage.model.gate.set()

    assert [each.code for each in refused] == ["stopping"]


class CutStream(trio.abc.HalfCloseableStream):
    """Yields what was sent, and then ends as if the daemon had been killed."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        del max_bytes
        if not self._data:
            # At once, so that what was read before is not yet looked at.
            raise trio.BrokenResourceError
        given, self._data = self._data, b""
        return given

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        del data
        raise trio.BrokenResourceError

    async def wait_send_all_might_not_block(self) -> None: ...

    async def send_eof(self) -> None: ...

    async def aclose(self) -> None: ...


@pytest.mark.parametrize(
    "request_",
    [
        messages.DescribeEmbedder(),
        messages.WarmUp(),
        messages.KeepModel(),
        messages.EmbedTexts(["a"]),
    ],
    ids=lambda request: type(request).__name__,
)
async def test_a_daemon_that_is_killed_after_a_request_ends_its_embedder_quietly(
    request_: messages.Request,
) -> None:
    body = msgspec.Raw(REQUESTS.encode(request_))
    frames = [FRAMES.encode(Frame(MessageId(number), 10.0, body)) for number in range(3)]
    stream = CutStream(b"".join(len(each).to_bytes(4, "big") + each for each in frames))
    actor = Embedder(FrameEndpoint(NAME, stream), FakeModel().load, idle=IDLE, on_idle="end")

    with trio.fail_after(PATIENCE), pytest.RaisesGroup(ChannelOverError):
        await actor.run()


async def test_a_model_that_cannot_be_used_is_told_and_tried_again_when_asked() -> None:
    async with staged() as stage:
        stage.model.error = "damaged"

        described = await stage.warm()
        refused = await stage.ask(messages.EmbedTexts(["a"]))
        stage.model.error = ""

        assert (described.state, described.reason) == ("unusable", "damaged")
        assert isinstance(refused, messages.EmbedderRefused)
        assert (await stage.warm()).state in {"ready", "unusable"}
        assert (await stage.warm()).state == "ready"


async def test_an_idle_model_is_dropped_and_loaded_again_on_need(
    autojump_clock: MockClock,
) -> None:
    async with staged() as stage:
        await stage.warm()
        # Loaded in a thread, which no virtual clock waits for: what idles may be over already.
        await trio.sleep(IDLE * 2.5)

        assert await stage.state() == "cold"
        assert stage.model.journal == ["load"]
        assert stage.actor._model is None


async def test_an_embedder_that_is_used_is_not_dropped(autojump_clock: MockClock) -> None:
    async with staged("end") as stage:
        for _ in range(10):
            await trio.sleep(IDLE * 0.9)
            await stage.ask(messages.KeepModel())

        assert not stage.ended.is_set()


async def test_an_embedder_is_not_idle_while_it_loads(autojump_clock: MockClock) -> None:
    async with staged("end") as stage:
        stage.model.gate.clear()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stage.warm)
            await trio.sleep(IDLE * 3)

            assert (await stage.state(), stage.ended.is_set()) == ("loading", False)

            stage.model.gate.set()


async def test_who_looks_on_keeps_no_model_loaded(autojump_clock: MockClock) -> None:
    async with staged("end") as stage:
        with trio.move_on_after(IDLE + 1):
            while not stage.ended.is_set():
                await stage.state()
                await trio.sleep(IDLE / 10)

        assert stage.ended.is_set()


async def test_an_idle_embedder_of_its_own_process_ends(autojump_clock: MockClock) -> None:
    async with staged("end") as stage:
        await trio.sleep(IDLE + 1)

        assert stage.ended.is_set()


# The actor, with real processes


@asynccontextmanager
async def kept(folder: Path, script: str) -> AsyncIterator[tuple[RecordingBus, Path]]:
    journal = folder / "journal"
    journal.touch()
    begin = f"import os, sys\nopen({str(journal)!r}, 'a').write(f'{{os.getpid()}}\\n')\n"
    argv = [sys.executable, "-I", "-S", "-c", begin + script]
    async with RecordingBus() as bus, trio.open_nursery() as nursery:
        saver = EmbedderProcess(bus, argv, {"ONLY": "this"})
        await nursery.start(lambda task_status: saver.run(task_status=task_status))
        yield bus, journal
        nursery.cancel_scope.cancel()


async def until(is_so: Callable[[], bool]) -> None:
    with trio.fail_after(PATIENCE):
        while not is_so():
            await trio.sleep(0.01)


def pids(journal: Path) -> list[int]:
    return [int(line) for line in journal.read_text().splitlines()]


def runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


WAITS = "sys.stdin.read()"


async def test_the_embedders_process_is_started_on_need_and_ended_with_its_actor(
    tmp_path: Path,
) -> None:
    async with kept(tmp_path, WAITS) as (bus, journal):
        assert pids(journal) == []
        bus.publish(messages.EmbedderNeeded())
        bus.publish(messages.EmbedderNeeded())
        await until(lambda: len(pids(journal)) == 1)
        assert runs(pids(journal)[0])

    assert not runs(pids(journal)[0])


async def test_a_killed_embedder_is_started_again(tmp_path: Path) -> None:
    async with kept(tmp_path, WAITS) as (bus, journal):
        bus.publish(messages.EmbedderNeeded())
        await until(lambda: len(pids(journal)) == 1)

        os.kill(pids(journal)[0], 9)
        await until(lambda: len(pids(journal)) == 2)

        assert messages.EmbedderExited(-9, expected=False) in bus.events


class Scripted(EmbedderProcess):
    """Its processes end at once, with the codes that it was given, the last one for ever."""

    def __init__(self, bus: RecordingBus, codes: list[int]) -> None:
        super().__init__(bus, [], {})
        self.started_at: list[float] = []
        self._codes = codes

    async def _run_once(self) -> int:
        await trio.lowlevel.checkpoint()
        self.started_at.append(trio.current_time())
        return self._codes.pop(0) if len(self._codes) > 1 else self._codes[0]


async def test_only_a_need_starts_an_embedder_that_was_idle(autojump_clock: MockClock) -> None:
    async with RecordingBus() as bus, trio.open_nursery() as nursery:
        saver = Scripted(bus, [0])
        await nursery.start(lambda task_status: saver.run(task_status=task_status))
        bus.publish(messages.EmbedderNeeded())
        await trio.sleep(1000)
        assert len(saver.started_at) == 1

        bus.publish(messages.EmbedderNeeded())
        await trio.sleep(1000)

        assert len(saver.started_at) == 2
        nursery.cancel_scope.cancel()


async def test_an_embedder_that_keeps_crashing_is_started_ever_more_slowly(
    autojump_clock: MockClock,
) -> None:
    async with RecordingBus() as bus, trio.open_nursery() as nursery:
        saver = Scripted(bus, [-9] * 12 + [0])
        await nursery.start(lambda task_status: saver.run(task_status=task_status))
        bus.publish(messages.EmbedderNeeded())
        await trio.sleep(3600)

        starts = saver.started_at
        waits = [later - earlier for earlier, later in pairwise(starts)]
        assert len(starts) == 13
        assert 0.5 <= waits[0] <= 1
        assert 30 <= waits[-1] <= 60
        nursery.cancel_scope.cancel()


async def test_an_embedder_that_was_idle_is_started_again_on_need(tmp_path: Path) -> None:
    async with kept(tmp_path, "") as (bus, journal):
        bus.publish(messages.EmbedderNeeded())
        await until(lambda: messages.EmbedderExited(0, expected=True) in bus.events)
        assert len(pids(journal)) == 1

        bus.publish(messages.EmbedderNeeded())

        await until(lambda: len(pids(journal)) == 2)


async def test_the_embedder_gets_only_its_own_environment(tmp_path: Path) -> None:
    told = tmp_path / "environment"
    script = f"open({str(told)!r}, 'w').write(' '.join(sorted(os.environ)))"
    async with kept(tmp_path, script) as (bus, _):
        bus.publish(messages.EmbedderNeeded())
        await until(lambda: messages.EmbedderExited(0, expected=True) in bus.events)

    assert set(told.read_text().split()) <= {"ONLY", "LC_CTYPE"}


@pytest.mark.parametrize("texts", [[], ["a"] * MOST_TEXTS])
async def test_the_limits_of_a_request_are_inclusive(texts: list[str]) -> None:
    async with staged() as stage:
        await stage.warm()
        stage.model.dimensions = 4

        reply = await stage.ask(messages.EmbedTexts(texts))

        assert isinstance(reply, messages.TextsEmbedded)
        assert len(reply.vectors) == 16 * len(texts)


ENDS = """
import time
if open(path).read().count(chr(10)) == 1:
    os.close(0)
    while not os.path.exists(path + '.go'):
        time.sleep(0.01)
else:
    sys.stdin.read()
"""
"""The first process closes its channel, and ends when the file `path` + `.go` is there."""


async def is_waiting(bus: RecordingBus) -> bool:
    """Tell whether a request waits for a process, and is not passed on to one that ends."""
    try:
        await bus.ask(NAME, messages.DescribeEmbedder(), REPLIES, 0.2)
    except AskFailedError:
        return False
    except ActorUnavailableError:
        return True
    return False


async def test_a_need_that_comes_while_the_idle_process_ends_starts_another(
    tmp_path: Path,
) -> None:
    path = tmp_path / "journal"
    async with kept(tmp_path, f"path = {str(path)!r}\n{ENDS}") as (bus, journal):
        bus.publish(messages.EmbedderNeeded())
        await until(lambda: len(pids(journal)) == 1)
        with trio.fail_after(PATIENCE):
            while not await is_waiting(bus):
                await trio.sleep(0.01)
        bus.publish(messages.EmbedderNeeded())
        Path(f"{path}.go").touch()

        await until(lambda: len(pids(journal)) == 2)
