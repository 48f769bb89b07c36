"""Tap files: which are read, and that a bad one costs only itself."""

import os
from pathlib import Path

import pytest

from capd.adapters import file_texts, tap_files
from capd.adapters.overlay_files import read_overlays
from capd.adapters.tap_files import (
    STARTER,
    TapPlace,
    TapUnreadableError,
    read_tap,
    starter_place,
    tap_places,
)
from capd_protos.types import TapName

CONFIG = 'triggers = ["one thing", "two things", "three things"]\n'
DEFAULT = '[[mcp.servers]]\nname = "x"\ntype = "stdio"\ncommand = "x"\n'


def capability(tap: Path, name: str, **files: str) -> Path:
    folder = tap / "capabilities" / name
    folder.mkdir(parents=True)
    for file, text in (files or {"config": CONFIG, "default": DEFAULT}).items():
        (folder / f"{file}.toml").write_text(text)
    return folder


@pytest.fixture
def tap(tmp_path: Path) -> Path:
    capability(tmp_path, "good")
    return tmp_path


def place(tap: Path) -> TapPlace:
    return TapPlace(TapName("mine"), tap)


def test_the_starter_tap_is_there_and_whole() -> None:
    read = read_tap(starter_place())

    assert (read.name, read.unroutable) == (STARTER, {})
    assert [finding for finding in read.findings if finding.severity == "error"] == []
    assert len(read.capabilities) >= 13


def test_the_users_taps_come_first_in_their_order(tmp_path: Path) -> None:
    listed = tmp_path / "taps.toml"
    assert tap_places(listed) == [starter_place()]

    listed.write_text('[[taps]]\nname = "b"\npath = "/b"\n[[taps]]\nname = "a"\npath = "/a"\n')

    expected = [TapPlace(TapName("b"), Path("/b")), TapPlace(TapName("a"), Path("/a"))]
    assert tap_places(listed) == [*expected, starter_place()]


def test_the_starter_tap_can_be_left_out(tmp_path: Path) -> None:
    listed = tmp_path / "taps.toml"
    listed.write_text('starter = false\n[[taps]]\nname = "mine"\npath = "/src/mine"\n')

    places = tap_places(listed)

    assert places == [TapPlace(TapName("mine"), Path("/src/mine"))]


def test_a_provider_is_chosen_by_tap_and_name(tmp_path: Path, tap: Path) -> None:
    capability(tap, "db", config=CONFIG, default=DEFAULT, mine=DEFAULT)
    listed = tmp_path / "taps.toml"
    listed.write_text(
        f'[[taps]]\nname = "a/b"\npath = "{tap}"\n'
        '[providers]\n"a/b/db" = "mine"\n"a/b/good" = "gone"\n"a/b/no" = "x"\n'
        '"starter/x" = "y"\ngood = "z"\n'
    )

    read = read_tap(tap_places(listed)[0])

    assert {c.id.name: c.provider for c in read.capabilities} == {"db": "mine"}
    assert read.unroutable == {
        "good": "no gone.toml: taps.toml asks for it, and tap a/b lacks it",
        "no": "no config.toml",
    }


@pytest.mark.parametrize("data", [b"[[taps]\n", b"\xff", b"taps = 3\n", b'[[taps]]\nname = "a"\n'])
def test_a_list_that_cannot_be_used_says_which_file(tmp_path: Path, data: bytes) -> None:
    listed = tmp_path / "taps.toml"
    listed.write_bytes(data)

    with pytest.raises(TapUnreadableError, match=r"taps\.toml: "):
        tap_places(listed)


def test_a_named_pipe_in_place_of_the_list_is_not_waited_for(tmp_path: Path) -> None:
    listed = tmp_path / "taps.toml"
    os.mkfifo(listed)

    with pytest.raises(TapUnreadableError, match=r"taps\.toml: .*it is not a file"):
        tap_places(listed)
    assert "it is not a file" in read_overlays(listed)[0].findings[0].reason


def test_a_list_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    listed = tmp_path / "taps.toml"
    listed.write_text(f'[[taps]]\nname = "a"\npath = "{tmp_path}"\n', encoding="utf-8-sig")

    assert tap_places(listed) == [TapPlace(TapName("a"), tmp_path), starter_place()]


def test_a_tap_without_its_folder_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(TapUnreadableError, match="tap mine: "):
        read_tap(place(tmp_path / "gone"))


