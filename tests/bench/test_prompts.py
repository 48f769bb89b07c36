"""The prompts of both kinds of clients, token by token; here a token is a word."""

from bench.tokens.prompts import ModelRequest, prompts
from bench.tokens.token_price import Priced

WORDS = ("git", "files", "system", "hello", "answer", "more")
NUMBERS = {word: number for number, word in enumerate(WORDS)}


def words(text: str) -> list[int]:
    return [NUMBERS[word] for word in text.split()]


REQUESTS = [
    ModelRequest(("git",), "system", ("hello",), "answer", begins_turn=True),
    ModelRequest(("git", "files"), "system", ("hello", "answer", "more"), "answer answer"),
]


def test_a_client_with_its_tools_first_sends_the_list_as_it_is() -> None:
    sent = prompts(REQUESTS, "tools first", words)

    assert sent == [
        Priced(tuple(words("git system hello")), 1, begins_turn=True),
        Priced(tuple(words("git files system hello answer more")), 2),
    ]


def test_a_client_that_appends_adds_a_tool_behind_what_was_said_before_it() -> None:
    sent = prompts(REQUESTS, "appends", words)

    assert sent == [
        Priced(tuple(words("git system hello")), 1, begins_turn=True),
        Priced(tuple(words("git system hello files answer more")), 2),
    ]


def test_a_client_that_appends_keeps_a_tool_that_is_gone_and_adds_it_once() -> None:
    gone = ModelRequest(("files",), "system", ("hello",), "")
    back = ModelRequest(("git", "files"), "system", ("hello",), "")

    sent = prompts([REQUESTS[0], gone, back], "appends", words)

    assert [each.prompt for each in sent] == [
        tuple(words("git system hello")),
        tuple(words("git system hello files")),
        tuple(words("git system hello files")),
    ]
