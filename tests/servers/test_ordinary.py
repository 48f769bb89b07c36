"""Ordinary servers from npm and PyPI give the same results through capd and directly."""

import pytest

from .conftest import Both
from .conversation import Server, transcript
from .table import SERVERS

pytestmark = pytest.mark.servers


ROWS = [
    pytest.param(
        server,
        id=server.name,
        marks=[pytest.mark.xfail(reason=server.awaits, strict=True)] if server.awaits else [],
    )
    for server in SERVERS
]


@pytest.mark.parametrize("server", ROWS)
def test_a_server_is_the_same_through_capd_as_directly(server: Server, both: Both) -> None:
    with both.directly(server) as side:
        direct = transcript(server, side)

    with both.through_capd(server) as side:
        through = transcript(server, side)

    assert len([asked for asked, _ in direct if asked.startswith("tools ")]) >= server.tools
    assert through == [(asked, in_one_line(said)) for asked, said in direct]


def in_one_line(said: str) -> str:
    """Spell a line separator within a JSON text as capd does: the value is the same.

    A reader that splits lines there would take the rest for a message of its own.
    """
    for separator in "\u2028\u2029\u0085":
        said = said.replace(separator, f"\\u{ord(separator):04x}")
    return said
