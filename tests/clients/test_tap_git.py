"""Taps from git repositories are cloned completely or not at all, and updated on request."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from capd_client import commands, tap_git
from capd_client.taps import TapList

from .conftest import FakeDaemon

Run = Callable[..., Result]


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=x", "-c", "user.email=x@example.com")
    argv = ["git", "-C", str(folder), *identity, *arguments]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()


def commit(folder: Path, file: str, text: str) -> str:
    (folder / file).parent.mkdir(parents=True, exist_ok=True)
    (folder / file).write_text(text)
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message", "x")
    return git(folder, "rev-parse", "--short", "HEAD")


@pytest.fixture
def upstream(tmp_path: Path) -> Path:
    folder = tmp_path / "upstream" / "a-tap.git"
    folder.mkdir(parents=True)
    git(folder, "init", "--quiet", "--initial-branch=main")
    commit(folder, "capabilities/x/config.toml", "triggers = []\n")
    return folder


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, base_env: dict[str, str]) -> Run:
    monkeypatch.delenv("CAPD_SOCKET", raising=False)

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(commands.cli, ["tap", *arguments], env=base_env)

    return run


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("https://example.com/org/tap.git", True),
        ("ssh://git@example.com/org/tap", True),
        ("git@example.com:org/tap.git", True),
        ("file:///srv/tap", True),
        ("/srv/tap", False),
        ("./tap", False),
        ("org/tap", False),
        ("ext::sh -c id", False),
        ("-uhttps://example.com", False),
    ],
)
def test_an_address_is_told_from_a_folder(text: str, expected: bool) -> None:
    got = tap_git.is_url(text)

    assert got is expected


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://example.com/org/tap.git", "tap"),
        ("https://example.com/org/tap/", "tap"),
        ("git@example.com:tap.git", "tap"),
    ],
)
def test_a_clone_is_named_after_its_repository(url: str, name: str) -> None:
    got = tap_git.name_of(url)

    assert got == name


def test_a_repository_is_cloned_and_listed(run: Run, home: Path, upstream: Path) -> None:
    result = run("add", upstream.as_uri())

    folder = home / "data" / "taps" / "a-tap"
    assert result.stdout == "a-tap: will be loaded when the daemon starts\n"
    assert TapList(str(home / "config")).read() == [{"name": "a-tap", "path": str(folder)}]
    assert [each.name for each in folder.parent.iterdir()] == ["a-tap"]
    assert (folder / "capabilities" / "x" / "config.toml").is_file()


def test_a_repository_that_is_no_tap_leaves_nothing(run: Run, home: Path, upstream: Path) -> None:
    git(upstream, "rm", "-r", "--quiet", "capabilities")
    commit(upstream, "readme", "x")

    result = run("add", upstream.as_uri())

    assert result.exit_code == 1
    assert result.stderr.endswith(
        f"capd: {upstream.as_uri()} is not a tap: it has no folder `capabilities`, nor `skills`\n"
        "Nothing of it was kept.\n"
    )
    assert list((home / "data" / "taps").iterdir()) == []
    assert TapList(str(home / "config")).read() == []


def test_a_repository_that_is_not_there_leaves_nothing(
    run: Run, home: Path, tmp_path: Path
) -> None:
    url = (tmp_path / "gone").as_uri()

    result = run("add", url)

    assert result.exit_code == 1
    assert f"capd: git could not clone {url}\n" in result.stderr
    assert list((home / "data" / "taps").iterdir()) == []


def test_a_clone_and_an_update_run_nothing_of_the_repository(
    run: Run, home: Path, upstream: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """git follows a repository's submodules if its user has said so for his own repositories."""
    ran = tmp_path / "ran"
    inner = tmp_path / "inner"
    inner.mkdir()
    git(inner, "init", "--quiet", "--initial-branch=main")
    head = commit(inner, "x", "x")
    config = tmp_path / "gitconfig"
    config.write_text(
        "[submodule]\nrecurse = true\n[protocol]\nallow = always\n"
        f"[core]\nhooksPath = {upstream / 'hooks'}\n"
    )
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))

    def spoil(name: str) -> None:
        for hook in ("post-checkout", "post-merge", "reference-transaction"):
            file = upstream / "hooks" / hook
            file.parent.mkdir(exist_ok=True)
            file.write_text(f"#!/bin/sh\ntouch {ran}.{name}\n")
            file.chmod(0o755)
        git(upstream, "update-index", "--add", "--cacheinfo", f"160000,{full},{name}")
        (upstream / ".gitmodules").write_text(
            f'[submodule "{name}"]\n\tpath = {name}\n'
            f"\turl = ext::sh -c touch% {ran}.{name}\n\tupdate = !touch {ran}.{name}\n"
        )
        (upstream / ".gitattributes").write_text("* filter=evil diff=evil merge=evil\n")
        # Whoever commits has no hooks.
        git(upstream, "-c", "core.hooksPath=/dev/null", "add", ".gitmodules", ".gitattributes")
        git(upstream, "-c", "core.hooksPath=/dev/null", "commit", "--quiet", "--message", name)

    full = git(inner, "rev-parse", head)
    spoil("first")
    added = run("add", upstream.as_uri())
    spoil("second")

    updated = run("update")

    assert (added.exit_code, updated.exit_code) == (0, 0), added.stderr + updated.stderr
    assert "second" in (home / "data" / "taps" / "a-tap" / ".gitmodules").read_text()
    assert list(tmp_path.glob("ran*")) == []


