"""Bootstrap files are read from a project, and no file outside of it is."""

import os
from pathlib import Path

from capd.adapters.bootstrap_files import read_bootstrap
from capd.core.memories.bootstrap import Bootstrap, BootstrapFile


def test_what_is_there_is_read_in_the_order_in_which_it_is_wanted(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes/a.md").write_text("à")
    (tmp_path / "B.md").write_text("b")
    (tmp_path / "EMPTY.md").write_text(" \n")

    found = read_bootstrap(str(tmp_path), ["notes/a.md", "NONE.md", "B.md/x", "EMPTY.md", "B.md"])

    assert found == Bootstrap((BootstrapFile("notes/a.md", "à"), BootstrapFile("B.md", "b")))


def test_no_way_leads_out_of_the_project(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (tmp_path / "SECRET.md").write_text("secret")
    (tmp_path / "project-2").mkdir()
    (tmp_path / "project-2/S.md").write_text("secret")
    (project / "LINK.md").symlink_to("../SECRET.md")
    (project / "folder").symlink_to(tmp_path)
    ways = [
        *("LINK.md", "folder/SECRET.md", "../SECRET.md", "../project-2/S.md"),
        *(str(tmp_path / "SECRET.md"), "."),
    ]

    found = read_bootstrap(str(project), ways)

    assert found == Bootstrap((), dict.fromkeys(ways, "it is outside of the project"))


def test_a_link_within_the_project_is_followed(tmp_path: Path) -> None:
    (tmp_path / "A.md").write_text("a")
    (tmp_path / "B.md").symlink_to("A.md")

    assert read_bootstrap(str(tmp_path), ["B.md"]).files == (BootstrapFile("B.md", "a"),)


def test_nothing_but_a_file_of_text_is_read_and_nothing_is_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "PIPE.md")
    (tmp_path / "FOLDER.md").mkdir()
    (tmp_path / "BYTES.md").write_bytes(b"\xff")
    (tmp_path / "LARGE.md").write_bytes(b"x" * ((2 << 20) + 1))

    found = read_bootstrap(str(tmp_path), ["PIPE.md", "FOLDER.md", "BYTES.md", "LARGE.md", "a\0b"])

    assert found == Bootstrap(
        (),
        {
            "PIPE.md": "it is not a file",
            "FOLDER.md": "Is a directory",
            "BYTES.md": "it is not UTF-8",
            "LARGE.md": "it has more than 2097152 bytes",
            "a\0b": "it is not UTF-8",
        },
    )
