"""The digests of files that a project's server names, at this moment."""

import os
from pathlib import Path

import msgspec
import pytest

from capd.adapters.trust.project_taps import read_project
from capd.adapters.trust.startable_files import startable
from capd.adapters.trust.trust_check import UntrustedError, refuse_untrusted
from capd.adapters.trust.trust_file import TrustFile
from capd_protos.types import ServerSpec


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "run.sh").write_text("echo one\n")
    capability = folder / ".capd/capabilities/db"
    capability.mkdir(parents=True)
    (capability / "config.toml").write_text('triggers = ["a", "b", "c"]\n')
    (capability / "default.toml").write_text('[[mcp.servers]]\nname = "db"\ncommand = "./run.sh"\n')
    return folder


@pytest.fixture
def server(project: Path, tmp_path: Path) -> ServerSpec:
    [found] = read_project(str(project), TrustFile(tmp_path / "none")).startables
    return found.server


@pytest.fixture
def trust(tmp_path: Path, server: ServerSpec) -> TrustFile:
    file = TrustFile(tmp_path / "trust.json")
    found = startable(server)
    file.write({found.project: {found.digest: found.agreement()}})
    return file


def test_what_was_agreed_to_may_start(server: ServerSpec, trust: TrustFile) -> None:
    refuse_untrusted(server, trust)


def test_a_script_that_changed_may_not_and_it_is_said_what_changed(
    server: ServerSpec, project: Path, trust: TrustFile
) -> None:
    (project / "run.sh").write_text("echo two\n")

    with pytest.raises(UntrustedError) as raised:
        refuse_untrusted(server, trust)

    assert str(raised.value) == (
        f"db of the project {project} has changed since it was trusted (file run.sh): see what it "
        f"would start, and agree to it, with capd trust {project}"
    )


def test_a_definition_that_the_files_have_no_more_may_not(
    server: ServerSpec, project: Path, trust: TrustFile
) -> None:
    (project / ".capd/capabilities/db/config.toml").unlink()

    with pytest.raises(UntrustedError) as raised:
        refuse_untrusted(server, trust)

    assert "is not what the project's files define by now" in str(raised.value)


def test_a_link_that_leads_elsewhere_may_not(
    server: ServerSpec, project: Path, trust: TrustFile
) -> None:
    (project / "run.sh").rename(project / "other.sh")
    (project / "run.sh").symlink_to("other.sh")

    with pytest.raises(UntrustedError):
        refuse_untrusted(server, trust)


def test_a_link_out_of_the_project_is_followed(server: ServerSpec, project: Path) -> None:
    outside = project.parent / "outside.sh"
    outside.write_text("echo three\n")
    (project / "run.sh").unlink()
    (project / "run.sh").symlink_to(outside)

    before = startable(server).digest
    outside.write_text("echo four\n")

    assert startable(server).digest != before


def test_a_file_outside_of_the_project_is_the_users_own(server: ServerSpec, project: Path) -> None:
    outside = project.parent / "outside.sh"
    outside.write_text("x")

    found = startable(msgspec.structs.replace(server, command=str(outside)))

    assert found.files == {}


def test_a_name_that_becomes_a_file_asks_again(server: ServerSpec, project: Path) -> None:
    named = msgspec.structs.replace(server, command="node", args=("late",))
    before = startable(named).digest

    (project / "late.js").write_text("x")

    assert startable(named).digest != before


@pytest.mark.parametrize("what", ["pipe", "huge"])
def test_what_cannot_be_read_can_be_agreed_to_by_nobody(
    server: ServerSpec, project: Path, what: str
) -> None:
    (project / "run.sh").unlink()
    if what == "pipe":
        os.mkfifo(project / "run.sh")
    else:
        with (project / "run.sh").open("wb") as file:
            file.truncate(65 << 20)

    assert startable(server).problem.startswith(f"{project}/run.sh cannot be read: ")


def test_names_that_no_file_can_have_are_none(server: ServerSpec, project: Path) -> None:
    (project / "loop").symlink_to("loop")
    odd = msgspec.structs.replace(server, args=("x" * 5000, "loop", "a\0b", ".", "/", "~"))

    found = startable(odd)

    assert (list(found.files), found.problem) == (["run.sh"], "")
