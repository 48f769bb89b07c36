"""`capd import --replace` makes clients start capd instead; it can be undone."""

import json
import stat
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from capd_client.install.edits import FileChange
from whole_daemon import Home

from .importing import SECRETS, Importer


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Importer:
    made = Importer(tmp_path)
    monkeypatch.chdir(made.project)
    return made


@pytest.fixture
def few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Importer:
    made = Importer(tmp_path, samples=False)
    monkeypatch.chdir(made.project)
    return made


def files(user: Importer) -> dict[Path, bytes]:
    """Return every file of the clients and of the project, with its bytes."""
    found = [*user.home.rglob("*"), *user.project.rglob("*")]
    return {path: path.read_bytes() for path in found if path.is_file()}


def loaded(path: Path) -> Any:
    text = path.read_text()
    if path.suffix == ".toml":
        return tomllib.loads(text)
    return yaml.safe_load(text) if path.suffix == ".yaml" else json.loads(text)


def test_each_client_starts_capd_and_nothing_that_was_imported(user: Importer) -> None:
    project = {
        path: data for path, data in files(user).items() if path.is_relative_to(user.project)
    }

    said = user.capd("import", "--project", "--replace", "--yes")

    again = json.loads(user.capd("import", "--project", "--dry-run", "--json").out)
    left = {each["file"] for server in again["servers"] for each in server["from"]}
    assert (said.code, said.err) == (0, "")
    assert left == {str(user.project / ".mcp.json"), str(user.project / ".roo/mcp.json")}
    assert [path for path, data in project.items() if path.read_bytes() != data] == []
    assert "capd-mcp" in (user.home / ".continue/config.yaml").read_text()
    assert list(tomllib.loads((user.home / ".codex/config.toml").read_text())["mcp_servers"]) == [
        "old",
        "capd",
    ]
    assert (user.home / ".codex/config.toml").read_text().startswith("# The model that I like.\n")


def test_undone_every_file_is_byte_for_byte_as_it_was(user: Importer) -> None:
    before = files(user)
    user.capd("import", "--replace", "--yes")
    between = files(user)

    said = user.capd("import", "--undo")

    assert (said.code, said.err) == (0, "")
    assert between != before
    assert files(user) == before


@pytest.mark.parametrize("client", ["codex", "gemini", "opencode", "goose", "continue", "cursor"])
def test_uninstalling_capd_brings_the_servers_of_that_client_back(
    user: Importer, client: str
) -> None:
    before = files(user)
    user.capd("import", client, "--replace", "--yes")
    between = files(user)

    said = user.capd("uninstall", client)

    assert (said.code, said.err) == (0, "")
    assert between != before
    assert files(user) == before


@pytest.mark.parametrize("client", ["codex", "opencode", "goose", "continue", "cursor"])
def test_a_dry_run_of_uninstall_shows_the_servers_that_come_back(
    user: Importer, client: str
) -> None:
    user.capd("import", client, "--replace", "--yes")
    between = files(user)

    said = user.capd("uninstall", client, "--dry-run")

    assert (said.code, said.err, files(user)) == (0, "", between)
    user.capd("uninstall", client)
    changes = [FileChange(path, data, files(user).get(path)) for path, data in between.items()]
    shown = [change.diff() for change in changes if change.path.is_relative_to(user.home)]
    assert sorted(said.out.splitlines()) == sorted("".join(shown).splitlines())


def test_capd_stays_where_it_was_before(few: Importer) -> None:
    path = few.servers(one={"command": "one"})
    few.capd("install", "cursor")
    before = path.read_bytes()
    few.capd("import", "--replace", "--yes")

    few.capd("import", "--undo")

    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "name", [".codex/config.toml", ".continue/config.yaml", ".cursor/mcp.json"]
)
def test_a_file_that_was_changed_since_gets_back_what_it_lacks(user: Importer, name: str) -> None:
    path = user.home / name
    key = "mcp_servers" if path.suffix == ".toml" else "mcpServers"
    before = loaded(path)[key]
    user.capd("import", "--replace", "--yes")
    mine = {".toml": "mine = 1\n", ".yaml": "mine: 1\n", ".json": '{"mine": 1, '}[path.suffix]
    path.write_text(mine + path.read_text().removeprefix("{" if path.suffix == ".json" else ""))

    said = user.capd("import", "--undo")

    after = loaded(path)
    assert (said.code, said.err) == (0, "")
    assert sorted(map(repr, after[key])) == sorted(map(repr, before))
    assert after["mine"] == 1


def test_the_copies_are_their_owners_alone_and_go_when_that_is_said(user: Importer) -> None:
    user.capd("import", "--replace", "--yes")
    copies = list((user.capd_home / "state" / "install").glob("*.backup"))

    said = user.capd("import", "--forget", "--yes")

    kept = [path for path in (user.capd_home / "state").rglob("*") if path.is_file()]
    assert copies
    assert {stat.S_IMODE(path.stat().st_mode) for path in kept} <= {0o600, 0o644}
    assert (said.code, said.err) == (0, "")
    assert list((user.capd_home / "state" / "install").glob("*.backup")) == []
    assert [s for s in SECRETS for path in kept if s.encode() in path.read_bytes()] == []
    assert user.capd("import", "--undo").out == "No import has removed servers: no change\n"


def copies(user: Importer) -> list[Path]:
    return sorted((user.capd_home / "state" / "install").glob("*.backup"))


