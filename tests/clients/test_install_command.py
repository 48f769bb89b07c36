"""`capd install` and `uninstall` for one client, several, all, or none (they are listed)."""

import contextlib
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from capd_client.install import InstallError
from capd_client.install.client import Client
from capd_client.install.edits import FileEdit, make, plan_install, plan_uninstall, unmake
from capd_client.install.jsonc_edits import put, take
from capd_client.install.known_clients import known_clients
from capd_client.install.ledger import Ledger

from .installing import User

BROKEN = "a name in quotes or '}' was expected, not ','"
GOOSE = "GOOSE_PROVIDER: anthropic   # keep\n"


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made, contextlib.chdir(path.parent):
        made.bind(path.name)


@pytest.fixture
def user(tmp_path: Path) -> User:
    return User(tmp_path)


def test_all_that_are_found_get_capd_and_one_that_fails_stops_no_other(user: User) -> None:
    user.file(".cursor/mcp.json", "{,")
    user.file(".junie/mcp/mcp.json", "{}")
    user.file(".config/goose/config.yaml", GOOSE)
    user.file(".config/JetBrains/idea.options", "")

    said = user.capd("install", "--all")

    assert said.code == 1
    assert "JetBrains AI Assistant: by hand, as `capd install jetbrains` says\n" in said.out
    assert f"capd: {user.home}/.cursor/mcp.json, line 1: " in said.err
    assert said.err.endswith(
        "capd: not done for Cursor\nThe reasons are above; the others are done.\n"
    )
    assert "capd" in user.json(".junie/mcp/mcp.json")["mcpServers"]
    assert str(user.launcher) in (user.home / ".config/goose/config.yaml").read_text()
    assert (user.home / ".cursor/mcp.json").read_text() == "{,"


@pytest.mark.parametrize(("make", "what"), [(os.mkfifo, "a named pipe"), (make_socket, "a socket")])
def test_what_is_no_file_is_named_and_not_waited_for(
    user: User, make: Callable[[Path], None], what: str
) -> None:
    path = user.file(".cursor/mcp.json", "")
    path.unlink()
    make(path)

    said = user.capd("install", "cursor")

    assert said.code == 1
    assert f"{path}: it is {what}, not a file\n" in said.err


def test_a_file_that_is_a_link_to_itself_stops_no_other(user: User) -> None:
    path = user.file(".cursor/mcp.json", "{}")
    path.unlink()
    path.symlink_to(path)
    user.file(".junie/mcp/mcp.json", "{}")

    said = user.capd("install", "cursor", "junie")

    assert said.code == 1
    assert f"capd: {path}: Too many levels of symbolic links" in said.err
    assert "capd" in user.json(".junie/mcp/mcp.json")["mcpServers"]
    assert user.capd("import", "--dry-run").code == 0
    assert user.capd("uninstall", "cursor", "junie").code == 1


def test_all_that_have_capd_lose_it(user: User) -> None:
    user.file(".junie/mcp/mcp.json", "{}")
    user.file(".config/goose/config.yaml", GOOSE)
    before = user.snapshot()
    user.capd("install", "junie", "goose", "codex")

    said = user.capd("uninstall", "--all")

    assert (said.code, user.snapshot()) == (0, before)
    assert user.capd("uninstall", "--all").out == "No client has capd: no change\n"


def test_two_clients_whose_files_had_the_same_in_them_get_both_back(user: User) -> None:
    user.file(".gemini/settings.json", "{}")
    user.file(".qwen/settings.json", "{}")
    before = user.snapshot()
    user.capd("install", "gemini", "qwen")

    said = [user.capd("uninstall", client) for client in ("gemini", "qwen")]

    assert [(each.code, each.err) for each in said] == [(0, ""), (0, "")]
    assert (user.snapshot(), user.backups()) == (before, [])


def test_a_note_that_is_damaged_stops_no_other_from_losing_capd(user: User) -> None:
    user.capd("install", "junie", "zed")
    damaged = user.state / "install" / "zed.json"
    damaged.write_text("{")

    said = user.capd("uninstall", "--all")

    assert said.code == 1
    assert said.err.startswith(f"capd: {damaged} is damaged\n")
    assert list(user.snapshot()) == [".config/zed/settings.json"]


