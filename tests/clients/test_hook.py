"""`capd hook`: which session gets the prompt, and when the hook prints nothing."""

import fcntl
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from capd_client.hook import budget
from capd_client.shim.client_facts import HOOK_LIMITS

WORDS = {"prompt": "what changed?"}
ANSWER = {"hook": {"schema": 1, "context": "git is on"}}
SPOKEN = {
    "hookSpecificOutput": {"hookEventName": "UserPromptSubmit", "additionalContext": "git is on"}
}


def hook(
    said: Mapping[str, object] | str, env: dict[str, str], client: str = "claude"
) -> "subprocess.CompletedProcess[str]":
    """Run the hook as a client does."""
    return subprocess.run(
        [sys.executable, "-P", "-m", "capd_client.entry", "hook", client],
        input=said if isinstance(said, str) else json.dumps(said),
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
    patience = request["params"].pop("patience")
    assert request["params"].pop("longest") == 4.0
    words = {"text": "what changed?", "project": "/src", "turn": "", "mute": False}
    assert request["params"] == {**words, **asked}
    # What its budget had left.
    assert 0 < patience < 0.25
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


def test_a_prompt_of_a_megabyte_is_handed_over_whole(
    start_daemon: Any, base_env: dict[str, str]
) -> None:
    daemon = start_daemon(ANSWER)
    prompt = "what changed? " + "0 boats\n" * (1 << 17)

    # On a busy machine, a quarter of a second is not enough for a megabyte.
    result = hook({"prompt": prompt}, {**base_env, "CAPD_HOOK_BUDGET": "4"}, client="codex")

    (request,) = daemon.requests()
    assert request["params"]["text"] == prompt
    assert json.loads(result.stdout) == SPOKEN


@pytest.mark.parametrize("client", ["cursor", "windsurf", "goose"])
def test_a_client_that_tells_its_model_nothing_is_told_nothing(
    start_daemon: Any, base_env: dict[str, str], client: str
) -> None:
    daemon = start_daemon(ANSWER)
    said = {
        "prompt": "what changed?",
        "message": "what changed?",
        "tool_info": {"user_prompt": "what changed?"},
    }

    result = hook(said, {**base_env, "CAPD_HOOK_BUDGET": "4"}, client=client)

    (request,) = daemon.requests()
    assert (request["params"]["text"], request["params"]["mute"]) == ("what changed?", True)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


@pytest.mark.parametrize(
    "said", ["", "[" * 100_000, '"text"', "\ufeff{}", '{"prompt": "   "}', "x" * (17 << 20)]
)
def test_what_cannot_be_read_reaches_nobody(
    start_daemon: Any, base_env: dict[str, str], said: str
) -> None:
    daemon = start_daemon(ANSWER)

    result = hook(said, base_env, client="codex")

    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    assert daemon.journal == []


@pytest.mark.parametrize(
    ("said", "seconds"),
    [("", 0.25), ("1.5", 1.5), ("60", 4.0), ("0", 0.25), ("-1", 0.25), ("nan", 0.25), ("x", 0.25)],
)
def test_the_user_may_give_a_hook_more_time(said: str, seconds: float) -> None:
    assert budget({"CAPD_HOOK_BUDGET": said}) == seconds


@pytest.fixture
def starting(socket_at: Path) -> Iterator[Path]:
    """Let another process start a daemon, as a thin client does."""
    socket_at.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (socket_at.parent / "start.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield socket_at


@pytest.mark.parametrize("client", sorted(HOOK_LIMITS.keys() - {"cursor", "goose"}))
def test_the_first_message_after_a_boot_waits_for_the_daemon_that_is_being_started(
    client: str, starting: Path, start_daemon: Any, base_env: dict[str, str]
) -> None:
    said = {**WORDS, "session_id": "c-1", "sessionId": "c-1"}
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "capd_client.entry", "hook", client],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=base_env,
    ) as running:
        assert running.stdin is not None
        running.stdin.write(json.dumps(said).encode())
        running.stdin.close()
        # Longer than a hook has where nobody is starting a daemon: it ends then.
        with pytest.raises(subprocess.TimeoutExpired):
            running.wait(2 * budget({}))
        start_daemon({**ANSWER, "status": {"embedder": {"state": "ready"}}})

        assert running.stdout is not None
        printed = running.stdout.read()

    assert b"git is on" in printed
    assert running.returncode == 0


def test_a_hook_whose_turn_is_held_waits_as_long_as_its_client_lets_it(
    start_daemon: Any, base_env: dict[str, str]
) -> None:
    answers = iter([{"held": True, "context": ""}, {"held": False, "context": "git is on"}])
    daemon = start_daemon({"hook": lambda _: next(answers)})

    result = hook({**WORDS, "session_id": "c-1"}, base_env, client="codex")

    first, second = (request["params"] for request in daemon.requests())
    assert (first.pop("longest"), second.pop("longest")) == (4.0, 0.0)
    assert 0 < first.pop("patience") < budget({}) < second.pop("patience") < 4
    assert second == {**first, "again": True}
    assert json.loads(result.stdout) == SPOKEN


def test_a_hook_whose_user_has_set_its_time_is_never_held(
    start_daemon: Any, base_env: dict[str, str]
) -> None:
    daemon = start_daemon(ANSWER)

    hook(WORDS, {**base_env, "CAPD_HOOK_BUDGET": "0.3"}, client="codex")

    (request,) = daemon.requests()
    assert request["params"]["longest"] == 0


def test_where_nobody_starts_a_daemon_the_prompt_goes_on_at_once(
    base_env: dict[str, str], start_daemon: Any
) -> None:
    start_daemon(ANSWER).stop_listening()

    result = hook({**WORDS, "session_id": "c-1"}, base_env, client="codex")

    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_hook_that_was_started_with_closed_streams_ends_in_silence(
    start_daemon: Any, base_env: dict[str, str], closed: str
) -> None:
    start_daemon(ANSWER)
    command = f'"{sys.executable}" -P -m capd_client.entry hook gemini {closed}'

    result = subprocess.run(
        ["/bin/sh", "-c", command],
        input=json.dumps({**WORDS, "session_id": "c-1"}),
        env=base_env,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )

    assert (result.returncode, result.stderr) == (0, "")


def test_a_client_that_nobody_knows_is_the_installers_mistake(base_env: dict[str, str]) -> None:
    result = hook(WORDS, base_env, client="emacs")

    known = "claude, cline, code, codex, copilot, cursor, gemini, goose, qwen, windsurf"
    assert (result.returncode, result.stderr) == (0, f"capd: hook takes one of {known}\n")
