"""`capd add` and `capd remove` edit the user's own tap."""

import json
import resource
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from capd_client import commands
from capd_client.own_tap import OwnServer, OwnTap, definition, env_of, headers_of
from capd_client.taps import TapError, TapList

from .conftest import FakeDaemon

Start = Callable[..., FakeDaemon]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, base_env: dict[str, str]) -> Callable[..., Result]:
    monkeypatch.setenv("CAPD_SESSION", "")

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(commands.cli, arguments, env=base_env, prog_name="capd")

    return run


def read(folder: Path) -> dict[str, Any]:
    return {path.name: tomllib.loads(path.read_text()) for path in sorted(folder.iterdir())}


def test_a_command_becomes_a_capability_of_the_own_tap(tmp_path: Path) -> None:
    tap = OwnTap(str(tmp_path))

    place = tap.add(
        OwnServer(
            "weather",
            ["npx", "-y", 'weather-mcp@1.2.3 "quoted" \x7f\n'],
            env={"TOKEN": "{{ENV:TOKEN}}"},
            triggers=["will it rain?"],
            scope="shared",
        )
    )

    assert place == tmp_path / "own" / "capabilities" / "weather"
    assert read(place) == {
        "config.toml": {"triggers": ["will it rain?", "ask weather", "with the help of weather"]},
        "default.toml": {
            "mcp": {
                "servers": [
                    {
                        "name": "weather",
                        "command": "npx",
                        "args": ["-y", 'weather-mcp@1.2.3 "quoted" \x7f\n'],
                        "scope": "shared",
                        "env": {"TOKEN": "{{ENV:TOKEN}}"},
                    }
                ]
            }
        },
    }
    assert TapList(str(tmp_path)).read() == [{"name": "own", "path": str(tmp_path / "own")}]
    assert tap.names() == ["weather"]


