"""Which sessions may read a stored result, as sessions come and go."""

from capd.core.results.handles import Readers
from capd_protos.types import SessionKey

ONE, TWO, THREE = SessionKey("one"), SessionKey("two"), SessionKey("three")


def family() -> Readers:
    """`one` has started `two`, which has started `three`."""
    readers = Readers()
    readers.started(TWO, ONE)
    readers.started(THREE, TWO)
    return readers


def test_a_session_reads_what_those_above_it_got_and_nothing_from_below() -> None:
    readers = family()

    may = {(a, b) for a in (ONE, TWO, THREE) for b in (ONE, TWO, THREE) if readers.may_read(a, b)}

    assert may == {
        *((ONE, ONE), (TWO, TWO), (THREE, THREE)),
        *((TWO, ONE), (THREE, TWO), (THREE, ONE)),
    }


def test_who_takes_the_key_of_a_session_that_is_over_has_nothing_of_its_parents() -> None:
    readers = family()
    readers.ended(TWO)

    may = [readers.may_read(TWO, ONE), readers.may_read(THREE, ONE), readers.may_read(THREE, TWO)]

    assert may == [False, False, True]
    readers.started(TWO, THREE)
    assert not readers.may_read(TWO, THREE), "it would be above itself"


def test_a_session_that_was_started_by_nobody_ends_without_a_word() -> None:
    readers = family()

    readers.ended(ONE)

    assert readers.may_read(THREE, ONE)
