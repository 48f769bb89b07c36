"""The lines of one stream: in order, bounded, and sent again on resumption."""

import pytest
from trio.testing import MockClock

from capd.adapters.clients.http_front import outbox
from capd.adapters.clients.http_front.outbox import Outbox
from capd.adapters.frame_writer import WriterFullError


async def read(box: Outbox, number: int = 0) -> list[bytes]:
    """Read on behind line `number` to the end."""
    lines = []
    claim = box.claim()
    while (line := await box.after(number, claim)) is not None:
        number = line[0]
        assert isinstance(line[1], bytes)
        lines.append(line[1])
    return lines


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Outbox:
    monkeypatch.setattr(outbox, "MOST_LINES", 3)
    return Outbox()


async def test_lines_come_in_their_order_up_to_the_last() -> None:
    box = Outbox()
    box.put(b"a")
    box.put(b"b")
    box.put(b"z", is_last=True)
    box.put(b"late")

    lines = await read(box)

    assert lines == [b"a", b"b", b"z"]
    assert [box.is_last(number) for number in (1, 2, 3)] == [False, False, True]


async def test_what_is_not_read_is_kept_and_what_is_newer_refused(small: Outbox) -> None:
    for line in (b"a", b"b", b"c"):
        small.put(line)

    with pytest.raises(WriterFullError):
        small.put(b"d")

    small.put(b"z", is_last=True)
    assert await read(small) == [b"a", b"b", b"c", b"z"]


async def test_what_was_read_makes_room(small: Outbox, autojump_clock: MockClock) -> None:
    claim = small.claim()
    for line in (b"a", b"b", b"c"):
        small.put(line)
    await small.after(0, claim)
    await small.after(1, claim)

    small.put(b"d")

    assert (small.has(0), small.has(1)) == (False, True)
    assert await small.after(1, claim) == (2, b"b")


async def test_a_reader_comes_back_to_where_it_was(small: Outbox) -> None:
    for line in (b"a", b"b"):
        small.put(line)
    await small.after(0, small.claim())
    small.put(b"z", is_last=True)

    lines = await read(small, 1)

    assert lines == [b"b", b"z"]


async def test_a_newer_reader_ends_the_older_one() -> None:
    box = Outbox()
    old = box.claim()
    box.claim()
    box.put(b"a")

    line = await box.after(0, old)

    assert line is None
