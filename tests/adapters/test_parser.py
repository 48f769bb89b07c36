"""The parser process does one job after the other."""

from collections.abc import Iterator

import pytest

from capd.adapters.parsing.jobs import ReadCapability
from capd.adapters.parsing.parser import Parser
from capd.adapters.parsing.process import LARGEST_KEPT_KIB
from capd_protos.types import CapabilityName, TapName


@pytest.fixture
def parser() -> Iterator[Parser]:
    made = Parser()
    yield made
    made.close()


def job(name: str) -> ReadCapability:
    texts = {"default.toml": f'[[mcp.servers]]\nname = "{name}"\ncommand = "s"\n'}
    capability = CapabilityName(name)
    return ReadCapability(TapName("mine"), capability, f"capabilities/{name}", texts, "")


def test_a_large_daemon_has_one_process_for_many_files(parser: Parser) -> None:
    # This process counts as large with what it holds here.
    held = b"x" * (2 * LARGEST_KEPT_KIB * 1024)

    pids = [(parser.read(job(name)).name, parser.pid) for name in ("one", "two", "three")]

    assert [name for name, _ in pids] == ["one", "two", "three"]
    assert pids[0][1] is not None
    assert len({pid for _, pid in pids}) == 1
    assert held
