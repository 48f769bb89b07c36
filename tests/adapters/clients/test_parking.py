"""The connection of an idle client has no task; the client notices no difference."""

import json
import os
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from capd.adapters import platform
from capd.adapters.clients import parking as parking_module
from capd.adapters.clients.parking import Parking
from capd.adapters.clients.upstream import Upstream
from capd.core.protocol.outcomes import RefusedError
from client_stage import Json, Stage, Talk

LIST: Json = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
LISTED = b'{"jsonrpc":"2.0","id":2,"result":{"tools":[{"name": "tools"}]}}'
CALL: Json = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "t"}}
INITIALIZED: Json = {"jsonrpc": "2.0", "method": "notifications/initialized"}
LIST_CHANGED = b'{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}'

pytestmark = pytest.mark.skipif(
    platform.readiness_queue() is None, reason="this system does not park"
)


class Parked(Stage):
    """A stage whose connection is parked while its client is silent."""

    parking: Parking
    nursery: trio.Nursery

    async def serve(self) -> None:
        self.parking.serve(self.upstream)
        await self.upstream.run(self.talk)
        self.parking.leave(self.upstream)
        if self.upstream.is_idle:
            self.upstream.park(self.parking, lambda: self.nursery.start_soon(self.serve))
        else:
            self.ended.set()

    async def silence(self) -> None:
        """Let the client be idle until its connection is parked."""
        await trio.sleep(parking_module.QUIET * 2.5)


@asynccontextmanager
async def parkable(talk: Talk | None = None) -> AsyncIterator[Parked]:
    ours, theirs = trio.socket.socketpair()
    streams = trio.SocketStream(ours), trio.SocketStream(theirs)
    async with trio.open_nursery() as nursery:
        stage = Parked(*streams, dispatched=False, talk=talk)
        stage.parking, stage.nursery = Parking(), nursery
        nursery.start_soon(stage.parking.run)
        nursery.start_soon(stage.serve)
        await wait_all_tasks_blocked()
        try:
            yield stage
        finally:
            nursery.cancel_scope.cancel()
            stage.parking.close()
            for stream in streams:
                stream.socket.close()


async def test_a_silent_client_costs_no_task(autojump_clock: MockClock) -> None:
    async with parkable() as stage:
        await stage.send(LIST)
        served = trio.lowlevel.current_statistics().tasks_living

        await stage.silence()

        # Less by the connection's task alone: the task of the parking stays.
        assert trio.lowlevel.current_statistics().tasks_living == served - 1
        assert (len(stage.parking), stage.upstream.is_busy, stage.upstream.is_over) == (
            1,
            False,
            False,
        )


async def test_the_next_line_is_answered_each_time(autojump_clock: MockClock) -> None:
    async with parkable() as stage:
        for _ in range(3):
            await stage.silence()
            assert len(stage.parking) == 1

            await stage.send(LIST)

            assert await stage.heard() == [LISTED]
            assert len(stage.parking) == 0


async def test_a_client_that_is_silent_after_its_handshake_is_parked_within_a_second(
    autojump_clock: MockClock,
) -> None:
    async with parkable() as stage:
        await stage.send(LIST)

        await trio.sleep(1.1)

        assert len(stage.parking) == 1


async def test_a_client_that_was_woken_is_parked_after_a_longer_silence(
    autojump_clock: MockClock,
) -> None:
    async with parkable() as stage:
        await stage.silence()
        await stage.send(LIST)

        await trio.sleep(parking_module.QUIET - 0.1)

        assert len(stage.parking) == 0
        await stage.silence()
        assert len(stage.parking) == 1


async def test_a_client_that_goes_on_speaking_is_soon_looked_at_less_often(
    autojump_clock: MockClock,
) -> None:
    looks: list[float] = []

    class Looked(Upstream):
        __slots__ = ()

        def park_if_idle(self) -> None:
            looks.append(trio.current_time())
            super().park_if_idle()

    async with parkable() as stage:
        stage.upstream.__class__ = Looked
        stage.connection.is_far = True

        await trio.sleep(1000)

        assert len(stage.parking) == 0
        assert len(looks) <= 1000 / parking_module.QUIET + 30


