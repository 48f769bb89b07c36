"""Files that change under a running daemon are loaded at once, and no work is lost."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from whole_daemon import Home, wait_for


def names(home: Home) -> set[str]:
    caps = home.ask("caps")["capabilities"]
    return {each["name"] for each in caps if each["tap"] == "mine" and each["routable"]}


def tap(home: Home) -> dict[str, Any]:
    found: dict[str, Any] = next(t for t in home.ask("status")["taps"] if t["name"] != "starter")
    return found


def skill(folder: Path, name: str, text: str = "Do it.") -> None:
    file = folder / "skills" / name / "SKILL.md"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"---\nname: {name}\ndescription: d\ncapabilities: one\n---\n{text}\n")


def replace(file: Path, text: str) -> None:
    """Give `file` the content `text`; at no moment is it empty, which would be a valid list."""
    new = file.with_name("new")
    new.write_text(text)
    new.replace(file)


def test_what_is_added_changed_and_removed_is_loaded_without_being_told(home: Home) -> None:
    home.plain("one")
    home.start()
    assert names(home) == {"one"}

    home.plain("two")
    wait_for(lambda: names(home) == {"one", "two"})
    # In a folder that was made after the daemon started.
    (home.folder / "tap/capabilities/two/config.toml").write_text('triggers = ["a", "b", "c"]\n')
    wait_for(lambda: '"a", "b", "c"' in json.dumps(home.ask("caps")))
    skill(home.folder / "tap", "review")
    wait_for(lambda: tap(home)["skills"] == 1)
    shutil.rmtree(home.folder / "tap/capabilities/two")
    wait_for(lambda: names(home) == {"one"})

    other = home.folder / "other"
    shutil.copytree(home.folder / "tap", other)
    taps = home.folder / "config/taps.toml"
    taps.write_text(f'[[taps]]\nname = "other"\npath = "{other}"\n' + taps.read_text())
    wait_for(lambda: tap(home)["name"] == "other")


def test_a_folder_that_is_replaced_is_followed_all_the_same(home: Home) -> None:
    home.plain("one")
    home.start()
    mine = home.folder / "tap"

    wait_for(lambda: home.log().count("taps_watched") == 1)

    # As a checkout does it: the same names, other folders. The list itself is not touched.
    shutil.move(mine, home.folder / "old")
    wait_for(lambda: tap(home)["error"])
    assert names(home) == {"one"}
    wait_for(lambda: home.log().count("taps_watched") == 2)
    shutil.copytree(home.folder / "old", mine)
    wait_for(lambda: not tap(home)["error"])
    wait_for(lambda: home.log().count("taps_watched") == 3)
    shutil.copytree(mine / "capabilities/one", mine / "capabilities/two")

    wait_for(lambda: names(home) == {"one", "two"})


def test_a_list_that_breaks_keeps_the_catalog_and_says_why(home: Home) -> None:
    home.plain("one")
    home.start()
    taps = home.folder / "config/taps.toml"
    good = taps.read_text()

    replace(taps, "[[taps]\n")

    wait_for(lambda: "taps.toml" in home.capd("status").stdout)
    assert home.capd("status").returncode == 4
    assert names(home) == {"one"}
    replace(taps, good)
    wait_for(lambda: home.capd("status").returncode == 0)


def test_a_session_keeps_what_it_has_on_when_its_capability_goes(home: Home) -> None:
    home.plain("one")
    home.start()
    editor = home.shim("s")
    home.ask("enable", session="s", name="one")
    before = editor.tools()

    shutil.rmtree(home.folder / "tap/capabilities/one")
    home.plain("two")
    wait_for(lambda: names(home) == {"two"})

    assert editor.tools() == before
    assert (
        home.ask("call", session="s", name="one__echo", arguments={"text": "x"})["outcome"]
        == "result"
    )
    off = home.ask("disable", session="s", name="one")
    on = home.ask("enable", session="s", name="one")
    assert (off["ok"], on["ok"]) == (True, False)
    editor.leave()


def test_skills_are_prompts_and_are_found(home: Home) -> None:
    home.plain("one")
    skill(home.folder / "tap", "review")
    home.start()
    editor = home.shim("s")

    listed = editor.ask("prompts/list")
    got = editor.ask("prompts/get", {"name": "review"})
    found = wait_for(lambda: home.ask("search", query="review")["skills"])

    assert [each["name"] for each in listed["prompts"]] == ["review"]
    assert "Capability 'one' is on." in got["messages"][0]["content"]["text"]
    assert [each["name"] for each in found] == ["review"]
    first = home.capd("search", "review").stdout.splitlines()[1]
    assert first.split()[1:3] == ["skill", "review"]
    editor.leave()


@pytest.mark.parametrize("switch", ["environment", "file"])
def test_watching_can_be_switched_off(home: Home, switch: str) -> None:
    home.plain("one")
    if switch == "environment":
        home.env["CAPD_WATCH"] = "0"
    else:
        (home.folder / "config/config.toml").write_text("[taps]\nwatch = false\n")
    home.start()

    home.plain("two")

    assert home.ask("status")["not_watched"] == "it is switched off"
    assert names(home) == {"one"}
    home.ask("reload")
    assert names(home) == {"one", "two"}
