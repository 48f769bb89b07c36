"""Handles messages that mean nothing without the one before them, such as "and now push it".

Such a message is compared by the mean of its own vector and that of the message before it in its
conversation. Every other message is compared by its own vector alone. For each of the last 256
conversations, the vector by which its last message was compared is kept in memory; its text is not.
"""

import re
from collections import OrderedDict
from typing import TYPE_CHECKING

from capd.core.lazy_patterns import lazy_pattern

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Vectors = npt.NDArray[np.float32]

SHARE = 0.5
"""The weight of the message before; measured with `bench/routing/follow_ups.jsonl`
(docs/design/routing.md, "Follow-ups")."""
MOST_WORDS = 9
FEW_WORDS = 2
MOST_CONVERSATIONS = 256

_GOES_ON = lazy_pattern(
    r"""^\W*(?:(?:ok|okay|great|good|nice|cool|perfect|thanks|yes|no|hm+|ooh|oh|pls|please)\W+)*
    (?:and|also|then|now|same|again|but|or|instead|another|one\s+more|what\s+about|how\s+about
      |only|too|next|wait|actually|with|without|for|in|on|to|from|until|since|sorted|as)\b""",
    re.IGNORECASE | re.VERBOSE,
)
_POINTS = lazy_pattern(
    r"""\b(?:it|its|it's|that|them|those|these|this|one|ones|there|same|again|instead|too|else
      |another|other|others|both|rest|first|second|third|last|previous|more)\b""",
    re.IGNORECASE | re.VERBOSE,
)
_CLOSES = lazy_pattern(
    r"""^\W*(?:(?:ok(?:ay)?|great|good|nice|cool|perfect|thanks?|thank\s+you|thx|got\s+it|never\s?mind
      |forget\s+it|good\s+to\s+know|done|fine|noted|acknowledged|that's\s+(?:all|it)|interesting
      |i\s+see|makes\s+sense|lol|haha|wow)\b\W*)+(?:\w+\W*){0,3}$""",
    re.IGNORECASE | re.VERBOSE,
)


def is_elliptical(text: str) -> bool:
    """Tell whether a message means little alone.

    It does if it has at most two words. It also does if it has at most nine words, and begins like
    a continuation ("and ...") or has a word that points back ("it"). A message that only closes the
    conversation, such as "thanks", does not count.
    """
    count = len(text.split())
    if not 0 < count <= MOST_WORDS or _CLOSES.match(text):
        return False
    return count <= FEW_WORDS or bool(_GOES_ON.match(text)) or bool(_POINTS.search(text))


def blended(message: "Vectors", before: "Vectors") -> "Vectors":
    """Return a unit vector between two unit vectors.

    `before` has the weight `SHARE`, and `message` the rest.
    """
    import numpy as np  # noqa: PLC0415 - 60 ms that a daemon without turns never pays

    mixed = (1 - SHARE) * message + SHARE * before
    length = float(np.linalg.norm(mixed))
    return message if not length else (mixed / np.float32(length)).astype(np.float32)


class LastMessages:
    """For each of the latest conversations, the vector by which its last message was compared."""

    def __init__(self) -> None:
        self._vectors: OrderedDict[str, Vectors] = OrderedDict()

    def compared(self, conversation: str, text: str, message: "Vectors") -> "Vectors":
        """Return the vector by which to compare the message `text`, and remember it.

        `message` is the unit vector of `text`. A message that means little alone is blended with
        the one before it in its conversation.
        """
        before = self._vectors.get(conversation)
        if before is not None and is_elliptical(text):
            message = blended(message, before)
        self._vectors[conversation] = message
        self._vectors.move_to_end(conversation)
        while len(self._vectors) > MOST_CONVERSATIONS:
            self._vectors.popitem(last=False)
        return message
