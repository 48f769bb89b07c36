"""The text by which a model gets a server's `instructions` (a member of MCP's `initialize` result).

A model gets them when the server's capability is switched on, on one line that names the server and
says that nobody has checked them. Hidden characters are removed from the instructions, and they are
cut to the available room. As they are on one line, no part of them can look like a line of capd's
(docs/design/hostile-servers.md).
"""

from collections.abc import Sequence

from capd.core.definitions.hidden_text import cleaned
from capd.core.sessions.hook_context import TURN_TOKENS, tokens_at_most

ANSWER_TOKENS = 400
"""The most tokens for all servers of a capability, when a model has asked to switch it on."""
_LONGEST = 4000
"""Characters of a server's instructions after this many are ignored."""
_FEWEST_WORDS = 6
"""Instructions that would be cut to fewer words are left out."""


def instructions_text(instructions: Sequence[tuple[str, str]], room: int) -> str:
    """Return the text by which a model gets the `instructions` of servers.

    `instructions` pairs the name of each server with its instructions. The text has at most `room`
    tokens, and is empty if nothing fits.
    """
    lines: list[str] = []
    for server, text in instructions:
        words = _clean(text).split()
        line = _cut(server, words, room - sum(map(tokens_at_most, lines)))
        if line:
            lines.append(line)
    return "\n".join(lines)


def room_in_turn(context: str, suggestion: str) -> int:
    """Return how many tokens of a turn are left after its texts `context` and `suggestion`."""
    return TURN_TOKENS - tokens_at_most(context) - tokens_at_most(suggestion)


def _clean(text: str) -> str:
    # Quotation marks in the text would end the ones that capd puts around it.
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
