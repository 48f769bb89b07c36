"""The table of clients is complete, and its paths are those that the clients use."""

from pathlib import Path

import pytest

from capd_client.install.documents import program_of, read_servers
from capd_client.install.known_clients import (
    KnownClient,
    ServersFile,
    expanded,
    known_client,
    known_clients,
)

CLIENTS = [pytest.param(each, id=each.id) for each in known_clients().values()]
EDITED = [pytest.param(each, id=each.id) for each in known_clients().values() if each.is_edited]
ENV = {"HOME": "/home/u", "PATH": "/nowhere"}
USER_FILES = {
    "claude": ".claude.json",
    "claude-desktop": ".config/Claude/claude_desktop_config.json",
    "codex": ".codex/config.toml",
    "gemini": ".gemini/settings.json",
    "qwen": ".qwen/settings.json",
    "opencode": ".config/opencode/opencode.json",
    "kilo": ".config/kilo/kilo.jsonc",
    "copilot": ".copilot/mcp-config.json",
    "vscode": ".config/Code/User/mcp.json",
    "vscode-insiders": ".config/Code - Insiders/User/mcp.json",
    "cursor": ".cursor/mcp.json",
    "windsurf": ".codeium/windsurf/mcp_config.json",
    "zed": ".config/zed/settings.json",
    "junie": ".junie/mcp/mcp.json",
    "cline": ".cline/data/settings/cline_mcp_settings.json",
    "cline-vscode": ".config/Code/User/globalStorage/saoudrizwan.claude-dev/settings/"
    "cline_mcp_settings.json",
    "roo": ".config/Code/User/globalStorage/rooveterinaryinc.roo-cline/settings/mcp_settings.json",
    "goose": ".config/goose/config.yaml",
    "continue": ".continue/config.yaml",
    "mcphub": ".config/mcphub/servers.json",
    "jetbrains": "",
    "codecompanion": "",
    "avante": "",
    "emacs": "",
}
"""Where clients keep their configuration on Linux."""


def test_every_client_is_there_with_its_own_file() -> None:
    files = {each.id: each.user_file(ENV) for each in known_clients().values()}

    found = {name: file and file.path.relative_to("/home/u") for name, file in files.items()}

    assert found == {name: Path(path) if path else None for name, path in USER_FILES.items()}


@pytest.mark.parametrize("client", EDITED)
def test_what_is_put_in_is_an_entry_of_the_clients_own_shape(client: KnownClient) -> None:
    command = client.entry[client.stdio.command]

    assert command == (["{launcher}"] if client.stdio.form == "line" else "{launcher}")
    assert program_of(client.entry) == "{launcher}"


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_has_a_file_or_words_for_a_person(client: KnownClient) -> None:
    has_file = bool(client.user and client.servers and client.entry)

    assert has_file == client.is_edited
    assert bool(client.by_hand) != client.is_edited


@pytest.mark.parametrize("client", EDITED)
@pytest.mark.parametrize("platform", ["linux", "darwin", "win32", "freebsd14"])
def test_every_system_has_a_path(client: KnownClient, platform: str) -> None:
    env = {**ENV, "APPDATA": "C:/Users/u/AppData/Roaming"}

    assert client.user_files(env, platform)


@pytest.mark.parametrize(
    ("path", "env", "expected"),
    [
        ("~/.x", {}, "/home/u/.x"),
        ("${X:-~}/.x", {}, "/home/u/.x"),
        ("${X:-~/.y}/x", {"X": "/else"}, "/else/x"),
        ("${X:-~/.y}/x", {"X": ""}, "/home/u/.y/x"),
        ("/etc/x", {}, "/etc/x"),
        ("${X}/x", {}, None),
    ],
)
def test_a_path_follows_the_environment(
    path: str, env: dict[str, str], expected: str | None
) -> None:
    assert expanded(path, {**ENV, **env}) == (expected and Path(expected))


@pytest.mark.parametrize(
    ("name", "expected"),
    [("claude-code", "claude"), ("Code", "vscode"), ("zed", "zed"), ("nobody", None)],
)
def test_a_client_is_found_by_any_of_its_names(name: str, expected: str | None) -> None:
    found = known_client(name)

    assert (found and found.id) == expected


def test_names_are_unique() -> None:
    names = [name for each in known_clients().values() for name in (each.id, *each.aliases)]

    assert len(names) == len(set(names))


def test_a_client_is_detected_by_program_folder_or_file(tmp_path: Path) -> None:
    env = {"HOME": str(tmp_path), "PATH": str(tmp_path / "bin")}
    lazy = tmp_path / ".local/share/nvim/site/pack/mine/start/codecompanion.nvim"
    (lazy / "lua").mkdir(parents=True)
    (lazy / "lua" / "init.lua").touch()
    (tmp_path / ".config/zed").mkdir(parents=True)
    (tmp_path / ".config/zed/settings.json").touch()
    (tmp_path / ".junie").mkdir()
    (tmp_path / ".junie" / "x.json").touch()
    (tmp_path / ".cline" / "data" / "settings").mkdir(parents=True)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/gemini").touch(mode=0o755)

    found = {each.id for each in known_clients().values() if each.is_detected(env)}

    assert found == {"gemini", "zed", "junie", "codecompanion"}


def test_the_files_of_a_project_are_those_of_its_folder(tmp_path: Path) -> None:
    client = known_clients()["continue"]
    folder = tmp_path / ".continue/mcpServers"
    folder.mkdir(parents=True)
    (folder / "b.json").touch()
    (folder / "a.yaml").touch()

    assert client.project_files(tmp_path) == (
        ServersFile(folder / "a.yaml", "yaml", "list", ("mcpServers",)),
        ServersFile(folder / "b.json", "jsonc", "map", ("mcpServers",)),
    )


@pytest.mark.parametrize(
    ("client", "text", "expected"),
    [
        ("codex", '[mcp_servers.a]\ncommand = "x"\n', {"a": {"command": "x"}}),
        ("zed", '{"context_servers": {"a": {}}} // no', {"a": {}}),
        ("goose", "extensions:\n  a: {cmd: x, args: [1]}\n", {"a": {"cmd": "x", "args": [1]}}),
        ("continue", "mcpServers:\n- name: a\n- b\n", {"a": {"name": "a"}}),
        ("cursor", "[]", {}),
        ("cursor", "", {}),
        ("continue", "mcpServers: !x {}\n", {}),
    ],
)
def test_servers_are_read_from_every_format(
    client: str, text: str, expected: dict[str, object]
) -> None:
    file = known_clients()[client].user_files(ENV)[0]

    assert read_servers(text, file) == expected
