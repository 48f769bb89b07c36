"""A denied tool stays denied while the policy file is being saved or is unreadable."""

import pytest

from whole_daemon import wait_for

from .world import World

pytestmark = pytest.mark.reliability

POLICY = '[servers]\nlinger = 7\n[policy]\ndeny = ["talk:echo"]\n'


def wait_for_problem(world: World, words: str) -> None:
    wait_for(
        lambda: [line for line in world.home.ask("status")["daemon"]["degraded"] if words in line]
    )


def enabling(world: World) -> str:
    return str(world.enable("one", "talk")["text"])


def test_a_file_that_is_saved_in_place_never_allows_what_it_forbids(world: World) -> None:
    file = world.home.folder / "config" / "config.toml"
    file.parent.mkdir()
    file.write_text(POLICY)
    world.honest("talk")
    world.start()
    world.session("one")
    said = [enabling(world)]

    for text, words in (
        ("", "is not used yet: it lacks what was in it"),
        ("[policy\n", "is not used: "),
        (POLICY[:21], "is not used yet: it lacks what was in it"),
        ("[policy\n", "is not used: "),
    ):
        file.write_text(text)
        wait_for_problem(world, words)
        said.append(enabling(world))
    file.write_text(POLICY)
    wait_for(lambda: world.home.ask("status")["daemon"]["degraded"] == [] or None)
    said.append(enabling(world))

    assert ["denied by policy" in each for each in said] == [True] * 6, said


def test_what_a_person_took_out_counts_when_reload_has_answered(world: World) -> None:
    file = world.home.folder / "config" / "config.toml"
    file.parent.mkdir()
    file.write_text(POLICY)
    world.honest("talk")
    world.start()
    world.session("one")
    before = enabling(world)
    file.write_text("[servers]\nlinger = 7\n")

    reloaded = world.home.capd("reload")

    assert reloaded.returncode == 0, reloaded.stderr + reloaded.stdout
    assert ("denied by policy" in before, world.enable("one", "talk")["ok"]) == (True, True)
