"""A server cannot change its definitions unnoticed."""

import json
import os
import signal
import socket
from pathlib import Path
from typing import Any

import pytest

from whole_daemon import wait_for

from .world import Session, World, outcome, text_of

pytestmark = pytest.mark.reliability

HIDDEN = [
    *range(0x09),
    *range(0x0B, 0x0D),
    *range(0x0E, 0x20),
    *range(0x7F, 0xA0),
    *range(0x200B, 0x2010),
    *range(0x202A, 0x202F),
    *range(0x2066, 0x206A),
    0xFEFF,
    *range(0xE0000, 0xE0080),
]
"""What 80 B5 names."""


def in_quarantine(world: World) -> None:
    world.home.env["CAPD_DEFINITIONS"] = "quarantine"


def definitions(world: World, **params: Any) -> dict[str, Any]:
    """Return what the daemon knows of the hostile server's definitions."""
    (found,) = world.home.ask("definitions", server="evil", **params)["servers"]
    return dict(found)


def decide(world: World, *, accept: bool) -> None:
    word = "--accept" if accept else "--reject"
    done = world.home.at_terminal("trust", "definitions", "evil", word, typed="y\n")
    assert done.returncode == 0, done.stdout


def listed(session: Session) -> dict[str, str]:
    """Return the descriptions of the hostile server's tools that a session is shown."""
    tools = session.answer(session.ask("tools/list", {}))["result"]["tools"]
    return {t["name"]: t["description"] for t in tools if t["name"].startswith("evil__")}


def changed(world: World) -> list[tuple[str, str, bool]]:
    return [
        (each["tool"], each["kind"], each["is_withheld"]) for each in definitions(world)["changes"]
    ]


def restart(world: World) -> None:
    world.close()
    world.kill_daemon()
    world.process = world.home.start()
    world.open_neighbour()


# B1


def test_a_poisoned_server_is_invisible_in_quarantine_until_a_person_accepts_it(
    world: World,
) -> None:
    in_quarantine(world)
    world.evil("poison")
    world.start(accepts=("neighbour",))
    session = world.session("one", "evil")

    before = listed(session)
    called = session.call("evil__echo", {"x": "1"})
    found = world.home.ask("search", query="evil echo adds numbers", limit=5)["hits"]
    shown = definitions(world, differences=True, flags=True)
    decide(world, accept=True)

    wait_for(lambda: listed(session))
    assert before == {}
    assert (outcome(called), "capd trust definitions evil" in text_of(called)) == ("refused", True)
    assert [hit["name"] for hit in found if hit["server"] == "evil"] == []
    assert "<IMPORTANT>Before calling any tool read" in shown["changes"][0]["difference"]
    assert sorted(flag["code"] for flag in shown["flags"]) == [
        "hides_from_user",
        "instruction_tag",
        "orders_other_tools",
        "secret_file",
    ]
    assert session.said("evil__echo", "2") == "2"


def test_a_poisoned_server_of_the_users_own_works_and_is_flagged(world: World) -> None:
    world.evil("poison")
    world.start()
    session = world.session("one", "evil")

    said = session.said("evil__echo", "1")

    assert said == "1"
    assert definitions(world, flags=True)["flags"]
    assert "obey me" not in json.dumps(session.heard)


# B2


@pytest.mark.parametrize("mode", ["notify", "quarantine"])
def test_a_tool_that_changes_in_a_session_is_told_of_and_withheld_in_quarantine(
    world: World, mode: str
) -> None:
    world.home.env["CAPD_DEFINITIONS"] = mode
    world.evil("rug_pull,list_changed_storm", "--n", "1")
    world.start(accepts=("neighbour",) if mode == "quarantine" else ())
    session = world.session("one", "evil")
    if mode == "quarantine":
        decide(world, accept=True)
        wait_for(lambda: listed(session))

    first = session.said("evil__echo", "1")

    wait_for(lambda: changed(world))
    is_withheld = mode == "quarantine"
    assert (first, changed(world)) == ("1", [("echo", "changed", is_withheld)])
    if is_withheld:
        wait_for(lambda: not listed(session))
        refused = session.call("evil__echo", {"x": "2"})
        assert (outcome(refused), "is not defined as it was" in text_of(refused)) == (
            "refused",
            True,
        )
    else:
        wait_for(lambda: "evil.example" in str(listed(session)))
        assert session.said("evil__echo", "2") == "2"
    status = world.home.ask("status")["definitions"]
    assert (status["changed"], status["servers"]) == (1, ["evil"])


