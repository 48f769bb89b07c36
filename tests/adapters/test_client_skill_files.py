"""Where clients keep skills, which come first, and which links are followed."""

import json
import os
from pathlib import Path

import pytest

from capd.adapters.client_skill_files import (
    ClientSkill,
    SkillFolders,
    client_skills,
    read_needs,
)
from capd.core.sessions.client_skills import SkillNeeds

TEXT = "---\nname: x\ncapd: {}\n---\nDo it.\n"


class Machine:
    """A user's folder and a project."""

    def __init__(self, folder: Path) -> None:
        self.home, self.project = folder / "home", folder / "project"
        self.home.mkdir()
        self.project.mkdir()
        self.folders = SkillFolders(self.home, self.home / ".claude")

    def skill(self, folder: Path, name: str, needs: str = "git") -> Path:
        file = folder / name / "SKILL.md"
        file.parent.mkdir(parents=True)
        file.write_text(TEXT.format(needs))
        return file

    def found(self) -> dict[str, ClientSkill]:
        return client_skills(self.folders, str(self.project))

    def needs(self, name: str) -> SkillNeeds:
        return read_needs(self.found()[name])


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_skills_are_found_in_every_folder_and_the_users_come_first(machine: Machine) -> None:
    installed = machine.home / "somewhere/boats/1.0"
    machine.skill(machine.home / ".claude/skills", "one", "claude")
    machine.skill(machine.home / ".agents/skills", "two", "agents-skills")
    machine.skill(machine.home / ".agents", "three", "agents")
    machine.skill(machine.home / ".agents/plugins/quay/skills", "four", "quay")
    machine.skill(installed / "skills", "five", "boats")
    for name in (".claude/skills", ".agents/skills", ".agents"):
        machine.skill(machine.project / name, "one", "project")
        machine.skill(machine.project / name, f"own-{name.replace('/', '')}", "project")
    plugins = machine.home / ".claude/plugins/installed_plugins.json"
    plugins.parent.mkdir()
    listed = {"boats@market": [{"scope": "user", "installPath": str(installed)}]}
    plugins.write_text(json.dumps({"version": 2, "plugins": listed}))

    found = {name: machine.needs(name).capabilities for name in machine.found()}

    assert found == {
        "one": ("claude",),
        "two": ("agents-skills",),
        "three": ("agents",),
        "boats:five": ("boats",),
        "quay:four": ("quay",),
        "own-.claudeskills": ("project",),
        "own-.agentsskills": ("project",),
        "own-.agents": ("project",),
    }


def test_a_users_link_is_followed_and_a_projects_that_leads_out_is_not(machine: Machine) -> None:
    secret = machine.skill(machine.home / "elsewhere", "kept", "users")
    for folder in (machine.home, machine.project):
        (folder / ".claude/skills").mkdir(parents=True)
    (machine.home / ".claude/skills/mine").symlink_to(secret.parent)
    (machine.project / ".claude/skills/folder").symlink_to(secret.parent)
    (machine.project / ".claude/skills/file").mkdir()
    (machine.project / ".claude/skills/file/SKILL.md").symlink_to(secret)
    (machine.project / ".agents").symlink_to(secret.parent.parent)

    assert machine.needs("mine") == SkillNeeds(("users",))
    for name in ("folder", "file", "kept"):
        assert machine.needs(name).is_empty
        assert "outside" in machine.needs(name).error


def test_a_pipe_a_folder_and_a_huge_file_are_no_skills_and_wait_for_nobody(
    machine: Machine,
) -> None:
    folder = machine.project / ".claude/skills"
    for name in ("pipe", "folder", "huge"):
        (folder / name).mkdir(parents=True)
    os.mkfifo(folder / "pipe/SKILL.md")
    (folder / "folder/SKILL.md").mkdir()
    (folder / "huge/SKILL.md").write_bytes(b"x" * (1 << 20))

    errors = {name: machine.needs(name).error for name in ("pipe", "folder", "huge")}

    assert all(errors.values()), errors


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"plugins": {"x": 1}}', '{"plugins": {"x": [{"installPath": 1}]}}']
)
def test_a_list_of_plugins_that_is_none_costs_nothing_else(machine: Machine, text: str) -> None:
    machine.skill(machine.home / ".claude/skills", "one")
    plugins = machine.home / ".claude/plugins/installed_plugins.json"
    plugins.parent.mkdir()
    plugins.write_text(text)

    assert list(machine.found()) == ["one"]


def test_a_name_that_no_client_gives_is_left_out(machine: Machine) -> None:
    for name in ("ok", "-dash", "sp ace", "a:b:c"):
        machine.skill(machine.project / ".claude/skills", name)

    assert list(machine.found()) == ["ok"]


def test_a_skill_that_may_not_be_read_costs_no_other(closed: Path) -> None:
    skills = closed.parent / ".claude" / "skills"
    skills.joinpath("open").mkdir(parents=True)
    skills.joinpath("open", "SKILL.md").write_text(TEXT.format("git"))
    skills.joinpath("shut").symlink_to(closed / "inside")

    found = client_skills(SkillFolders(closed.parent, closed.parent / ".claude"), "/nowhere")

    assert list(found) == ["open"]
