"""`capd tap` edits a list that people edit too."""

import os
import resource
import stat
import threading
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tomlkit
from click.testing import CliRunner, Result

from capd_client import commands
from capd_client.taps import TapError, TapList
from capd_client.toml_files import EditError, store

from .conftest import FakeDaemon

BY_HAND = """\
# my taps
[[taps]]  # the first
name = "mine"
path = '/home/me/tap'   # moved in May

[other]
key = 1
"""
Run = Callable[..., Result]


@pytest.fixture
def tap(tmp_path: Path) -> Path:
    folder = tmp_path / "octomind-tap"
    (folder / "capabilities").mkdir(parents=True)
    return folder


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, base_env: dict[str, str]) -> Run:
    monkeypatch.delenv("CAPD_SOCKET", raising=False)

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(commands.cli, ["tap", *arguments], env=base_env)

    return run


def taps_file(home: Path) -> Path:
    return home / "config" / "taps.toml"


def test_a_named_pipe_in_place_of_the_list_is_named_and_not_waited_for(
    run: Run, home: Path, tap: Path
) -> None:
    taps_file(home).parent.mkdir()
    os.mkfifo(taps_file(home))

    result = run("add", str(tap))

    said = f"capd: {taps_file(home)}: it is a named pipe, not a file\n"
    assert (result.exit_code, result.stderr) == (1, said)


def test_a_full_disk_names_the_list(run: Run, home: Path, tap: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        result = run("add", str(tap))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    assert (result.exit_code, result.stderr) == (1, f"capd: {taps_file(home)}: File too large\n")


def test_a_byte_order_mark_of_the_list_stays(run: Run, home: Path, tap: Path) -> None:
    taps_file(home).parent.mkdir()
    taps_file(home).write_text(BY_HAND, encoding="utf-8-sig")

    result = run("add", str(tap))

    assert result.exit_code == 0
    assert taps_file(home).read_text().startswith("\ufeff# my taps\n[[taps]]  # the first\n")
    assert [each["name"] for each in TapList(str(home / "config")).read()] == ["mine", tap.name]


def test_a_tap_is_added_under_its_folders_name(run: Run, home: Path, tap: Path) -> None:
    result = run("add", str(tap))

    assert result.stdout == "octomind-tap: will be loaded when the daemon starts\n"
    assert result.exit_code == 0
    assert TapList(str(home / "config")).read() == [{"name": "octomind-tap", "path": str(tap)}]
    file = taps_file(home)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


def test_a_relative_path_is_stored_absolute(
    run: Run, home: Path, tap: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tap)

    run("add", ".", "--name", "here")

    assert TapList(str(home / "config")).read() == [{"name": "here", "path": str(tap)}]


def test_what_a_person_wrote_stays(run: Run, home: Path, tap: Path) -> None:
    file = taps_file(home)
    file.parent.mkdir()
    file.write_text(BY_HAND)

    run("add", str(tap))
    after_add = file.read_text()
    run("remove", "octomind-tap")
    after_remove = file.read_text()

    assert after_add.startswith("# my taps\n[[taps]]  # the first\n")
    assert "path = '/home/me/tap'   # moved in May\n" in after_add
    assert "[other]\nkey = 1\n" in after_add
    assert TapList(str(file.parent)).read() == [{"name": "mine", "path": "/home/me/tap"}]
    assert "# moved in May" in after_remove


def test_the_order_is_the_order_of_adding(run: Run, home: Path, tap: Path) -> None:
    for name in ("c", "a", "b"):
        run("add", str(tap), "--name", name)
    run("remove", "a")

    listed = run("list", "--json")

    assert [each["name"] for each in TapList(str(home / "config")).read()] == ["c", "b"]
    assert listed.stdout.count('"name"') == 2


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("starter", "starter is the tap that comes with capd"),
        ("a/b", "'a/b' is not a valid tap name"),
        ("", "'' is not a valid tap name"),
        ("a\n", "'a\\n' is not a valid tap name"),
        ("twice", "a tap named twice is there already"),
    ],
)
def test_a_name_that_cannot_be_is_refused(run: Run, tap: Path, name: str, reason: str) -> None:
    run("add", str(tap), "--name", "twice")

    result = run("add", str(tap), "--name", name)

    assert result.stderr.startswith(f"capd: {reason}")
    assert result.exit_code == 1