def replaced_with_a_change_after_it(few: Importer) -> Path:
    """Return Cursor's file, a server of which was taken out before the user added another."""
    path = few.servers(one={"command": "one", "env": {"API_KEY": "secret-value"}})
    few.capd("import", "--replace", "--yes")
    servers = json.loads(path.read_text())["mcpServers"]
    few.servers(**servers, two={"command": "two"})
    return path


def test_a_copy_that_another_takes_the_place_of_goes(few: Importer) -> None:
    path = replaced_with_a_change_after_it(few)

    few.capd("import", "--replace", "--yes")

    (kept,) = [each for each in copies(few) if each.name.startswith("import.")]
    assert sorted(json.loads(kept.read_text())["mcpServers"]) == ["capd", "one", "two"]
    assert list(json.loads(path.read_text())["mcpServers"]) == ["capd"]


@pytest.mark.parametrize("between", ["--replace", "--undo"])
def test_no_copy_is_left_that_nothing_would_put_back(few: Importer, between: str) -> None:
    replaced_with_a_change_after_it(few)
    few.capd("import", between, *(["--yes"] if between == "--replace" else []))
    there = copies(few)

    said = few.capd("import", "--forget", "--yes")

    assert there
    assert (said.code, said.err) == (0, "")
    assert said.out.splitlines() == [f"{path}: removed" for path in there]
    assert copies(few) == []


def test_what_capd_install_keeps_of_another_client_stays(few: Importer) -> None:
    junie = few.servers(".junie/mcp/mcp.json")
    before = junie.read_bytes()
    few.capd("install", "junie")
    few.servers(one={"command": "one"})
    few.capd("import", "--replace", "--yes")
    kept = [path for path in copies(few) if path.name.startswith("junie.")]

    few.capd("import", "--forget", "--yes")

    assert copies(few) == kept != []
    assert few.capd("uninstall", "junie").code == 0
    assert junie.read_bytes() == before


def test_no_copy_is_removed_while_a_note_of_them_cannot_be_read(few: Importer) -> None:
    few.servers(one={"command": "one"})
    few.capd("import", "--replace", "--yes")
    damaged = few.capd_home / "state" / "install" / "zed.json"
    damaged.write_text("{")
    there = copies(few)

    said = few.capd("import", "--forget", "--yes")

    assert (said.code, said.err.splitlines()[0]) == (1, f"capd: {damaged} is damaged")
    assert copies(few) == there != []


def test_what_is_replaced_is_only_shown_in_a_dry_run(user: Importer) -> None:
    before = files(user)

    said = user.capd("import", "--replace", "--dry-run")

    assert said.code == 0
    assert "~/.cursor/mcp.json: loses GitHub, linear; Cursor gets capd\n" in said.out
    assert files(user) == before


def test_one_file_that_cannot_be_edited_leaves_the_others_alone(few: Importer) -> None:
    # Of two of one name the last counts: without it the first would be started.
    twice = few.file(
        ".cursor/mcp.json",
        '{"mcpServers": {"a": {"command": "first"}, "a": {"command": "second"}}}',
    )
    good = few.servers(".junie/mcp/mcp.json", b={"command": "b"})

    said = few.capd("import", "--replace", "--yes")

    assert (said.code, said.err.splitlines()) == (
        1,
        [
            f"capd: {twice} is written in a way that capd cannot edit safely",
            "Its servers stay in it. Remove them by hand.",
            "capd: not replaced in cursor",
            "The reasons are above; the others are done.",
        ],
    )
    assert '"command": "second"' in twice.read_text()
    assert list(json.loads(good.read_text())["mcpServers"]) == ["capd"]
    assert list(few.catalog()) == ["a", "b"]


def test_servers_that_are_left_out_stay_where_they_are(few: Importer) -> None:
    path = few.servers(good={"command": "good"}, bad={"type": "ws", "url": "wss://x"})

    few.capd("import", "--replace", "--yes")

    assert list(json.loads(path.read_text())["mcpServers"]) == ["bad", "capd"]


def test_with_nobody_to_ask_nothing_is_taken_out(few: Importer) -> None:
    path = few.servers(one={"command": "one"})
    few.capd("import", "--yes")
    before = path.read_bytes()

    said = few.capd("import", "--replace")

    assert (said.code, said.err.splitlines()[0]) == (
        1,
        "capd: nothing was replaced: there is nobody to ask",
    )
    assert path.read_bytes() == before


@pytest.mark.parametrize(("typed", "is_kept"), [("y\ny\nn\n", True), ("y\ny\ny\n", False)])
def test_at_a_terminal_each_step_is_asked_for(few: Importer, *, typed: str, is_kept: bool) -> None:
    path = few.servers(one={"command": "one", "env": {"API_KEY": "secret-value"}})
    home = Home(few.capd_home)
    home.env |= few.env

    done = home.at_terminal("import", "--replace", typed=typed)

    assert done.returncode == 0, done.stdout
    assert list(json.loads(path.read_text())["mcpServers"]) == ["capd"]
    assert few.secrets() == {"API_KEY": "secret-value"}
    assert bool(list((few.capd_home / "state" / "install").glob("*.backup"))) is is_kept
    assert "secret-value" not in done.stdout


@pytest.mark.parametrize("typed", ["n\n", "\n", "y\nn\n"])
def test_who_says_no_keeps_the_clients_as_they_are(few: Importer, typed: str) -> None:
    path = few.servers(one={"command": "one"})
    before = path.read_bytes()
    home = Home(few.capd_home)
    home.env |= few.env

    home.at_terminal("import", "--replace", typed=typed)

    assert path.read_bytes() == before
    assert (few.config / "own").exists() is (typed == "y\nn\n")
