"""What one session costs its model in tokens: tool lists, and other texts for it.

Texts are noted when they are sent, and counted later elsewhere. Until then a text is kept, and the
sums that contain it are unknown, never guessed. A list has as many tokens as its definitions
together. If a list differs from the one sent before, everything from its first changed byte on
counts again, because a provider's prompt cache ends there.

    sent ──> open (its texts are kept) ──counted──> counted (a number)
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Literal

Kind = Literal["turns", "searches", "answers", "changes"]
Count = Callable[[bytes], int | None]
"""A function that returns the number of tokens of a text; None if it is not counted yet."""

MOST_CHANGES = 10
"""How many of the newest changes are kept one by one."""
MOST_OPEN = 64
MOST_OPEN_BYTES = 8 << 20
"""The most bytes of texts that wait to be counted. Further texts are reported as uncounted."""
_NOT_FIRST = (0xC0, 0x80)
"""The mask and the value of the two highest bits in a UTF-8 byte that begins no character."""


@dataclass(frozen=True, slots=True)
class TextCount:
    """The number of texts of one kind that the session was sent, and their tokens."""

    count: int = 0
    tokens: int | None = 0
    """The tokens of all texts that can be counted; None while one is still to be counted."""
    uncounted: int = 0
    """How many of these texts will never be counted."""


@dataclass(frozen=True, slots=True)
class ListChange:
    """One replacement of a tool list by another, and the tokens that it cost."""

    at: float
    added: int
    """How many definitions the list has that the list before did not have."""
    removed: int
    tokens: int | None
    """The tokens of the list that have to be read again; None if they were never counted."""


@dataclass(frozen=True, slots=True)
class Figures:
    """The token counts of a session; None means not known."""

    tools: int | None
    """The number of tools that the client was sent; None if it never asked."""
    list_tokens: int | None
    own_tokens: int | None
    """The part of `list_tokens` that capd's own tools take."""
    instructions: int | None
    """The tokens of the `instructions` that the client was sent."""
    turns: TextCount
    """The texts for the model with the user's messages."""
    searches: TextCount
    """The answers of `tool_search`."""
    answers: TextCount
    """The answers of `capability`."""
    changes: TextCount
    """The parts of replaced lists that had to be read again."""
    last_changes: tuple[ListChange, ...]
    is_counting: bool
    """Whether something that was sent is still to be counted."""

    @property
    def surface(self) -> int | None:
        """The tokens of tool list and instructions, which precede each prompt; None if unknown."""
        if self.list_tokens is None or self.instructions is None:
            return None
        return self.list_tokens + self.instructions

    @property
    def added(self) -> int | None:
        """The tokens of texts for the model, and of lists that replaced others; None if unknown."""
        total = 0
        for part in (self.turns, self.searches, self.answers, self.changes):
            if part.tokens is None:
                return None
            total += part.tokens
        return total

    def saved(self, all_tools: int | None) -> int | None:
        """Return how many tokens the session saves, compared with a list of every tool.

        That is `all_tools`, the tokens of such a list, minus the tokens of the session's own list
        and instructions. It is below 0 if the session reads more, and None if a number is not
        known.
        """
        if all_tools is None or self.surface is None:
            return None
        return all_tools - self.surface

    def net(self, all_tools: int | None) -> int | None:
        """Return the saved tokens minus those of other texts, as if the session were one prompt.

        `all_tools` are the tokens of a list of every tool. None if a number is not known.
        """
        saved = self.saved(all_tools)
        return None if saved is None or self.added is None else saved - self.added


@dataclass(frozen=True, slots=True)
class _Open:
    kind: Kind
    texts: tuple[bytes, ...]
    change: ListChange | None = None


