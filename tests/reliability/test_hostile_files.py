"""Files of a clone and of a tap that are made to cost much: nobody else takes notice.

Each attack is a project, or a tap, that a session opens while an honest session beside it calls on
and on. Every call of its answers within two seconds, the daemon stays small, and what is wrong is
said in one place.
"""

import contextlib
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from bench.hostile_files import ATTACKS, MEMORY, SETTINGS, TRIGGERS

from whole_daemon import Home, pids_with, wait_for

from .world import World, world_of_its_own

pytestmark = pytest.mark.reliability

PATIENCE = 90.0


@pytest.fixture
def world() -> Iterator[World]:
    with world_of_its_own() as made:
        yield made


def cloned(world: World, name: str) -> Path:
    folder = world.home.folder / "cloned"
    folder.mkdir()
    ATTACKS[name](folder)
    return folder


def children(pid: int) -> list[int]:
    """Return the parser processes of a daemon."""
    found = []
    for each in pids_with("capd.adapters.parsing.process"):
        with contextlib.suppress(OSError):
            status = Path(f"/proc/{each}/status").read_text()
            if f"PPid:\t{pid}\n" in status and "State:\tZ" not in status:
                found.append(each)
    return found


def said_of(home: Home, project: Path) -> list[str]:
    found = home.ask("status")["daemon"]["project_files"].get(str(project), [])
    return [str(line) for line in found]


@pytest.mark.parametrize("name", [each for each in ATTACKS if not each.startswith("skill")])
def test_a_clone_made_to_cost_much_is_nobody_elses_trouble(world: World, name: str) -> None:
    world.honest("neighbour")
    world.process = world.home.start()
    world.open_neighbour()
    folder = cloned(world, name)

    with world.beside_an_honest_session() as honest:
        evil = world.session("evil", folder=folder)
        evil.tools()
        # Until it was read, or given up: a person is answered either way.
        world.home.capd("trust", "--json", str(folder))
        world.home.ask("reload")
        said = said_of(world.home, folder)
        wait_for(lambda: len(honest.calls) > 20, PATIENCE)

    if name.startswith("settings") and "dearest" not in name:
        assert said, "nothing is said of it"
        assert len(said) <= 25
        assert all(len(line) < 1000 for line in said)


@pytest.mark.parametrize("name", [each for each in ATTACKS if each.startswith("skill")])
def test_a_tap_made_to_cost_much_is_nobody_elses_trouble(world: World, name: str) -> None:
    world.honest("neighbour")
    world.process = world.home.start()
    world.open_neighbour()
    folder = cloned(world, name)
    listed = world.home.folder / "config/taps.toml"

    with world.beside_an_honest_session() as honest:
        listed.write_text(listed.read_text() + f'[[taps]]\nname = "evil"\npath = "{folder}"\n')
        world.home.ask("reload")
        wait_for(lambda: len(honest.calls) > 20, PATIENCE)

    # Another tap's skills are prompts, of which everybody is told.
    assert world._neighbour is not None
    told = {str(message.get("method")) for message in world._neighbour.heard}
    assert all(method.endswith("/list_changed") for method in told), told
    world._neighbour.heard.clear()


def test_no_file_of_a_stranger_starts_no_parser_process(world: World) -> None:
    world.process = world.home.start()
    world.honest("neighbour")
    own = world.home.folder / "config/own/capabilities"
    own.parent.mkdir(parents=True)
    shutil.move(world.home.folder / "tap/capabilities", own)
    listed = world.home.folder / "config/taps.toml"
    listed.write_text(f'[[taps]]\nname = "own"\npath = "{own.parent}"\n')
    world.home.ask("reload")
    world.open_neighbour()

    world.ask_neighbour()

    assert children(world.process.pid) == []


def killed_parser(world: World, project: Path) -> None:
    assert world.process is not None
    for pid in children(world.process.pid):
        os.kill(pid, signal.SIGKILL)


def stopped_parser(world: World, project: Path) -> None:
    assert world.process is not None
    for pid in children(world.process.pid):
        os.kill(pid, signal.SIGSTOP)


@pytest.mark.parametrize("harm", [killed_parser, stopped_parser])
def test_a_parser_that_dies_is_replaced(world: World, harm: Callable[[World, Path], None]) -> None:
    world.start()
    project = world.home.folder / "app"
    project.mkdir()
    (project / SETTINGS).write_text("[sessions]\ntools = 7\n")
    assert world.process is not None
    wait_for(lambda: children(world.process.pid) if world.process else [])

    harm(world, project)

    world.session("s", folder=project)

    def is_followed() -> bool:
        world.home.ask("reload")
        values = world.home.ask("config", project=str(project))["values"]
        return bool([each["value"] for each in values if each["key"] == "sessions.tools"] == [7])

    wait_for(is_followed, PATIENCE)
    world.ask_neighbour()


