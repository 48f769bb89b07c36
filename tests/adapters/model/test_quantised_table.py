import functools
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from capd.adapters.model import minilm
from capd.adapters.model.minilm import WORD_TABLE, load_tokenizer, token_ids
from capd.adapters.model.quantised_table import look_up_before_widening

DOCS = sorted(Path(__file__).parents[3].glob("docs/*.md"))


@functools.cache
def pinned() -> bytes:
    return minilm._installed_model().read_bytes()


def hidden_states(session: Any, ids: list[int]) -> npt.NDArray[np.float32]:
    row = np.array([ids], np.int64)
    feeds = {
        "input_ids": row,
        "attention_mask": np.ones_like(row),
        "token_type_ids": np.zeros_like(row),
    }
    (states,) = session.run(None, feeds)
    found: npt.NDArray[np.float32] = states
    return found


@pytest.mark.real
def test_words_from_all_over_the_table_have_the_same_numbers_to_the_bit() -> None:
    windows = [list(range(first, first + 100)) for first in [*range(0, 30_000, 3_000), 30_422]]
    as_written = minilm._open_session(pinned())

    exchanged = minilm._open_session(look_up_before_widening(pinned(), WORD_TABLE))

    assert [
        ids[0]
        for ids in windows
        if not np.array_equal(hidden_states(as_written, ids), hidden_states(exchanged, ids))
    ] == []


@pytest.mark.real
def test_texts_have_the_same_vectors_to_the_bit() -> None:
    tokenizer = load_tokenizer()
    lines = [line for page in DOCS for line in page.read_text().splitlines() if line][::5]
    as_written = minilm._open_session(pinned())

    exchanged = minilm._open_session(look_up_before_widening(pinned(), WORD_TABLE))

    assert [
        line
        for line in lines
        if not np.array_equal(
            hidden_states(as_written, token_ids(tokenizer, line)),
            hidden_states(exchanged, token_ids(tokenizer, line)),
        )
    ] == []


@pytest.mark.real
def test_all_that_follows_the_lookup_is_copied_as_it_is() -> None:
    after_the_lookup = pinned().index(b"token_type_ids\x12\x0bembedding_1")

    model = look_up_before_widening(pinned(), WORD_TABLE)

    assert len(pinned()) - after_the_lookup > 22_000_000
    assert model.endswith(pinned()[after_the_lookup:])


@pytest.mark.real
@pytest.mark.parametrize("table", ["absent", "inner.embeddings.LayerNorm.weight", "val_49"])
def test_what_is_not_widened_and_then_looked_into_is_refused(table: str) -> None:
    with pytest.raises(ValueError, match=r"unpack|made and used"):
        look_up_before_widening(pinned(), table)


def test_bytes_without_a_graph_are_what_they_were() -> None:
    # ir_version 8; a field of eight bytes, one of four, and a text, which no model has.
    content = bytes.fromhex("0808") + b"\x51" + b"8 bytes." + b"\x5d4bts" + b"\x12\x02ok"

    assert look_up_before_widening(content, WORD_TABLE) == content


def test_what_is_no_protocol_buffer_is_refused() -> None:
    with pytest.raises(ValueError, match="kind 7"):
        look_up_before_widening(b"\x0f", WORD_TABLE)
