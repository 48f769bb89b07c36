"""Wire names are valid, unique and stable; misspelled names are recognised."""

import re
from random import Random

import pytest

from capd.core.tools.names import LIMIT, bare_name, original_name, wire_name
from capd_protos.types import ServerIdentity, ServerName, ToolName, WireName

IDENTITY = ServerIdentity("0123456789abcdef")
VALID = re.compile(r"[a-z_][a-z0-9_]{0,63}")


def name_of(server: str, tool: str, *taken: str, identity: str = IDENTITY) -> WireName:
    return wire_name(
        ServerName(server), ServerIdentity(identity), ToolName(tool), [WireName(t) for t in taken]
    )


@pytest.mark.parametrize(
    ("server", "tool", "name"),
    [
        ("git", "git_log", "git__git_log"),
        ("Git", "Log-All", "git__log_all"),
        ("1st-aid", "help", "_1st_aid__help"),
        ("s", "a__b", "s__a__b"),
        ("s", "t" * 61, "s__" + "t" * 61),
    ],
)
def test_a_valid_name_keeps_all_but_case_and_dashes(server: str, tool: str, name: str) -> None:
    got = name_of(server, tool)

    assert got == name


@pytest.mark.parametrize(
    ("server", "tool", "start"),
    [
        pytest.param("git", "a.b", "git__a_b_", id="a dot"),
        pytest.param("my.srv", "t", "my_srv__t_", id="a dot in the server"),
        pytest.param("git", "a/b c", "git__a_b_c_", id="slash and space"),
        pytest.param("git", "é", "git____", id="not ASCII"),
        pytest.param("s", "t" * 62, "s__" + "t" * 54 + "_", id="one too long"),
        pytest.param("s" * 100, "t", "s" * 57 + "_", id="a server too long"),
    ],
)
def test_a_name_that_had_to_be_changed_ends_in_six_hash_digits(
    server: str, tool: str, start: str
) -> None:
    got = name_of(server, tool)

    assert re.fullmatch(re.escape(start) + "[0-9a-f]{6}", got)
    assert len(got) <= LIMIT


def test_names_that_differ_only_in_what_was_changed_stay_apart() -> None:
    names = {
        name_of("s", "a.b"),
        name_of("s", "a/b"),
        name_of("s", "a_b"),
        name_of("s.", "a_b"),
        name_of("s", "t" * 70),
        name_of("s", "t" * 71),
        name_of("s", "a.b", identity="f" * 16),
    }

    assert len(names) == 7


def test_names_that_differ_only_in_case_stay_apart() -> None:
    first = name_of("s", "getEnv")

    second = name_of("s", "getenv", first)

    assert first == "s__getenv"
    assert re.fullmatch("s__getenv_[0-9a-f]{6}", second)


def test_names_that_differ_only_in_a_dash_stay_apart() -> None:
    first = name_of("brave-search", "web-search")

    second = name_of("brave-search", "web_search", first)

    assert first == "brave_search__web_search"
    assert re.fullmatch("brave_search__web_search_[0-9a-f]{6}", second)


def test_a_taken_name_gets_a_hash_and_a_taken_hash_a_longer_one() -> None:
    second = name_of("git", "log", "git__log")

    third = name_of("git", "log", "git__log", second)

    assert re.fullmatch("git__log_[0-9a-f]{6}", second)
    assert re.fullmatch(f"{second}[0-9a-f]", third)


def test_only_a_whole_hash_that_is_taken_has_no_name_left() -> None:
    class Everything:
        def __contains__(self, name: object) -> bool:
            return True

    with pytest.raises(AssertionError):
        wire_name(ServerName("s"), IDENTITY, ToolName("t"), Everything())


@pytest.mark.parametrize("seed", range(5))
def test_five_hundred_odd_names_are_unique_valid_and_the_same_again(seed: int) -> None:
    random = Random(seed)
    lengths = (1, 2, 3, 59, 60, 61, 80)
    odd = {"".join(random.choices("aA._-é/ x", k=random.choice(lengths))) for _ in range(2000)}
    tools = sorted(odd)[:500]

    def all_names() -> list[WireName]:
        taken: dict[WireName, None] = {}
        for tool in tools:
            taken[wire_name(ServerName("srv"), IDENTITY, ToolName(tool), taken)] = None
        return list(taken)

    names = all_names()

    assert len(names) == 500
    assert all(VALID.fullmatch(name) for name in names)
    assert all_names() == names


@pytest.mark.parametrize(
    ("tool", "taken", "expected"),
    [
        ("echo", (), "echo"),
        ("Get.Status", (), "Get.Status"),
        ("x" * 80, (), "x" * 80),
        ("echo", ("echo",), "git__echo"),
    ],
)
def test_a_bare_name_is_the_tools_own_unless_another_has_it(
    tool: str, taken: tuple[str, ...], expected: str
) -> None:
    names = tuple(WireName(name) for name in taken)

    name = bare_name(ServerName("git"), IDENTITY, ToolName(tool), names)

    assert name == expected


def test_rules_know_a_renamed_tool_by_its_servers_name() -> None:
    server, identity, tool = ServerName("notes"), ServerIdentity("1" * 16), ToolName("delete")
    new = WireName("notes__tidy")

    renamed = original_name(new, server, identity, tool, is_new=True)
    other = original_name(new, server, identity, tool, is_new=False)

    assert (renamed, other) == ("notes__delete", "notes__tidy")
