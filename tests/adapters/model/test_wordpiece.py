"""The tokenizer against its oracle, the `tokenizers` package."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers.implementations.bert_wordpiece import BertWordPieceTokenizer

from capd.adapters.model.minilm import MODEL, VOCABULARY_PATH, load_tokenizer

OURS = load_tokenizer()
OLDEST = unicodedata.ucd_3_2_0
"""The oracle knows the characters of Unicode 8; of later ones either side may take another view."""


def oracle() -> BertWordPieceTokenizer:
    words = VOCABULARY_PATH.read_text(encoding="utf-8").splitlines()
    numbers = {word: number for number, word in enumerate(words)}
    made = BertWordPieceTokenizer(numbers, lowercase=True, strip_accents=True)
    made.enable_truncation(MODEL.max_tokens)
    return made


THEIRS = oracle()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "what time is it in Tokyo right now?",
        "Don't re-run `make test`, it's 3.5x slower!!",
        "ΑΣ ΟΔΟΣ σοφός",
        "İstanbul, ﬁne Å CAFÉ ñandú",
        "日本語のテスト 中文分词",
        "zero\u200bwidth\ufeff and\x00nul\ufffd and\ttab\u00a0nbsp",
        "[CLS] hi [SEP] [MASK] [foo] [unk]",
        "x" * 100,
        "x" * 101,
        "word " * 400,
        "antidisestablishmentarianism pneumonoultramicroscopic",
    ],
)
def test_a_text_has_the_pieces_that_the_oracle_gives_it(text: str) -> None:
    assert OURS.encode(text) == THEIRS.encode(text).ids


@given(st.text(st.characters(exclude_categories=["Cs", "Cn"]), max_size=60))
def test_any_text_of_old_characters_has_the_oracles_pieces(text: str) -> None:
    known = "".join(c for c in text if OLDEST.category(c) == unicodedata.category(c))

    assert OURS.encode(known) == THEIRS.encode(known).ids


@given(st.lists(st.sampled_from(["the", "un##", "[SEP]", "é", "-", "中", "zzzz", "\n"])))
def test_any_sequence_of_pieces_has_the_oracles_pieces(parts: list[str]) -> None:
    text = " ".join(parts)

    assert OURS.encode(text) == THEIRS.encode(text).ids
