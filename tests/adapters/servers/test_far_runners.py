"""A server over a bridge, and what a hostile far side can do in its place."""

import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

from capd.adapters.servers import far_runners as module
from capd.adapters.servers.far_runners import (
    MOST_IDLE,
    MOST_SERVERS,
    FarRunners,
    FarServer,
    NoRunnerError,
    far_running,
)
from capd.adapters.servers.processes import ExitStatus, SpawnFailedError
from capd.core.servers.far_starts import FarOrder, FarPlace
from support.turns import counted_turns

ORDER = FarOrder("git", ("mcp-git",), {}, "/home/dev")
PLACE = FarPlace("box", "/home/dev")
HEAD = struct.Struct(">cI")


def frame(kind: bytes, payload: bytes = b"") -> bytes:
    return HEAD.pack(kind, len(payload)) + payload


def pair() -> tuple[trio.SocketStream, trio.SocketStream]:
    near, far = trio.socket.socketpair()
    return trio.SocketStream(near), trio.SocketStream(far)


async def read(far: trio.SocketStream, size: int) -> bytes:
    """Return the next `size` bytes that the daemon sends."""
    data = b""
    while len(data) < size and (part := await far.receive_some(size - len(data))):
        data += part
    return data


@asynccontextmanager
async def served(
    *, answer: bytes = frame(b"s")
) -> AsyncIterator[tuple[FarServer, trio.SocketStream]]:
    """A server whose far side is played by the test."""
    runners = FarRunners()
    near, far = pair()
    runners.offer("box", near)
    await far.send_all(answer)
    async with far, far_running(ORDER, PLACE, runners) as server:
        await read(far, len(ORDER.line()))
        yield server, far
        await far.aclose()


async def test_input_and_output_are_carried() -> None:
    async with served() as (server, far):
        await server.stdin.send_all(b"question\n")
        asked = await read(far, HEAD.size + 9)
        await far.send_all(frame(b"o", b"ans") + frame(b"e", b"a word\n") + frame(b"o", b"wer\n"))
        answer = b""
        while len(answer) < 7:
            answer += await server.stdout.receive_some(100)

        assert asked == frame(b"i", b"question\n")
        assert answer == b"answer\n"
        assert server.stderr_tail() == ["a word"]
        assert (server.pid, server.membership) == (0, "")


@pytest.mark.parametrize(
    ("payload", "status"),
    [(b"7", ExitStatus(code=7)), (b"-9", ExitStatus(signal=9)), (b"junk", ExitStatus(code=1))],
)
async def test_its_end_is_told(payload: bytes, status: ExitStatus) -> None:
    async with served() as (server, far):
        await far.send_all(frame(b"x", payload))

        assert await server.wait() == status


async def test_a_stop_is_polite_first_and_waits_until_nothing_is_left() -> None:
    async with served() as (server, far), trio.open_nursery() as nursery:
        nursery.start_soon(server.stop, 0.01)

        assert await read(far, 3 * HEAD.size) == frame(b"c") + frame(b"t") + frame(b"k")
        await far.send_all(frame(b"g"))

    assert str(await server.wait()) == "was ended"


async def test_a_start_that_fails_over_there_says_why_in_safe_words() -> None:
    with pytest.raises(SpawnFailedError) as failed:
        async with served(answer=frame(b"f", b"no file \x1b[2J mcp-git")):
            pass

    assert str(failed.value) == (
        "git cannot start on the other side of the bridge box: no file \\x1b[2J mcp-git"
    )


async def test_without_a_runner_the_repair_is_named(autojump_clock: MockClock) -> None:
    with pytest.raises(NoRunnerError, match="end the command that holds the bridge open"):
        async with far_running(ORDER, PLACE, FarRunners()):
            pass


async def test_a_runner_of_another_bridge_gets_no_order(autojump_clock: MockClock) -> None:
    runners = FarRunners()
    near, far = pair()
    runners.offer("other", near)

    with pytest.raises(NoRunnerError):
        async with far_running(ORDER, PLACE, runners):
            pass

    with trio.move_on_after(1) as waited:
        await far.receive_some(1)
    assert waited.cancelled_caught
    near.socket.close()
    far.socket.close()


async def test_a_runner_that_never_answers_costs_its_own_servers_alone(
    autojump_clock: MockClock,
) -> None:
    runners = FarRunners()
    near, far = pair()
    runners.offer("box", near)

    with pytest.raises(NoRunnerError):
        async with far, far_running(ORDER, PLACE, runners):
            pass

    assert near.socket.fileno() < 0


