"""The ledger's file: written notes are found again, and damage costs no more than the file."""

import random
import shutil
import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from capd.adapters.ledger.database import Database
from capd.core.records.retention import DAY, Retention
from capd_protos.ledger import (
    ActivationNote,
    CallNote,
    CapabilityCalls,
    DecisionNote,
    Note,
    RecordedOutcome,
    ScriptNote,
    SessionNote,
    Use,
)
from capd_protos.types import SessionKey

NOW = 1_800_000_000.0
ONE = SessionKey("one")


def call(
    tool: str = "git_log",
    *,
    at: float = NOW,
    outcome: RecordedOutcome = "result",
    granted: str = "starter/git",
) -> CallNote:
    capabilities = [granted] if granted else []
    return CallNote(
        at, ONE, "zed", "/src", "id-1", "git", tool, capabilities, outcome, 10.0, 20, 300
    )


DECISION = DecisionNote(
    NOW, ONE, "f1", "activate", "", "starter/git", [("starter/git", 0.9), ("x/y", 0.2)], 4.5
)
ALL: list[Note] = [
    call(),
    DECISION,
    ActivationNote(NOW, ONE, "starter/git", "on", "turn"),
    SessionNote(NOW, ONE, "zed", "/src", "started"),
]


_made: list[Database] = []


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    while _made:
        _made.pop().close()


def database(folder: Path, **bounds: float) -> Database:
    """Return a database, which is closed when its test ends."""
    made = Database(folder / "ledger.db", Retention(**bounds))  # type: ignore[arg-type]  # numbers
    _made.append(made)
    return made


def test_every_kind_of_note_is_kept_across_a_restart(tmp_path: Path) -> None:
    first = database(tmp_path)
    first.add(ALL)
    first.close()

    again = database(tmp_path)

    assert again.counts()[1] == {
        "calls": 1,
        "decisions": 1,
        "activations": 1,
        "sessions": 1,
        "scripts": 0,
    }
    assert again.decisions(5, "") == [DECISION]


def test_a_ledger_that_grows_keeps_no_more_of_itself_in_memory(tmp_path: Path) -> None:
    """SQLite keeps 2 MB of pages for as long as the file is open: 170 bytes for each session."""
    made = database(tmp_path)

    made.add(ALL)

    # Below zero these are KiB.
    assert made._opened().execute("PRAGMA cache_size").fetchone() == (-256,)


def test_the_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    made = database(tmp_path / "state")

    made.add(ALL)

    files = list((tmp_path / "state").iterdir())
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    assert len(files) == 3


def test_successful_calls_alone_are_uses_and_the_most_used_comes_first(tmp_path: Path) -> None:
    made = database(tmp_path)
    made.add([call("a", at=NOW - 5), call("b"), call("b", at=NOW - 1)])
    made.add([call("c", outcome="error"), call("d", outcome="not_sent"), call("e", at=NOW - DAY)])

    uses = made.uses(NOW - DAY / 2)

    assert uses == [Use("id-1", "b", 2, NOW), Use("id-1", "a", 1, NOW - 5)]


def test_calls_are_summed_by_what_granted_them(tmp_path: Path) -> None:
    made = database(tmp_path)
    made.add([call(), call(outcome="error"), call(granted="x/y"), call(granted="")])
    made.add([call(outcome="refused"), call(outcome="refused", granted="x/y")])

    sums = made.sums(0)

    assert sums == [
        CapabilityCalls("starter/git", 2, 1, 10.0, 600, NOW),
        CapabilityCalls("", 1, 1, 10.0, 300, NOW),
        CapabilityCalls("x/y", 1, 1, 10.0, 300, NOW),
    ]


def test_decisions_of_one_session_come_newest_first(tmp_path: Path) -> None:
    made = database(tmp_path)
    others = DecisionNote(NOW, SessionKey("two"), "f2", "abstain", "too_short", "", [], 0.1)
    later = DecisionNote(NOW + 1, ONE, "f3", "abstain", "below_margin", "", [], 3.0)
    made.add([DECISION, others, later])

    assert made.decisions(10, "one") == [later, DECISION]
    assert made.decisions(1, "") == [later]


def test_activations_of_one_session_come_newest_first(tmp_path: Path) -> None:
    made = database(tmp_path)
    on = ActivationNote(NOW, ONE, "starter/git", "on", "turn")
    others = ActivationNote(NOW, SessionKey("two"), "starter/git", "on", "model")
    failed = ActivationNote(NOW + 1, ONE, "x/y", "failed", "Capability 'y' needs KEY")
    made.add([on, others, failed])

    assert made.activations(10, "one") == [failed, on]
    assert made.activations(1, "") == [failed]


def test_a_file_of_a_daemon_without_scripts_gets_their_table_and_keeps_the_rest(
    tmp_path: Path,
) -> None:
    before = database(tmp_path)
    before.add(ALL)
    before._opened().execute("DROP TABLE scripts")
    before.close()
    ran = ScriptNote(NOW, ONE, "result", 61.5, [("git__log", "result", 12, 4.5)])
    others = ScriptNote(NOW + 1, SessionKey("two"), "error", 1.5)

    again = database(tmp_path)
    again.add([ran, others])

    assert again.scripts(10, "one") == [ran]
    assert again.scripts(1, "") == [others]
    assert again.decisions(5, "") == [DECISION]
    assert not list(tmp_path.glob("*.damaged-*"))


