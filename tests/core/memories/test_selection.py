"""Which memories are delivered: corrective ones first, within the token budget."""

from hypothesis import given, settings
from hypothesis import strategies as st

from capd.adapters.tokens.token_counts import count
from capd.core.memories.delivery import MemoryDelivery
from capd.core.memories.known_memories import PricedMemory, key_of, known_memories, texts_of
from capd.core.memories.selection import HEAD_TOKENS, ChosenMemories, Priced, chosen, ordered
from capd.core.memories.wording import delivered_text, entry
from capd_protos.types import (
    MemoryKind,
    MemorySpec,
    TapName,
)

TAP = TapName("t")


def memory(
    name: str, kind: MemoryKind = "declarative", content: str = "c", priority: float = 1.0
) -> MemorySpec:
    return MemorySpec(TAP, name, kind, content, priority=priority, capability="git")


def test_corrections_come_first_and_then_what_is_most_for_a_token() -> None:
    small, large = Priced(memory("small"), 10), Priced(memory("large"), 100)
    weighty = Priced(memory("weighty", priority=20.0), 100)
    correction = Priced(memory("correction", "corrective"), 1000)

    order = [each.memory.name for each in ordered([large, small, weighty, correction])]

    assert order == ["correction", "weighty", "small", "large"]


def test_what_has_no_room_leaves_it_to_those_behind_it() -> None:
    large, small = Priced(memory("large", "corrective"), 100), Priced(memory("small"), 10)

    found = chosen([small, large], HEAD_TOKENS + 20)

    assert found == ChosenMemories((small,), (large,))
    assert found.tokens == HEAD_TOKENS + 11


SCRIPTS = st.text(
    st.one_of(
        st.characters(min_codepoint=32, max_codepoint=126),
        st.characters(min_codepoint=0x410, max_codepoint=0x44F),
        st.characters(min_codepoint=0x4E00, max_codepoint=0x4FFF),
        st.sampled_from("\n .,!:-`/#🙂é"),
    ),
    min_size=1,
    max_size=120,
)
MEMORIES = st.lists(
    st.builds(
        lambda at, kind, content, priority, confidence: MemorySpec(
            TAP, f"m{at}", kind, content, confidence, priority, capability="git"
        ),
        st.integers(0, 10_000),
        st.sampled_from(["corrective", "procedural", "declarative", "episodic"]),
        SCRIPTS,
        st.floats(0, 100),
        st.floats(0, 1),
    ),
    max_size=12,
)


@settings(deadline=None)
@given(MEMORIES, st.integers(0, 400), st.booleans())
def test_no_text_of_any_script_is_over_the_budget(
    memories: list[MemorySpec], budget: int, is_counted: bool
) -> None:
    texts = {text for each in memories for text in texts_of(each)}
    counted = {text: count(text) for text in texts} if is_counted else {}
    known = known_memories(memories, counted).all
    delivery = MemoryDelivery(budget)

    said = delivery.deliver(known)

    assert count(said.text) <= delivery.spent <= budget
    assert said.text == delivered_text(entry(each.memory) for each in said.memories)
    keys = {each.key for each in known}
    assert {*delivery.delivered, *delivery.left_out} == keys


@settings(deadline=None)
@given(MEMORIES, st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11)), max_size=8))
def test_nothing_is_ever_told_twice_and_all_of_it_keeps_within_one_budget(
    memories: list[MemorySpec], slices: list[tuple[int, int]]
) -> None:
    known = known_memories(memories).all
    delivery = MemoryDelivery(300)

    said = [delivery.deliver(known[low:high]) for low, high in slices]

    keys = [each.key for one in said for each in one.memories]
    assert len(keys) == len(set(keys))
    assert sum(count(one.text) for one in said) <= delivery.spent <= 300


def test_what_a_hook_has_no_characters_for_stays_due() -> None:
    known = known_memories([memory("a", content="x" * 60), memory("b", content="y" * 60)]).all
    delivery = MemoryDelivery(2000)

    first = delivery.deliver(known, 120)
    second = delivery.deliver(known)

    assert [[each.memory.name for each in one.memories] for one in (first, second)] == [
        ["a"],
        ["b"],
    ]


def test_what_is_yet_to_be_counted_is_not_left_out_for_what_its_bytes_are() -> None:
    large = memory("large", content="word " * 300)
    counted = {text: count(text) for text in texts_of(large)}
    delivery = MemoryDelivery(1000)

    before = delivery.deliver(known_memories([large], is_final=False).all)
    after = delivery.deliver(known_memories([large], counted, is_final=False).all)

    assert (before.text, delivery.left_out) == ("", {})
    assert [each.memory for each in after.memories] == [large]


def test_a_memory_whose_words_change_is_another_one() -> None:
    before, after = memory("a", content="one"), memory("a", content="two")

    keys = [key_of(before), key_of(after), key_of(memory("a", content="one", priority=3.0))]

    assert (keys[0] == keys[1], keys[0] == keys[2]) == (False, True)
    assert isinstance(known_memories([before]).all[0], PricedMemory)
