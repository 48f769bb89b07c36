"""`capd install opencode`: its commented configuration and the plugin."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from capd_client.install import InstallError
from capd_client.install.edits import FileChange, make
from capd_client.install.ledger import Ledger

from .installing import User

FOLDER = ".config/opencode"
PLUGIN = f"{FOLDER}/plugin/capd.js"
COMMENTED = """\
{
  // which one to use
  "model": "anthropic/claude-opus-5-5",
  "mcp": {
    "mine": {"type": "local", "command": ["x"]}, // mine
  },
}
"""


@pytest.fixture
def user(tmp_path: Path) -> User:
    return User(tmp_path)


def test_a_user_without_files_gets_the_server_and_the_plugin(user: User) -> None:
    user.capd("install", "opencode")

    server = {"type": "local", "command": [str(user.launcher)], "enabled": True}
    schema = "https://opencode.ai/config.json"
    assert user.json(f"{FOLDER}/opencode.json") == {"$schema": schema, "mcp": {"capd": server}}
    assert "CapdPlugin" in (user.home / PLUGIN).read_text()


def test_the_commented_file_is_taken_where_there_are_both(user: User) -> None:
    plain = user.file(f"{FOLDER}/opencode.json", "{}")
    commented = user.file(f"{FOLDER}/opencode.jsonc", COMMENTED)

    user.capd("install", "opencode")

    assert plain.read_text() == "{}"
    lines = commented.read_text().splitlines()
    assert [line for line in COMMENTED.splitlines() if line not in lines] == []
    assert '    "capd": {' in lines


def test_nothing_is_left_of_an_installation_that_nobody_touched(user: User) -> None:
    user.file(f"{FOLDER}/opencode.jsonc", COMMENTED)
    before = user.snapshot()
    user.capd("install", "opencode")
    assert user.capd("install", "opencode").out == "opencode has capd already: no change\n"

    user.capd("uninstall", "opencode")

    assert user.snapshot() == before


def test_of_a_file_that_was_touched_only_capd_is_taken_out(user: User) -> None:
    config = user.file(f"{FOLDER}/opencode.jsonc", COMMENTED)
    user.capd("install", "opencode")
    config.write_text(config.read_text().replace("which one", "whichever"))

    user.capd("uninstall", "opencode")

    assert config.read_text() == COMMENTED.replace("which one", "whichever")


def test_capd_goes_from_the_file_that_it_is_in_where_another_has_come_since(user: User) -> None:
    user.file(f"{FOLDER}/opencode.json", "{}")
    user.capd("install", "opencode")
    user.file(f"{FOLDER}/opencode.jsonc", COMMENTED)

    said = user.capd("uninstall", "opencode")

    assert (said.code, said.err) == (0, "")
    assert user.snapshot() == {
        f"{FOLDER}/opencode.json": b"{}",
        f"{FOLDER}/opencode.jsonc": COMMENTED.encode(),
    }


FETCHED = '{\n  "dependencies": {\n    "@opencode-ai/plugin": "1.18.33"\n  }\n}\n'
"""What opencode 1.18.33 writes when it finds a plugin."""


def test_what_opencode_fetched_for_the_plugin_goes_with_it(user: User) -> None:
    before = user.snapshot()
    user.capd("install", "opencode")
    user.file(".config/opencode/package.json", FETCHED)
    user.file(".config/opencode/package-lock.json", "{}")
    user.file(".config/opencode/node_modules/zod/index.js", "")

    said = user.capd("uninstall", "opencode")

    assert (said.code, user.snapshot()) == (0, before)
    assert not (user.home / PLUGIN).parent.exists()


@pytest.mark.parametrize(
    ("package", "beside"),
    [
        (FETCHED, "plugin/mine.js"),
        (FETCHED, "tool/mine.ts"),
        (FETCHED.replace('1.18.33"', '1.18.33", "zod": "4"'), "notes.md"),
        ("not JSON", "notes.md"),
    ],
)
def test_packages_that_the_user_may_need_stay(user: User, package: str, beside: str) -> None:
    user.file(f".config/opencode/{beside}", "mine")
    user.file(".config/opencode/package.json", package)
    user.file(".config/opencode/node_modules/zod/index.js", "")
    before = user.snapshot()
    user.capd("install", "opencode")

    user.capd("uninstall", "opencode")

    assert user.snapshot() == before


def test_a_plugin_that_was_edited_stays(user: User) -> None:
    user.capd("install", "opencode")
    plugin = user.home / PLUGIN
    plugin.write_text("// another one\n")

    said = user.capd("uninstall", "opencode")

    assert plugin.read_text() == "// another one\n"
    assert f"{plugin}: was edited and stays; remove it by hand\n" in said.out


def test_a_plugin_of_an_older_version_is_replaced_and_still_undone(user: User) -> None:
    user.capd("install", "opencode")
    plugin = user.home / PLUGIN
    current = plugin.read_bytes()
    ledger = Ledger(user.state, "opencode")
    make(ledger, FileChange(plugin, current, b"// older\n"))

    user.capd("install", "opencode")

    assert plugin.read_bytes() == current
    user.capd("uninstall", "opencode")
    assert not plugin.exists()


def test_a_file_that_changes_under_an_installation_is_not_overwritten(user: User) -> None:
    path = user.file("config.json", "{}")
    change = FileChange(path, b"{}", b'{"a": 1}', b"{}")
    path.write_text('{"b": 2}')

    ledger = Ledger(user.state, "test")

    with ledger.locked(), pytest.raises(InstallError, match="was changed by another program"):
        make(ledger, change)

    assert path.read_text() == '{"b": 2}'


def test_the_launcher_starts_the_shim_of_this_installation(user: User) -> None:
    user.capd("install", "opencode")
    env = {"HOME": str(user.home), "CAPD_NO_START": "1", "XDG_RUNTIME_DIR": str(user.home)}

    done = subprocess.run(
        [user.launcher], env=env, stdin=subprocess.DEVNULL, capture_output=True, check=False
    )

    assert done.returncode == 0
    assert f"no daemon at {user.home}/capd/capd.sock".encode() in done.stderr


def test_the_launcher_runs_a_prompt_hook_as_well(user: User) -> None:
    user.capd("install", "claude")
    env = {"HOME": str(user.home), "XDG_RUNTIME_DIR": str(user.home)}

    done = subprocess.run(
        [user.launcher, "hook", "nobody"],
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )

    assert (done.returncode, done.stdout) == (0, b"")
    assert done.stderr.startswith(b"capd: hook takes one of claude, ")


def test_the_launcher_is_written_only_when_it_changes(user: User) -> None:
    user.capd("install", "opencode")
    first = user.launcher.stat()

    user.capd("install", "claude")

    then = user.launcher.stat()
    # Not the time of the last read, which may be another second.
    assert (then.st_ino, then.st_mtime_ns) == (first.st_ino, first.st_mtime_ns)
    user.launcher.write_text("#!/bin/sh\nexit 1\n")
    user.capd("install", "claude")
    assert sys.executable in user.launcher.read_text()
    assert os.access(user.launcher, os.X_OK)


def test_a_client_that_passes_few_variables_on_starts_the_daemon_of_the_users_folders(
    user: User,
) -> None:
    state = user.home / "it's state"
    user.more |= {
        "XDG_STATE_HOME": str(state),
        "XDG_CONFIG_HOME": str(user.home / ".config"),
        "XDG_DATA_HOME": "",
    }

    user.capd("install", "opencode")

    lines = user.launcher.read_text().splitlines()
    assert [each for each in lines if each.startswith("export ")] == [
        f"export XDG_STATE_HOME={shlex.quote(str(state))}"
    ]


def test_an_installation_under_capd_home_knows_its_daemon(user: User) -> None:
    folder = user.home / "it's here"
    user.more["CAPD_HOME"] = str(folder)

    user.capd("install", "opencode")

    launcher = folder / "data/bin/capd-mcp"
    done = subprocess.run(
        [launcher],
        env={"CAPD_NO_START": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    assert f"no daemon at {folder}/run/capd.sock".encode() in done.stderr
    plugin = (user.home / PLUGIN).read_text()
    assert f"const INSTALLED_HOME = {json.dumps(str(folder))}\n" in plugin


OPENCODE = """\
#!{python}
import json, os, pathlib, sys
folder = pathlib.Path(os.environ["HOME"], ".config/opencode")
plugins = len(list(folder.glob("plugin/*")))
with open(os.environ["HOME"] + "/../journal", "a") as journal:
    print(json.dumps([sys.argv[1:], os.listdir(), plugins]), file=journal)