def test_a_name_that_is_taken_is_refused_before_anything_is_fetched(
    run: Run, home: Path, upstream: Path
) -> None:
    run("add", upstream.as_uri())

    result = run("add", (upstream.parent / "gone" / "a-tap").as_uri())

    assert result.stderr.startswith("capd: a tap named a-tap is there already, at ")
    assert result.exit_code == 1


@pytest.mark.parametrize("is_local", [False, True])
def test_a_strangers_tap_does_not_pass_for_the_users_own(
    run: Run, home: Path, upstream: Path, tmp_path: Path, is_local: bool
) -> None:
    """The tap `own` may start servers on the far side of a bridge, and write into its folder."""
    named = upstream.rename(upstream.with_name("own"))

    result = run("add", str(named) if is_local else named.as_uri())

    assert result.stderr.startswith("capd: own is the tap of what you add by `capd add`\n")
    assert result.exit_code == 1
    assert TapList(str(home / "config")).read() == []
    assert not (home / "data" / "taps" / "own").exists()


def test_an_update_says_what_changed_and_has_it_loaded(
    run: Run, home: Path, upstream: Path, tmp_path: Path, start_daemon: Callable[..., FakeDaemon]
) -> None:
    plain = tmp_path / "plain"
    (plain / "capabilities").mkdir(parents=True)
    run("add", str(plain))
    run("add", upstream.as_uri())
    before = git(upstream, "rev-parse", "--short", "HEAD")
    after = commit(upstream, "capabilities/y/config.toml", "triggers = []\n")
    daemon = start_daemon({"reload": {"schema": 1, "taps": []}})

    result = run("update")

    assert result.stdout == (f"plain: no git checkout, left as it is\na-tap: {before} -> {after}\n")
    assert (home / "data/taps/a-tap/capabilities/y/config.toml").is_file()
    assert daemon.requests() == [{"method": "reload", "params": {}}]


def test_an_update_of_one_that_is_current_says_so(run: Run, upstream: Path) -> None:
    run("add", upstream.as_uri())

    result = run("update", "a-tap")

    revision = git(upstream, "rev-parse", "--short", "HEAD")
    assert result.stdout == f"a-tap: up to date at {revision}\n"
    assert result.exit_code == 0


def test_a_checkout_changed_by_hand_is_left_alone_and_told(
    run: Run, home: Path, upstream: Path
) -> None:
    run("add", upstream.as_uri())
    mine = commit(home / "data/taps/a-tap", "capabilities/x/config.toml", "mine = 1\n")
    commit(upstream, "capabilities/x/config.toml", "theirs = 1\n")

    result = run("update")

    assert result.exit_code == 1
    assert result.stderr.endswith("capd: not updated: a-tap\n")
    assert git(home / "data/taps/a-tap", "rev-parse", "--short", "HEAD") == mine


def test_an_unknown_name_is_refused(run: Run, upstream: Path) -> None:
    run("add", upstream.as_uri())

    result = run("update", "tap")

    assert result.stderr == "capd: no tap named tap\nNear names: a-tap.\n"
    assert result.exit_code == 1


def test_removing_a_clone_removes_it_from_the_disk(run: Run, home: Path, upstream: Path) -> None:
    run("add", upstream.as_uri())

    result = run("remove", "a-tap")

    said = "a-tap: will not be loaded when the daemon starts\n"
    assert (result.output, result.exit_code) == (said, 0)
    assert list((home / "data/taps").iterdir()) == []


@pytest.mark.parametrize("how", ["changed", "committed", "stashed", "added"])
def test_a_clone_that_was_worked_in_stays(run: Run, home: Path, upstream: Path, how: str) -> None:
    run("add", upstream.as_uri())
    folder = home / "data/taps/a-tap"
    if how == "committed":
        commit(folder, "capabilities/x/config.toml", "triggers = ['a']\n")
    else:
        name = "mine.toml" if how == "added" else "config.toml"
        (folder / "capabilities/x" / name).write_text("x")
    if how == "stashed":
        git(folder, "stash")

    result = run("remove", "a-tap")

    assert f"; {folder} stays: it may have work that its origin lacks" in result.output
    assert folder.is_dir()
    assert TapList(str(home / "config")).read() == []


def test_a_folder_that_was_added_by_its_path_stays(run: Run, home: Path, upstream: Path) -> None:
    run("add", str(upstream))

    run("remove", "a-tap.git")

    assert (upstream / "capabilities").is_dir()