def test_a_folder_without_capabilities_is_no_tap(run: Run, home: Path, tmp_path: Path) -> None:
    result = run("add", str(tmp_path / "nothing"))

    assert result.stderr == (
        f"capd: {tmp_path}/nothing is not a tap: it has no folder `capabilities`, nor `skills`\n"
        "Name the folder that holds it, or the address of a git repository.\n"
    )
    assert result.exit_code == 1
    assert not taps_file(home).exists()


def test_removing_what_is_not_there_names_what_is(run: Run, home: Path, tap: Path) -> None:
    run("add", str(tap))

    result = run("remove", "x")

    assert result.stderr == (
        f"capd: no tap named x in {taps_file(home)}\nThere are: octomind-tap.\n"
    )
    assert result.exit_code == 1


@pytest.mark.parametrize("text", ["", "starter = false\n", '[providers]\nx = "y"\n'])
def test_removing_from_a_list_without_a_tap_says_that_there_is_none(
    run: Run, home: Path, text: str
) -> None:
    file = taps_file(home)
    file.parent.mkdir()
    file.write_text(text)

    result = run("remove", "x")

    assert result.stderr == f"capd: no tap named x in {file}\nThere are: none.\n"
    assert result.exit_code == 1
    assert file.read_text() == text


def test_a_list_that_is_a_link_stays_one(run: Run, home: Path, tap: Path, tmp_path: Path) -> None:
    file, target = taps_file(home), tmp_path / "dotfiles.toml"
    file.parent.mkdir()
    target.write_text("# mine\n")
    file.symlink_to(target)

    result = run("add", str(tap))

    assert result.exit_code == 0, result.output
    assert file.readlink() == target
    assert target.read_text().startswith("# mine\n")
    assert TapList(str(file.parent)).read() == [{"name": "octomind-tap", "path": str(tap)}]


def test_a_path_that_is_not_utf_8_is_refused_and_the_list_stays(
    run: Run, home: Path, tap: Path
) -> None:
    run("add", str(tap))
    before = taps_file(home).read_bytes()
    folder = tap.with_name("t\udce4p")
    (folder / "capabilities").mkdir(parents=True)

    result = run("add", str(folder), "--name", "other")

    assert result.exit_code == 1
    assert result.stderr.startswith(f"capd: {taps_file(home)} can only hold UTF-8, and this is not")
    assert taps_file(home).read_bytes() == before


@pytest.mark.parametrize("text", ["[[taps", 'taps = "x"', "[[taps]]\nname = 1", "\x00"])
def test_a_file_that_cannot_be_read_is_left_alone(
    run: Run, home: Path, tap: Path, text: str
) -> None:
    file = taps_file(home)
    file.parent.mkdir()
    file.write_text(text)

    result = run("add", str(tap))

    assert result.exit_code == 1
    assert result.stderr.splitlines()[-1] == "Correct it by hand."
    assert file.read_text() == text


def test_a_running_daemon_loads_the_tap_at_once(
    run: Run, start_daemon: Callable[..., FakeDaemon], tap: Path
) -> None:
    entry: dict[str, Any] = {"name": "octomind-tap", "routable": 58, "unroutable": {}, "error": ""}
    unroutable = {str(number): "no server" for number in range(14)}
    reply = {"schema": 1, "taps": [{"name": "starter"}, {**entry, "unroutable": unroutable}]}
    daemon = start_daemon({"reload": reply})

    result = run("add", str(tap))

    assert result.stdout == "octomind-tap: 58 routable, 14 not (no server)\n"
    assert result.exit_code == 0
    assert daemon.requests() == [{"method": "reload", "params": {}}]