print("a key of the user")
{act}
"""
FETCH = '(folder / "node_modules").mkdir()'


def add_opencode(user: User, act: str) -> None:
    program = user.bin / "opencode"
    program.write_text(OPENCODE.format(python=sys.executable, act=act))
    program.chmod(0o755)


def starts(user: User) -> list[object]:
    journal = user.home.parent / "journal"
    return list(map(json.loads, journal.read_text().splitlines())) if journal.exists() else []


def test_what_its_first_start_would_fetch_is_fetched_once_by_the_installation(user: User) -> None:
    add_opencode(user, FETCH)

    first = user.capd("install", "opencode")
    again = user.capd("install", "opencode")

    # It finds the plugin, and works in an empty folder.
    assert starts(user) == [[["debug", "config"], [], 1]]
    assert "opencode: what its plugins may need was fetched" in first.out
    assert "fetched" not in again.out
    assert "a key of the user" not in first.out + first.err


def test_an_opencode_that_cannot_fetch_is_installed_all_the_same(user: User) -> None:
    add_opencode(user, "sys.exit(1)")

    said = user.capd("install", "opencode")

    assert said.code == 0
    assert "opencode: its next start fetches what plugins may need" in said.out
    assert (user.home / PLUGIN).exists()


@pytest.mark.parametrize("arguments", [("--dry-run",), ("--no-check",)])
def test_without_the_check_opencode_is_not_started(user: User, arguments: tuple[str, ...]) -> None:
    add_opencode(user, FETCH)

    user.capd("install", "opencode", *arguments)

    assert starts(user) == []
