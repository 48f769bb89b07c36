"""Which conversation a turn belongs to, and what each conversation was given."""

import msgspec
import pytest

from capd.core.memories.delivery import MemoryDelivery
from capd.core.sessions import conversations
from capd.core.sessions.active_set import ActiveSet, Grant
from capd.core.sessions.conversations import MOST_CARDS, Conversation, Conversations
from capd.core.sessions.session import SessionState
from capd.core.sessions.session_record import SessionRecord, recorded
from capd.core.sessions.surface import Surface
from capd_protos.types import ServerIdentity, SessionKey, ToolName


def test_the_first_name_is_that_of_the_conversation_so_far() -> None:
    chats = Conversations()
    chats.current.is_bootstrapped = True

    chats.continue_in("c-1")

    assert chats.current == Conversation("c-1", is_bootstrapped=True)


def test_each_conversation_goes_on_where_it_was_left() -> None:
    chats = Conversations(100)
    chats.continue_in("c-1")
    chats.current.memories.take_room(7)
    chats.continue_in("c-2")
    second = chats.current

    chats.continue_in("c-1")
    chats.continue_in("")

    assert second == Conversation("c-2", MemoryDelivery(100))
    assert chats.current == Conversation("c-1", MemoryDelivery(100, spent=7))


def test_of_the_call_cards_the_last_two_hundred_are_remembered() -> None:
    chats = Conversation()
    keys = [(Grant(ServerIdentity("s"), ToolName(f"t{n}")), "1") for n in range(MOST_CARDS + 2)]

    for key in (*keys, keys[5]):
        chats.note_cards([key])

    assert list(chats.cards) == keys[2:]


def test_the_current_one_goes_on_after_a_restart_and_another_one_begins() -> None:
    before = Conversations(100)
    before.continue_in("c-1")
    before.current.is_bootstrapped = before.current.is_index_delivered = True
    before.current.memories.leave_out([])
    before.current.memories.delivered["tap/fact@1"] = None
    before.current.memories.take_room(7)
    record = msgspec.structs.replace(
        recorded(SessionKey("s"), SessionState(ActiveSet(), Surface(())), "token", 0.0),
        **before.saved_fields(),
    )
    after = Conversations(100)

    after.restore(msgspec.msgpack.decode(msgspec.msgpack.encode(record), type=SessionRecord))

    assert after.current == before.current
    after.continue_in("c-2")
    assert after.current == Conversation("c-2", MemoryDelivery(100))
    after.continue_in("c-1")
    assert after.current == before.current


def test_another_budget_is_of_all_of_them() -> None:
    chats = Conversations(100)
    for id_ in ("c-1", "c-2"):
        chats.continue_in(id_)

    chats.follow(50)

    budgets = []
    for id_ in ("c-1", "c-2", "c-3"):
        chats.continue_in(id_)
        budgets.append(chats.current.memories.budget)
    assert budgets == [50, 50, 50]


def test_the_one_that_was_left_longest_ago_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversations, "MOST", 2)
    chats = Conversations()
    for id_ in ("c-1", "c-2", "c-1", "c-3"):
        chats.continue_in(id_)
        chats.current.is_bootstrapped = True

    found = []
    for id_ in ("c-1", "c-2"):
        chats.continue_in(id_)
        found.append(chats.current.is_bootstrapped)

    assert found == [True, False]


def test_one_that_is_answered_late_is_the_current_one_again() -> None:
    chats = Conversations()
    chats.continue_in("c-1")
    first = chats.current
    chats.continue_in("c-2")

    chats.make_current(first)

    assert chats.current is first
