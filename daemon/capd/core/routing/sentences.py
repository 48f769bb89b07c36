"""Finds what each sentence of a message does: it asks, orders, names a need, or tells something.

"Our wiki is a mess." tells; "our wiki is a mess, can you sort the pages?" tells and asks. A message
that only tells seldom needs a tool, whatever it is about. The signs here depend on no capability,
like those of `core.routing.manner`. They are evidence for "none" with calibrated weights. A weight
may be negative: an order speaks against "none".

A sentence here is a part of a message between full stops, question marks, semicolons, new lines or
spaced dashes. A comma before "can", "please", "but" or a similar word also ends one.
"""

import re
from typing import Literal

from capd.core.lazy_patterns import lazy_pattern

Act = Literal["asks", "orders", "needs", "tells"]

SENTENCE_SIGNS = (
    "any_asks",
    "any_orders",
    "any_needs",
    "share_telling",
    "first_asks",
    "first_orders",
    "first_tells",
    "last_asks",
    "last_orders",
    "last_needs",
    "last_tells",
    "to_you",
    "past_of_mine",
    "past_of_others",
    "future",
    "opinion",
)
"""The names of the values that `sentence_signs` returns, in order."""

LONGEST_READ = 2000
"""Only this many characters are read."""
MOST_SENTENCES = 12
"""Only this many sentences are read, from the beginning."""

_END = lazy_pattern(
    r"(?<=[.!?…;])\s+|\n+|\s[-–—]+\s|,\s+(?=(?:can|could|would|will|please|pls|so|but|then|and)\b)",
    re.IGNORECASE,
)
# Words that may stand before the verb of an order.
_LEAD = lazy_pattern(
    r"""^\W*(?:(?:ok|okay|so|well|and|but|then|now|also|hey|hi|hello|yo|please|pls|just|quick
    |actually|right|alright|btw|um+|uh+|yes|yeah|no|thanks|sorry|oh|ah|first|next|finally|again
    |kindly|maybe|folks|team|dear)\b\W*)+""",
    re.IGNORECASE | re.VERBOSE,
)
_VERBS = """
add adjust allow analyse analyze annotate append apply archive arrange ask assign attach back
backfill benchmark block book bring browse build bump bundle calc calculate call cancel capture
change chart check choose classify clean clear click clone close collect combine commit compare
compile compose compress compute configure connect confirm convert copy correct count create crop
cut deactivate debug decode decrypt define delete deploy describe detect diff dig disable discover
display do download draft draw drop dump duplicate edit email embed enable encode encrypt ensure
estimate evaluate execute expand explain export extract fetch figure file fill filter find finish
fire fix flag follow format forward freeze gather generate get give go grab grep group handle help
hide highlight hook hunt identify implement import improve inspect install invite invoice join jot
keep kick kill label launch lint list load locate log look lookup make map mark match measure merge
message migrate monitor move mute navigate normalize normalise note notify open order organize paint
parse paste patch pause pick ping place play plot poll post predict prepare present preview print
process produce profile provide publish pull push put query queue quote rank read rebase rebuild
recall recalculate record recover redo reduce refresh refund register reload remember remind remove
rename render reopen repeat replace reply report reproduce request rerun rescale reset resize
resolve restart restore resume retrieve retry return revert review rewrite roll rotate round run
sample save
scan schedule scrape screenshot scroll search select sell send separate set share ship show shrink
sign simplify simulate slice snapshot sort spin split squash stage start stash stop store stream
strip submit subscribe sum summarise summarize swap switch sync tag take tell test text toggle total
trace track train transcribe transfer transform translate triage trim try tune turn type undo unify
unpack unsubscribe untar unzip update upgrade upload use validate verify view visit visualise
visualize wait walk warn watch wire work wrap write zip
"""
# "Post the notes" orders; "post is slow today" tells.
_ORDER = lazy_pattern(
    rf"(?:{'|'.join(_VERBS.split())})\b(?!\s+(?:is|are|was|were|has|had|keeps|does)\b)",
    re.IGNORECASE,
)
_ASK = lazy_pattern(
    r"""\?\s*\W*$ | ^(?:what|which|who|whom|whose|when|where|why|how|is|are|am|was|were|do|does|did
    |has|have|had|can|could|would|will|should|shall|may|any\s+(?:idea|chance|way))\b""",
    re.IGNORECASE | re.VERBOSE,
)
_NEED = lazy_pattern(
    r"""\b(?:i|we)(?:'?d|\s+would|\s+really|\s+just|\s+still|\s+also|\s+will|'?ll)?\s+
        (?:want|wanna|like\s+(?:to|a|an|the|you|it)|have\s+to|should|gotta|have\s+got\s+to)\b
    | \bneeds?\s+(?:to|a|an|the|me|you)\b | \bneed\b | \blooking\s+for\b | \blet'?s\b
    | \bcan'?t\s+find\b | \bno\s+idea\s+(?:what|which|where|who|how)\b
    | \bi\s+(?:wonder|forgot|don'?t\s+know)\b | \bhas\s+to\b | \bmust\b""",
    re.IGNORECASE | re.VERBOSE,
)
_TO_YOU = lazy_pattern(
    r"""\b(?:can|could|would|will)\s+(?:you|u|ya|someone|we)\b | \bplease\b | \bpls\b | \bfor\s+me\b
    | \b(?:give|show|tell|send|get|bring|help|find)\s+(?:me|us)\b""",
    re.IGNORECASE | re.VERBOSE,
)
_PAST_OF_MINE = lazy_pattern(
    r"""\b(?:i|we)(?:'ve|\s+have|\s+had)?\s+(?:(?:already|just|finally|once|never)\s+)?
    (?:\w{2,}ed|did|went|got|had|was|were|made|wrote|sent|put|ran|saw|found|took|spent|lost|told
    |said|gave|bought|paid|kept|left|met|read|thought|knew|built|broke|chose)\b""",
    re.IGNORECASE | re.VERBOSE,
)
_PAST_OF_OTHERS = lazy_pattern(
    r"""\b[a-z]+\s+(?:(?:already|just|finally)\s+)?
    (?:was|were|went|got|had|said|told|did|made|wrote|sent|took|came|gave|broke
    |(?:has|have)\s+been|has\s+\w+ed)\b""",
    re.IGNORECASE | re.VERBOSE,
)
_FUTURE = lazy_pattern(
    r"""\b(?:will|gonna|going\s+to|tomorrow|next\s+(?:week|month|year|monday)|later|someday
    |one\s+day|soon)\b | 'll\b""",
    re.IGNORECASE | re.VERBOSE,
)
_OPINION = lazy_pattern(
    r"""\b(?:do\s+you\s+(?:think|like|prefer|know)|what\s+do\s+you|have\s+you\s+ever|anyone|anybody
    |isn'?t\s+it|would\s+you\s+rather|should\s+(?:i|we|one)|worth|better\s+than|overrated
    |favou?rite|in\s+general|generally|typically|usually|in\s+theory)\b | \bright\?""",
    re.IGNORECASE | re.VERBOSE,
)