def test_the_parser_is_gone_with_the_daemon(world: World) -> None:
    world.start()
    assert world.process is not None
    pid = world.process.pid
    folder = cloned(world, "memory: a thousand, each slow")
    world.session("evil", folder=folder)
    found = wait_for(lambda: children(pid))

    world.kill_daemon()

    wait_for(lambda: [each for each in found if Path(f"/proc/{each}").exists()] == [] or None, 10)


def test_a_stopped_parser_is_gone_with_the_daemon(world: World) -> None:
    """It does not see that its socket closes: the watcher ends what bears the daemon's mark."""
    world.start()
    assert world.process is not None
    pid = world.process.pid
    project = world.home.folder / "app"
    project.mkdir()
    (project / SETTINGS).write_text("[sessions]\ntools = 7\n")
    world.session("s", folder=project)
    (parser,) = wait_for(lambda: children(pid))
    os.kill(parser, signal.SIGSTOP)

    world.kill_daemon()

    wait_for(lambda: not Path(f"/proc/{parser}").exists())


def test_nothing_of_a_clone_or_tap_is_read_through_a_link_out_of_it(world: World) -> None:
    home = world.home
    secret = home.folder / "outside"
    (secret / "memories").mkdir(parents=True)
    (secret / "skills/leak").mkdir(parents=True)
    (secret / "capabilities/leak").mkdir(parents=True)
    (secret / "memories/m.toml").write_text(f'{MEMORY}content = "the hidden word"\n')
    (secret / "skills/leak/SKILL.md").write_text("---\nname: leak\ndescription: d\n---\nhidden\n")
    (secret / "capabilities/leak/config.toml").write_text(TRIGGERS)
    (secret / "capabilities/leak/default.toml").write_text(
        '[[mcp.servers]]\nname = "hidden"\ncommand = "hidden"\n'
    )
    project = home.folder / "cloned"
    (project / ".capd/memories").mkdir(parents=True)
    (project / ".capd/capabilities").mkdir()
    (project / ".capd/memories/m.toml").symlink_to(secret / "memories/m.toml")
    (project / ".capd/capabilities/leak").symlink_to(secret / "capabilities/leak")
    other = home.folder / "other"
    (other / ".capd").mkdir(parents=True)
    (other / ".capd/memories").symlink_to(secret / "memories")
    (other / ".capd/capabilities").symlink_to(secret / "capabilities")
    third = home.folder / "third"
    third.mkdir()
    (third / ".capd").symlink_to(secret)
    world.honest("neighbour")
    (home.folder / "tap/skills").mkdir()
    (home.folder / "tap/skills/leak").symlink_to(secret / "skills/leak")
    (home.folder / "tap/memories").symlink_to(secret / "memories")
    world.process = home.start()
    world.open_neighbour()

    said = [home.capd("trust", "--json", str(each)).stdout for each in (project, other, third)]
    skills = home.ask("caps")
    memories = home.ask("memories")

    assert [each for each in said if "hidden" in each] == []
    assert "outside of" in said[0]
    assert "leak" not in str(skills.get("skills", ""))
    assert "hidden word" not in str(memories)


@pytest.mark.parametrize("kind", ["pipe", "device", "folder", "loop"])
def test_what_is_no_file_is_not_waited_for(world: World, kind: str) -> None:
    makers: dict[str, Callable[[Path], object]] = {
        "pipe": os.mkfifo,
        "device": lambda path: path.symlink_to("/dev/zero"),
        "folder": Path.mkdir,
        "loop": lambda path: path.symlink_to(path.name),
    }
    world.start()
    project = world.home.folder / "cloned"
    for name in (SETTINGS, ".capd/memories/m.toml", ".capd/capabilities/c/config.toml"):
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        makers[kind](project / name)

    session = world.session("evil", folder=project)

    session.tools()
    assert world.home.capd("trust", "--json", str(project)).returncode in {0, 1}
    world.ask_neighbour()


def test_a_clone_with_pins_and_modes_lists_nothing_more(world: World) -> None:
    world.honest("more", "echo,shout")
    world.start()
    plain = world.home.folder / "plain"
    project = world.home.folder / "cloned"
    for each in (plain, project):
        each.mkdir()
    (project / SETTINGS).write_text(
        '[surface]\nmode = "pass-through"\npins = ["*"]\npass_through = 1.0\n'
        '[curation]\nkind = "off"\nk = 256\nnew_per_turn = 24\n'
        "[sessions]\ncapabilities = 64\ntools = 256\n"
    )
    # What its servers list is known by now, so that it could be pinned.
    met = world.session("met", "more")
    met.tools()
    before = world.session("before", folder=plain).tools()

    after = world.session("after", folder=project).tools()

    assert sorted(after) == sorted(before)
    assert len(said_of(world.home, project)) == 8
