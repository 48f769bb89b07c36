"""Server-sent events are parsed alike however the bytes are split."""

import tracemalloc
from collections import deque
from itertools import pairwise, repeat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capd.adapters.servers.http import event_stream
from capd.adapters.servers.http.event_stream import Event, EventParser, EventTooLargeError

STREAM = (
    b"\xef\xbb\xbf: hello\r\n\r\ndata: one\r\n\r\nevent: endpoint\rdata:/m\rdata: n\r\r"
    b"id: 7\nretry: 250\ndata:\n\ndata\n\nnonsense: x\n\nretry: soon\n\nid: a\0b\ndata:  two\n\n"
    b"data: cut"
)
EVENTS = [
    Event("message", b"one"),
    Event("endpoint", b"/m\nn"),
    Event("message", b""),
    Event("message", b""),
    Event("message", b" two"),
]


@given(st.lists(st.integers(0, len(STREAM))))
def test_events_are_the_same_however_the_bytes_arrive(cuts: list[int]) -> None:
    places = [0, *sorted(cuts), len(STREAM)]
    parser = EventParser()

    events = [event for begin, end in pairwise(places) for event in parser.feed(STREAM[begin:end])]

    assert (events, parser.last_id, parser.retry) == (EVENTS, "7", 0.25)


def test_an_event_in_many_small_chunks_takes_little_more_memory_than_its_bytes() -> None:
    parser = EventParser()
    tracemalloc.start()

    for number in range(50_000):
        parser.feed(b"%02d" % (number % 100))

    held_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert parser.pending_bytes == 100_000
    assert held_bytes < 300_000


@pytest.mark.parametrize("chunk", [b"data: x\n", b": ping\n\n", b"data: xxxxxx"])
def test_what_brings_no_event_is_bounded(chunk: bytes) -> None:
    parser = EventParser(cap_bytes=1000)

    with pytest.raises(EventTooLargeError, match="more than 1000 bytes"):
        deque(map(parser.feed, repeat(chunk, 1000)), maxlen=0)


def test_the_lines_of_one_event_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "MOST_LINES", 10)
    parser = EventParser()
    parser.feed(b"data:\n" * 10 + b"\n")
    parser.feed(b"data:\n" * 10)

    with pytest.raises(EventTooLargeError, match="more than 10 lines"):
        parser.feed(b"data:\n")


def test_events_that_end_are_not_bounded() -> None:
    parser = EventParser(cap_bytes=1000)

    count = sum(len(parser.feed(b"data: x\n\n")) for _ in range(1000))

    assert count == 1000


def test_another_stream_begins_afresh_but_goes_on_after_the_last_id() -> None:
    parser = EventParser()
    parser.feed(b"id: 3\ndata: half")

    parser.restart()

    assert (parser.feed(b"data: whole\n\n"), parser.last_id) == ([Event("message", b"whole")], "3")