class TokenAccount:
    """Sums up the tokens of what one session was sent, as far as they are counted."""

    __slots__ = ("_instructions", "_last", "_list", "_listed", "_open", "_own", "_sums", "_text")

    def __init__(self) -> None:
        self._listed: tuple[bytes, ...] | None = None
        self._own = 0
        self._list: tuple[int, int] | None = None
        self._text = ""
        self._instructions: int | None = 0
        self._sums: dict[Kind, tuple[int, int, int]] = {}
        self._open: tuple[_Open, ...] = ()
        self._last: tuple[ListChange, ...] = ()

    def note_list(self, definitions: Sequence[bytes], own: int, now: float) -> None:
        """Note a list of tools as it was sent; the first `own` of them are capd's."""
        before, after = self._listed, tuple(definitions)
        if after == before:
            return
        self._listed, self._own, self._list = after, own, None
        if before is not None:
            old, new = set(before), set(after)
            change = ListChange(now, len(new - old), len(old - new), None)
            self._note(_Open("changes", sent_anew(before, after), change))

    def note_instructions(self, text: str) -> None:
        """Note the instructions as they were sent."""
        if text != self._text:
            # Interned: a thousand sessions have the same text.
            self._text = sys.intern(text)
            self._instructions = None if text else 0

    def note_text(self, kind: Kind, text: str) -> None:
        """Note a text that reaches the model."""
        if text:
            self._note(_Open(kind, (_encoded(text),)))

    @property
    def has_listed(self) -> bool:
        """Whether a list of tools was ever sent."""
        return self._listed is not None

    @property
    def is_counting(self) -> bool:
        """Whether the tokens of some sent text are still to be counted."""
        is_list_open = self._listed is not None and self._list is None
        return is_list_open or self._instructions is None or bool(self._open)

    def uncounted_texts(self) -> Iterator[bytes]:
        """Yield the texts whose token counts `store_counts` needs."""
        if self._listed is not None and self._list is None:
            yield from self._listed
        if self._instructions is None:
            yield _encoded(self._text)
        for each in self._open:
            yield from each.texts

    def store_counts(self, count: Count) -> None:
        """Store the token counts that are known by now; `count` returns that of a text, or None."""
        if self._listed is not None and self._list is None:
            own = _summed(self._listed[: self._own], count)
            rest = _summed(self._listed[self._own :], count)
            if own is not None and rest is not None:
                self._list = (own + rest, own)
        if self._instructions is None:
            self._instructions = count(_encoded(self._text))
        still_open = []
        for each in self._open:
            tokens = _summed(each.texts, count)
            if tokens is None:
                still_open.append(each)
            else:
                self._add_tokens(each, tokens)
        self._open = tuple(still_open)

    def figures(self) -> Figures:
        """Return the session's token counts so far; one that is not known yet is None."""
        listed, own = self._list or (None, None)
        return Figures(
            tools=None if self._listed is None else len(self._listed),
            list_tokens=listed,
            own_tokens=own,
            instructions=self._instructions,
            turns=self._tally("turns"),
            searches=self._tally("searches"),
            answers=self._tally("answers"),
            changes=self._tally("changes"),
            last_changes=self._last,
            is_counting=self.is_counting,
        )

    def _tally(self, kind: Kind) -> TextCount:
        count, tokens, uncounted = self._sums.get(kind, (0, 0, 0))
        is_open = any(each.kind == kind for each in self._open)
        return TextCount(count, None if is_open else tokens, uncounted)

    def _note(self, item: _Open) -> None:
        count, tokens, uncounted = self._sums.get(item.kind, (0, 0, 0))
        kept_bytes = sum(len(text) for each in (*self._open, item) for text in each.texts)
        if len(self._open) < MOST_OPEN and kept_bytes <= MOST_OPEN_BYTES:
            self._sums[item.kind] = (count + 1, tokens, uncounted)
            self._open = (*self._open, item)
            return
        self._sums[item.kind] = (count + 1, tokens, uncounted + 1)
        if item.change is not None:
            self._keep(item.change)

    def _add_tokens(self, item: _Open, tokens: int) -> None:
        count, before, uncounted = self._sums[item.kind]
        self._sums[item.kind] = (count, before + tokens, uncounted)
        if item.change is not None:
            self._keep(replace(item.change, tokens=tokens))

    def _keep(self, change: ListChange) -> None:
        ordered = sorted((*self._last, change), key=lambda each: each.at)
        self._last = tuple(ordered[-MOST_CHANGES:])


def sent_anew(before: Sequence[bytes], after: Sequence[bytes]) -> tuple[bytes, ...]:
    """Return the parts of the list `after` that a model has to read again.

    That is everything from the first byte in which it differs from `before`. The first part may be
    the rest of a definition; the others are whole definitions.
    """
    for at, (old, new) in enumerate(zip_longest(before, after)):
        if old == new:
            continue
        if new is None:
            # A definition removed from the end leaves the rest unchanged.
            return ()
        rest = new[_common(old or b"", new) :]
        return (rest, *after[at + 1 :])
    return ()


def _common(old: bytes, new: bytes) -> int:
    """Return the length in bytes of the common beginning of two texts, in whole characters."""
    pairs = enumerate(zip(old, new, strict=False))
    end = next((at for at, (a, b) in pairs if a != b), min(len(old), len(new)))
    while 0 < end < len(new) and new[end] & _NOT_FIRST[0] == _NOT_FIRST[1]:
        end -= 1
    return end


def _encoded(text: str) -> bytes:
    return text.encode(errors="replace")


def _summed(texts: Sequence[bytes], count: Count) -> int | None:
    total = 0
    for text in texts:
        tokens = count(text)
        if tokens is None:
            return None
        total += tokens
    return total
