"""Which folders are watched, and that their changes are noticed."""

from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from capd.adapters import watched_files
from capd.adapters.watched_files import Folders, Watch, watched_folders

PATIENCE = 30.0


def installed(folder: Path, *taps: Path, more: str = "") -> Path:
    """Write a list of taps and return it."""
    config = folder / "config"
    config.mkdir(exist_ok=True)
    entries = [f'[[taps]]\nname = "t{n}"\npath = "{tap}"\n' for n, tap in enumerate(taps)]
    (config / "taps.toml").write_text("".join(entries) + more)
    return config / "taps.toml"


def test_only_what_is_read_of_a_checkout_is_watched(tmp_path: Path) -> None:
    tap = tmp_path / "tap"
    for folder in ("capabilities/a", "skills/b/node_modules/c", "deps/org", ".git/objects"):
        (tap / folder).mkdir(parents=True)
    (tap / "capabilities/a/config.toml").touch()

    folders = watched_folders(installed(tmp_path, tap))

    assert folders == {
        tmp_path / "config": frozenset({"taps.toml", "overlays"}),
        tap: frozenset({"capabilities", "skills", "deps", "memories", "tools.json", "vectors.bin"}),
        tap / "capabilities": None,
        tap / "capabilities/a": None,
        tap / "skills": None,
        tap / "skills/b": None,
        tap / "deps": None,
        tap / "deps/org": None,
    }


def test_what_is_not_there_is_waited_for_at_the_nearest_folder_above(tmp_path: Path) -> None:
    folders = watched_folders(installed(tmp_path, tmp_path / "mount/deep/tap"))

    assert folders[tmp_path] == frozenset({"mount"})


def test_overlays_are_watched_where_the_list_names_them_and_beside_it(tmp_path: Path) -> None:
    listed = installed(tmp_path, more='[[overlays]]\npath = "../mine"\n')
    (tmp_path / "mine/capabilities").mkdir(parents=True)
    (tmp_path / "config/overlays/x").mkdir(parents=True)

    folders = watched_folders(listed)

    assert {folder for folder, names in folders.items() if names is None} == {
        tmp_path / "config/overlays",
        tmp_path / "config/overlays/x",
        tmp_path / "mine",
        tmp_path / "mine/capabilities",
    }


def test_a_list_that_cannot_be_read_is_watched_itself(tmp_path: Path) -> None:
    listed = installed(tmp_path, more="[[taps]\n")

    folders = watched_folders(listed)

    assert folders == {listed.parent: frozenset({"taps.toml", "overlays"})}


def test_no_list_at_all_is_waited_for(tmp_path: Path) -> None:
    folders = watched_folders(tmp_path / "none/taps.toml")

    assert folders == {tmp_path: frozenset({"none"})}


def test_very_many_folders_are_watched_up_to_a_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watched_files, "MOST_OF_ONE", 10)
    monkeypatch.setattr(watched_files, "MOST_FOLDERS", 12)
    taps = [tmp_path / f"tap{number}" for number in range(3)]
    for tap in taps:
        for number in range(20):
            (tap / f"capabilities/c{number}").mkdir(parents=True)

    folders = watched_folders(installed(tmp_path, *taps))

    assert len(folders) == 12


async def heard(folders: Folders, act: Callable[[], object]) -> bool:
    """Tell whether a relevant change was reported in time after `act`."""
    with trio.move_on_after(PATIENCE):
        async with Watch(folders) as watch:
            act()
            await watch.changed()
            return True
    return False


@pytest.mark.parametrize("kind", ["written", "replaced", "made", "removed", "linked"])
async def test_a_change_is_heard(tmp_path: Path, kind: str) -> None:
    tap = tmp_path / "tap"
    (tap / "capabilities/a").mkdir(parents=True)
    (tap / "skills").mkdir()
    file = tap / "capabilities/a/config.toml"
    file.write_text("x")
    folders = watched_folders(installed(tmp_path, tap))
    other = tmp_path / "new"
    other.write_text("y")
    acts: dict[str, Callable[[], object]] = {
        "written": lambda: file.write_text("y"),
        "replaced": lambda: other.replace(file),
        "made": (tap / "deps").mkdir,
        "removed": file.unlink,
        "linked": lambda: (tap / "skills/loop").symlink_to(tap / "skills/loop"),
    }

    got = await heard(folders, acts[kind])

    assert got


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("tap/README.md", False),
        ("tap/.git", False),
        ("config/.taps.lock", False),
        ("config/config.toml", False),
        ("elsewhere", False),
        ("tap/skills", True),
        ("tap/tools.json", True),
        ("tap/vectors.bin", True),
        ("tap/capabilities", True),
        ("tap/capabilities/a", True),
        ("tap/capabilities/a/x.toml", True),
        ("config/taps.toml", True),
        ("config/overlays", True),
    ],
)
def test_only_what_is_read_counts_as_a_change(tmp_path: Path, path: str, expected: bool) -> None:
    tap = tmp_path / "tap"
    (tap / "capabilities/a").mkdir(parents=True)

    counts = Watch(watched_folders(installed(tmp_path, tap)))._counts(tmp_path / path)

    assert counts == expected


def test_of_what_may_not_be_entered_the_nearest_folder_above_is_watched(closed: Path) -> None:
    assert watched_folders(closed / "config" / "taps.toml") == {closed: frozenset({"config"})}
