"""Token counts equal those of the published encoding for any text."""

import base64
import hashlib
import subprocess
import sys
from pathlib import Path

import pytest
import tiktoken
from hypothesis import given
from hypothesis import strategies as st

from capd.adapters.tokens import token_counts
from capd.adapters.tokens.token_counts import (
    LONGEST_PIECE,
    PUBLISHED_SHA256,
    VOCABULARY,
    VocabularyError,
    count,
    published,
    token_ids,
)

# As tiktoken 0.14 and bpe-openai 0.1.4 give them, each with a vocabulary of its own.
IDS = [
    pytest.param("", [], id="empty"),
    pytest.param("hello world", [24912, 2375], id="words"),
    pytest.param(
        '{"tools":[{"name":"capability","inputSchema":{"type":"object"}}]}',
        [
            *(10848, 30616, 16853, 10848, 897, 7534, 15558, 3563, 4294),
            *(2586, 11190, 70649, 2493, 7534, 3369, 57612, 28000),
        ],
        id="json",
    ),
    pytest.param(
        "I'LL say what's 12345.67 -- naïve Ünïcode e\u0301 漢字かな",
        [
            *(40, 6, 7454, 2891, 29400, 220, 7633, 2548, 13, 5462, 2230),
            *(153475, 737, 120241, 9954, 3056, 319, 13430, 82867, 95, 8134, 165732),
        ],
        id="clitics, digits, scripts",
    ),
    pytest.param("  \n\n\t x  \r\n  ", [11691, 197, 1215, 18668, 256], id="white space"),
    pytest.param(
        "snake_case CamelCase HTTPServer2 /usr/bin//\n",
        [162012, 43667, 112127, 6187, 21929, 6444, 17, 820, 15943, 20950, 22704],
        id="names and paths",
    ),
    pytest.param("<|endoftext|>", [27, 91, 419, 1440, 919, 91, 29], id="no special token"),
]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> tiktoken.Encoding:
    """Let tiktoken load our vocabulary as its own download; it checks the hash."""
    folder = tmp_path_factory.mktemp("downloads")
    address = "https://openaipublic.blob.core.windows.net/encodings/o200k_base.tiktoken"
    name = hashlib.sha1(address.encode(), usedforsecurity=False).hexdigest()
    (folder / name).write_bytes(published())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIKTOKEN_CACHE_DIR", str(folder))
        return tiktoken.get_encoding(VOCABULARY)


@pytest.mark.parametrize(("text", "ids"), IDS)
def test_a_text_has_the_tokens_of_the_encoding(text: str, ids: list[int]) -> None:
    found = token_ids(text)

    assert (found, count(text), count(text.encode())) == (ids, len(ids), len(ids))


def test_the_vocabulary_is_the_published_one() -> None:
    content = published()

    assert hashlib.sha256(content).hexdigest() == PUBLISHED_SHA256


@given(text=st.text() | st.text(alphabet="aA1 \n\r\t/'sSté漢{}\":,\u0301ǅʰ"))
def test_any_text_has_the_tokens_that_tiktoken_gives_it(
    original: tiktoken.Encoding, text: str
) -> None:
    found = token_ids(text)

    assert found == original.encode_ordinary(text)


def test_what_is_no_unicode_counts_as_replacement_characters() -> None:
    counted = count(b"a \xff b"), count("\ud83d")

    assert counted == (count("a \ufffd b"), count("\ufffd"))


@given(text=st.text(alphabet="aA1 \n\té漢{'", max_size=200))
def test_a_text_that_is_cut_between_words_has_the_tokens_of_the_whole(
    original: tiktoken.Encoding, text: str
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(token_counts, "LONGEST_PIECE", 20)
        patch.setattr(token_counts, "SEAM_WITHIN", 20)
        words = "ab cd ".join(text[at : at + 10] for at in range(0, len(text), 10))

        found = token_ids(words)

    assert found == original.encode_ordinary(words)


def test_a_text_without_end_is_cut_and_counted() -> None:
    counted = count("a" + " " * (3 * LONGEST_PIECE) + "b")

    assert counted == pytest.approx(3 * count(" " * LONGEST_PIECE), abs=6)


def test_another_vocabulary_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "other.z"
    other.write_bytes(base64.b64decode("eJwDAAAAAAE="))
    monkeypatch.setattr(token_counts, "VOCABULARY_PATH", other)

    with pytest.raises(VocabularyError, match="is not the one of this version; reinstall capd"):
        published()


def test_the_daemon_never_loads_it() -> None:
    code = "import sys, capd.children; print('tiktoken' in sys.modules)"

    printed = subprocess.check_output([sys.executable, "-P", "-c", code], text=True)

    assert printed == "False\n"
