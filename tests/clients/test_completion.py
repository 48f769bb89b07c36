"""Shell completion in real shells, with suggestions from a running daemon."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .conftest import PATIENT, SILENCE, FakeDaemon

Start = Callable[..., FakeDaemon]

CAPABILITIES = [
    {"tap": "mine", "name": "git", "description": "Look into repositories", "routable": True},
    {"tap": "mine", "name": "github", "description": "", "routable": True, "servers": ["hub"]},
    {"tap": "other", "name": "git", "description": "Another one", "routable": True},
    {"tap": "other", "name": "gitea", "routable": False},
    {"tap": "other", "name": "g\nevil", "routable": True},
]
ANSWERS: dict[str, Any] = {
    "caps": {"schema": 1, "capabilities": CAPABILITIES},
    "sessions": {
        "schema": 1,
        "sessions": [
            {"key": "zed-1", "project": "/src/app", "active": [{"name": "web"}]},
            {"key": "claude-2", "project": "/src/x", "active": [{"name": "web"}, {"name": "fs"}]},
        ],
    },
    "status": {"schema": 1, "taps": [{"name": "mine", "path": "/m"}, {"name": "starter"}]},
    "tools": {"schema": 1, "tools": [{"name": "git__log", "description": "Show.\nMore."}]},
    "secrets": {"schema": 1, "secrets": [{"name": "GITHUB_TOKEN", "source": "keyring"}]},
}
BASH = """
eval "$(capd completion bash)"
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
_capd_completion capd
printf '%s\\n' "${COMPREPLY[@]}"
"""
ZSH = """
autoload -U compinit; compinit -D -u
_describe() { print -l ${completions_with_descriptions}; }
compadd() { shift $(( ${@[(i)-a]} )); print -l ${(P)1}; }
eval "$(capd completion zsh)"
words=("$@"); CURRENT=$#
_capd_completion capd
"""
FISH = """
capd completion fish | source
complete -C "$argv"
"""


@pytest.fixture
def env(base_env: dict[str, str], tmp_path: Path) -> dict[str, str]:
    """An environment in which `capd` is this one."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "capd"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m capd_client.entry "$@"\n')
    program.chmod(0o755)
    return {
        **base_env,
        "PATH": f"{folder}:{base_env['PATH']}",
        "XDG_CONFIG_HOME": str(tmp_path),
        # A busy machine answers late; what is tested with the default says so.
        "CAPD_COMPLETION_PATIENCE": str(PATIENT),
    }


def run(env: dict[str, str], *command: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command, env=env, capture_output=True, text=True, timeout=PATIENT, check=False
    )


def bash(env: dict[str, str], *words: str) -> list[str]:
    done = run(env, "bash", "--norc", "-c", BASH, "bash", "capd", *words)
    assert (done.stderr, done.returncode) == ("", 0)
    return [word for word in done.stdout.splitlines() if word]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("sta",), ["status"]),
        (("un",), ["uninstall"]),
        (("enable", "gi"), ["git", "github"]),
        (("enable", "other/"), ["other/git"]),
        (("disable", ""), ["fs", "web"]),
        (("enable", "git", "--session", ""), ["claude-2", "zed-1"]),
        (("tools", "--session", "z"), ["zed-1"]),
        (("call", "g"), ["git__log"]),
        (("tap", "re"), ["remove"]),
        (("tap", "remove", ""), ["mine"]),
        (("login", ""), ["hub"]),
        (("secret", "set", "G"), ["GITHUB_TOKEN"]),
        (("install", "z"), ["zed"]),
    ],
)
def test_bash_completes_what_the_daemon_has(
    start_daemon: Start, env: dict[str, str], words: tuple[str, ...], expected: list[str]
) -> None:
    start_daemon(ANSWERS)

    completed = bash(env, *words)

    assert completed == expected


def test_without_a_daemon_nothing_is_completed_and_nothing_said(env: dict[str, str]) -> None:
    completed = bash(env, "enable", "gi")

    assert completed == []


def test_a_daemon_that_does_not_answer_is_not_waited_for(
    start_daemon: Start, env: dict[str, str]
) -> None:
    start_daemon({"caps": SILENCE})
    del env["CAPD_COMPLETION_PATIENCE"]

    completed = bash(env, "enable", "gi")

    # The fake would keep the question open until the test ends: bash is bounded by `PATIENT`.
    assert completed == []


@pytest.mark.skipif(shutil.which("fish") is None, reason="there is no fish on this machine")
def test_fish_completes_with_a_word_on_each(start_daemon: Start, env: dict[str, str]) -> None:
    start_daemon(ANSWERS)

    done = run(env, "fish", "--no-config", "-c", FISH, "capd enable gi")

    assert done.stdout.splitlines() == ["git\tLook into repositories", "github"]


@pytest.mark.skipif(shutil.which("zsh") is None, reason="there is no zsh on this machine")
def test_zsh_completes_with_a_word_on_each(start_daemon: Start, env: dict[str, str]) -> None:
    start_daemon(ANSWERS)

    done = run(env, "zsh", "-f", "-c", ZSH, "zsh", "capd", "enable", "gi")

    assert done.stdout.splitlines() == ["git:Look into repositories", "github"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_a_script_of_its_own(env: dict[str, str], shell: str) -> None:
    done = run(env, "capd", "completion", shell)

    assert f"_CAPD_COMPLETE={shell}_complete" in done.stdout
    assert (done.stderr, done.returncode) == ("", 0)


def test_another_shell_is_told_which_there_are(env: dict[str, str]) -> None:
    done = run(env, "capd", "completion", "tcsh")

    assert "'bash', 'zsh', 'fish'" in done.stderr
    assert done.returncode == 2
