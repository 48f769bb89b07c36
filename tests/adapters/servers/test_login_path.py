"""Which variables the user's login shell sets."""

import os
from pathlib import Path

import pytest

from capd.adapters.servers import login_path as module
from capd.adapters.servers.login_path import is_from_shell, login_variables, merged


def shell(folder: Path, body: str) -> dict[str, str]:
    """Return an environment whose login shell is the script `body`."""
    path = folder / "shell"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o700)
    return {"SHELL": str(path), "HOME": str(folder), "PATH": os.defpath}


@pytest.mark.parametrize(
    ("path", "login", "expected"),
    [
        ("/usr/bin:/bin", "/home/me/.nvm/bin:/usr/bin", "/usr/bin:/bin:/home/me/.nvm/bin"),
        ("/usr/bin", "", "/usr/bin"),
        ("", "/a:/b", "/a:/b"),
        ("/a::/a", "/a", "/a"),
    ],
)
def test_what_only_the_login_shell_knows_comes_last(path: str, login: str, expected: str) -> None:
    assert merged(path, login) == expected


def test_a_daemon_that_a_shell_started_has_the_users_path_already() -> None:
    assert is_from_shell({"SHLVL": "1"})
    assert not is_from_shell({"PATH": "/usr/bin"})


async def test_the_shell_is_asked_as_a_login_shell_whatever_else_it_prints(tmp_path: Path) -> None:
    talkative = 'echo "welcome back"; PATH=/opt/node/bin:$PATH; export PATH; eval "$4"; echo bye'

    user = shell(tmp_path, f'[ "$1$2$3" = "-l-i-c" ] || exit 9\n{talkative}')

    found = await login_variables(user)

    assert found == {"PATH": f"/opt/node/bin:{os.defpath}"}


async def test_the_shells_own_network_variables_are_taken_and_nothing_else_of_it(
    tmp_path: Path,
) -> None:
    exports = 'export SSL_CERT_FILE=/etc/ours.pem TOKEN=secret UV_INDEX_URL="https://a/?b=c"'
    user = shell(tmp_path, f'{exports}; eval "$4"') | {
        "SSL_CERT_FILE": "/tmp/theirs.pem",
        "PIP_CERT": "/tmp/theirs.pem",
    }

    found = await login_variables(user)

    ours = {"SSL_CERT_FILE": "/etc/ours.pem", "UV_INDEX_URL": "https://a/?b=c"}
    assert found == {"PATH": os.defpath, **ours}


@pytest.mark.parametrize("body", ["exit 3", "echo hello", "echo capd-environment"])
async def test_a_shell_that_does_not_say_adds_nothing(tmp_path: Path, body: str) -> None:
    assert await login_variables(shell(tmp_path, body)) == {}


async def test_a_shell_that_is_not_there_adds_nothing(tmp_path: Path) -> None:
    assert await login_variables({"SHELL": "/nonexistent/shell", "HOME": str(tmp_path)}) == {}


async def test_a_shell_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TIMEOUT", 0.2)

    assert await login_variables(shell(tmp_path, "sleep 600")) == {}
