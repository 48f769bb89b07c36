"""`capd hook`: who it speaks for, and when it is silent."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

WORDS = {"prompt": "what changed?"}
ANSWER = {"hook": {"schema": 1, "context": "git is on"}}
SPOKEN = {
    "hookSpecificOutput": {"hookEventName": "UserPromptSubmit", "additionalContext": "git is on"}
}


def hook(said: dict[str, str], env: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    """Run the hook as a client does."""
    return subprocess.run(
        [sys.executable, "-P", "-m", "capd_client.entry", "hook", "claude", "UserPromptSubmit"],
        input=json.dumps(said),
        env=env,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def test_where_claude_code_runs_it_the_hook_on_the_connection_speaks_alone(
    start_daemon: Any, base_env: dict[str, str]
) -> None:
    daemon = start_daemon(ANSWER)

    result = hook({**WORDS, "session_id": "c-1"}, {**base_env, "CLAUDE_CODE_SESSION_ID": "c-1"})

    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    assert daemon.journal == []


@pytest.mark.parametrize(
    ("said", "env", "asked"),
    [
        ({"session_id": "c-1"}, {}, {"client": "claude", "client_session": "c-1"}),
        (
            {"session_id": "c-1"},
            {"CLAUDE_CODE_SESSION_ID": "of another program above"},
            {"client": "claude", "client_session": "c-1"},
        ),
        (
            {"sessionId": "v-1"},
            {"CLAUDE_CODE_SESSION_ID": "v-1"},
            {"client": "code", "client_session": "v-1"},
        ),
    ],
)
def test_elsewhere_it_speaks_for_the_client_that_runs_it(
    start_daemon: Any,
    base_env: dict[str, str],
    said: dict[str, str],
    env: dict[str, str],
    asked: dict[str, str],
) -> None:
    daemon = start_daemon(ANSWER)

    result = hook({**WORDS, **said, "cwd": "/src"}, {**base_env, **env})

    (request,) = daemon.requests()
    assert request["params"] == {"text": "what changed?", "project": "/src", **asked}
    assert json.loads(result.stdout) == SPOKEN


def test_an_alarm_that_comes_when_all_is_said_ends_nothing(base_env: dict[str, str]) -> None:
    program = (
        "import signal; from capd_client import hook; hook.main(['claude', 'UserPromptSubmit']); "
        "print(signal.getitimer(signal.ITIMER_REAL))"
    )

    result = subprocess.run(
        [sys.executable, "-P", "-c", program],
        input=json.dumps(WORDS),
        env=base_env,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )

    assert (result.returncode, result.stdout) == (0, "(0.0, 0.0)\n")


@pytest.mark.parametrize("code", ["protocol", "overloaded", "stopping"])
def test_a_hook_says_nothing_where_the_daemon_refuses_it(
    start_daemon: Any, base_env: dict[str, str], tmp_path: Path, code: str
) -> None:
    daemon = start_daemon()
    daemon.refusal = {"capd": "refused", "code": code, "message": "no", "protocol": 9}

    result = hook({**WORDS, "session_id": "a", "cwd": str(tmp_path)}, base_env)

    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