async def test_a_connection_whose_runner_is_gone_is_passed_over() -> None:
    runners = FarRunners()
    good_near, good_far = pair()
    gone_near, gone_far = pair()
    runners.offer("box", good_near)
    runners.offer("box", gone_near)
    await gone_far.aclose()
    await good_far.send_all(frame(b"s"))

    async with good_far, far_running(ORDER, PLACE, runners):
        assert await read(good_far, len(ORDER.line())) == ORDER.line()
        await good_far.aclose()


@pytest.mark.parametrize(
    "sent",
    [
        b"HTTP/1.1 200 OK\r\n\r\n",
        HEAD.pack(b"o", 1 << 30),
        HEAD.pack(b"o", module._MOST_PAYLOAD_BYTES + 1),
        frame(b"s"),
        frame(b"f", b"too late"),
        frame(b"i", b"{}\n"),
        frame(b"\x00"),
    ],
)
async def test_what_breaks_the_rules_ends_the_server(sent: bytes) -> None:
    async with served() as (server, far):
        await far.send_all(sent)

        assert str(await server.wait()) == "was cut off: its runner broke the rules"
        assert await server.stdout.receive_some(1) == b""


@pytest.mark.parametrize(
    "answer", [HEAD.pack(b"f", 1 << 30), frame(b"s", b"x"), frame(b"o", b"x"), b"\xff" * 100]
)
async def test_an_answer_that_breaks_the_rules_starts_nothing(
    answer: bytes, autojump_clock: MockClock
) -> None:
    with pytest.raises(NoRunnerError):
        async with served(answer=answer):
            pass


async def test_a_flood_of_output_waits_at_its_sender() -> None:
    async with served() as (server, far):
        sent = 0
        with trio.move_on_after(1):
            while True:
                await far.send_all(frame(b"o", b"x" * 65536))
                sent += 1

        # What the system holds of a socket, and one frame here: nobody has read.
        assert sent < 100
        assert await server.stdout.receive_some(4) == b"xxxx"


async def test_a_flood_of_errors_keeps_its_end(autojump_clock: MockClock) -> None:
    async with served() as (server, far):
        for number in range(100):
            await far.send_all(frame(b"e", b"%d " % number + b"x" * 60000 + b"\n"))
        await far.send_all(frame(b"x", b"0"))
        await server.wait()

        kept = server.stderr_tail()
        assert sum(map(len, kept)) <= 65536
        assert kept[-1].startswith("99 ")


@pytest.mark.parametrize("kind", [b"o", b"e", b"x"])
async def test_others_have_their_turn_while_frames_without_content_are_read(kind: bytes) -> None:
    async with served() as (server, far), counted_turns() as turns:
        await far.send_all(frame(kind) * 13_000 + frame(b"x", b"0") + frame(b"g"))

        await server._gone.wait()

    assert turns.count > 200


async def test_the_end_of_its_connection_is_its_end() -> None:
    async with served() as (server, far):
        await far.aclose()

        assert str(await server.wait()) == "was cut off: the connection to its runner ended"


async def test_a_stop_does_not_wait_for_a_far_side_that_reads_nothing(
    autojump_clock: MockClock,
) -> None:
    async with served() as (server, _):
        began_at = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(server.stdin.send_all, b"x" * (8 << 20))
            await trio.testing.wait_all_tasks_blocked()
            await server.stop(2.0)
            nursery.cancel_scope.cancel()

        assert trio.current_time() - began_at <= 4 + 10 + 5


async def test_idle_connections_and_servers_of_a_bridge_are_bounded() -> None:
    runners = FarRunners()
    pairs = [pair() for _ in range(MOST_IDLE + 3)]
    for near, _ in pairs:
        runners.offer("box", near)

    assert sum(near.socket.fileno() >= 0 for near, _ in pairs) == MOST_IDLE
    runners.forget("box")
    assert sum(near.socket.fileno() >= 0 for near, _ in pairs) == 0
    for _, far in pairs:
        far.socket.close()


async def test_a_bridge_has_so_many_servers_over_there_and_no_more() -> None:
    runners = FarRunners()
    runners._running["box"] = MOST_SERVERS

    with pytest.raises(SpawnFailedError, match="32 servers run over the bridge box"):
        async with far_running(ORDER, PLACE, runners):
            pass
