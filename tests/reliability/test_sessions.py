"""No session can read, stop or starve another."""

import statistics
import threading
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import pytest

from .world import Session, World, outcome, text_of

pytestmark = pytest.mark.reliability

PROMPTS = {"sampling/createMessage", "elicitation/create"}


def is_prompt(message: dict[str, Any]) -> bool:
    return message.get("method") in PROMPTS


def prompts(session: Session) -> list[dict[str, Any]]:
    return [message for message in session.heard if is_prompt(message)]


# E1


@pytest.mark.parametrize("scope", ["session", "project"])
def test_state_in_a_server_stays_within_its_scope(world: World, scope: str) -> None:
    world.evil("state", scope=scope)
    world.start()
    users = []
    for name in ("red", "blue"):
        folder = world.home.folder / name
        folder.mkdir()
        users.append(world.session(name, "evil", folder=folder))

    answers = interleaved(users, 500)

    said = {user.key: [text_of(answer) for answer in got] for user, got in answers}
    for user in users:
        pids = {text.split(" ", 1)[0] for text in said[user.key]}
        assert len(pids) == 1
        previous = [text.split("previous=", 1)[1] for text in said[user.key]]
        assert previous == ["None", *(f"{user.key} {n}" for n in range(499))]


def interleaved(
    users: list[Session], count: int, seconds: float = 0
) -> list[tuple[Session, list[dict[str, Any]]]]:
    """Return each user's answers to calls that all users make in turns."""
    answers: list[tuple[Session, list[dict[str, Any]]]] = [(user, []) for user in users]
    for n in range(count):
        calls = [user.begin("evil__echo", {"x": f"{user.key} {n}", "s": seconds}) for user in users]
        for (user, got), call in zip(answers, calls, strict=True):
            got.append(user.answer(call))
    return answers


# E2


@pytest.mark.parametrize("mode", ["sample", "elicit"])
def test_a_prompt_of_a_shared_server_with_two_sessions_in_flight_reaches_nobody(
    world: World, mode: str
) -> None:
    world.evil(f"{mode},sleep")
    world.start()
    users = [
        world.session(name, "evil", capabilities={"sampling": {}, "elicitation": {}})
        for name in ("red", "blue")
    ]
    said: list[str] = []

    for n in range(50):
        calls = [
            (user, user.begin("evil__echo", {"x": f"{user.key} {n} {k}", "s": 0.05}))
            for k in range(5)
            for user in users
        ]
        # The first of a round may be alone in flight, and so is its prompt.
        said += [text_of(user.answer(call)) for user, call in calls if answered(user)]

    assert len(said) == 500
    for user in users:
        assert all(user.key in str(prompt) for prompt in prompts(user))


def answered(user: Session) -> bool:
    """Decline every prompt that came; say that it is done."""
    for prompt in prompts(user):
        if "answered" not in prompt:
            error = {"code": -1, "message": "declined"}
            user.write({"jsonrpc": "2.0", "id": prompt["id"], "error": error})
            prompt["answered"] = True
    return True


@pytest.mark.parametrize("mode", ["sample", "elicit"])
def test_a_prompt_of_a_sessions_own_server_reaches_that_session(world: World, mode: str) -> None:
    world.evil(f"{mode},sleep", scope="session")
    world.start()
    users = [
        world.session(name, "evil", capabilities={"sampling": {}, "elicitation": {}})
        for name in ("red", "blue")
    ]

    interleaved(users, 50, 0.01)

    # The last one may come after the answer to its call.
    for user in users:
        user.wait_to_hear(is_prompt, 50)
    heard = {user.key: [prompt["params"] for prompt in prompts(user)] for user in users}
    assert [len(got) for got in heard.values()] == [50, 50]
    assert [key in str(params) for key, got in heard.items() for params in got] == [True] * 100


FORM: dict[str, Any] = {"elicitation": {"form": {}}}


def test_a_result_that_asks_is_the_callers_alone_and_keeps_its_state(world: World) -> None:
    world.evil("mrtr", "--generation", "modern")
    world.start()
    users = [
        world.session(name, "evil", capabilities=FORM, is_stateless=True)
        for name in ("red", "blue")
    ]
    calls = [user.begin("evil__echo", {"x": user.key}) for user in users]

    results = [user.answer(call)["result"] for user, call in zip(users, calls, strict=True)]

    assert [result["requestState"] for result in results] == ["st-red", "st-blue"]
    assert [list(result["inputRequests"]) for result in results] == [["q"], ["q"]]
    answers = {"q": {"action": "accept", "content": {}}}
    for user, result in zip(users, results, strict=True):
        again = {"name": "evil__echo", "arguments": {"x": user.key}, "inputResponses": answers}
        again["requestState"] = result["requestState"]
        assert text_of(user.answer(user.ask("tools/call", again))) == user.key
    assert [prompts(user) for user in users] == [[], []]


