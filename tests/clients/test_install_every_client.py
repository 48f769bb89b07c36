"""`capd install` for every client with a servers file, on realistic files."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from capd_client.install import UnreadableError
from capd_client.install.documents import read_document, read_servers
from capd_client.install.known_clients import KnownClient, ServersFile, known_clients
from capd_client.install.plain_data import found, with_value
from capd_client.install.server_entry import ServerEntry

from .installing import User

LAUNCHER = Path("/home/u/.local/share/capd/bin/capd-mcp")
EDITED = [each for each in known_clients().values() if each.is_edited]
BY_HAND = [each for each in known_clients().values() if not each.is_edited]

TOML = """\
# mine
model = "o5"   # keep

[mcp_servers.other]
command = 'x' # still used
args = [
    "a", # first
]

[mcp_servers.other.env]
TOKEN = "t"

# about the rest
[features]
nested = {deep = {er = 1}}
"""
GOOSE = """\
# mine
GOOSE_PROVIDER: anthropic   # keep
extensions:
    other:
        type: stdio
        cmd: 'x' # still used
        args: ["a"]
        envs:
            TOKEN: t
    # about nobody

unknown: {deep: {er: [1, 2]}}
text: |
    # no comment

    end
"""
CONTINUE = """\
# mine
name: Mine   # keep
version: 1.0.0
schema: v1
models:
  - name: m
    apiKey: ${{ secrets.KEY }}
mcpServers:
  - name: other
    command: 'x' # still used
    args:
      - a
    env:
      TOKEN: t
# about the rest
unknown: {deep: {er: [1, 2]}}
"""


def entry(client: KnownClient) -> ServerEntry:
    return ServerEntry(client, file(client), LAUNCHER)


def file(client: KnownClient) -> ServersFile:
    found_file = client.user_file({"HOME": "/home/u"})
    assert found_file is not None
    return found_file


def whole(client: KnownClient) -> dict[str, Any]:
    text = json.dumps({**client.entry, **client.defaults})
    written: dict[str, Any] = json.loads(text.replace("{launcher}", str(LAUNCHER)))
    return written


def usual(client: KnownClient) -> str:
    """Return a file with another server, comments where the client takes them, unknown keys."""
    if client.format == "toml":
        return TOML
    if client.format == "yaml":
        return CONTINUE if client.layout == "list" else GOOSE
    servers: Any = {"other": {"command": "x", "args": ["a"], "env": {"TOKEN": "t"}}}
    for key in reversed(client.servers):
        servers = {key: servers}
    data = {"theme": "dark", **servers, "unknown": {"deep": {"er": [1, 2]}}}
    text = json.dumps(data, indent=4) + "\n"
    if client.format == "jsonc":
        text = text.replace('"dark",', '"dark", // keep').replace("{\n", "{\n    // mine\n", 1)
    return text


def empty(client: KnownClient) -> str:
    return "{}\n" if client.format in ("json", "jsonc") else "# nothing yet\n"


def without_servers(client: KnownClient) -> str:
    return {"toml": "a = 1\n", "yaml": "a: 1\n"}.get(client.format, '{\n  "a": 1\n}\n')


SAMPLES = {
    "usual": usual,
    "empty": empty,
    "without servers": without_servers,
    "windows": lambda client: usual(client).replace("\n", "\r\n"),
    "with a mark": lambda client: "\ufeff" + usual(client),
    "with a mark, windows": lambda client: "\ufeff" + usual(client).replace("\n", "\r\n"),
    "without an end": lambda client: without_servers(client).rstrip("\n"),
}
samples = pytest.mark.parametrize("sample", SAMPLES.values(), ids=list(SAMPLES))
edited = pytest.mark.parametrize("client", EDITED, ids=[each.id for each in EDITED])


@edited
@samples
def test_the_entry_comes_in_and_nothing_else_moves(client: KnownClient, sample: Any) -> None:
    text = sample(client)

    after = entry(client).add(text)

    before = read_document(text, client.format)
    place: Any = found(before, client.servers)
    place = [*(place or []), whole(client)] if client.layout == "list" else None
    path = client.servers if client.layout == "list" else (*client.servers, "capd")
    expected = with_value(before, path, place or whole(client))
    assert read_document(after, client.format) == expected
    left = iter(after.splitlines())
    # A comma may have come behind what was the last member.
    kept = (line.rstrip(",{}") for line in text.splitlines())
    assert all(any(line in each for each in left) for line in kept)
    assert after.startswith("\ufeff") == text.startswith("\ufeff")
    assert after.count("\n") == after.count("\r\n") or "\r" not in text


@edited
@samples
def test_a_second_time_changes_nothing(client: KnownClient, sample: Any) -> None:
    once = entry(client).add(sample(client))

    assert entry(client).add(once) == once


@edited
@samples
def test_the_entry_goes_and_leaves_the_text_as_it_was(client: KnownClient, sample: Any) -> None:
    text = sample(client)
    installed = entry(client).add(text)

    assert entry(client).remove(installed, text) == text


@edited
def test_of_a_text_that_was_changed_since_only_the_entry_goes(client: KnownClient) -> None:
    text = usual(client)
    installed = entry(client).add(text)

    after = entry(client).remove(installed.replace("TOKEN", "KEY"), text)

    assert after == text.replace("TOKEN", "KEY")


@edited
def test_what_the_user_added_or_switched_in_the_entry_stays(client: KnownClient) -> None:
    own = {**whole(client), "mine": {"A": "1"}, **client.off}
    own = {key: [] if key in ("tools", "env_vars") else value for key, value in own.items()}
    item: Any = [own] if client.layout == "list" else {"capd": own}
    text = written(client, with_value({}, client.servers, item))
    moved = text.replace(str(LAUNCHER), "/old/bin/capd-mcp")

    after = entry(client).add(moved)

    assert read_servers(after, file(client)) == {"capd": own}
    assert entry(client).is_off(after) == bool(client.off)


@edited
def test_a_server_of_that_name_that_is_not_capds_comes_back(client: KnownClient) -> None:
    theirs = {"name": "capd", client.stdio.command: "/opt/theirs", "args": ["x"]}
    item: Any = [theirs] if client.layout == "list" else {"capd": theirs}
    text = written(client, with_value({}, client.servers, item))
    installed = entry(client).add(text)
    assert read_servers(installed, file(client)) == {"capd": whole(client)}

    after = entry(client).remove(installed, text)

    assert read_servers(after, file(client)) == {"capd": theirs}
    assert entry(client).remove(text, None) == text


def written(client: KnownClient, data: Any) -> str:
    """Return `data` in the client's format, as JSON if that is part of the format."""
    if client.format != "toml":
        return json.dumps(data, indent=2)
    name, table = "mcp_servers.capd", found(data, ("mcp_servers", "capd"))
    lines = [f"{key} = {toml(value)}" for key, value in table.items()]
    return "\n".join([f"[{name}]", *lines, ""])


def toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {toml(each)}" for key, each in value.items()) + "}"
    return json.dumps(value)


BROKEN = {"toml": "a = 1\n[b\n", "yaml": "a: 1\nb: [\n"}


@edited
def test_a_broken_file_is_refused_with_its_line(client: KnownClient) -> None:
    with pytest.raises(UnreadableError) as caught:
        entry(client).add(BROKEN.get(client.format, '{\n  "a" 1}'))

    assert caught.value.line in (2, 3)
    assert str(caught.value)


WRONG = {"toml": 'mcp_servers = "x"\n', "yaml": "extensions: x\nmcpServers: x\n"}


@edited
def test_something_else_in_the_place_of_the_servers_is_refused(client: KnownClient) -> None:
    text = WRONG.get(client.format) or json.dumps(with_value({}, client.servers, "x"))

    with pytest.raises(UnreadableError, match="is not a"):
        entry(client).add(text)


@pytest.fixture
def user(tmp_path: Path) -> User:
    return User(tmp_path)


def place(client: KnownClient, user: User) -> str:
    target = client.user_file({"HOME": str(user.home)})
    assert target is not None
    return target.path.relative_to(user.home).as_posix()


@edited
def test_installed_twice_and_taken_out_every_file_is_as_it_was(
    client: KnownClient, user: User
) -> None:
    user.file(place(client, user), usual(client)).chmod(0o640)
    before = user.snapshot()

    said = [user.capd(verb, client.id) for verb in ("install", "install", "uninstall")]

    assert [each.code for each in said] == [0, 0, 0]
    expected = "\n".join(
        [f"{client.title} has capd from its next start on", *client.after.splitlines()]
    )
    assert said[0].out.endswith(f"{expected}\n")
    assert said[1].out == f"{client.title} has capd already: no change\n"
    assert user.snapshot() == before
    assert (user.home / place(client, user)).stat().st_mode & 0o777 == 0o640
    assert user.backups() == []


@edited
def test_a_file_that_was_not_there_is_gone_again(client: KnownClient, user: User) -> None:
    said = user.capd("install", client.id)
    assert "once it is here: it was not found" in said.out
    assert place(client, user) in user.snapshot()

    user.capd("uninstall", client.id)

    assert user.snapshot() == {}


@edited
def test_a_dry_run_is_a_diff_of_the_clients_file(client: KnownClient, user: User) -> None:
    path = user.file(place(client, user), usual(client))
    before = user.snapshot()

    said = user.capd("install", client.id, "--dry-run")

    assert f"--- {path}\n+++ {path}\n" in said.out
    assert str(user.launcher) in said.out
    assert user.snapshot() == before
    assert not user.launcher.exists()


@pytest.mark.parametrize("client", BY_HAND, ids=[each.id for each in BY_HAND])
def test_what_a_person_has_to_put_in_is_printed_and_nothing_changed(
    client: KnownClient, user: User
) -> None:
    said = user.capd("install", client.id)

    assert said.code == 0
    assert "nothing was changed" in said.out
    assert user.snapshot() == {}
    assert os.access(user.launcher, os.X_OK)
    assert client.id == "avante" or f'"{user.launcher}"' in said.out


@pytest.mark.parametrize(("client", "plugin"), [("codecompanion", "nvim"), ("emacs", "emacs")])
def test_who_puts_it_in_by_hand_is_told_of_the_plugin_that_hears_the_user(
    client: str, plugin: str, user: User
) -> None:
    said = user.capd("install", client)

    assert f"capd plugin {plugin}" in said.out
