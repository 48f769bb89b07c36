"""`capd install` reports whether a message reached the daemon, and if not, why."""

import json
import os
from pathlib import Path

import pytest

from capd_client.hooks import CLIENTS, sample_event
from capd_client.install.installed_clients import client_of
from capd_client.install.known_clients import known_clients
from capd_client.install.prompt_check import PromptCheck, check_prompt

from .installing import User


@pytest.mark.parametrize("client", CLIENTS)
def test_the_message_of_the_check_is_one_that_the_hook_reads(client: str) -> None:
    event = sample_event(client, "", "Thanks!", "c-1", "/src")

    prompt = CLIENTS[client].read(json.loads(json.dumps(event)), {})

    assert (prompt.text, prompt.client, prompt.client_session) == ("Thanks!", client, "c-1")


@pytest.mark.parametrize(
    ("check", "lines"),
    [
        (PromptCheck("yes"), "Codex CLI: your prompt reached capd: yes"),
        (
            PromptCheck("no", "it is broken", "Mend it with: capd doctor"),
            "Codex CLI: your prompt reached capd: no\n  it is broken\n  Mend it with: capd doctor",
        ),
        (PromptCheck("not tried", "your prompts do not"), "Codex CLI: your prompts do not"),
    ],
)
def test_it_is_said_in_a_line_with_the_reason_and_the_repair(
    check: PromptCheck, lines: str
) -> None:
    assert check.lines("Codex CLI") == lines


@pytest.mark.parametrize(
    ("client", "file", "text", "reason"),
    [
        ("copilot", "home/.copilot/hooks/capd.json", b"{ hooks: {} }", "line 1: a name in quotes"),
        ("copilot", "home/.copilot/hooks/capd.json", b"{\n\xff", "line 2: it is not UTF-8"),
        ("codex", "home/.codex/config.toml", b"[broken\n", "line 1: "),
    ],
)
def test_a_file_of_the_client_that_cannot_be_parsed_is_the_reason(
    tmp_path: Path, client: str, file: str, text: bytes, reason: str
) -> None:
    user = User(tmp_path)
    user.capd("install", client)
    broken = tmp_path / file
    broken.write_bytes(text)
    env = {"HOME": str(user.home)}

    check = check_prompt(client_of(known_clients()[client], env), env, os.getuid(), user.launcher)

    assert check.answer == "no"
    assert check.reason.startswith(f"{broken}, {reason}")
    assert check.repair == f"Correct the file, then: capd install {client}"


def test_a_file_of_the_client_that_cannot_be_read_is_the_reason(tmp_path: Path) -> None:
    user = User(tmp_path)
    user.capd("install", "copilot")
    hooks = user.home / ".copilot/hooks/capd.json"
    hooks.unlink()
    hooks.mkdir()
    env = {"HOME": str(user.home)}

    check = check_prompt(
        client_of(known_clients()["copilot"], env), env, os.getuid(), user.launcher
    )

    assert check == PromptCheck(
        "no", f"{hooks}: Is a directory", "Correct that, then: capd install copilot"
    )
