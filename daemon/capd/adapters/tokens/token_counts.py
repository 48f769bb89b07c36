"""Counts the tokens of a text with o200k_base, the vocabulary of OpenAI's models since 2024.

Counts are exact for those models, and an estimate for all others, whose vocabularies are different
or not public. The engine is tiktoken. It would download its vocabulary, so capd contains the
published file in a compact form, and passes only the ranks to tiktoken. Measured (load, resident
growth, 141 kB of prose): tiktoken 0.27 s, 54 MB, 8 ms; `tokenizers`, which would need 200,000
merges beside the vocabulary, 0.2 s, 70 MB, 53 ms; `bpe-openai` 0.8 s, 143 MB and a wheel of 41 MB,
24 ms. All three agree.

The first count loads the vocabulary, which then stays in memory. So the daemon counts in a separate
process; this module is for that process, benchmarks and tests.

The compact form is zlib of all tokens in the order of their ranks, each preceded by one byte with
its length.
"""

import base64
import hashlib
import threading
import zlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from capd.core.errors import CapdError
from capd.core.lazy_patterns import lazy_pattern

if TYPE_CHECKING:
    import tiktoken

VOCABULARY = "o200k_base"
VOCABULARY_PATH = Path(__file__).with_name("o200k_base.z")
# Of `o200k_base.tiktoken` as it is published, which tiktoken itself checks for.
PUBLISHED_SHA256 = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"
_SHA256 = "bac143fe7fe950090c6e4ed9a2f80de5412a92495758b52becbbe5a7eea25ecb"
_SIZE_BYTES = 1_597_668

# How o200k_base splits a text before it merges bytes: words with a preceding character and their
# clitics, groups of three digits, punctuation, white space.
_ENDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_PATTERN = "|".join(
    (
        rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_ENDS}",
        rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_ENDS}",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    )
)

# A million spaces in a row are too much for tiktoken's expressions, and twenty million letters
# take half a minute. In pieces of this length, the time stays about linear.
LONGEST_PIECE = 100_000
SEAM_WITHIN = 5_000
# A position that is always a border between two tokens.
_SEAM = lazy_pattern("[a-z](?= [a-z])")

_loading = threading.Lock()


class VocabularyError(CapdError):
    """The vocabulary is not the one that comes with capd."""


def count(text: bytes | str) -> int:
    """Return the number of tokens of `text`; invalid UTF-8 counts as replacement characters.

    Raises:
        VocabularyError: the vocabulary's file was changed.
    """
    return len(token_ids(text))


def token_ids(text: bytes | str) -> list[int]:
    """Return the ids of the tokens of `text`. Names of special tokens are ordinary text.

    A text longer than `LONGEST_PIECE` characters is cut between two words, which changes no count.
    A text without spaces is cut anywhere, which adds one or two tokens for each cut.

    Raises:
        VocabularyError: the vocabulary's file was changed.
    """
    if isinstance(text, bytes):
        text = text.decode(errors="replace")
    with _loading:
        encoding = _encoding()
    return [token for piece in _pieces(text) for token in encoding.encode_ordinary(piece)]


def published() -> bytes:
    """Return the vocabulary in the form in which OpenAI publishes it.

    Raises:
        VocabularyError: the vocabulary's file was changed.
    """
    return b"".join(b"%s %d\n" % (base64.b64encode(t), rank) for t, rank in _ranks().items())


def _pieces(text: str) -> Iterator[str]:
    start = 0
    while len(text) - start > LONGEST_PIECE:
        end = start + LONGEST_PIECE
        for seam in _SEAM.finditer(text, end - SEAM_WITHIN, end):
            end = seam.end()
        yield text[start:end]
        start = end
    yield text[start:]


@cache
def _encoding() -> "tiktoken.Encoding":
    # Imported here: 25 ms, for a process that may never count.
    import tiktoken  # noqa: PLC0415

    return tiktoken.Encoding(
        VOCABULARY, pat_str=_PATTERN, mergeable_ranks=_ranks(), special_tokens={}
    )


def _ranks() -> dict[bytes, int]:
    try:
        tokens = zlib.decompressobj().decompress(VOCABULARY_PATH.read_bytes(), _SIZE_BYTES + 1)
    except (OSError, zlib.error) as error:
        raise VocabularyError(
            f"The vocabulary {VOCABULARY_PATH} cannot be read ({error}); reinstall capd"
        ) from error
    if hashlib.sha256(tokens).hexdigest() != _SHA256:
        raise VocabularyError(
            f"The vocabulary {VOCABULARY_PATH} is not the one of this version; reinstall capd"
        )
    ranks: dict[bytes, int] = {}
    position = 0
    while position < len(tokens):
        end = position + 1 + tokens[position]
        ranks[tokens[position + 1 : end]] = len(ranks)
        position = end
    return ranks
