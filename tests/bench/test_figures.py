"""The least that a day's messages cost, whichever way the tools are offered."""

from bench.tokens.figures import floor, lines
from bench.tokens.prompts import ModelRequest
from bench.tokens.rows import AGGREGATOR, Day50
from bench.tokens.scripted_model import Played
from bench.tokens.token_price import Rates

RATES = Rates(write=1.25, read=0.1, output=5.0)


def letters(text: str) -> tuple[int, ...]:
    return tuple(ord(letter) for letter in text)


def test_the_floor_is_the_same_day_without_tools_and_never_dearer() -> None:
    requests = [
        ModelRequest(("tool" * 50,), "system", ("question",), "answer", begins_turn=True),
        ModelRequest(("tool" * 50,), "system", ("question", "answer", "more"), "end"),
    ]
    day = Day50(AGGREGATOR, [Played(requests=requests)])

    (whole,) = lines(day, letters, RATES)
    bare = floor(day, letters, RATES)

    assert bare.bill.prompt == whole.bill.prompt - 2 * len("tool" * 50)
    assert bare.bill.output == whole.bill.output
    assert bare.units(RATES) < whole.units(RATES)
    assert bare.name == "messages alone"
