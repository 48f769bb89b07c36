"""`capd tap export` writes the same capabilities without the user's secrets."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from capd_client.mcp_registry.record import SourceRecord
from whole_daemon import PLAIN_SERVER, Home, home_of_its_own, wait_for

STORED = "stored-in-the-file-of-secrets"
OF_ENV = "ghp_0123456789abcdefghijABCDEFGHIJ"
OF_NAME = "a plain word, but of a name that says it"
OF_ARGUMENT = "argument-behind-a-flag"
OF_HEADER = "header-of-a-request"
OF_ADDRESS = "password-in-an-address"
OF_TRIGGER = "kept-in-the-environment-only"
PLANTED = (STORED, OF_ENV, OF_NAME, OF_ARGUMENT, OF_HEADER, OF_ADDRESS, OF_TRIGGER)


@pytest.fixture
def shared(home: Home) -> Path:
    """Fill a home with servers of every kind, secrets planted in them, and export it."""
    config = home.folder / "config"
    (config / "secrets.env").write_text(f"NOTES_TOKEN={STORED}\n")
    (config / "secrets.env").chmod(0o600)
    home.env["LONELY"] = OF_TRIGGER
    command = [sys.executable, "-I", str(PLAIN_SERVER), home.tag]
    add(home, "notes", "--env", "NOTES_TOKEN", "--env", f"OTHER={STORED}", "--", *command)
    add(home, "github", "--env", f"ANY={OF_ENV}", "--env", "MODE=fast", "--", *command)
    add(home, "named", "--env", f"API_KEY={OF_NAME}", "--", *command, "--token", OF_ARGUMENT)
    add(home, "second", "--env", f"API_KEY={OF_NAME}2", "--env", "LONELY", "--", *command)
    url = f"https://me:{OF_ADDRESS}@example.test/mcp"
    add(home, "remote", "--url", url, "--header", f"Authorization: Bearer {OF_HEADER}")
    of_registry(home, "npm-one", "npm:@example/one@1.2.3", "npx", "-y", "--package=file:{}")
    of_registry(home, "pypi-one", "pypi:one-mcp@4.5.6", "uvx", "--from", "{}")
    folder = config / "overlays/mine"
    (folder / "capabilities").mkdir(parents=True)
    (folder / "overlay.toml").write_text('tap = "own"\n')
    (folder / "capabilities/notes.toml").write_text(
        f'triggers = ["look {OF_TRIGGER} up", "what did I write down"]\n'
        '[tool."notes:echo"]\nname = "say"\n'
        f'[tool."notes:echo".arguments.text]\nname = "what"\ndescription = "Not {STORED}."\n'
    )
    done = home.capd("tap", "export", "shared")
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    return home.folder / "shared"


def add(home: Home, name: str, *arguments: str) -> None:
    done = home.capd("add", name, *arguments)
    assert done.returncode == 0, done.stderr


def of_registry(home: Home, name: str, package: str, *words: str) -> None:
    """Define a server as `capd add io.github.x/y` leaves it."""
    file = home.folder / "data/packages" / ("0" * 64) / "package.tgz"
    add(home, name, "--", *(word.format(file) for word in words), "--", "one-mcp", "--fast")
    record = SourceRecord(f"io.github.x/{name}", "1.2.3", "https://r", "npm", package, "sha256-0")
    place = home.folder / "config/own/capabilities" / name
    (place / "registry.json").write_text(record.text())


def test_no_file_has_a_secret_or_a_path_of_a_package(home: Home, shared: Path) -> None:
    files = [file for file in shared.rglob("*") if file.is_file()]

    text = "\n".join(file.read_text() for file in files)

    assert len(files) == 14
    assert [secret for secret in PLANTED if secret in text] == []
    assert str(home.folder / "data") not in text
    assert {file.name for file in files} == {"config.toml", "default.toml"}


def test_packages_are_named_and_secrets_are_keys(shared: Path) -> None:
    def of(name: str) -> str:
        return (shared / f"capabilities/{name}/default.toml").read_text()

    assert '"--package=@example/one@1.2.3"' in of("npm-one")
    assert '"--from", "one-mcp==4.5.6"' in of("pypi-one")
    assert 'NOTES_TOKEN = "{{ENV:NOTES_TOKEN}}"' in of("notes")
    assert 'OTHER = "{{ENV:NOTES_TOKEN}}"' in of("notes")
    assert 'API_KEY = "{{ENV:API_KEY}}"' in of("named")
    # Another value has another key.
    assert 'API_KEY = "{{ENV:SECOND_API_KEY}}"' in of("second")
    assert 'MODE = "fast"' in of("github")


def test_capd_check_has_no_error_and_a_fresh_home_has_the_same_capabilities(
    home: Home, shared: Path
) -> None:
    checked = home.capd("check", str(shared))
    home.start()
    before = capabilities(home, "own")
    with home_of_its_own(is_shipped=False) as fresh:
        assert fresh.capd("tap", "add", str(shared), "--name", "team").returncode == 0
        fresh.env["NOTES_TOKEN"] = "mine"
        fresh.start()
        after = capabilities(fresh, "team")
        with fresh.shim("e") as editor:
            assert fresh.ask("enable", session="e", name="notes")["ok"]
            said = editor.call("notes__say", {"what": "hello"})["content"][0]["text"]

    assert checked.returncode == 0, checked.stdout
    assert after.keys() == before.keys()
    for name, (triggers, servers) in before.items():
        assert after[name][1] == servers
        assert after[name][0][: len(triggers)] == triggers
    assert "what did I write down" in after["notes"][0]
    assert said.endswith("hello")


def capabilities(home: Home, tap: str) -> dict[str, tuple[list[str], Any]]:
    """Return triggers and servers of the capabilities of a tap."""

    def listed() -> dict[str, tuple[list[str], Any]]:
        found = home.ask("caps")["capabilities"]
        return {
            each["name"]: (each["triggers"], each["servers"])
            for each in found
            if each["tap"] == tap and each["routable"]
        }

    return wait_for(listed)


def test_an_export_is_refused_where_something_is_and_where_there_is_nothing(home: Home) -> None:
    nothing = home.capd("tap", "export", "shared")
    add(home, "notes", "--", "true")
    (home.folder / "full").mkdir()
    (home.folder / "full/file").touch()
    taken = home.capd("tap", "export", "full")
    broken = home.folder / "config/own/capabilities/broken"
    broken.mkdir()
    (broken / "config.toml").write_text("triggers = [")
    partly = home.capd("tap", "export", "partly")

    assert (nothing.returncode, taken.returncode, partly.returncode) == (1, 1, 1)
    assert "there is nothing to export" in nothing.stderr
    assert "is there already, and not empty" in taken.stderr
    assert "broken: left out: " in partly.stdout
    assert (home.folder / "partly/capabilities/notes/default.toml").exists()
    assert not (home.folder / "partly/capabilities/broken").exists()


def test_a_skill_with_a_secret_is_left_out_and_one_without_is_not(home: Home) -> None:
    add(home, "notes", "--", "true")
    for name, text in (("good", "Write it down."), ("bad", f"Use {OF_ENV}.")):
        folder = home.folder / "config/own/skills" / name
        folder.mkdir(parents=True)
        head = f"---\nname: {name}\ndescription: Notes.\n---\n"
        (folder / "SKILL.md").write_text(f"{head}{text}\n")

    done = home.capd("tap", "export", "shared")

    assert "skills/bad/SKILL.md: left out: it has what looks like a secret" in done.stdout
    assert [file.parent.name for file in (home.folder / "shared/skills").rglob("*.md")] == ["good"]


PAGE = Path(__file__).parents[2] / "docs" / "taps.md"


def test_the_lines_of_the_page_can_be_typed(home: Home) -> None:
    section = PAGE.read_text().partition("## Sharing what you have")[2].partition("\n## ")[0]
    lines = [line.strip() for line in section.splitlines() if line.startswith("    capd ")]
    home.start()

    for line in lines:
        words = line.replace("notes-server", f"{sys.executable} -I {PLAIN_SERVER} {home.tag}")
        done = home.capd(*words.replace("~/", f"{home.folder}/").split()[1:])
        assert done.returncode == 0, f"{line}: {done.stdout}{done.stderr}"

    assert [line.split()[1] for line in lines] == ["add", "index", "tool", "tap", "check"]
    assert json.loads(home.capd("check", "taps/shared", "--json").stdout)["errors"] == 0
