"""A server's `instructions`, in the form that a model gets.

They are passed on when the server's capability is switched on, and labelled as the server's. They
are cleaned like definitions, put on one line so that nothing in them looks like a line of capd's,
and cut to the available room (docs/design/hostile-servers.md). A server whose tools are all
withheld has none.
"""

from collections.abc import Sequence

from capd.core.definitions.hidden_text import cleaned
from capd.core.sessions.hook_context import TURN_TOKENS, tokens_at_most

ANSWER_TOKENS = 400
"""For all servers of one capability, if a model asked for it."""
_LONGEST = 4000
"""Characters of it that are used."""
_FEWEST_WORDS = 6
"""A shorter cut says nothing."""

Said = Sequence[tuple[str, str]]
"""Servers' names with their instructions."""


def passed_on(said: Said, room: int) -> str:
    """Return the text for a model, of at most `room` tokens; empty if there is none."""
    lines: list[str] = []
    for server, text in said:
        words = _clean(text).split()
        line = _cut(server, words, room - sum(map(tokens_at_most, lines)))
        if line:
            lines.append(line)
    return "\n".join(lines)


def room_in_turn(context: str, suggestion: str) -> int:
    """Return how many tokens of a turn are left."""
    return TURN_TOKENS - tokens_at_most(context) - tokens_at_most(suggestion)


def _clean(text: str) -> str:
    # Its quotation marks would end capd's.
    return cleaned(text[:_LONGEST]).text.replace('"', "'")


def _cut(server: str, words: Sequence[str], room: int) -> str:
    whole = _line(server, " ".join(words))
    if words and tokens_at_most(whole) <= room:
        return whole
    # A binary search for the longest beginning that fits.
    fits, over = 0, len(words)
    while over - fits > 1:
        middle = (fits + over) // 2
        if tokens_at_most(_line(server, f"{' '.join(words[:middle])} ...")) <= room:
            fits = middle
        else:
            over = middle
    return _line(server, f"{' '.join(words[:fits])} ...") if fits >= _FEWEST_WORDS else ""


def _line(server: str, text: str) -> str:
    return f"Server '{server}' says of itself, unchecked: \"{text}\""