def test_without_its_backup_a_client_still_loses_capd_once_the_record_is_moved_away(
    user: User,
) -> None:
    config = user.file(".config/zed/settings.json", '{"theme": "one"}')
    user.capd("install", "zed")
    config.write_text(config.read_text().replace("one", "two"))
    for backup in user.backups():
        backup.unlink()
    record = user.state / "install" / "zed.json"

    refused = user.capd("uninstall", "zed")
    record.unlink()
    said = user.capd("uninstall", "zed")

    assert f"or move {record} away" in refused.err
    assert (refused.code, said.code, said.err) == (1, 0, "")
    assert "capd" not in config.read_text()
    assert '"theme": "two"' in config.read_text()


def test_where_no_client_is_found_that_is_said(user: User) -> None:
    user.more["PATH"] = str(user.bin)

    said = user.capd("install", "--all")

    assert (said.code, said.out) == (1, "")
    assert said.err == (
        "capd: no client was found here\n`capd install` lists those that capd knows.\n"
    )


def test_without_a_client_all_are_listed_with_how_they_are(user: User) -> None:
    user.more["PATH"] = str(user.bin)
    user.file(".cursor/mcp.json", "{,")
    user.file(".junie/mcp/mcp.json", "{}")
    user.capd("install", "zed")
    user.file(".config/goose/config.yaml", "extensions: {capd: {cmd: /x/capd-mcp, enabled: false}}")
    user.file(".codeium/windsurf/mcp_config.json", '{"mcpServers": {"capd": {"command": "x"}}}')

    said = user.capd("install")

    lines = [" ".join(line.split()) for line in said.out.splitlines()]
    assert lines[:6] == [
        "client state file",
        f"cursor Cursor cannot be read, line 1: {BROKEN} ~/.cursor/mcp.json",
        "windsurf Windsurf has a server of that name: x ~/.codeium/windsurf/mcp_config.json",
        "zed Zed has capd ~/.config/zed/settings.json",
        "junie JetBrains Junie does not have capd ~/.junie/mcp/mcp.json",
        "goose Goose has capd, switched off ~/.config/goose/config.yaml",
    ]
    assert said.out.count("not found here") == len(known_clients()) - 5


def test_a_client_that_the_user_has_switched_off_stays_so_and_that_is_said(user: User) -> None:
    user.capd("install", "zed")
    settings = user.home / ".config/zed/settings.json"
    settings.write_text(settings.read_text().replace("true", "false"))

    said = user.capd("install", "zed")

    assert said.out == (
        "Zed has capd already: no change\n"
        f"It is switched off there: {settings} has enabled = false\n"
    )


def test_continues_older_file_is_not_put_out_of_use(user: User) -> None:
    older = user.file(".continue/config.json", "{}")

    said = user.capd("install", "continue")

    assert said.code == 1
    assert said.err.startswith(f"capd: Continue reads {older}, but no longer if ")
    assert list(user.snapshot()) == [".continue/config.json"]


def test_a_client_is_known_by_its_other_names_and_a_near_one_is_named(user: User) -> None:
    assert user.capd("install", "Claude-Code", "--dry-run").code == 0

    said = user.capd("install", "windsurfer")

    assert said.code == 2
    assert "Did you mean windsurf? `capd install` lists them." in said.err


def test_a_server_and_a_hook_in_one_file_are_put_in_together(user: User) -> None:
    path = user.file(".gemini/settings.json", '{"a": 1}')
    client = Client(known_clients()["gemini"], {"HOME": str(user.home)}, user.launcher)
    hook = FileEdit(
        path, lambda text: put(text, ("hooks",), []), lambda text, _: take(text, ("hooks",))
    )
    edits = [*client.edits()[:1], hook]
    ledger = Ledger(user.state, "gemini")

    with ledger.locked():
        [change] = plan_install(ledger, edits)
        make(ledger, change)

    assert user.json(".gemini/settings.json") == {
        "a": 1,
        "mcpServers": {"capd": {"command": str(user.launcher), "args": []}},
        "hooks": [],
    }
    path.write_text(path.read_text() + "\n")
    [back] = plan_uninstall(ledger, edits)
    unmake(ledger, back)
    assert path.read_text() == '{"a": 1}\n'


@pytest.mark.parametrize("name", ["mcp.json", "settings.jsonc", "config.toml", "config.yaml"])
def test_a_text_that_its_client_could_not_read_is_never_written(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    file.write_text("")
    broken = "a: [1, 2\n" if name.endswith("yaml") else "{ = [\n"
    ledger = Ledger(tmp_path / "state", "cursor")

    with pytest.raises(InstallError, match="Nothing was changed"):
        plan_install(ledger, [FileEdit(file, lambda _: broken, lambda text, _: text)])

    assert file.read_text() == ""