def test_a_full_disk_names_the_definition_and_leaves_nothing(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        with pytest.raises(OSError, match=f"{tmp_path}/own/capabilities/weather/.*toml"):
            OwnTap(str(tmp_path)).add(OwnServer("weather", ["npx"], triggers=["will it rain?"]))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    assert list((tmp_path / "own" / "capabilities").iterdir()) == []


def test_an_address_becomes_an_http_server() -> None:
    files = definition(
        OwnServer("notes", url="https://notes.example/mcp", headers={"X-Key": "{{ENV:KEY}}"})
    )

    assert tomllib.loads(files["config.toml"]) == {
        "triggers": ["use notes", "ask notes", "with the help of notes"]
    }
    assert tomllib.loads(files["default.toml"])["mcp"]["servers"] == [
        {
            "name": "notes",
            "type": "http",
            "url": "https://notes.example/mcp",
            "headers": {"X-Key": "{{ENV:KEY}}"},
        }
    ]


def test_the_last_one_takes_the_tap_with_it(tmp_path: Path) -> None:
    tap = OwnTap(str(tmp_path))
    tap.add(OwnServer("a", ["a"]))
    tap.add(OwnServer("b", ["b"]))

    tap.remove("a")
    left = (tap.names(), [each["name"] for each in TapList(str(tmp_path)).read()])
    tap.remove("b")

    assert left == (["b"], ["own"])
    assert (tap.folder.exists(), TapList(str(tmp_path)).read()) == (False, [])


def test_what_a_person_put_beside_it_stays(tmp_path: Path) -> None:
    tap = OwnTap(str(tmp_path))
    tap.add(OwnServer("a", ["a"]))
    (tap.folder / "notes.txt").write_text("mine")

    tap.remove("a")

    assert [path.name for path in tap.folder.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize(
    "url", ["http://[::1]:80/mcp", "https://{{INPUT:HOST}}/mcp", "https://x:{{PORT}}/mcp"]
)
def test_an_address_may_have_a_number_or_a_value_that_is_not_known_yet(
    tmp_path: Path, url: str
) -> None:
    tap = OwnTap(str(tmp_path))

    tap.add(OwnServer("a", url=url))

    assert tap.names() == ["a"]


@pytest.mark.parametrize(
    ("server", "said"),
    [
        (OwnServer("a b", ["x"]), "'a b' is not a valid server name"),
        (OwnServer("../x", ["x"]), "'../x' is not a valid server name"),
        (OwnServer("a__b", ["x"]), "'a__b' is not a valid server name"),
        (OwnServer("x" * 65, ["x"]), f"'{'x' * 65}' is not a valid server name"),
        (OwnServer("a"), "a server has a command or a --url, one of the two"),
        (OwnServer("a", ["x"], "https://x"), "a server has a command or a --url, one of the two"),
        (OwnServer("a", [""]), "the server's command is empty"),
        (OwnServer("a", [" ", "x"]), "the server's command is empty"),
        (OwnServer("a", url="ftp://x"), "ftp://x is not an address"),
        (OwnServer("a", url="http://"), "http:// is not an address"),
        (OwnServer("a", url="http://[::1"), "http://[::1 is not an address"),
        (OwnServer("a", url="http://:80/mcp"), "http://:80/mcp is not an address"),
        (OwnServer("a", url="http://x:99999/"), "http://x:99999/ is not an address"),
        (OwnServer("a", ["x"], triggers=[" "]), "a --trigger is empty"),
        (OwnServer("there", ["x"]), "there is there already: "),
    ],
)
def test_what_cannot_be_added_is_said_and_leaves_all_as_it_was(
    tmp_path: Path, server: OwnServer, said: str
) -> None:
    tap = OwnTap(str(tmp_path))
    tap.add(OwnServer("there", ["it"]))
    before = sorted(str(path) for path in tmp_path.rglob("*"))

    with pytest.raises(TapError) as caught:
        tap.add(server)

    what, _, remedy = str(caught.value).partition("\n")
    assert what.startswith(said)
    assert remedy
    assert sorted(str(path) for path in tmp_path.rglob("*")) == before


def test_a_tap_of_somebody_elses_with_that_name_is_not_written_into(tmp_path: Path) -> None:
    other = tmp_path / "other" / "capabilities"
    other.mkdir(parents=True)
    (tmp_path / "taps.toml").write_text(f'[[taps]]\nname = "own"\npath = "{other.parent}"\n')

    with pytest.raises(TapError, match=f"the name `own` is taken by the tap at {other.parent}"):
        OwnTap(str(tmp_path)).add(OwnServer("a", ["a"]))

    assert not OwnTap(str(tmp_path)).names()


def test_what_was_not_added_cannot_be_removed(tmp_path: Path) -> None:
    OwnTap(str(tmp_path)).add(OwnServer("a", ["a"]))

    with pytest.raises(TapError) as caught:
        OwnTap(str(tmp_path)).remove("../a")

    said = "no server named ../a was added\nWhat a tap has goes with it: capd tap remove TAP\n"
    assert str(caught.value) == f"{said}Near names: a."


def test_a_bare_key_stands_for_a_secret() -> None:
    env = env_of(["TOKEN", "LEVEL=debug=1", "EMPTY="])

    assert env == {"TOKEN": "{{ENV:TOKEN}}", "LEVEL": "debug=1", "EMPTY": ""}


@pytest.mark.parametrize("word", ["=x", "A-B=1", "", "1A"])
def test_an_environment_without_a_key_is_refused(word: str) -> None:
    with pytest.raises(TapError, match="has no key before `=`"):
        env_of([word])


def test_headers_are_a_name_and_a_value() -> None:
    headers = headers_of(["Authorization: Bearer {{ENV:T}}", "X:1:2"])

    assert headers == {"Authorization": "Bearer {{ENV:T}}", "X": "1:2"}


# The command


def test_adding_says_what_the_daemon_makes_of_it(
    start_daemon: Start, run: Callable[..., Result], home: Path
) -> None:
    finding = {
        "path": "capabilities/weather/default.toml",
        "line": 3,
        "severity": "warning",
        "reason": "weather-mcp has no exact version",
    }
    tap = {"name": "own", "error": "", "findings": [finding]}
    entry = {"tap": "own", "name": "weather", "routable": True, "missing": ["TOKEN"]}
    start_daemon(
        {
            "reload": {"schema": 1, "taps": [tap]},
            "caps": {"schema": 1, "capabilities": [entry]},
            "status": {"schema": 1, "daemon": {"path": "/nowhere"}},
        }
    )

    result = run("add", "weather", "--env", "TOKEN", "--", "npx", "-y", "weather-mcp")

    place = home / "config" / "own" / "capabilities" / "weather" / "default.toml"
    assert result.stdout.splitlines() == [
        f"weather: added ({place})",
        "warning: weather-mcp has no exact version",
        "missing: TOKEN (capd secret set TOKEN)",
        "warning: `npx` is not on the daemon's PATH: it cannot be started",
        "Switch it on with: capd enable weather, or by saying one of its triggers.",
    ]
    assert result.exit_code == 0


def test_a_command_in_quotes_is_told(run: Callable[..., Result]) -> None:
    result = run("add", "weather", "--", "npx -y weather-mcp@1.0.0")

    assert (
        "warning: `npx -y weather-mcp@1.0.0` is one word with spaces, and no such program is here: "
        "leave out the quotes" in result.stdout
    )


def test_a_name_that_leads_to_another_tap_is_told(
    start_daemon: Start, run: Callable[..., Result]
) -> None:
    entries = [{"tap": tap, "name": "git", "routable": True} for tap in ("octomind", "own")]
    start_daemon(
        {
            "reload": {"schema": 1, "taps": []},
            "caps": {"schema": 1, "capabilities": entries},
            "status": {"schema": 1, "daemon": {}},
        }
    )

    result = run("add", "git", "--url", "https://git.example/mcp")

    note = "note: `git` means octomind/git, which comes first; yours is own/git"
    assert note in result.stdout.splitlines()


def test_without_a_daemon_it_is_written_all_the_same(
    run: Callable[..., Result], home: Path
) -> None:
    added = run("add", "x", "--", "prog", "--json")
    removed = run("remove", "x")

    assert added.stdout.splitlines()[1:] == ["It will be loaded when the daemon starts."]
    assert removed.stdout == f"x: removed ({home}/config/own/capabilities/x)\n"
    assert (added.exit_code, removed.exit_code) == (0, 0)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("add",), 2, "Missing argument 'NAME'"),
        (("add", "x"), 1, "capd: a server has a command or a --url, one of the two"),
        (("add", "x", "npx", "-y", "pkg"), 2, "No such option"),
        (("remove", "x"), 1, "capd: no server named x was added"),
    ],
)
def test_a_mistake_is_a_line_with_a_remedy(
    run: Callable[..., Result], arguments: tuple[str, ...], code: int, said: str
) -> None:
    result = run(*arguments)

    assert said in result.stderr
    assert result.exit_code == code
    assert json.dumps(result.stderr).count("Traceback") == 0


