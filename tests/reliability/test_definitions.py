"""Hostile definitions cost at most their own server's tools."""

import os
import signal
import socket
import time
from typing import Any

import pytest

from whole_daemon import wait_for

from .world import LIST_CHANGED, MIB, Memory, World, outcome

pytestmark = pytest.mark.reliability

OWN = ["capability", "tool_search", "tool_call", "result_read"]


def without_neighbour(tools: list[str]) -> list[str]:
    return [tool for tool in tools if tool not in OWN]


def left_out(world: World) -> list[str]:
    """Return the reasons for which tools were left out, as the log has them."""
    return [line for line in world.log().splitlines() if "tool_left_out" in line]


# B3


def test_a_tool_that_takes_the_name_of_another_servers_reaches_its_own_server(
    world: World,
) -> None:
    world.honest("git", "commit,echo")
    world.evil("shadow")
    world.start()
    session = world.session("one", "evil", "git")

    said = [session.said("git__commit", "a"), session.said("git__echo", "b")]
    said += [session.said("evil__echo", "c"), session.said("evil__git__commit", "d")]

    assert said == ["git commit 1 a", "git echo 2 b", "c", "d"]
    assert sorted(without_neighbour(session.tools())) == [
        "evil__capd_search_tools",
        "evil__echo",
        "evil__git__commit",
        "evil__github__create_issue",
        "evil__read_file",
        "evil__search_tools",
        "git__commit",
        "git__echo",
    ]


# B4


def test_of_hostile_names_only_the_usable_one_is_listed_once(world: World) -> None:
    world.evil("bad_names")
    world.start()
    session = world.session("one", "evil")

    tools = without_neighbour(session.tools())

    assert tools == ["evil__echo"]
    assert session.said("evil__echo", "here") == "here"
    assert left_out(world)


# B6


def test_a_remote_reference_is_fetched_by_nobody_and_its_tool_is_left_out(world: World) -> None:
    with socket.create_server(("127.0.0.1", 0)) as canary:
        canary.settimeout(0)
        url = f"http://127.0.0.1:{canary.getsockname()[1]}/x.json"
        world.evil("ref_remote", "--url", url)
        world.start()
        session = world.session("one", "evil")

        tools = without_neighbour(session.tools())

        assert tools == []
        assert url in left_out(world)[0]
        with pytest.raises(BlockingIOError):
            canary.accept()


def test_a_reference_to_a_file_opens_no_file_and_its_tool_is_left_out(world: World) -> None:
    pipe = world.home.folder / "canary"
    os.mkfifo(pipe)
    world.evil("ref_remote", "--url", pipe.as_uri())
    world.start()
    session = world.session("one", "evil")

    tools = without_neighbour(session.tools())

    assert tools == []
    assert pipe.as_uri() in left_out(world)[0]
    # Opening it for writing works only while somebody reads, and a reader waits for a writer.
    with pytest.raises(OSError, match="No such device"):
        os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)


def test_a_reference_to_the_password_file_is_refused_like_any(world: World) -> None:
    world.evil("ref_file")
    world.start()
    session = world.session("one", "evil")

    tools = without_neighbour(session.tools())

    assert tools == []
    assert "file:///etc/passwd" in left_out(world)[0]


# B7


@pytest.mark.parametrize(
    ("mode", "reason"),
    [
        ("ref_bomb", "expands to more than"),
        ("ref_loop", "refers to itself without an end"),
        ("deep_schema", "nests schemas more than"),
    ],
)
def test_a_schema_bomb_is_left_out_with_its_reason(world: World, mode: str, reason: str) -> None:
    world.evil(mode)
    world.start()
    session = world.session("one", "evil")

    tools = without_neighbour(session.tools())

    assert tools == []
    (line,) = left_out(world)
    assert reason in line


def test_a_slow_pattern_is_passed_on_and_never_run(world: World) -> None:
    world.evil("redos")
    world.start()
    session = world.session("one", "evil")
    x = "a" * 60 + "!"

    said = session.said("evil__echo", x)

    assert said == x


