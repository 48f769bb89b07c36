"""How long capd waits before it continues a stream that a server ended."""

import pytest

from capd.core.servers.stream_pauses import LONGEST, USUAL, StreamPauses


def waits(asked: float | None, *, is_new: bool, count: int = 9) -> list[float]:
    pauses = StreamPauses()
    return [pauses.after(asked, is_new=is_new) for _ in range(count)]


def test_a_server_that_says_nothing_gets_the_usual_pause() -> None:
    assert waits(None, is_new=False, count=3) == [USUAL] * 3


def test_the_first_pause_is_what_the_server_asks_for() -> None:
    assert [waits(asked, is_new=False)[0] for asked in (0.0, 0.5, 30.0)] == [0.0, 0.5, 30.0]


def test_streams_that_bring_nothing_are_continued_ever_later() -> None:
    assert waits(0.0, is_new=False) == [0.0, 0.1, 0.2, 0.4, 0.8, LONGEST, LONGEST, LONGEST, LONGEST]


def test_streams_that_bring_something_are_continued_soon_but_not_at_once() -> None:
    assert waits(0.0, is_new=True, count=4) == [0.0, 0.1, 0.1, 0.1]


def test_news_make_the_pause_short_again() -> None:
    pauses = StreamPauses()
    for _ in range(5):
        pauses.after(0.0, is_new=False)

    assert [pauses.after(0.0, is_new=each) for each in (True, False, False)] == [0.1, 0.2, 0.4]


@pytest.mark.parametrize("is_new", [True, False])
def test_a_longer_pause_that_a_server_asks_for_is_kept(is_new: bool) -> None:
    assert waits(7.0, is_new=is_new, count=6) == [7.0] * 6
