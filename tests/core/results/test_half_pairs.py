"""Half a surrogate pair is read as U+FFFD, and passed on unchanged."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capd.core.results.half_pairs import (
    MOST_BACKSLASHES,
    MOST_BYTES,
    MOST_HALVES,
    MOST_LARGE_BYTES,
    MOST_SURROGATES,
    as_written,
    decoded,
    mended,
    mended_large,
)
from capd_protos.codec import JsonCodec, MalformedError

ANY: JsonCodec[object] = JsonCodec(object)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (rb'"a\ud83d"', rb'"a\ufffd"'),
        (rb'"\uD83Da"', rb'"\ufffda"'),
        (rb'"\ude00"', rb'"\ufffd"'),
        (rb'"\ude00\ud83d"', rb'"\ufffd\ufffd"'),
        (rb'"\ud83d\ud83d\ude00"', rb'"\ufffd\ud83d\ude00"'),
        (rb'"\ud83d\ude00\ude00"', rb'"\ud83d\ude00\ufffd"'),
        (rb'"\ud83d\u0041"', rb'"\ufffd\u0041"'),
        (rb'"\\\ud83d"', rb'"\\\ufffd"'),
        (rb'"\ud83d\\ude00"', rb'"\ufffd\\ude00"'),
    ],
)
def test_each_half_is_replaced_at_its_place(written: bytes, expected: bytes) -> None:
    got = mended(written)

    assert got == expected


@pytest.mark.parametrize(
    "written", [b"", rb'"\ud83d\ude00"', rb'"\\ud83d"', rb'"\\\\ud83d"', b'"\xf0\x9f\x98\x80"']
)
def test_what_has_no_half_is_itself(written: bytes) -> None:
    got = mended(written)

    assert got is written


@given(
    st.text(
        st.characters(codec=None, min_codepoint=0xD7F0) | st.sampled_from('\\u"dé'), max_size=30
    )
)
def test_whatever_text_is_cut_it_is_read_with_its_halves_replaced(text: str) -> None:
    written = json.dumps(text).encode()

    got = decoded(ANY, written)

    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    assert isinstance(got, str)
    assert len(mended(written)) == len(written)
    assert got.replace("\ufffd", "") == whole.replace("\ufffd", "")


def test_a_part_is_found_as_it_was_written() -> None:
    written = rb'{"id":1,"result":{"text":"a\ud83d"}}'

    got = as_written(rb'{"text":"a\ufffd"}', mended(written), written)

    assert got == rb'{"text":"a\ud83d"}'


@pytest.mark.parametrize(
    "written", [rb'"\ud83d' * (MOST_HALVES + 1), rb'"\ud83d"' + b" " * MOST_BYTES]
)
def test_nobody_waits_for_what_is_no_cut_text(written: bytes) -> None:
    with pytest.raises(MalformedError):
        decoded(ANY, written)


def test_a_large_text_is_mended_once() -> None:
    written = rb'"%s\ud83d"' % (b"x" * MOST_BYTES)

    got = mended_large(written)

    assert mended(written) is written
    assert got == rb'"%s\ufffd"' % (b"x" * MOST_BYTES)


@pytest.mark.parametrize(
    "filling",
    [b"x" * MOST_LARGE_BYTES, rb"\n" * MOST_BACKSLASHES, rb"\ud83d\ude00" * (MOST_SURROGATES // 2)],
)
def test_a_large_text_that_would_take_long_is_left_as_it_is(filling: bytes) -> None:
    written = rb'"%s\ud83d"' % filling

    got = mended_large(written)

    assert got is written
