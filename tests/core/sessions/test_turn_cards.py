"""Which call cards fit into a turn's budget."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capd.adapters.tokens.token_counts import count
from capd.core.index.token_costs import TokenCosts
from capd.core.sessions.hook_context import TURN_TOKENS
from capd.core.sessions.turn_cards import (
    MOST_SIGNATURES,
    PERHAPS_TOKENS,
    RemainingTools,
    fitting_cards,
    further_cards,
    possible_cards,
)
from capd.core.tools.call_cards import CallCard
from capd_protos.types import CapabilityName, WireName
from support.examples import examples

CALL = WireName("capd_tool_call")


class Everything(dict[str, int]):
    """Every piece, counted when it is asked for."""

    def get(self, piece: str, default: object = None) -> int:
        del default
        return count(piece)


EXACT = TokenCosts(Everything())
NOTHING = TokenCosts()
ODD = [
    [WireName("x" * 64) for _ in range(3)],
    [WireName(f"s__{'数' * 20}{n}") for n in range(3)],
    [WireName(f"a{n}__qzxv_{'jk_' * 15}") for n in range(9)],
]


def card(name: str, arguments: str = "path", description: str = "Does it") -> CallCard:
    return CallCard(WireName(name), arguments, description, is_whole=True)


def left(*names: str, beyond: int = 0) -> RemainingTools:
    found = frozenset(WireName(each) for each in names)
    return RemainingTools(CapabilityName("git"), found, beyond, "tool_search")


LOG, SHOW = card("git__log", "repo, max=10", "Shows the log"), card("git__show", "rev", "Shows one")


@pytest.mark.parametrize("costs", [EXACT, NOTHING])
def test_cards_say_how_each_tool_is_called_and_how_the_others_are_found(costs: TokenCosts) -> None:
    got = fitting_cards([LOG, SHOW], CALL, costs, remaining=left(LOG.name, SHOW.name, beyond=10))

    assert got.names == ("git__log", "git__show")
    assert got.text == (
        "For this message, by capd_tool_call(name, arguments):\n"
        "- git__log(repo, max=10)  Shows the log\n"
        "- git__show(rev)  Shows one\n"
        "10 more of git: tool_search."
    )


def test_nothing_is_to_be_found_where_all_is_told() -> None:
    got = fitting_cards([LOG, SHOW], CALL, EXACT, remaining=left(LOG.name, SHOW.name))

    assert got.text.endswith("- git__show(rev)  Shows one")


def test_the_next_tools_are_told_by_their_signatures_alone() -> None:
    got = fitting_cards([card(f"s__t{n}") for n in range(9)], CALL, EXACT)

    assert got.names == tuple(f"s__t{n}" for n in range(9))
    assert "- s__t2(path)  Does it\n- s__t3(path)\n" in got.text


def test_no_turn_tells_more_tools_than_twelve() -> None:
    got = fitting_cards([card(f"s__t{n}", "", "") for n in range(40)], CALL, EXACT)

    assert len(got.names) == MOST_SIGNATURES


def test_a_much_shorter_signature_comes_before_one_that_ranks_a_little_higher() -> None:
    long, short = card("s__long", ", ".join("abcdefgh")), card("s__short", "a")
    best = [card(f"s__best{n}") for n in range(3)]

    got = fitting_cards([*best, long, short], CALL, EXACT)

    assert got.names[3:] == ("s__short", "s__long")


def test_a_tool_that_was_used_comes_before_shorter_ones() -> None:
    long, short = card("s__long", ", ".join("abcdefgh")), card("s__short", "a")
    best = [card(f"s__best{n}") for n in range(3)]

    got = fitting_cards([*best, short, long], CALL, EXACT, used=[long.name])

    assert got.names[3:] == ("s__long", "s__short")


def test_a_signature_that_takes_the_room_of_two_is_left_out() -> None:
    best = [card(f"s__best{n}") for n in range(3)]
    huge = card("s__huge", ", ".join(f"argument_{n}: [str]" for n in range(9)))

    got = fitting_cards([*best, huge], CALL, EXACT)

    assert huge.name not in got.names


def test_the_best_card_keeps_its_description_and_others_lose_it_to_signatures() -> None:
    wordy = [card(f"s__t{n}", "path, mode", "many words " * 7) for n in range(8)]

    got = fitting_cards(wordy, CALL, EXACT, room=90)

    described = [line for line in got.text.splitlines() if "many words" in line]
    assert len(described) == 1
    assert len(got.names) > 3


@pytest.mark.parametrize("names", ODD)
@pytest.mark.parametrize("costs", [EXACT, NOTHING])
@pytest.mark.parametrize("room", [0, 40, TURN_TOKENS])
def test_cards_stay_in_their_room_whatever_the_names_are(
    names: list[WireName], costs: TokenCosts, room: int
) -> None:
    cards = [card(name, "argument_one, other?: [{a, b}]", "x y z " * 12) for name in names]

    got = fitting_cards(cards, CALL, costs, room=room, remaining=left(*names, beyond=4))

    assert count(got.text) <= room
    assert all(f"- {name}(" in got.text for name in got.names)


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(st.text("abcxyz_{}[]:?=", max_size=60), max_size=15),
    st.sampled_from([EXACT, NOTHING]),
)
def test_what_may_fit_and_what_is_beside_stay_in_their_room(
    arguments: list[str], costs: TokenCosts
) -> None:
    cards = [card(f"s__tool_{n}", each, each) for n, each in enumerate(arguments)]

    perhaps = possible_cards(cards, CALL, costs, used=[each.name for each in cards[::2]])
    beside = further_cards(cards, costs, 60)

    assert count(perhaps.text) <= PERHAPS_TOKENS
    assert count(beside.text) <= 60


def test_what_may_fit_says_so() -> None:
    got = possible_cards([SHOW], CALL, EXACT)

    assert (
        got.text == "If it fits, by capd_tool_call(name, arguments):\n- git__show(rev)  Shows one"
    )


def test_beside_an_answer_there_are_signatures_alone() -> None:
    got = further_cards([LOG, SHOW], EXACT, 60)

    assert got.text == "Beside them:\n- git__show(rev)\n- git__log(repo, max=10)"


def test_without_cards_nothing_is_said() -> None:
    assert fitting_cards([], CALL, EXACT, remaining=left(beyond=9)).text == ""
    assert possible_cards([], CALL, EXACT).text == ""
    assert further_cards([], EXACT, 60).text == ""


def test_a_tool_that_was_used_keeps_its_options() -> None:
    options = CallCard(WireName("s__find"), "text, is_regex?", "", is_whole=True, brief="text, ...")

    got = further_cards([options], EXACT, 60)
    again = further_cards([options], EXACT, 60, used=[options.name])

    assert (got.text, again.text) == (
        "Beside them:\n- s__find(text, ...)",
        "Beside them:\n- s__find(text, is_regex?)",
    )


def test_cards_of_read_only_tools_name_the_tool_that_calls_them_where_there_is_one() -> None:
    look = CallCard(WireName("s__look"), "path", "Looks", is_whole=True, is_read_only=True)
    cards = [look, SHOW, LOG]

    alone = fitting_cards(cards, CALL, EXACT)
    parted = fitting_cards(cards, CALL, EXACT, read_only_caller="capd_tool_call_readonly")

    assert "readonly" not in alone.text
    assert parted.text == (
        "For this message, by capd_tool_call(name, arguments):\n"
        "- git__show(rev)  Shows one\n"
        "- git__log(repo, max=10)  Shows the log\n"
        "By capd_tool_call_readonly:\n"
        "- s__look(path)  Looks"
    )


def test_where_all_are_read_only_their_tool_alone_is_named() -> None:
    look = CallCard(WireName("s__look"), "path", "Looks", is_whole=True, is_read_only=True)

    got = fitting_cards([look], CALL, EXACT, read_only_caller="tool_call_readonly")

    assert got.text == (
        "For this message, by tool_call_readonly(name, arguments):\n- s__look(path)  Looks"
    )
