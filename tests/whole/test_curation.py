"""Per-turn curation: tools called today rank higher tomorrow."""

import sys
import time
from pathlib import Path
from typing import Any

import pytest

from capd.adapters.ledger.database import Database
from capd.core.records.retention import Retention
from capd_protos.ledger import CallNote
from capd_protos.types import SessionKey
from whole_daemon import Home, wait_for

pytestmark = pytest.mark.model

MANY_SERVER = Path(__file__).parent / "many_server.py"
HOUR = 3600.0
SAID = "please audit the warehouse ledger for duplicate vouchers"
"""What both servers' tool of that name fits about as well, alpha's a little better, with the model
and without; nothing else does."""
TOOL = "audit_warehouse_ledger_duplicate_vouchers"
OTHERS = {
    "alpha": "play_song,water_garden,book_flight",
    "gamma": "sail_boat,bake_bread,paint_wall",
}


@pytest.fixture
def known(shipped_home: Home) -> Home:
    """A daemon that knows two servers with the same tool, and one may join a turn.

    Among the tools of the starter tap: of two tools alone no word is rare.
    """
    home = shipped_home
    for server in ("alpha", "gamma"):
        argv = [
            sys.executable,
            "-I",
            str(MANY_SERVER),
            "depot",
            f"{TOOL},{OTHERS[server]}",
            home.tag,
            server,
        ]
        home.capability(f"cap-{server}", argv, server=server)
    (home.folder / "config" / "config.toml").write_text("[curation]\nnew_per_turn = 1\n")
    home.start()
    opener = home.shim("opener")
    for server in ("alpha", "gamma"):
        answer = home.ask("enable", session="opener", name=f"cap-{server}")
        assert answer["ok"], answer["text"]
    opener.leave()
    wait_for(lambda: home.ask("search", query=f"select:gamma__{TOOL}")["hits"])
    return home


def restarted(home: Home) -> None:
    home.processes[-1].terminate()
    home.processes[-1].wait(30)
    home.start()
    wait_for(lambda: home.ask("search", query=f"select:gamma__{TOOL}")["hits"])


def brought(home: Home, session: str, said: str = SAID) -> list[str]:
    """Return the tools that a fresh session's turn activates."""
    editor = home.shim(session)
    # The shim itself answers the handshake while a daemon is slow.
    wait_for(lambda: session in [each["key"] for each in home.ask("sessions")["sessions"]])
    taken: dict[str, Any] = home.ask("turn", session=session, text=said)
    editor.leave()
    assert taken["tools"] == []
    added: list[str] = taken["changed"]["added"]
    return added


def fresh(home: Home, *wanted: str) -> bool:
    """Tell whether a fresh session's turn activates only `wanted`."""
    return brought(home, f"s{time.monotonic_ns()}") == list(wanted)


def ledger(home: Home) -> Database:
    return Database(home.folder / "state" / "ledger.sqlite", Retention())


def note_uses(home: Home, server: str, hours_ago: float) -> None:
    """Write calls of the other day, as the daemon's own ledger writes them."""
    hits = home.ask("search", query=f"select:{server}__{TOOL}")["hits"]
    database = ledger(home)
    at = time.time() - hours_ago * HOUR
    who = (SessionKey("x"), "editor", "/src", hits[0]["identity"], server, TOOL)
    database.add([CallNote(at, *who, ["mine/c"], "result", 1.0, 2, 3)] * 3)
    database.close()


def test_a_call_of_today_changes_what_is_brought_after_a_restart(known: Home) -> None:
    wait_for(lambda: fresh(known, f"alpha__{TOOL}"))
    editor = known.shim("caller")

    said = editor.call(f"gamma__{TOOL}", {"subject": "x"})
    editor.leave()
    restarted(known)

    assert said["content"][0]["text"].startswith("depot ")
    wait_for(lambda: fresh(known, f"gamma__{TOOL}"))


def test_nothing_but_a_call_that_succeeded_does_it(known: Home) -> None:
    wait_for(lambda: fresh(known, f"alpha__{TOOL}"))
    editor = known.shim("looker")

    editor.call("tool_search", {"query": f"select:gamma__{TOOL}"})
    listed = [tool["name"] for tool in editor.tools()]
    known.ask("enable", session="looker", name="cap-gamma")
    refused = editor.call(f"gamma__{TOOL}", {"place": "x"})
    editor.leave()
    restarted(known)

    assert f"gamma__{TOOL}" in listed
    assert refused["isError"]
    wait_for(lambda: fresh(known, f"alpha__{TOOL}"))
    database = ledger(known)
    assert database.uses(0.0) == []


@pytest.mark.parametrize(("hours_ago", "wanted"), [(23.0, "gamma"), (25.0, "alpha")])
def test_a_use_counts_for_a_day(known: Home, hours_ago: float, wanted: str) -> None:
    note_uses(known, "gamma", hours_ago)

    wait_for(lambda: fresh(known, f"{wanted}__{TOOL}"))
