"""A prompt waits for its turn only as long as an editor tolerates."""

import threading
from collections.abc import Callable
from pathlib import Path

from capd_client.acp.dialogue import Prompt
from capd_client.acp.turns import Turns

from .conftest import PATIENT, SILENCE, FakeDaemon

Start = Callable[..., FakeDaemon]

PROMPT = Prompt("acp-1", "what changed?")
TURN = {"schema": 1, "context": "git is on", "changed": {"added": ["git__git_log"]}}


def test_a_turn_is_taken_in_the_prompts_own_session(start_daemon: Start) -> None:
    daemon = start_daemon({"turn": TURN})

    told = Turns(str(daemon.path), PATIENT).context(PROMPT)

    assert told == "git is on"
    (request,) = daemon.requests()
    patience = request["params"].pop("patience")
    params = {"text": "what changed?", "session": "acp-1", "mute": False}
    assert request == {"method": "turn", "params": params}
    assert 0 < patience < PATIENT


def test_a_session_that_its_agent_opens_later_is_waited_for(start_daemon: Start) -> None:
    missing = {"error": {"code": 4004, "message": "no session", "data": {"code": "not_found"}}}
    answers = [missing, missing, TURN]
    daemon = start_daemon({"turn": lambda _: answers.pop(0)})

    assert Turns(str(daemon.path), PATIENT).context(PROMPT) == "git is on"


def test_a_daemon_that_is_slow_is_not_waited_for_and_still_has_the_turn(
    start_daemon: Start,
) -> None:
    is_told, may_answer = threading.Event(), threading.Event()

    def answer(_: object) -> dict[str, object]:
        is_told.set()
        may_answer.wait(PATIENT)
        return TURN

    daemon = start_daemon({"turn": answer})

    told = Turns(str(daemon.path), 0.01).context(PROMPT)

    assert told == ""
    assert is_told.wait(PATIENT)
    may_answer.set()
    # The prompt has gone on without it.
    assert daemon.requests()[0]["params"]["mute"] is True


def test_a_daemon_that_hangs_gets_a_bounded_number_of_turns(start_daemon: Start) -> None:
    daemon = start_daemon({"turn": SILENCE})
    turns = Turns(str(daemon.path), 0.0)

    before = threading.active_count()
    told = [turns.context(PROMPT) for _ in range(50)]

    assert told == [""] * 50
    assert threading.active_count() - before <= 8 + 8  # and the fake daemon's own


def test_without_a_daemon_and_after_a_refusal_there_is_nothing_to_tell(
    start_daemon: Start, tmp_path: Path
) -> None:
    refusal = {"error": {"code": 4003, "message": "no", "data": {"code": "refused"}}}
    daemon = start_daemon({"turn": refusal})

    told = [Turns(str(path), PATIENT).context(PROMPT) for path in (tmp_path / "no", daemon.path)]

    assert told == ["", ""]
