"""Decisions about a result of which only the first and last bytes are in memory."""

import pytest

from capd.core.protocol.calls import is_success
from capd.core.protocol.generations import input_required, result_for_stateless
from capd.core.results.large_results import LargeResult


class KeptPlaces:
    async def read(self, start: int, size_bytes: int) -> bytes:
        raise AssertionError(f"nothing is read to decide, nor {size_bytes} bytes from {start} on")


def result(head: bytes, tail: bytes = b'"}]}') -> LargeResult:
    return LargeResult(KeptPlaces(), 30, 40_000_000, head, tail)


def begins(large: LargeResult | bytes) -> bytes:
    """Return the first bytes that are written of a result."""
    assert isinstance(large, LargeResult)
    return large.spliced + large.head[large.start - 30 :]


@pytest.mark.parametrize(
    ("head", "tail", "expected"),
    [
        (b'{"content":[', b'"}]}', True),
        (b'{"content":[', b'"}],"isError":false}', True),
        (b'{"content":[', b'"}],"isError":true}', False),
        (b'{"isError" : true,"content":[', b'"}]}', False),
        (b'{"content":[{"text":"\\"isError\\":true', b'"}]}', True),
    ],
)
def test_a_large_result_is_a_use_unless_its_ends_say_that_it_failed(
    head: bytes, tail: bytes, expected: bool
) -> None:
    assert is_success(result(head, tail)) is expected


@pytest.mark.parametrize(
    ("method", "head", "tail", "expected"),
    [
        ("tools/call", b'{"content":[', b"]}", b'{"resultType":"complete","content":['),
        (
            "resources/read",
            b'{"contents":[',
            b'],"ttlMs":5}',
            b'{"resultType":"complete","cacheScope":"private","contents":[',
        ),
        ("tools/call", b'{"resultType":"complete","x":[', b"]}", b'{"resultType":"complete","x":['),
        ("tools/call", b'{"x":[', b'],"resultType":"complete"}', b'{"x":['),
        ("tools/call", b"[1,", b"]", b"[1,"),
    ],
)
def test_what_the_stateless_generation_wants_is_put_before_a_large_result(
    method: str, head: bytes, tail: bytes, expected: bytes
) -> None:
    given = result(head, tail)

    told = result_for_stateless(given, method)

    assert begins(told) == expected
    assert isinstance(told, LargeResult)
    assert told.size_bytes - given.size_bytes == len(expected) - len(head)


def test_a_large_result_is_no_question() -> None:
    assert input_required(result(b'{"resultType":"input_required","inputRequests":{')) is None