def test_a_revision_is_of_the_contents(tap: Path) -> None:
    first = read_tap(place(tap)).revision
    assert read_tap(place(tap)).revision == first

    (tap / "capabilities" / "good" / "config.toml").write_text(CONFIG + "\n")

    changed = read_tap(place(tap)).revision
    assert changed != first
    assert len(changed) == 12


def test_a_link_and_a_file_that_holds_a_name_point_to_a_sibling(tap: Path) -> None:
    linked = capability(tap, "linked", config=CONFIG, npm=DEFAULT)
    (linked / "default.toml").symlink_to("npm.toml")
    capability(tap, "named", config=CONFIG, npm=DEFAULT, default="npm.toml")

    read = read_tap(place(tap))

    assert {c.id.name: c.provider for c in read.capabilities} == {
        "good": "default",
        "linked": "npm",
        "named": "npm",
    }


def a_folder(file: Path) -> None:
    file.mkdir()


def a_pipe(file: Path) -> None:
    os.mkfifo(file)


def a_loop(file: Path) -> None:
    file.symlink_to(file.name)


def a_dangling_link(file: Path) -> None:
    file.symlink_to("/nonexistent/x.toml")


def not_utf8(file: Path) -> None:
    file.write_bytes(b"\xff\xfe = 3")


@pytest.mark.parametrize("make", [a_folder, a_pipe, a_loop, a_dangling_link, not_utf8])
def test_one_bad_file_costs_its_own_capability_alone(tap: Path, make: object) -> None:
    bad = capability(tap, "bad", config=CONFIG)
    assert callable(make)
    make(bad / "default.toml")

    read = read_tap(place(tap))

    assert [capability.id.name for capability in read.capabilities] == ["good"]
    assert list(read.unroutable) == ["bad"]


@pytest.mark.parametrize("where", ["folder", "file", "link"])
def test_a_name_that_is_no_text_costs_its_own_capability_alone(tap: Path, where: str) -> None:
    root = os.fsencode(tap / "capabilities")
    if where == "folder":
        Path(os.fsdecode(root + b"/b\xffd")).mkdir()
    else:
        bad = capability(tap, "bad", config=CONFIG)
        path = os.fsencode(bad) + b"/d\xff.toml"
        if where == "file":
            Path(os.fsdecode(path)).write_text(DEFAULT)
        else:
            (bad / "default.toml").symlink_to(os.fsdecode(b"d\xff.toml"))

    read = read_tap(place(tap))

    assert [capability.id.name for capability in read.capabilities] == ["good"]
    for name, reason in read.unroutable.items():
        (name + reason).encode()


def test_scripts_are_found_by_organisation_and_tool(tap: Path) -> None:
    script = tap / "deps" / "org" / "tool.sh"
    script.parent.mkdir(parents=True)
    script.write_text("exit 0\n")
    (tap / "deps" / "loose.sh").write_text("exit 0\n")

    assert read_tap(place(tap)).scripts == {"org/tool": str(script)}


@pytest.mark.parametrize("name", ["x" * 300, "x/" * 3000, "a\0b"], ids=["name", "path", "null"])
def test_a_path_that_no_file_system_takes_is_an_unreadable_tap(tmp_path: Path, name: str) -> None:
    with pytest.raises(TapUnreadableError, match=r"tap mine: .*(no folder|null character)"):
        read_tap(TapPlace(TapName("mine"), tmp_path / name))


def test_a_tap_that_is_moved_away_while_it_is_read_is_unreadable_and_not_empty(
    tap: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    capability(tap, "later")

    def moving(file: Path) -> str:
        text = file_texts.file_text(file)
        if file.name == "default.toml" and tap.is_dir():
            tap.rename(tap.with_name("elsewhere"))
        return text

    monkeypatch.setattr(tap_files, "file_text", moving)

    with pytest.raises(TapUnreadableError, match="moved or replaced while it was read"):
        read_tap(place(tap))


def test_a_list_that_an_earlier_capd_broke_names_its_repair(tmp_path: Path) -> None:
    file = tmp_path / "taps.toml"
    file.write_text('taps = [name = "own"\npath = "/own"\n]\n')

    with pytest.raises(TapUnreadableError, match="`capd tap list` repairs it"):
        tap_places(file)