def test_a_tap_that_the_daemon_cannot_load_is_exit_code_1(
    run: Run, start_daemon: Callable[..., FakeDaemon], tap: Path
) -> None:
    entry = {"name": "octomind-tap", "routable": 0, "unroutable": {}, "error": "not readable"}
    start_daemon({"reload": {"schema": 1, "taps": [entry]}})

    result = run("add", str(tap))

    assert result.stdout == "octomind-tap: 0 routable; not reloaded: not readable\n"
    assert result.stderr == "capd: octomind-tap is on the list, but was not loaded\n"
    assert result.exit_code == 1


def test_commands_at_the_same_time_lose_no_change(home: Path, tap: Path) -> None:
    taps = TapList(str(home / "config"))
    threads = [threading.Thread(target=taps.add, args=(tap, f"t{n}")) for n in range(8)]

    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(each["name"] for each in taps.read()) == [f"t{n}" for n in range(8)]


def test_a_folder_that_cannot_be_written_is_told(
    home: Path, tap: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "config").write_text("a file where the folder should be")

    with pytest.raises((TapError, OSError)):
        TapList(str(home / "config")).add(tap)
    result = CliRunner().invoke(
        commands.cli, ["tap", "add", str(tap)], env={"CAPD_HOME": str(home)}
    )

    assert result.exit_code == 1
    assert "Traceback" not in result.stderr


def test_a_folder_of_skills_alone_is_a_tap(run: Run, home: Path, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    (folder / "skills").mkdir(parents=True)

    result = run("add", str(folder))

    assert result.exit_code == 0, result.output
    assert TapList(str(home / "config")).read() == [{"name": "mine", "path": str(folder)}]


@pytest.mark.parametrize(
    "text",
    [
        "taps = []\n",
        "taps = []\nstarter = false\n",
        'taps = [{name = "a", path = "/a"}]\nstarter = false\n\n[providers]\nx = "y"\n',
        'starter = false\n[[taps]]\nname = "a"\npath = "/a"\n[providers]\nx = "y"\n',
        "# nothing yet\r\nstarter = false\r\n",
        '[[taps]]\nname = "a"\npath = "/a"',
        "starter = false",
    ],
)
def test_however_the_list_is_written_a_tap_is_added_to_it(
    run: Run, home: Path, tap: Path, text: str
) -> None:
    file = taps_file(home)
    file.parent.mkdir()
    file.write_text(text, newline="")
    before = tomllib.loads(text)

    result = run("add", str(tap))

    assert result.exit_code == 0, result.output
    added = {"name": "octomind-tap", "path": str(tap)}
    assert tomllib.loads(file.read_bytes().decode()) == {
        **before,
        "taps": [*before.get("taps", []), added],
    }


BROKEN = """\
# mine
starter = false
taps = [name = "own"
path = "/home/me/\\"c\\""
]

[providers]
x = "y"
"""


def test_a_list_that_an_earlier_capd_broke_is_repaired(run: Run, home: Path, tap: Path) -> None:
    file = taps_file(home)
    file.parent.mkdir()
    file.write_text(BROKEN)

    result = run("list")

    assert result.exit_code == 0
    assert "repaired" in result.stderr
    whole = {
        "starter": False,
        "providers": {"x": "y"},
        "taps": [{"name": "own", "path": '/home/me/"c"'}],
    }
    assert tomllib.loads(file.read_text()) == whole
    assert file.read_text().startswith("# mine\n")
    assert run("add", str(tap)).exit_code == 0


def test_a_broken_list_is_repaired_by_the_next_change_as_well(
    run: Run, home: Path, tap: Path
) -> None:
    file = taps_file(home)
    file.parent.mkdir()
    file.write_text(BROKEN)

    assert run("add", str(tap)).exit_code == 0

    assert [each["name"] for each in tomllib.loads(file.read_text())["taps"]] == [
        "own",
        "octomind-tap",
    ]


def test_an_edit_that_would_not_be_read_back_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "taps.toml"
    file.write_text("taps = []\n")
    document = tomlkit.parse(file.read_text())
    table = tomlkit.table()
    table.update({"name": "own", "path": "/own"})
    document["taps"].append(table)

    with pytest.raises(EditError, match="Nothing was changed"):
        store(file, document)

    assert file.read_text() == "taps = []\n"
    assert [each.name for each in tmp_path.iterdir()] == ["taps.toml"]
