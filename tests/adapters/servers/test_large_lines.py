"""Results too large for memory are read from the spool."""

from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

import msgspec
import pytest
import structlog
import trio
from trio.testing import memory_stream_one_way_pair, wait_all_tasks_blocked

from capd.adapters import large_frames
from capd.adapters.large_frames import LargeFrame, read_all
from capd.adapters.servers import results_in_memory
from capd.adapters.servers import server_connection as server_connections
from capd.adapters.servers.callers import CallHooks
from capd.adapters.servers.server_connection import ServerConnection
from capd.adapters.spool import Spool
from capd.core.protocol.generations import raw
from capd.core.protocol.outcomes import CallFailedError, OutcomeUnknownError
from capd.core.results.large_results import LargeResult, Result
from capd_protos.types import ServerName

HELD_BYTES = 200
READABLE_BYTES = 400


class Stage:
    """A server connection that holds little, and its server."""

    def __init__(self, spool: Spool) -> None:
        self.spool = spool
        stdin, self._read = memory_stream_one_way_pair()
        self._say, stdout = memory_stream_one_way_pair()
        self.server_connection = ServerConnection(
            ServerName("alpha"),
            stdin,
            stdout,
            on_list_changed=lambda _: None,
            log=structlog.get_logger(),
            spool=spool.of_server(),
        )
        self.server_connection._reader.allow(HELD_BYTES)
        self._ends: dict[int, Result | CallFailedError] = {}
        self._ended: defaultdict[int, trio.Event] = defaultdict(trio.Event)

    async def call(self, number: int) -> None:
        """Return a pending call with this number, which is also its id."""
        members = {"name": raw("echo")}
        try:
            self._ends[number] = await self.server_connection.relay(
                "tools/call", members, CallHooks()
            )
        except CallFailedError as error:
            self._ends[number] = error
        self._ended[number].set()

    @property
    def ended(self) -> list[int]:
        """The calls that have an outcome which nobody has taken."""
        return sorted(self._ends)

    async def taken(self, number: int) -> Result | CallFailedError:
        """Return how a call ended, and forget it."""
        with trio.fail_after(30):
            await self._ended[number].wait()
        return self._ends.pop(number)

    async def say(self, *lines: bytes) -> None:
        for line in lines:
            await self._say.send_all(line + b"\n")

    async def outcome(self, number: int) -> bytes | str:
        """Return the line that a client gets, or the text of the error."""
        end = await self.taken(number)
        if isinstance(end, CallFailedError):
            return end.outcome
        if isinstance(end, bytes):
            return end
        pieces = [piece async for piece in LargeFrame(b"", end, b"").pieces()]
        return b"".join(pieces).removesuffix(b"\n")


@asynccontextmanager
async def staged(
    monkeypatch: pytest.MonkeyPatch, folder: Path, calls: int = 1
) -> AsyncIterator[Stage]:
    monkeypatch.setattr(server_connections, "READABLE_BYTES", READABLE_BYTES)
    stage = Stage(Spool(folder))
    # The lines of these tests name their calls; the server connection's own ids cannot be foreseen.
    monkeypatch.setattr(stage.server_connection, "_fresh_id", count(1).__next__)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stage.server_connection.run)
        for number in range(1, calls + 1):
            nursery.start_soon(stage.call, number)
            await wait_all_tasks_blocked()
        yield stage
        nursery.cancel_scope.cancel()


VALUE = b'{"content":[{"type":"text","text":"%s"}]}' % (b'\\"},\\"id\\":9}' * 100)


@pytest.mark.parametrize(
    ("line", "value"),
    [
        (b'{"jsonrpc":"2.0","id":1,"result":%s}' % VALUE, VALUE),
        (b'{"result":%s,"jsonrpc":"2.0","id":1}\r' % VALUE, VALUE),
        (b' { "id" : 1 , "result" : [%s] , "x" : "}" } ' % VALUE, b"[%s]" % VALUE),
        (b'{"id":"1","result":%s}' % VALUE, VALUE),
        (b'{"id":1.0,"result":%s}' % VALUE, VALUE),
    ],
)
async def test_a_large_result_is_passed_on_from_the_spool(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, line: bytes, value: bytes
) -> None:
    async with staged(monkeypatch, tmp_path) as stage:
        await stage.say(line)

        got = await stage.outcome(1)

        assert got == value
        assert stage.spool.used_bytes == 0


LONG = b"x" * 1000