@pytest.mark.parametrize("first", ["own", "tap"])
def test_what_was_taken_away_can_be_added_again(
    run: Callable[..., Result], home: Path, tmp_path: Path, first: str
) -> None:
    tap = tmp_path / "octomind-tap"
    (tap / "capabilities").mkdir(parents=True)
    add_and_remove = {
        "own": (("add", "a", "--", "true"), ("remove", "a")),
        "tap": (("tap", "add", str(tap)), ("tap", "remove", "octomind-tap")),
    }[first]
    for command in add_and_remove * 2:
        assert run(*command).exit_code == 0

    added = run("add", "b", "--", "true")
    second = run("tap", "add", str(tap))

    assert (added.exit_code, second.exit_code) == (0, 0)
    list_file = home / "config" / "taps.toml"
    assert tomllib.loads(list_file.read_text()) == {
        "taps": [
            {"name": "own", "path": str(home / "config" / "own")},
            {"name": "octomind-tap", "path": str(tap)},
        ]
    }
    assert run("tap", "list").exit_code == 0


def test_what_cannot_be_listed_leaves_no_definition_behind(tmp_path: Path) -> None:
    (tmp_path / "taps.toml").write_text("taps.x = 1\n")

    with pytest.raises(TapError):
        OwnTap(str(tmp_path)).add(OwnServer("a", ["true"]))

    assert OwnTap(str(tmp_path)).names() == []


def test_an_address_in_place_of_a_command_is_a_url(run: Callable[..., Result], home: Path) -> None:
    for _ in range(2):
        added = run("add", "issues", "https://example.org/mcp")

        assert added.exit_code == 0, added.stderr
        place = home / "config" / "own" / "capabilities" / "issues"
        (server,) = tomllib.loads((place / "default.toml").read_text())["mcp"]["servers"]
        assert server == {"name": "issues", "type": "http", "url": "https://example.org/mcp"}
        assert run("remove", "issues").exit_code == 0


def test_an_address_with_arguments_is_still_a_command(
    run: Callable[..., Result], home: Path
) -> None:
    run("add", "odd", "--", "https://example.org/mcp", "x")

    place = home / "config" / "own" / "capabilities" / "odd"
    (server,) = tomllib.loads((place / "default.toml").read_text())["mcp"]["servers"]
    assert (server["command"], server["args"]) == ("https://example.org/mcp", ["x"])
