"""Secrets are found in order of their sources, and reach only their server."""

import base64
import json
import re
import sys
import threading
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from capd_client.control import Control, DaemonDownError
from python_with import python_with
from whole_daemon import PLAIN_SERVER, Home

TESTS = Path(__file__).parents[1]
TOKEN = """\
[[mcp.servers]]
name = "{name}"
command = "{command}"
env = {{ TOKEN = "{{{{ENV:TOKEN}}}}" }}
"""
TELLS = """#!/bin/sh
# A server that tells everything it knows, wherever it can.
env >&2
echo "$@" >&2
echo "no JSON: $* $(env | tr '\\n' ' ')"
test -e {folder}/serves || exit 3
exec {python} -I {plain} {tag}
"""


def with_keyring(home: Home) -> None:
    home.env |= {
        "PYTHON_KEYRING_BACKEND": "file_keyring.FileKeyring",
        "CAPD_TEST_KEYRING": str(home.folder / "ring.json"),
        "PYTHONPATH": str(TESTS),
    }
    home.python = python_with(TESTS, home.folder / "python")


def in_file(home: Home, text: str, mode: int = 0o600) -> Path:
    file = home.folder / "config" / "secrets.env"
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
    file.chmod(mode)
    return file


def wants_token(home: Home, name: str) -> None:
    """Define a capability whose server writes the value of TOKEN to a file."""
    home.plain(name)
    runner = home.folder / "tells"
    runner.write_text(
        f'#!/bin/sh\nprintf "%s\\n" "$TOKEN" >> {home.folder}/seen\n'
        f"exec {sys.executable} -I {PLAIN_SERVER} {home.tag}\n"
    )
    runner.chmod(0o700)
    provider = home.folder / "tap" / "capabilities" / name / "default.toml"
    provider.write_text(TOKEN.format(name=name, command=runner))


def listed(home: Home) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(home.capd("secret", "list", "--json").stdout)
    return found


def seen(home: Home) -> list[str]:
    file = home.folder / "seen"
    return file.read_text().splitlines() if file.exists() else []


def test_a_stored_secret_goes_to_its_server_and_the_sessions_own_comes_first(home: Home) -> None:
    with_keyring(home)
    wants_token(home, "alpha")
    home.start()
    plain = home.shim("plain")
    home.env["TOKEN"] = "own-value"
    own = home.shim("own")
    del home.env["TOKEN"]

    missing = home.capd("enable", "--session", "plain", "alpha")
    kept = home.capd("secret", "set", "TOKEN", said="ring-value\n")
    enabled = [home.capd("enable", "--session", each, "alpha") for each in ("plain", "own")]

    assert missing.returncode == 1
    assert "needs TOKEN" in missing.stderr
    assert "capd secret set TOKEN" in missing.stderr
    assert kept.returncode == 0, kept.stderr
    assert [each.returncode for each in enabled] == [0, 0], enabled
    assert seen(home) == ["ring-value", "own-value"]
    assert listed(home)["secrets"] == [
        {
            "name": "TOKEN",
            "source": "keyring",
            "sessions": ["own"],
            "wanted_by": ["mine/alpha"],
        }
    ]
    asked = set((home.folder / "ring.asked").read_text().splitlines())
    assert asked == {"capd TOKEN"}
    plain.leave()
    own.leave()


def test_a_credential_of_the_service_is_found(home: Home) -> None:
    folder = home.folder / "credentials"
    folder.mkdir()
    (folder / "TOKEN").write_text("from-systemd\n")
    home.env["CREDENTIALS_DIRECTORY"] = str(folder)
    wants_token(home, "alpha")
    home.start()
    editor = home.shim("one")

    done = home.capd("enable", "alpha")

    assert done.returncode == 0, done.stderr
    assert seen(home) == ["from-systemd"]
    assert listed(home)["secrets"][0]["source"] == "credentials"
    editor.leave()


def test_a_file_that_others_read_is_refused_and_the_status_says_why(home: Home) -> None:
    wants_token(home, "alpha")
    file = in_file(home, "TOKEN=from-file\n", 0o644)
    home.start()
    editor = home.shim("one")

    refused = home.capd("enable", "alpha")
    status = home.ask("status")["daemon"]["degraded"]
    file.chmod(0o600)
    done = home.capd("enable", "alpha")

    assert refused.returncode == 1
    assert status == [
        f"{file} is not used: its mode is 0644, so that others may read it: chmod 600"
    ]
    assert done.returncode == 0, done.stderr
    assert (seen(home), home.ask("status")["daemon"]["degraded"]) == (["from-file"], [])
    editor.leave()


def test_the_list_says_what_is_missing_and_who_wants_it(home: Home) -> None:
    wants_token(home, "alpha")
    in_file(home, "UNUSED=x\n")
    home.start()

    done = home.capd("secret", "list")

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[:2] == [
        "TOKEN   missing      mine/alpha",
        "UNUSED  secrets.env  nobody",
    ]


# Canaries