# B8


def test_pages_without_an_end_are_one_tool(world: World) -> None:
    world.evil("page_forever")
    world.start()
    session = world.session("one", "evil")

    tools = without_neighbour(session.tools())

    assert tools == ["evil__echo"]
    assert session.said("evil__echo", "here") == "here"


def test_a_giant_list_is_cut_and_costs_bounded_memory(world: World) -> None:
    # 15 MB: a longer page is refused as a whole.
    world.evil("many_tools", "--n", "7000")
    config = world.home.folder / "config"
    (config / "clients.toml").write_text('[mine]\nnames = ["test-editor"]\ntool_limit = 2000\n')
    world.start()
    memory = Memory(world.process)
    session = world.session("one", "evil")

    tools = without_neighbour(session.tools())

    assert tools == ["evil__echo", *(f"evil__t{n}" for n in range(999))]
    assert memory.grown < 128 * MIB
    assert session.said("evil__t7", "here") == "here"


def test_a_list_over_the_line_limit_costs_its_own_server_only(world: World) -> None:
    world.evil("many_tools", "--n", "20000")
    world.start()
    memory = Memory(world.process)
    world.session("one")

    answer = world.enable("one", "evil")

    # Refused with the reason, or cut like any list.
    assert answer["ok"] or "bytes" in answer["text"]
    assert memory.grown < 192 * MIB


def test_a_storm_of_changed_lists_is_a_fetch_every_two_seconds(world: World) -> None:
    # `rug_pull_restart` counts in the file how often its tools were asked for.
    world.evil("list_changed_storm,rug_pull_restart")
    world.start()
    began_at = time.monotonic()
    session = world.session("one", "evil")

    said = [session.said("evil__echo", str(n)) for n in range(10)]

    wait_for(lambda: int(world.out.read_text() or 0) >= 2)
    fetched = int(world.out.read_text())
    # A bound on a rate: a slow machine only allows more.
    assert fetched <= 2 + (time.monotonic() - began_at) / 2
    assert said == [str(n) for n in range(10)]
    assert len(list(filter(is_change, session.heard))) <= 2 + fetched


# B9


def test_a_tool_that_calls_itself_harmless_is_not_called_again(world: World) -> None:
    world.evil("lie_readonly,die_after_effect")
    world.start()
    editor = world.home.shim("one")
    world.enable("one", "evil")

    result = editor.call("evil__echo", {"x": "1"})

    assert outcome({"result": result}) == "outcome_unknown"
    world.ask_neighbour()
    assert world.out.read_text() == "EFFECT\n"
    editor.leave()


# B10


def test_a_list_that_claims_to_last_forever_is_asked_for_after_a_restart(world: World) -> None:
    world.evil("rug_pull_restart", "--generation", "modern")
    world.start()
    session = world.session("one", "evil")
    os.kill(world.pid("evil"), signal.SIGKILL)
    wait_for(lambda: not world.server("evil")["pid"])

    said = session.said("evil__echo", "again")

    assert said == "again"
    listed = wait_for(lambda: "v2" in str(session.answer(session.ask("tools/list", {}))))
    assert listed


# E5


def test_a_changed_list_reaches_the_sessions_that_have_the_server_and_no_other(
    world: World,
) -> None:
    world.evil("rug_pull,list_changed_storm", "--n", "3")
    world.start()
    first, second = world.session("one", "evil"), world.session("two", "evil")
    other = world.session("three", "neighbour")
    for session in (first, second, other):
        session.wait_to_hear(is_change)

    first.call("evil__echo", {"x": "1"})

    for session in (first, second):
        session.wait_to_hear(is_change, 2)
    assert "evil.example" in str(second.answer(second.ask("tools/list", {})))
    assert len(list(filter(is_change, other.heard))) == 1


def is_change(message: dict[str, Any]) -> bool:
    return bool(message["method"] == LIST_CHANGED)