@pytest.mark.parametrize(
    "line",
    [
        b'{"id":1,"result":{"a":"%s"},"id":2,"x":{}}' % LONG,
        b'{"id":1,"result":{},"id":2,"x":{"a":"%s"}}' % LONG,
        b'{"id":1,"result":["%s\xff"]}' % LONG,
        b'{"id":1,"result":["%s]}' % LONG,
        b'{"id":1,"result":["%s"}}]}' % LONG,
        b'{"id":1,"error":{"code":1,"message":"%s"}}' % LONG,
        b'{"id":1,"result":"%s"}' % LONG,
        b'{"id":1,"x":{},"result":{"a":"%s"}}' % LONG,
    ],
)
async def test_what_the_ends_do_not_tell_is_an_outcome_of_its_own_call_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, line: bytes
) -> None:
    async with staged(monkeypatch, tmp_path, calls=2) as stage:
        # Where the last id is another's, it is that one's reply, to every parser.
        await stage.say(line)
        await stage.say(b'{"id":1,"result":{"n":1}}', b'{"id":2,"result":{"n":2}}')

        got = [await stage.outcome(1), await stage.outcome(2)]

    assert sorted(map(str, got)) in (
        ["b'{\"n\":2}'", "outcome_unknown"],
        ["b'{\"n\":1}'", "outcome_unknown"],
    )


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b'{"id":1,"x":{},"result":{"a":"%s"}}' % (b"x" * 300), b'{"a":"%s"}' % (b"x" * 300)),
        (b'{"id":1,"result":"%s"}' % (b"x" * 300), b'"%s"' % (b"x" * 300)),
        (b'{"id":1,"result":["%s]}' % (b"x" * 300), "outcome_unknown"),
    ],
)
async def test_a_line_of_moderate_length_is_read_whole_where_its_ends_do_not_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, line: bytes, expected: bytes | str
) -> None:
    async with staged(monkeypatch, tmp_path) as stage:
        await stage.say(line)

        assert await stage.outcome(1) == expected


@pytest.mark.parametrize(
    ("size_bytes", "expected"),
    [(250, b'{"a":"%s","_meta":{"server.capd/outcome":1}}'), (450, "outcome_unknown")],
)
async def test_a_large_result_is_never_an_outcome_of_capds(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, size_bytes: int, expected: bytes | str
) -> None:
    text = b"x" * size_bytes
    async with staged(monkeypatch, tmp_path) as stage:
        await stage.say(b'{"id":1,"result":{"a":"%s","_meta":{"capd/outcome":1}}}' % text)

        got = await stage.outcome(1)

    assert got == (expected % text if isinstance(expected, bytes) else expected)


async def test_a_large_request_of_the_servers_is_nobodys_reply(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with staged(monkeypatch, tmp_path) as stage:
        request = b'{"id":1,"method":"sampling/createMessage","params":{"x":"%s"}}' % LONG

        await stage.say(request, b'{"id":1,"result":{}}')

        assert await stage.outcome(1) == b"{}"
        assert stage.server_connection.counts == {"large_unasked": 1, "refused_question": 1}


async def test_a_large_reply_that_nobody_waits_for_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with staged(monkeypatch, tmp_path) as stage:
        await stage.say(b'{"id":77,"result":["%s"]}' % LONG, b'{"id":1,"result":{}}')

        assert await stage.outcome(1) == b"{}"
        assert stage.server_connection.counts == {"unknown_reply": 1}
        assert stage.spool.used_bytes == 0


async def test_a_large_result_is_used_where_it_can_be_read(tmp_path: Path) -> None:
    file = Spool(tmp_path).of_server().file()
    file.add(b"...[1,2]...")

    got = await read_all(LargeResult(file, 4, 8, b"", b"", b"["))

    assert msgspec.json.decode(got) == [1, 2]


async def test_a_large_result_that_is_too_long_to_be_used_is_lost(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(large_frames, "READABLE_BYTES", 3)
    file = Spool(tmp_path).of_server().file()
    file.add(b"...[1,2]...")

    with pytest.raises(OutcomeUnknownError, match="5 bytes is over the limit of 3"):
        await read_all(LargeResult(file, 3, 8, b"", b""))


MIB = 1 << 20


def reply(number: int, size_bytes: int) -> bytes:
    return b'{"id":%d,"result":{"a":"%s"}}' % (number, b"x" * size_bytes)


async def test_the_next_large_result_is_read_when_an_earlier_one_is_freed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(results_in_memory, "MOST_BYTES", 3 * MIB)
    async with staged(monkeypatch, tmp_path, calls=3) as stage, trio.open_nursery() as nursery:
        stage.server_connection._reader.allow(16 * MIB)
        for number in (1, 2, 3):
            nursery.start_soon(stage.say, reply(number, 2 * MIB))
            await wait_all_tasks_blocked()
        assert stage.ended == [1, 2]

        await stage.taken(1)

        assert await stage.outcome(3) == b'{"a":"%s"}' % (b"x" * 2 * MIB)
        await stage.taken(2)
        await wait_all_tasks_blocked()
        assert stage.server_connection._results.size_bytes == 0


async def test_a_result_that_is_never_freed_sends_large_ones_to_the_spool_and_holds_up_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    del autojump_clock
    monkeypatch.setattr(results_in_memory, "MOST_BYTES", MIB)
    async with staged(monkeypatch, tmp_path, calls=4) as stage:
        stage.server_connection._reader.allow(16 * MIB)
        await stage.say(reply(1, 2 * MIB))
        await wait_all_tasks_blocked()

        await stage.say(reply(2, 2 * MIB), reply(3, 1))
        small, large = await stage.taken(3), await stage.taken(2)
        await stage.taken(1)
        await wait_all_tasks_blocked()
        await stage.say(reply(4, 2 * MIB))
        later = await stage.taken(4)

        assert small == b'{"a":"x"}'
        assert isinstance(large, LargeResult)
        assert isinstance(later, bytes)
