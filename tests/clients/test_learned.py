"""Phrases that a person teaches are written to the files that the daemon reads."""

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from capd.adapters.overlay_files import read_overlay_folder
from capd_client import commands
from capd_client.commands.learning import Learned
from capd_client.taps import TapError

from .conftest import FakeDaemon


def test_a_phrase_is_in_an_overlay_of_its_tap(tmp_path: Path) -> None:
    learned = Learned(str(tmp_path))

    places = [learned.add(phrase, "me/mine", "git") for phrase in (" who  did this ", "blame it")]

    overlay = read_overlay_folder(tmp_path / "overlays/learned-me-mine")
    assert places == [tmp_path / "overlays/learned-me-mine/capabilities/git.toml"] * 2
    assert (overlay.tap, overlay.findings) == ("me/mine", ())
    assert [(each.name, each.triggers) for each in overlay.words] == [
        ("git", ("who did this", "blame it"))
    ]


def test_what_is_known_is_not_written_twice_and_what_a_person_wrote_stays(tmp_path: Path) -> None:
    learned = Learned(str(tmp_path))
    file = learned.add("blame it", "mine", "git")
    assert file is not None
    file.write_text(f"# Mine.\n{file.read_text()}description = 'Mine'\n")

    again = learned.add("Blame  IT", "mine", "git")
    learned.add("who did this", "mine", "git")

    assert again is None
    assert file.read_text().startswith("# Mine.\n")
    assert "description = 'Mine'" in file.read_text()


def test_taps_whose_names_are_alike_have_an_overlay_each(tmp_path: Path) -> None:
    learned = Learned(str(tmp_path))

    places = [learned.add("blame it", tap, "git") for tap in ("a/b", "a:b", "a/b")]

    assert [place and place.parents[1].name for place in places] == [
        "learned-a-b",
        "learned-a-b-2",
        None,
    ]


@pytest.mark.parametrize("phrase", ["", "  ", "x" * 201, "red \x1b[31m"])
def test_what_is_no_phrase_is_refused(tmp_path: Path, phrase: str) -> None:
    with pytest.raises(TapError, match="a phrase is words that a user would say"):
        Learned(str(tmp_path)).add(phrase, "mine", "git")


@pytest.mark.parametrize(
    ("text", "why"), [("a = [", "is not TOML"), ("triggers = 1", "not a list")]
)
def test_what_cannot_be_read_is_left_alone(tmp_path: Path, text: str, why: str) -> None:
    learned = Learned(str(tmp_path))
    file = learned.add("blame it", "mine", "git")
    assert file is not None
    file.write_text(text)

    with pytest.raises(TapError, match=why):
        learned.add("who did this", "mine", "git")

    assert file.read_text() == text


CAPS = {
    "capabilities": [
        {"tap": "mine", "name": "git", "routable": True},
        {"tap": "other", "name": "git", "routable": True},
        {"tap": "project:/src/app", "name": "deploy", "routable": True},
    ]
}


def test_learn_writes_for_the_capability_that_is_meant_and_has_the_taps_read_again(
    start_daemon: Callable[..., FakeDaemon], base_env: dict[str, str], home: Path
) -> None:
    daemon = start_daemon({"caps": CAPS, "reload": {"taps": []}})

    said = [
        CliRunner().invoke(commands.cli, ["learn", "blame it", name], env=base_env)
        for name in ("GIT", "other/git", "deploy", "gti")
    ]

    folder = home / "config/overlays"
    assert [each.stdout for each in said[:2]] == [
        f"mine/git: learned ({folder}/learned-mine/capabilities/git.toml)\n",
        f"other/git: learned ({folder}/learned-other/capabilities/git.toml)\n",
    ]
    assert [each.stderr.splitlines()[0] for each in said[2:]] == [
        "capd: deploy is the project's own",
        "capd: no capability named gti",
    ]
    assert [each["method"] for each in daemon.requests()].count("reload") == 2


LEARNT = {
    "schema": 1,
    "on": True,
    "labels": 3,
    "shared": -0.05,
    "capabilities": [
        {
            "name": "mine/git",
            "offset": 0.3,
            "project_offset": 0.15,
            "enabled": 2,
            "disabled": 0,
            "called": 1,
            "since": 1_799_990_000.0,
            "last_at": 1_799_999_000.0,
        }
    ],
    "problem": "",
}


@pytest.mark.parametrize(
    ("answer", "lines"),
    [
        (
            LEARNT,
            [
                (
                    "mine/git +0.30 since 2027-01-15 (switched on 2, switched off 0, called 1)"
                    ", +0.15 more in this project"
                ),
                "all capabilities -0.05",
                "above 0 a capability is switched on sooner; capd learn --forget NAME undoes it",
            ],
        ),
        (
            {**LEARNT, "on": False, "capabilities": []},
            [
                "switched off here: [routing] learn = false",
                "nothing yet: routing learns when you enable or disable something after a message",
            ],
        ),
    ],
)
def test_learn_alone_shows_what_use_has_taught(
    start_daemon: Callable[..., FakeDaemon],
    base_env: dict[str, str],
    answer: dict[str, object],
    lines: list[str],
) -> None:
    start_daemon({"learning": answer})

    said = CliRunner().invoke(commands.cli, ["learn"], env=base_env)

    assert (said.exit_code, said.stdout.splitlines()) == (0, lines)


@pytest.mark.parametrize(
    ("words", "params", "line"),
    [
        (["--forget"], {}, "forgotten: 2 labels of mine/git"),
        (["--forget", "git"], {"name": "git"}, "forgotten: 2 labels of mine/git"),
        (["--undo"], {"last": True}, "forgotten: 2 labels of mine/git"),
    ],
)
def test_what_use_has_taught_is_forgotten_on_demand(
    start_daemon: Callable[..., FakeDaemon],
    base_env: dict[str, str],
    words: list[str],
    params: dict[str, object],
    line: str,
) -> None:
    answer = {"schema": 1, "forgotten": 2, "capability": "mine/git"}
    daemon = start_daemon({"learning_forget": answer})

    said = CliRunner().invoke(commands.cli, ["learn", *words], env=base_env)

    assert (said.exit_code, said.stdout) == (0, f"{line}\n")
    asked = next(each for each in daemon.requests() if each["method"] == "learning_forget")
    assert asked["params"] == params


def test_forgetting_what_is_not_there_says_so(
    start_daemon: Callable[..., FakeDaemon], base_env: dict[str, str]
) -> None:
    start_daemon({"learning_forget": {"schema": 1, "forgotten": 0, "capability": "x"}})

    said = CliRunner().invoke(commands.cli, ["learn", "--forget", "x"], env=base_env)

    assert said.stdout == "there is nothing of it to forget\n"


@pytest.mark.parametrize("words", [["a phrase"], ["a phrase", "git", "--undo"]])
def test_a_phrase_without_its_capability_is_a_mistake(
    base_env: dict[str, str], words: list[str]
) -> None:
    said = CliRunner().invoke(commands.cli, ["learn", *words], env=base_env)

    assert said.exit_code == 2
