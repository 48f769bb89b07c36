"""Which conversation of a client is spoken in, and what each was told."""

import msgspec
import pytest

from capd.core.memories.telling import Telling
from capd.core.sessions import conversations
from capd.core.sessions.active_set import ActiveSet, Grant
from capd.core.sessions.conversations import MOST_CARDS, Conversation, Conversations
from capd.core.sessions.session import SessionState
from capd.core.sessions.session_record import SessionRecord, recorded
from capd.core.sessions.surface import Surface
from capd_protos.types import ServerIdentity, SessionKey, ToolName


def test_the_first_name_is_that_of_the_conversation_so_far() -> None:
    heard = Conversations()
    heard.current.is_bootstrapped = True

    heard.heard_in("c-1")

    assert heard.current == Conversation("c-1", is_bootstrapped=True)


def test_each_conversation_goes_on_where_it_was_left() -> None:
    heard = Conversations(100)
    heard.heard_in("c-1")
    heard.current.telling.noted(7)
    heard.heard_in("c-2")
    second = heard.current

    heard.heard_in("c-1")
    heard.heard_in("")

    assert second == Conversation("c-2", Telling(100))
    assert heard.current == Conversation("c-1", Telling(100, spent=7))


def test_of_the_call_cards_the_last_two_hundred_are_remembered() -> None:
    heard = Conversation()
    keys = [(Grant(ServerIdentity("s"), ToolName(f"t{n}")), "1") for n in range(MOST_CARDS + 2)]

    for key in (*keys, keys[5]):
        heard.note_cards([key])

    assert list(heard.cards) == keys[2:]


def test_the_current_one_goes_on_after_a_restart_and_another_one_begins() -> None:
    before = Conversations(100)
    before.heard_in("c-1")
    before.current.is_bootstrapped = before.current.is_index_told = True
    before.current.telling.leave_out([])
    before.current.telling.told["tap/fact@1"] = None
    before.current.telling.noted(7)
    record = msgspec.structs.replace(
        recorded(SessionKey("s"), SessionState(ActiveSet(), Surface(())), "token", 0.0),
        **before.kept(),
    )
    after = Conversations(100)

    after.restore(msgspec.msgpack.decode(msgspec.msgpack.encode(record), type=SessionRecord))

    assert after.current == before.current
    after.heard_in("c-2")
    assert after.current == Conversation("c-2", Telling(100))
    after.heard_in("c-1")
    assert after.current == before.current


def test_another_budget_is_of_all_of_them() -> None:
    heard = Conversations(100)
    for id_ in ("c-1", "c-2"):
        heard.heard_in(id_)

    heard.follow(50)

    budgets = []
    for id_ in ("c-1", "c-2", "c-3"):
        heard.heard_in(id_)
        budgets.append(heard.current.telling.budget)
    assert budgets == [50, 50, 50]


def test_the_one_that_was_left_longest_ago_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversations, "MOST", 2)
    heard = Conversations()
    for id_ in ("c-1", "c-2", "c-1", "c-3"):
        heard.heard_in(id_)
        heard.current.is_bootstrapped = True

    found = []
    for id_ in ("c-1", "c-2"):
        heard.heard_in(id_)
        found.append(heard.current.is_bootstrapped)

    assert found == [True, False]


def test_one_that_is_answered_late_is_the_current_one_again() -> None:
    heard = Conversations()
    heard.heard_in("c-1")
    first = heard.current
    heard.heard_in("c-2")

    heard.go_on(first)

    assert heard.current is first