async def test_a_session_starts_once_however_often_it_is_woken(autojump_clock: MockClock) -> None:
    starts = 0

    class Counted(Talk):
        async def start(self) -> None:
            nonlocal starts
            starts += 1
            await super().start()

    async with parkable(Counted()) as stage:
        for _ in range(2):
            await stage.silence()
            await stage.send(LIST)

    assert starts == 1


async def test_a_parked_client_is_notified_at_once_and_stays_parked(
    autojump_clock: MockClock,
) -> None:
    async with parkable() as stage:
        await stage.send(INITIALIZED)
        await stage.silence()

        stage.upstream.list_changed("tools")

        assert await stage.heard() == [LIST_CHANGED]
        assert len(stage.parking) == 1


async def test_a_parked_client_answers_the_question_of_a_server(autojump_clock: MockClock) -> None:
    async with parkable() as stage:
        await stage.send(INITIALIZED)
        await stage.silence()
        answers: list[bytes] = []

        async def ask() -> None:
            answers.append(await stage.upstream.ask("roots/list", b"{}", lambda _: None))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            question = json.loads((await stage.heard())[0])
            await stage.send({"jsonrpc": "2.0", "id": question["id"], "result": {"roots": []}})

        assert answers == [b'{"roots": []}']


async def test_what_a_parked_client_does_not_read_waits_for_it_in_order(
    autojump_clock: MockClock,
) -> None:
    texts = [b"%d" % number + b"x" * 40_000 for number in range(40)]
    async with parkable() as stage:
        await stage.send(INITIALIZED)
        await stage.silence()

        for text in texts:
            stage.upstream.notify("notifications/message", b'"%s"' % text)

        heard: list[bytes] = []
        while len(heard) < len(texts):
            heard += await stage.heard()
        assert [json.loads(line)["params"].encode() for line in heard] == texts
        await stage.silence()
        assert len(stage.parking) == 1


async def test_a_client_that_has_just_been_woken_is_not_busy(autojump_clock: MockClock) -> None:
    async with parkable() as stage:
        await stage.silence()

        stage.upstream.wake()

        # The task begins only when others get their turn, and one of them may be the drain.
        assert not stage.upstream.is_busy


async def test_a_parked_client_is_told_that_its_connection_closes(
    autojump_clock: MockClock,
) -> None:
    async with parkable() as stage:
        await stage.silence()

        stage.upstream.close("stopping", reconnect=True)

        await stage.ended.wait()
        assert json.loads((await stage.heard())[0])["reason"] == "stopping"
        assert await stage.client.receive_some() == b""


async def test_a_connection_ends_when_its_parked_client_leaves(autojump_clock: MockClock) -> None:
    async with parkable() as stage:
        await stage.silence()

        await stage.client.aclose()

        await stage.ended.wait()
        assert (stage.upstream.is_over, stage.upstream.is_goodbye) == (True, False)


async def test_a_goodbye_after_a_silence_is_understood(autojump_clock: MockClock) -> None:
    async with parkable() as stage:
        await stage.silence()

        await stage.send({"capd": "goodbye"})

        await stage.ended.wait()
        assert stage.upstream.is_goodbye


@pytest.mark.parametrize(
    "message",
    [
        CALL,
        {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "subscriptions/listen",
            "params": {"notifications": {"toolsListChanged": True}},
        },
    ],
    ids=["a call", "a stream of notifications"],
)
async def test_a_client_that_waits_is_not_parked(autojump_clock: MockClock, message: Json) -> None:
    async with parkable() as stage:
        stage.talk.hold = trio.Event()
        await stage.send(message)

        await stage.silence()

        assert len(stage.parking) == 0


async def test_a_client_in_the_middle_of_a_line_is_not_parked(autojump_clock: MockClock) -> None:
    line = json.dumps(LIST).encode()
    async with parkable() as stage:
        await stage.client.send_all(line[:20])
        await stage.silence()
        assert len(stage.parking) == 0

        await stage.send(line[20:])

        assert await stage.heard() == [LISTED]