def test_everything_that_a_decision_rests_on_is_kept(tmp_path: Path) -> None:
    made = database(tmp_path)
    suggested = DecisionNote(
        *(NOW, ONE, "f1", "suggest", "below_margin", ""),
        *([("a/b", 0.6), ("c/d", 0.58)], 4.5, ["a/b", "c/d"], {"missing_secrets": 2}, 0.45, 0.08),
    )
    made.add([suggested])

    assert made.decisions(1, "") == [suggested]


def test_what_is_older_than_the_bound_goes(tmp_path: Path) -> None:
    made = database(tmp_path, days=10)
    made.add([call("old", at=NOW - 11 * DAY), call("young", at=NOW - 9 * DAY)])

    made.prune(NOW)

    assert [use.tool for use in made.uses(0)] == ["young"]


def test_a_file_over_its_size_loses_its_oldest_notes(tmp_path: Path) -> None:
    made = database(tmp_path, size_bytes=1_000_000)
    made.add([call(f"tool-{number}", at=NOW + number) for number in range(12_000)])
    before, _ = made.counts()

    made.prune(NOW)

    size, rows = made.counts()
    assert before > 1_000_000 > size
    assert 2000 < rows["calls"] < 12_000
    assert made.uses(NOW + 11_999)[0].tool == "tool-11999"


def damaged(whole: bytes, rng: random.Random) -> bytes:
    kind = rng.randrange(4)
    if kind == 0:
        return whole[: rng.randrange(len(whole))]
    if kind == 1:
        at, length = rng.randrange(len(whole)), rng.randrange(1, 4000)
        return whole[:at] + rng.randbytes(length) + whole[at + length :]
    if kind == 2:
        return rng.randbytes(rng.randrange(1, 20_000))
    at = rng.randrange(len(whole))
    return whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :]


@pytest.mark.parametrize("seed", range(40))
def test_a_damaged_file_never_stops_the_ledger(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    made = database(tmp_path)
    made.add([*ALL, *(call(f"tool-{number}") for number in range(200))])
    made.prune(NOW)
    made.close()
    made.path.write_bytes(damaged(made.path.read_bytes(), rng))

    made.add([call("once")])
    # Damage may be found by any of these, and costs what was written until then.
    made.uses(0)
    made.decisions(5, "")
    made.prune(NOW)
    made.add([call("after")])

    assert "after" in {use.tool for use in made.uses(0)}
    made.close()


def test_damage_that_sqlite_cannot_put_into_words_is_damage(tmp_path: Path) -> None:
    made = database(tmp_path)
    made.add(ALL)
    made.prune(NOW)
    made.close()
    # SQLite quotes the table's statement in its error, which is no text then.
    whole = made.path.read_bytes()
    assert whole.count(b"CREATE TABLE calls") == 1
    made.path.write_bytes(whole.replace(b"CREATE TABLE calls", b"CREATE T\x81BLE calls"))

    made.add([call("after")])

    assert {use.tool for use in made.uses(0)} == {"after"}
    assert list(tmp_path.glob("*.damaged-*"))
    made.close()


def test_a_damaged_file_is_kept_for_whoever_wants_to_look_at_most_twice(tmp_path: Path) -> None:
    for round_ in range(4):
        (tmp_path / "ledger.db").write_bytes(b"no database %d" % round_)
        made = database(tmp_path)
        made.add(ALL)
        made.close()

    aside = sorted(file for file in tmp_path.iterdir() if "damaged" in file.name)

    assert [file.read_bytes() for file in aside] == [b"no database 2", b"no database 3"]


def test_a_file_of_another_version_is_set_aside(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "ledger.db") as other:
        other.execute("CREATE TABLE calls (something)")
        other.execute("PRAGMA user_version = 99")
    other.close()

    made = database(tmp_path)
    made.add(ALL)

    assert made.counts()[1]["calls"] == 1


def test_a_folder_that_went_away_is_made_again(tmp_path: Path) -> None:
    made = database(tmp_path / "state")
    made.add(ALL)
    made.close()
    shutil.rmtree(tmp_path / "state")

    made.add([call("after")])

    assert [use.tool for use in made.uses(0)] == ["after"]


@pytest.mark.parametrize("ends", [("",), ("", "-wal", "-shm")])
def test_a_file_that_somebody_removes_is_over_and_a_new_one_begins(
    tmp_path: Path, ends: tuple[str, ...]
) -> None:
    ledger = database(tmp_path)
    ledger.add([call("git_log")])
    for end in ends:
        Path(f"{ledger.path}{end}").unlink()

    ledger.add([call("git_diff")])
    ledger.close()

    kept = database(tmp_path).uses(0)
    assert [use.tool for use in kept] == ["git_diff"]


def test_a_file_that_somebody_replaces_is_written_on(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = database(tmp_path / "other")
    other.add([call("git_log")])
    other.close()
    ledger = database(tmp_path)
    ledger.add([call("git_show")])

    other.path.replace(ledger.path)
    ledger.add([call("git_diff")])

    assert {use.tool for use in ledger.uses(0)} == {"git_log", "git_diff"}