def _providers(tap: Path) -> dict[str, list[str]]:
    """Return the provider files with keys of each capability that can be routed to."""
    found: dict[str, list[str]] = {}
    for file in sorted(tap.glob("capabilities/*/*.toml")):
        is_routable = (file.parent / "config.toml").exists()
        if is_routable and file.name != "default.toml" and "{{ENV:" in file.read_text():
            found.setdefault(file.parent.name, []).append(file.stem)
    return found


def _forms(value: str) -> list[str]:
    return [value, quote(value, safe=""), base64.b64encode(value.encode()).decode().rstrip("=")]


@pytest.fixture
def public_tap(shared_fixtures: Path) -> Path:
    path = shared_fixtures / "data" / "octomind-tap"
    if not path.is_dir():
        pytest.skip(f"{path} is not there")
    return path


def _spread(home: Home, values: dict[str, str]) -> dict[str, str]:
    """Put a third into the keyring, a third into the file; return the rest, for the session."""
    with_keyring(home)
    keys = sorted(values)
    ring = {f"capd {key}": values[key] for key in keys[1::3]}
    (home.folder / "ring.json").write_text(json.dumps(ring))
    in_file(home, "".join(f"{key}='{values[key]}'\n" for key in keys[2::3]))
    return {key: values[key] for key in keys[::3]}


def _telling_runners(home: Home, folder: Path) -> None:
    """Put programs that tell everything first on the PATH.

    `folder` must be outside the sessions' project: no program of a project runs a server.
    """
    text = TELLS.format(folder=home.folder, python=sys.executable, plain=PLAIN_SERVER, tag=home.tag)
    for name in ("npx", "uvx", "docker", "node", "uv", "bunx"):
        (folder / name).write_text(text)
        (folder / name).chmod(0o700)
    home.env["PATH"] = f"{folder}:{home.env['PATH']}"


def _choose(home: Home, tap: Path, chosen: dict[str, str]) -> None:
    """Set the daemon's providers."""
    lines = "".join(f'"octomind-tap/{name}" = "{each}"\n' for name, each in chosen.items())
    (home.folder / "config" / "taps.toml").write_text(
        f'[[taps]]\nname = "octomind-tap"\npath = "{tap}"\n[providers]\n{lines}'
    )
    home.ask("reload")


def _written(home: Home) -> dict[str, str]:
    """Return everything that the daemon keeps in files, by file."""
    folders = ("state", "cache", "run", "data")
    files = [file for folder in folders for file in home.folder.glob(f"{folder}/**/*")]
    return {str(file): file.read_bytes().decode("latin-1") for file in files if file.is_file()}


def _follow(socket: str, heard: list[str]) -> None:
    try:
        with Control(socket, timeout=600.0) as control:
            heard.extend(json.dumps(event) for event in control.events([]))
    except (DaemonDownError, OSError):
        return


def test_no_value_of_the_public_taps_secrets_is_told_to_anybody(
    home: Home, public_tap: Path, tmp_path: Path
) -> None:
    texts = [file.read_text() for file in public_tap.glob("capabilities/*/*.toml")]
    keys = sorted({key for text in texts for key in re.findall(r"\{\{ENV:(\w+)\}\}", text)})
    values = {key: f"canary/{n}+{key[::-1]}==" for n, key in enumerate(keys)}
    own = _spread(home, values)
    _telling_runners(home, tmp_path)
    providers = _providers(public_tap)
    home.start()
    heard: list[str] = []
    follower = threading.Thread(target=_follow, args=(home.socket, heard), daemon=True)
    follower.start()
    plain_env, home.env = home.env, {**home.env, **own}
    editor = home.shim("one")
    home.env = plain_env
    said: list[str] = []
    started: set[str] = set()

    for serves, n in ((serves, n) for serves in (False, True) for n in range(3)):
        if serves:
            (home.folder / "serves").touch()
        chosen = {name: each[n] for name, each in providers.items() if n < len(each)}
        _choose(home, public_tap, chosen)
        # Behind the values that the shim sends again after a reload.
        editor.ask("ping")
        for name, provider in chosen.items():
            result = home.ask("enable", session="one", name=name)
            said.append(json.dumps(result))
            started |= {f"{name}/{provider}"} if result["ok"] else set()
        methods = ("status", "caps", "servers", "sessions", "secrets")
        said += [json.dumps(home.ask(method)) for method in methods]
        said.append(home.capd("secret", "list").stdout)
    editor.leave()
    home.close()
    follower.join(30)

    assert len(keys) >= 35
    assert "database-postgres/postgres" in started
    assert len(started) >= 25, (started, said)
    told = {"answers": "\n".join(said), "events": "\n".join(heard), "log": home.log()}
    assert "[secret]" in told["log"] + told["answers"], "there was nothing to be found"
    assert heard
    assert [
        (key, where)
        for key, value in values.items()
        for where, text in {**told, **_written(home)}.items()
        for form in _forms(value)
        if form in text
    ] == []