async def test_a_client_that_is_asked_is_not_parked(autojump_clock: MockClock) -> None:
    async with parkable() as stage:
        await stage.send(INITIALIZED)

        async def ask() -> None:
            with pytest.raises(RefusedError):
                await stage.upstream.ask("roots/list", b"{}", lambda _: None)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await stage.silence()

            assert len(stage.parking) == 0


async def test_a_line_that_comes_at_the_moment_of_the_look_is_answered(
    autojump_clock: MockClock,
) -> None:
    async with parkable() as stage:
        stage.upstream.park_if_idle()
        os.write(stage.client.socket.fileno(), json.dumps(LIST).encode() + b"\n")

        stage.upstream.park_if_idle()

        assert await stage.heard() == [LISTED]


async def test_a_close_while_a_parked_client_is_woken_closes(autojump_clock: MockClock) -> None:
    async with parkable() as stage:
        await stage.silence()

        stage.upstream.wake()
        stage.upstream.close("stopping", reconnect=True)

        await stage.ended.wait()
        assert json.loads((await stage.heard())[0])["reason"] == "stopping"


async def test_a_connection_that_is_over_stays_over(autojump_clock: MockClock) -> None:
    async with parkable() as stage:
        await stage.client.aclose()
        await stage.ended.wait()

        stage.upstream.close("stopping", reconnect=True)
        stage.upstream.wake()

        assert (stage.upstream.is_over, stage.upstream.is_idle) == (True, False)


async def test_what_is_written_while_the_task_ends_is_read(autojump_clock: MockClock) -> None:
    texts = [b"%d" % number + b"x" * 40_000 for number in range(40)]
    async with parkable() as stage:
        await stage.send(INITIALIZED)
        stage.upstream.park_if_idle()
        stage.upstream.park_if_idle()
        while not stage.upstream.is_idle:
            await trio.lowlevel.checkpoint()

        for text in texts:
            stage.upstream.notify("notifications/message", b'"%s"' % text)

        heard: list[bytes] = []
        while len(heard) < len(texts):
            heard += await stage.heard()
        assert [json.loads(line)["params"].encode() for line in heard] == texts


async def test_a_close_at_the_moment_of_the_look_closes(autojump_clock: MockClock) -> None:
    async with parkable() as stage:
        stage.upstream.park_if_idle()
        stage.upstream.park_if_idle()

        stage.upstream.close("stopping", reconnect=True)

        await stage.ended.wait()
        assert json.loads((await stage.heard())[0])["reason"] == "stopping"


async def test_parked_clients_see_the_end_of_their_curator(autojump_clock: MockClock) -> None:
    async with parkable() as stage:
        await stage.silence()

        stage.parking.close()

        assert await stage.client.receive_some() == b""


async def test_a_client_behind_a_bridge_is_not_parked(autojump_clock: MockClock) -> None:
    async with parkable() as stage:
        stage.connection.is_far = True

        await stage.silence()

        assert len(stage.parking) == 0


async def test_a_socket_that_is_closed_when_it_is_to_be_parked_ends_its_connection(
    autojump_clock: MockClock,
) -> None:
    async with parkable() as stage:
        stage.upstream.park_if_idle()
        stage.upstream.park_if_idle()

        stage.ours.socket.close()

        await stage.ended.wait()
        assert (len(stage.parking), stage.upstream.is_over) == (0, True)


async def test_a_connection_that_has_ended_is_not_kept(autojump_clock: MockClock) -> None:
    async with parkable() as stage:
        await stage.send(LIST)
        ended = Stage(stage.client, stage.client, dispatched=False, talk=None).upstream
        kept = weakref.ref(ended)
        stage.parking.serve(ended)
        await stage.silence()
        stage.parking.leave(ended)
        del ended
        # The task looks once more, and then waits for the next new connection.
        await stage.silence()

        assert kept() is None
