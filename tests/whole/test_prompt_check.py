"""`capd install` ends with a test message through the client's own hook."""

import os
from pathlib import Path

import pytest

from capd_client.install.installed_clients import client_of
from capd_client.install.known_clients import known_clients
from capd_client.install.launcher import launcher_path
from capd_client.install.prompt_check import PromptCheck, check_prompt
from whole_daemon import Home

pytestmark = pytest.mark.model

SAID = "your prompt reached capd"
WITH_A_HOOK = ("claude", "copilot", "cursor", "gemini", "goose", "opencode", "qwen", "vscode")
WITHOUT = ("cline", "continue", "zed")


@pytest.fixture
def user(home: Home, tmp_path: Path) -> Path:
    """Return the home folder of the user who runs `capd install`; a daemon serves him."""
    home.env |= {"HOME": str(tmp_path), "PATH": os.defpath}
    home.start()
    return tmp_path


def test_the_prompt_of_each_client_that_was_just_installed_reaches_capd(
    home: Home, user: Path
) -> None:
    said = home.capd("install", *WITH_A_HOOK, *WITHOUT)

    assert said.returncode == 0, said.stderr
    assert said.stdout.count(f"{SAID}: yes") == len(WITH_A_HOOK), said.stdout
    assert said.stdout.count("your prompts do not reach capd: ") == len(WITHOUT), said.stdout


def test_codex_is_told_to_trust_the_hook_and_then_its_prompt_arrives(
    home: Home, user: Path
) -> None:
    untrusted = home.capd("install", "codex")
    trusted = home.capd("install", "codex", "--trust-hooks")

    assert untrusted.stdout.splitlines()[-3:] == [
        f"Codex CLI: {SAID}: no",
        "  Codex CLI skips capd's hook until you trust it",
        "  Run codex, then /hooks; or trust it unseen: capd install codex --trust-hooks",
    ]
    assert f"\nCodex CLI: {SAID}: yes\n" in trusted.stdout


def test_a_hook_whose_command_fails_is_said_with_the_reason(home: Home, user: Path) -> None:
    home.capd("install", "gemini")
    launcher = launcher_path(home.env)
    kept = launcher.with_name("kept")
    launcher.rename(kept)
    fails = f'if [ "$1" = hook ]; then echo it is broken >&2; exit 3; fi\nexec {kept} "$@"\n'
    launcher.write_text(f"#!/bin/sh\n{fails}")
    launcher.chmod(0o755)

    check = check_prompt(
        client_of(known_clients()["gemini"], home.env), home.env, os.getuid(), launcher
    )

    assert check == PromptCheck(
        "no",
        "the hook's command ended with code 3: it is broken",
        "See what is wrong with: capd doctor",
    )


def test_who_wants_no_check_gets_none(home: Home, user: Path) -> None:
    said = home.capd("install", "gemini", "--no-check")

    assert said.returncode == 0, said.stderr
    assert SAID not in said.stdout


def test_without_a_daemon_that_may_be_started_nothing_is_tried(home: Home, tmp_path: Path) -> None:
    home.env |= {"HOME": str(tmp_path), "PATH": os.defpath}

    said = home.capd("install", "gemini")

    assert said.stderr.splitlines()[-1] == (
        "Not tried whether your prompts reach capd: no daemon runs, and CAPD_NO_START forbids to"
        " start one"
    )
