"""A server that floods the daemon with output slows neither the daemon nor others."""

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from whole_daemon import wait_for

from .talking import TalkingWorld, talking_world
from .world import Session

pytestmark = pytest.mark.reliability

EVERYTHING: dict[str, Any] = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}
SAMPLING = "sampling/createMessage"


@pytest.fixture
def talking() -> Iterator[TalkingWorld]:
    with talking_world() as world:
        yield world


def opened(talking: TalkingWorld, **options: Any) -> Session:
    talking.server("evil", **options)
    talking.world.start()
    return talking.world.session("one", "evil", capabilities=EVERYTHING)


def line(method: str, params: dict[str, Any], message_id: object = None) -> str:
    """Return a line of the server's; `%d` in it is the number of the line."""
    id_ = "" if message_id is None else f'"id":{message_id},'
    return f'{{"jsonrpc":"2.0",{id_}"method":"{method}","params":{json.dumps(params)}}}'


def asked(session: Session) -> int:
    return sum("method" in message and "id" in message for message in session.heard)


@pytest.mark.parametrize(
    ("message_id", "most"), [("7", 2), ("%d", 300)], ids=["one id", "many ids"]
)
def test_a_flood_of_questions_asks_the_client_little(
    talking: TalkingWorld, message_id: str, most: int
) -> None:
    session = opened(talking)
    question = line(SAMPLING, {"messages": [], "maxTokens": 1, "x": "y" * 4000}, message_id)
    with talking.world.beside_an_honest_session():
        session.call("evil__say", {"lines": [question], "times": 60_000})

    assert asked(session) <= most


def test_a_client_that_answers_at_once_is_asked_at_a_steady_rate(talking: TalkingWorld) -> None:
    session = opened(talking)
    question = line("roots/list", {}, "%d")
    answered = 0
    is_over = threading.Event()

    def answer() -> None:
        nonlocal answered
        while not is_over.wait(0.001):
            for message in session.heard[answered:]:
                answered += 1
                if "id" in message and "method" in message:
                    session.write({"jsonrpc": "2.0", "id": message["id"], "result": {"roots": []}})

    answering = threading.Thread(target=answer)
    answering.start()
    with talking.world.beside_an_honest_session() as honest:
        session.call("evil__say", {"lines": [question], "times": 30_000})
    is_over.set()
    answering.join()

    # 200 at once and 50 a second, for as long as it took.
    assert asked(session) <= 200 + 64 + 50 * (sum(honest.calls) + 60)


def test_questions_that_are_large_hold_little(talking: TalkingWorld) -> None:
    session = opened(talking)
    question = line(SAMPLING, {"messages": ["y" * 6_000_000]}, "%d")
    with talking.world.beside_an_honest_session():
        session.call("evil__say", {"lines": [question], "times": 40})

    assert asked(session) <= 2


@pytest.mark.parametrize(
    "said",
    [
        line("notifications/message", {"level": "error", "data": "y" * 200}),
        line("notifications/progress", {"progressToken": 1, "progress": 1}),
        line("notifications/resources/updated", {"uri": "x://" + "y" * 200}),
        line("notifications/tools/list_changed", {}),
        line("notifications/prompts/list_changed", {}),
        line("notifications/whatever", {"x": "y" * 200}),
        line("ping", {}, "%d"),
        '{"jsonrpc":"2.0","id":%d,"result":{}}',
        '{"jsonrpc":"2.0","id":%d,"method":""}\n' + line("notifications/x", {}),
    ],
    ids=["log", "progress", "updated", "tools", "prompts", "unknown", "ping", "reply", "no method"],
)
def test_a_flood_of_lines_delays_nobody_else(talking: TalkingWorld, said: str) -> None:
    session = opened(talking, prompts=3)
    with talking.world.beside_an_honest_session():
        begun = session.begin("evil__say", {"lines": [said], "times": 100_000})
        session.answer(begun, 300)


def test_large_notifications_to_a_client_that_does_not_read_hold_little(
    talking: TalkingWorld,
) -> None:
    opened(talking)
    deaf = talking.world.session("deaf", "evil")
    said = line("notifications/message", {"level": "error", "data": "y" * 900_000})
    deaf.stop_reading()
    with talking.world.beside_an_honest_session():
        deaf.begin("evil__say", {"lines": [said], "times": 500})
        wait_for(lambda: talking.did("evil"))
        deaf.begin("evil__echo", {"x": "1"})
        wait_for(lambda: len(talking.did("evil")) == 2, 300)


def test_the_first_of_ten_thousand_prompts_are_listed_and_status_says_so(
    talking: TalkingWorld,
) -> None:
    session = opened(talking, prompts=10_000)
    listed = []
    with talking.world.beside_an_honest_session():
        for _ in range(3):
            listed = session.answer(session.ask("prompts/list", {}))["result"]["prompts"]

    own = [each for each in listed if each["name"].startswith("evil__")]
    assert len(own) == 1000
    (finding,) = talking.world.server("evil")["findings"]
    assert finding.startswith("the first 1000 of its prompts are listed")
    assert finding in talking.home.capd("status").stdout


def test_a_server_with_many_resources_is_listed_whole(talking: TalkingWorld) -> None:
    uris = [f"file:///src/{number}" for number in range(4000)]
    session = opened(talking, resources=uris)
    with talking.world.beside_an_honest_session():
        listed = session.answer(session.ask("resources/list", {}))["result"]["resources"]
        read = session.answer(session.ask("resources/read", {"uri": uris[-1]}))

    assert [each["uri"] for each in listed] == uris
    assert read["result"]["contents"][0]["text"] == "evil"
    assert talking.world.server("evil")["findings"] == []


def test_large_pages_of_prompts_cost_others_no_time(talking: TalkingWorld) -> None:
    session = opened(talking, prompts=4, prompt_bytes=3_500_000, pages=50)
    listed = [{"name": "evil__never_asked"}]
    with talking.world.beside_an_honest_session():
        for _ in range(2):
            listed = session.answer(session.ask("prompts/list", {}), 300)["result"]["prompts"]

    assert [each for each in listed if each["name"].startswith("evil__")] == []


def test_hidden_characters_by_the_megabyte_cost_others_no_time(talking: TalkingWorld) -> None:
    talking.server("books", resources=["book://1"])
    session = opened(talking, resources=[], hidden=30)
    assert talking.world.enable("one", "books")["ok"]
    with talking.world.beside_an_honest_session():
        listed = session.answer(session.ask("resources/list", {}))["result"]["resources"]

    assert [each["uri"] for each in listed] == ["book://1"]


def test_a_server_that_never_lists_costs_a_neighbours_read_little(talking: TalkingWorld) -> None:
    talking.server("books", resources=["book://1"])
    session = opened(talking, resources=[], silent=["resources/list", "resources/templates/list"])
    assert talking.world.enable("one", "books")["ok"]
    with talking.world.beside_an_honest_session() as honest:
        listed = session.answer(session.ask("resources/list", {}))["result"]["resources"]
        before = len(honest.calls)
        reads = [
            session.answer(session.ask("resources/read", {"uri": "book://1"})) for _ in range(5)
        ]
        during = sum(honest.calls[before:])

    assert [each["uri"] for each in listed] == ["book://1"]
    assert [each["result"]["contents"][0]["text"] for each in reads] == ["books"] * 5
    # Five waits for the silent server would be fifty seconds.
    assert during < 25
