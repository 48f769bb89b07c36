"""Every rule of `allowed_tools` (docs/design/catalog.md); an invalid one allows nothing."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capd.core.tools.tool_filter import is_named, kept_tools, patterns_for
from capd_protos.types import ServerName, ToolName

GIT = ServerName("git")
TOOLS = [ToolName(name) for name in ("log", "Log", "push", "push_tags", "pull")]


@pytest.mark.parametrize(
    ("patterns", "kept"),
    [
        pytest.param(None, TOOLS, id="no list keeps all"),
        pytest.param([], TOOLS, id="an empty list keeps all"),
        pytest.param(["git:log"], ["log"], id="for this server"),
        pytest.param(["git:*"], TOOLS, id="all of this server"),
        pytest.param(["log"], ["log"], id="no colon speaks of every server"),
        pytest.param(["*"], TOOLS, id="a star alone"),
        pytest.param(["db:log"], [], id="for another server alone: none"),
        pytest.param(["db:*", "git:pull"], ["pull"], id="two servers"),
        pytest.param(["gi:log", "gitx:log", "Git:log"], [], id="a server's name is exact"),
        pytest.param(["push*"], ["push", "push_tags"], id="a prefix"),
        pytest.param(["pu*s"], ["push_tags"], id="a star inside"),
        pytest.param(["pu??"], ["push", "pull"], id="question marks"),
        pytest.param(["[lL]og"], ["log", "Log"], id="a class"),
        pytest.param(["[!l]og"], ["Log"], id="a class turned around"),
        pytest.param(["LOG"], [], id="case counts"),
        pytest.param(["pus"], [], id="the whole name must match"),
        pytest.param(["absent"], [], id="nothing matches: none"),
        pytest.param([""], [], id="an empty pattern"),
        pytest.param(["git:"], [], id="an empty pattern of this server"),
        pytest.param([":log"], [], id="an empty server is another one"),
        pytest.param(["git:log:x"], [], id="the first colon parts"),
        pytest.param(["pull", "git:log"], ["log", "pull"], id="the server's order stays"),
        pytest.param(["log", "lo*", "git:log"], ["log"], id="each tool once"),
    ],
)
def test_a_pattern_list_keeps(patterns: list[str] | None, kept: list[str]) -> None:
    got = kept_tools(GIT, TOOLS, patterns)

    assert got == kept


@pytest.mark.parametrize(
    ("filters", "kept"),
    [
        ((["log", "push"], ["git:push", "pull"]), ["push"]),
        ((["log"], ["db:*"]), []),
        (([], None), TOOLS),
        ((["log"], []), ["log"]),
        ((), TOOLS),
    ],
    ids=str,
)
def test_a_tool_passes_every_filter(
    filters: tuple[Sequence[str] | None, ...], kept: list[str]
) -> None:
    got = kept_tools(GIT, TOOLS, *filters)

    assert got == kept


def test_no_filter_is_told_from_one_that_says_nothing_of_this_server() -> None:
    got = [patterns_for(GIT, patterns) for patterns in (None, [], ["db:x"], ["a", "git:b", "db:c"])]

    assert got == [None, None, [], ["a", "b"]]


@given(st.lists(st.text(max_size=8), max_size=4))
@settings(deadline=None)
def test_any_list_keeps_tools_of_the_server_in_its_order(patterns: list[str]) -> None:
    got = kept_tools(GIT, TOOLS, patterns)

    assert got == [tool for tool in TOOLS if tool in got]


@pytest.mark.parametrize(
    "pattern",
    ["brave-search:web-*", "brave_search__web_search", "brave-search__web-search", "brave-*__*"],
)
def test_a_users_pattern_means_a_tool_by_either_name(pattern: str) -> None:
    names = ("brave-search", "web-search", "brave_search__web_search")

    assert is_named(pattern, *names)
    assert not is_named(pattern, "other", "web-search", "other__web_search")