def test_a_result_that_asks_becomes_a_prompt_of_its_caller_alone(world: World) -> None:
    world.evil("mrtr", "--generation", "modern")
    world.start()
    # The first one's generation is the server's.
    starting = world.session("starting", "evil", capabilities=FORM, is_stateless=True)
    users = [world.session(name, "evil", capabilities=FORM) for name in ("red", "blue")]
    call = users[0].begin("evil__echo", {"x": "red"})

    users[0].wait_to_hear(lambda m: m.get("method") == "elicitation/create", patience=10)

    (prompt,) = prompts(users[0])
    answer = {"action": "accept", "content": {}}
    users[0].write({"jsonrpc": "2.0", "id": prompt["id"], "result": answer})
    assert text_of(users[0].answer(call)) == "red"
    assert [prompts(user) for user in (users[1], starting)] == [[], []]


# E3


def test_fifty_sessions_with_one_id_and_one_token_get_their_own(world: World) -> None:
    world.honest("shared", scope="shared")
    world.start()
    users = [world.session(f"u{n}", "shared") for n in range(50)]
    wrong: list[str] = []

    def use(user: Session) -> None:
        for n in range(200):
            x = f"{user.key} {n}"
            user.begin("shared__echo", {"x": x}, request_id=1, token="p")
            text = text_of(user.answer(1))
            if not text.endswith(f" {x}"):
                wrong.append(f"{x}: {text}")

    in_parallel([partial(use, user) for user in users])

    assert wrong == []
    assert len({server["pid"] for server in world.home.servers()}) == 2
    for user in users:
        progress = [m["params"] for m in user.heard if m["method"] == "notifications/progress"]
        assert [(p["progressToken"], p["message"]) for p in progress] == [
            ("p", f"{user.key} {n}") for n in range(200)
        ]
        assert user.answers[1] == []


def in_parallel(works: list[Callable[[], None]]) -> None:
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


# E4


def test_a_cancellation_of_anothers_call_has_no_effect(world: World) -> None:
    world.evil("sleep")
    world.start()
    red, blue = world.session("red", "evil"), world.session("blue", "evil")
    calls = [blue.begin("evil__echo", {"x": str(n), "s": 1}, request_id=n) for n in range(20)]

    for n in [*calls, *(str(n) for n in calls)]:
        red.tell("notifications/cancelled", {"requestId": n})

    assert [text_of(blue.answer(call)) for call in calls] == [f"slept {n}" for n in range(20)]


# E7


def test_a_session_that_floods_a_server_lets_a_polite_one_through(world: World) -> None:
    world.honest("shared", scope="shared")
    world.start()
    hog, polite = world.session("hog", "shared"), world.session("polite", "shared")

    def flood() -> None:
        calls = []
        for n in range(10_000):
            calls.append(hog.begin("shared__echo", {"x": str(n)}))
            # Refused calls are no load: as many as are let in, all the time.
            if len(calls) >= 90:
                hog.answer(calls.pop(0))
        for call in calls:
            hog.answer(call)

    flooding = threading.Thread(target=flood)
    flooding.start()
    answers = []
    while flooding.is_alive():
        answers.append(polite.call("shared__echo", {"x": "polite"}))

    assert {outcome(answer) for answer in answers} == {"result"}
    # How many of the hog's calls the server took between two of the polite one's.
    numbers = [int(text_of(answer).split()[2]) for answer in answers]
    between = [b - a - 1 for a, b in pairwise(numbers)]
    # 32 of one session run at once: that many are before it, and as many while it is under way.
    assert statistics.median(between) <= 64


def test_every_call_of_a_session_over_its_limits_is_answered_once(world: World) -> None:
    world.evil("sleep")
    world.start()
    session = world.session("one", "evil")

    calls = [session.begin("evil__echo", {"x": str(n), "s": 0.2}) for n in range(300)]
    kinds = []
    for call in calls:
        answer = session.answer(call)
        is_refused = answer.get("error", {}).get("code") == 4003
        kinds.append("refused" if is_refused else outcome(answer))

    assert kinds.count("result") >= 96
    assert set(kinds) <= {"result", "refused"}
    assert [session.answers[call] for call in calls] == [[]] * 300
