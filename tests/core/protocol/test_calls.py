"""Which results count as a successful use of a tool."""

import pytest

from capd.core.protocol.calls import is_success


@pytest.mark.parametrize(
    ("result", "success"),
    [
        (b'{"content":[]}', True),
        (b'{"content":[],"isError":false}', True),
        (b'{"content":[],"isError":true}', False),
        (b'{"isError" : true}', False),
        (b'{"structuredContent":{"isError":true}}', True),
        (b'{"content":[{"type":"text","text":"\\"isError\\":true"}]}', True),
        (b'{"isError":"yes"}', False),
        (b'{"isError":null}', False),
        (b'{"isError":true', False),
        (b'["isError"]', False),
        (b'{"isError":true,"x":"\xff"}', False),
        (b'{"isError":false,"x":' + b"[" * 100_000, False),
    ],
)
def test_a_result_is_a_success(result: bytes, *, success: bool) -> None:
    assert is_success(result) is success
