"""`capd install` reports whether a message reached the daemon, and if not, why."""

import json

import pytest

from capd_client.hooks import CLIENTS, sample_event
from capd_client.install.prompt_check import PromptCheck


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
