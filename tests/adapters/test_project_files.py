"""The names that are read from a project, and the names of keys in its `.env`."""

import os
from pathlib import Path

import pytest

from capd.adapters.project_files import MOST_NAMES, listing, project_files


def test_names_are_listed_with_a_mark_on_folders(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "Cargo.toml").write_text("")

    got = listing(tmp_path)

    assert got == ("Cargo.toml", "src/")


def test_keys_of_env_are_listed_without_their_values(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text(
        "# TOKEN=commented\nSTRIPE_KEY=sk_live_1\nexport SLACK_BOT_TOKEN='x'\nSTRIPE_KEY=again\n"
        'PEM="-----BEGIN\nabcDEF/==\nABCDEF==\n-----END"\nlower=1\n'
    )

    got = listing(tmp_path)

    assert got == (".env", ".env:STRIPE_KEY", ".env:SLACK_BOT_TOKEN", ".env:PEM")


def test_a_listing_is_bounded(tmp_path: Path) -> None:
    for number in range(MOST_NAMES + 50):
        (tmp_path / f"file{number}").touch()

    got = listing(tmp_path)

    assert len(got) == MOST_NAMES


@pytest.mark.parametrize("name", ["missing", "file"])
def test_what_is_no_folder_has_no_listing(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()

    got = listing(tmp_path / name)

    assert got == ()


def test_an_env_that_is_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".env")

    got = listing(tmp_path)

    assert got == (".env",)


def test_an_env_that_is_a_link_out_of_the_project_is_not_read(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (tmp_path / "secrets").write_text("OTHER_KEY=1\n")
    (project / ".env").symlink_to("../secrets")

    got = listing(project)

    assert got == (".env",)


def test_an_env_that_is_a_link_within_the_project_is_read(tmp_path: Path) -> None:
    (tmp_path / "env.shared").write_text("STRIPE_KEY=1\n")
    (tmp_path / ".env").symlink_to("env.shared")

    got = listing(tmp_path)

    assert got == (".env", "env.shared", ".env:STRIPE_KEY")


async def test_a_session_without_a_project_has_no_listing() -> None:
    got = await project_files("")

    assert got == ()
