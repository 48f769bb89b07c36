"""Vectors of too many tools to compare one by one are searched with a graph."""

import sys
from pathlib import Path

import numpy as np
import pytest
import trio
import trio.testing

from capd.actors.finder.tool_vectors import ToolVectors
from capd.adapters.model.vector_graph import VectorGraph, most_tools
from capd.core.tools.tool_search import MOST_TOOLS, ToolIndex
from capd.core.tools.tool_text import Tool
from capd.core.tools.vector_search import ExactSearch
from capd_protos.types import ToolName, WireName

from .fakes import RecordingBus
from .world import FakeEmbedder

WORDS = ("alpha", "bravo", "charlie", "delta", "echo")
TOOLS = [Tool(WireName(f"s__{word}"), ToolName(word), "s", "", f"Does {word}.") for word in WORDS]


async def indexed(folder: Path, most_compared: int, tools: list[Tool] = TOOLS) -> ToolIndex:
    """Return an index of `tools` with their vectors, made by a new daemon."""
    async with RecordingBus() as bus, trio.open_nursery() as nursery:
        await nursery.start(FakeEmbedder(bus).run)
        made = ToolVectors(bus, folder / "tool_vectors.bin", most_compared=most_compared)
        index = ToolIndex(tools)
        made.use()
        made.wanted(index)
        await made.ensure()
        nursery.cancel_scope.cancel()
    return index


async def test_beyond_the_limit_a_graph_answers_as_a_comparison_of_all_does(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    few, many = await indexed(tmp_path, 5), await indexed(tmp_path, 4)

    assert isinstance(few._meaning, ExactSearch)
    assert isinstance(many._meaning, VectorGraph)
    vector = few._meaning._vectors[2]
    left, right = few.evidence("q", vector).cosines, many.evidence("q", vector).cosines
    assert left is not None
    assert right is not None
    np.testing.assert_allclose(left, right, atol=2e-3)


async def test_up_to_the_limit_there_is_no_graph(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    await indexed(tmp_path, 5)

    assert [each.name for each in tmp_path.iterdir()] == ["tool_vectors.bin"]


async def test_the_graph_is_kept_for_the_next_daemon_until_a_tool_changes(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    file = tmp_path / "tool_vectors.graph"
    await indexed(tmp_path, 3)
    first = file.stat().st_ino

    await indexed(tmp_path, 3)
    second = file.stat().st_ino
    await indexed(tmp_path, 3, TOOLS[:-1])

    assert first == second
    assert file.stat().st_ino != second


async def test_without_the_extra_everything_is_compared(
    tmp_path: Path, autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What `find_spec` raises for, as where the package is not installed.
    monkeypatch.setitem(sys.modules, "usearch", None)

    index = await indexed(tmp_path, 3)

    assert (most_tools(), isinstance(index._meaning, ExactSearch)) == (MOST_TOOLS, True)
    assert not (tmp_path / "tool_vectors.graph").exists()