def sentences(text: str) -> list[str]:
    """Return the first sentences of `text`, at most `MOST_SENTENCES`; never an empty list."""
    read = text[:LONGEST_READ].replace("’", "'")
    found = [each for each in _END.split(read) if any(map(str.isalnum, each))]
    return found[:MOST_SENTENCES] or [read]


def act(sentence: str) -> Act:
    """Return which kind a sentence is: it asks, orders, names a need, or else only tells."""
    begun = _LEAD.sub("", sentence).strip()
    if _ASK.search(begun):
        return "asks"
    if _ORDER.match(begun):
        return "orders"
    return "needs" if _NEED.search(sentence) else "tells"


def sentence_signs(text: str) -> tuple[float, ...]:
    """Return how strong each of `SENTENCE_SIGNS` is in a message, from 0 to 1.

    A sign says what the message's sentences do, for example that one of them asks for something.
    """
    acts = [act(each) for each in sentences(text)]
    first, last = acts[0], acts[-1]
    read = text[:LONGEST_READ].replace("’", "'")
    return (
        float("asks" in acts),
        float("orders" in acts),
        float("needs" in acts),
        acts.count("tells") / len(acts),
        *(float(first == each) for each in ("asks", "orders", "tells")),
        *(float(last == each) for each in ("asks", "orders", "needs", "tells")),
        *(
            float(pattern.search(read) is not None)
            for pattern in (_TO_YOU, _PAST_OF_MINE, _PAST_OF_OTHERS, _FUTURE, _OPINION)
        ),
    )