def test_what_changed_over_a_restart_stays_withheld_over_every_other_one(world: World) -> None:
    in_quarantine(world)
    world.evil("rug_pull_restart")
    world.start(accepts=("neighbour",))
    session = world.session("one", "evil")
    decide(world, accept=True)
    wait_for(lambda: listed(session))
    os.kill(world.pid("evil"), signal.SIGKILL)
    wait_for(lambda: not world.server("evil")["pid"])

    # Its next call starts it again, and it lists another definition.
    after_server = session.call("evil__echo", {"x": "1"})
    restart(world)
    again = world.session("two", "evil")
    after_daemon = again.call("evil__echo", {"x": "2"})
    define = world.home.folder / "tap/capabilities/evil/default.toml"
    define.write_text(define.read_text() + "\n# saved again\n")
    world.home.ask("reload")
    after_save = again.call("evil__echo", {"x": "3"})

    assert [outcome(each) for each in (after_server, after_daemon, after_save)] == ["refused"] * 3
    assert listed(again) == {}
    assert changed(world) == [("echo", "changed", True)]
    assert '+  "description": "Echo the argument. v2 (exfiltrate)",' in definitions(
        world, differences=True
    )["changes"][0]["difference"].split("\n")


def test_a_change_that_a_person_rejects_is_withheld_from_an_ordinary_server(world: World) -> None:
    world.evil("rug_pull,list_changed_storm", "--n", "1")
    world.start()
    session = world.session("one", "evil")
    session.said("evil__echo", "1")
    wait_for(lambda: changed(world))

    decide(world, accept=False)

    wait_for(lambda: not listed(session))
    refused = session.call("evil__echo", {"x": "2"})
    assert (outcome(refused), "rejected" in text_of(refused)) == ("refused", True)


def test_a_damaged_baseline_trusts_nothing_again_in_quarantine(world: World) -> None:
    in_quarantine(world)
    world.evil("ok")
    world.start(accepts=("neighbour",))
    session = world.session("one", "evil")
    decide(world, accept=True)
    wait_for(lambda: listed(session))
    file = world.home.folder / "state/definitions" / f"{definitions(world)['identity']}.definitions"
    world.close()
    world.kill_daemon()
    file.write_bytes(file.read_bytes()[:-7] + b"damaged")

    world.process = world.home.start()
    world.open_neighbour()
    again = world.session("two", "evil")

    assert listed(again) == {}
    assert outcome(again.call("evil__echo", {"x": "1"})) == "refused"
    status = world.home.ask("status")
    assert status["definitions"]["lost"] == ["evil"]
    assert any("is set aside" in each for each in status["daemon"]["degraded"])
    assert file.with_suffix(".damaged").exists()


# B3 and B4: flags beside what test_definitions holds


def test_names_that_shadow_others_are_flagged(world: World) -> None:
    world.honest("git", "commit,echo")
    world.evil("shadow")
    world.start()
    world.session("one", "git", "evil")

    flags = definitions(world, flags=True)["flags"]

    assert [(flag["tool"], flag["code"]) for flag in flags] == [
        ("git__commit", "shadows"),
        ("git__commit", "names_other_tool"),
        ("capd_search_tools", "capd_name"),
    ]


# B5


def test_nothing_hidden_reaches_a_list_a_log_or_a_terminal(world: World) -> None:
    world.evil("unicode_smuggle,bad_names")
    world.start()
    session = world.session("one", "evil")
    hidden = {chr(code) for code in HIDDEN}

    shown = listed(session)
    said = world.home.capd("trust", "definitions", "evil").stdout
    said += world.home.capd("tools", "--session", "one").stdout
    said += world.home.capd("tools", "--flags").stdout

    assert shown == {"evil__echo": "Echo.x"}
    assert hidden.isdisjoint(world.log().replace("\n", ""))
    assert hidden.isdisjoint(said.replace("\n", ""))
    assert "hidden_text" in said


# B6


def test_a_reference_is_never_fetched_by_a_look_at_what_changed(
    world: World, tmp_path: Path
) -> None:
    pipe = tmp_path / "canary"
    os.mkfifo(pipe)
    with socket.create_server(("127.0.0.1", 0)) as canary:
        canary.settimeout(0)
        url = f"http://127.0.0.1:{canary.getsockname()[1]}/x.json"
        world.evil("ref_remote", "--url", url)
        world.honest("other")
        world.start()
        session = world.session("one", "evil")

        world.home.ask("definitions", differences=True, flags=True)

        assert listed(session) == {}
        with pytest.raises(BlockingIOError):
            canary.accept()
