"""Divides a long message into passages, each of which is compared with the capabilities.

In a long message, what the user wants is often one sentence of many: "... The tests were green
yesterday. Could you see who changed the parser last week? I have to leave at five." A vector of the
whole message says little about that sentence. So a long message is compared several times: by its
ends, and by each of its passages, which are sentences or runs of short ones. The part in which a
capability scores highest decides (`core.routing.deciding`). docs/design/routing.md has the
measurements.

    a short message ──> the message itself
    a long one ──> its ends, passage 1, passage 2, ...
"""

from dataclasses import dataclass

from capd.core.lazy_patterns import lazy_pattern

LONGEST_COMPARED = 320
"""A message of at most this many characters, about 64 tokens, is compared as a whole. The ends of a
longer one have this many characters together."""
LONGEST_PASSAGE = 240
SHORTEST_PASSAGE = 40
"""A shorter sentence is joined with the one after it."""
MOST_PASSAGES = 10
MOST_CHARACTERS = 1200
"""A message of at most this many characters is divided into passages as a whole. Of a longer one,
only the beginning and the end are divided, this many characters together. Embedding the passages
takes about 30 ms."""

# Every alternative is anchored at a character, so the time is linear in the text.
_END = lazy_pattern(r"(?<=[.!?…;:])\s+|\n+")


@dataclass(frozen=True, slots=True)
class Passages:
    """The parts of a message that are compared with the catalog one by one."""

    ends: str
    """A short message itself; the beginning and the end of a long one."""
    others: tuple[str, ...] = ()
    """The passages of a long message, from the first to the last."""

    @property
    def each(self) -> tuple[str, ...]:
        """All parts, each of which gets a vector of its own."""
        return (self.ends, *self.others)

    def part(self, at: int) -> str:
        """Return the part with the index `at`; if there is none, the ends of the message."""
        return self.each[at] if 0 <= at < len(self.each) else self.ends

    @property
    def text(self) -> str:
        """The text in which names and triggers are looked for."""
        return " ".join(self.others) if self.others else self.ends


def passages_of(cleaned: str) -> Passages:
    """Return the parts of a message to compare; `cleaned` is what `cleaning.clean` left of it."""
    if len(cleaned) <= LONGEST_COMPARED:
        return Passages(cleaned)
    return Passages(_ends(cleaned, LONGEST_COMPARED), _divided(_ends(cleaned, MOST_CHARACTERS)))


def _ends(text: str, size: int) -> str:
    """Return the first and the last words of `text`, together at most `size` characters."""
    if len(text) <= size:
        return text
    half = size // 2
    head = text[:half].rpartition(" ")[0] or text[:half]
    tail = text[-half:].partition(" ")[2] or text[-half:]
    return f"{head} {tail}"


def _divided(text: str) -> tuple[str, ...]:
    """Return the passages of `text`, at most `MOST_PASSAGES`: the first and the last ones."""
    passages: list[str] = []
    open_passage = ""
    for sentence in _sentences(text):
        joined = f"{open_passage} {sentence}".strip()
        if open_passage and len(joined) > LONGEST_PASSAGE:
            passages.append(open_passage)
            joined = sentence
        if len(joined) >= SHORTEST_PASSAGE:
            passages.append(joined)
            joined = ""
        open_passage = joined
    if open_passage:
        passages.append(open_passage)
    if len(passages) > MOST_PASSAGES:
        half = MOST_PASSAGES // 2
        passages = [*passages[:half], *passages[-half:]]
    return tuple(passages)


def _sentences(text: str) -> list[str]:
    """Return the sentences of `text`; one that is too long is cut between words."""
    sentences: list[str] = []
    for sentence in _END.split(text):
        rest = sentence.strip()
        while len(rest) > LONGEST_PASSAGE:
            head = rest[:LONGEST_PASSAGE].rpartition(" ")[0] or rest[:LONGEST_PASSAGE]
            sentences.append(head)
            rest = rest[len(head) :].strip()
        if rest:
            sentences.append(rest)
    return sentences
