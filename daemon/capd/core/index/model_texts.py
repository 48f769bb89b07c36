"""Better words for capabilities from a client's own model: the question, and the usable answers.

A model may answer anything. Only an object with the names that were asked about, and with words of
the right type and length, is used. A person must accept the words before they are used.
"""

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from capd.core.errors import CapdError
from capd.core.index.extraction import LONGEST_DO, LONGEST_PHRASE, LONGEST_VERB, MOST_PHRASES
from capd.core.index.token_costs import one_line
from capd.core.lazy_patterns import lazy_pattern
from capd_protos.index import IndexEntry, Revision

AT_ONCE = 20
"""The most capabilities in one question: an answer about this many has a thousand tokens."""
TOKENS_EACH = 120
SYSTEM = (
    "You write an index of tools for other models. Answer with one JSON object and nothing else."
)
_ASKED = (
    "For each capability below write better words, from what is said of it and no more. The answer "
    'is an object: the name as it stands, then {"verb": one English verb in lower case, "do": what '
    'it does in at most 12 words, "use_when": at most two short phrases that a user would say}.'
)
_VERB = lazy_pattern(r"[a-z][a-z-]*")
_OBJECT = lazy_pattern(r"\{.*\}", re.DOTALL)


class BadAnswerError(CapdError):
    """The model's answer contains no JSON object."""


def question(entries: Sequence[IndexEntry]) -> str:
    """Return the text that asks a model for better words for the capabilities in `entries`."""
    told = {
        str(entry.id): {"verb": entry.verb, "do": entry.do, "use_when": entry.use_when}
        for entry in entries
    }
    return f"{_ASKED}\n{msgspec.json.encode(told).decode()}"


def revisions(answer: str, entries: Sequence[IndexEntry]) -> list[Revision]:
    """Return the new wordings in an answer that differ from those of `entries`.

    Raises:
        BadAnswerError: the answer contains no JSON object.
    """
    found = _OBJECT.search(answer)
    try:
        read = msgspec.json.decode(found[0], type=dict[str, Any]) if found else None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        read = None
    if read is None:
        raise BadAnswerError("the client's model did not answer with a JSON object")
    changed = (_revision(entry, read.get(str(entry.id))) for entry in entries)
    return [revision for revision in changed if revision is not None]


def _revision(entry: IndexEntry, said: object) -> Revision | None:
    if not isinstance(said, dict):
        return None
    verb, do, use_when = said.get("verb"), said.get("do"), said.get("use_when")
    verb = verb if isinstance(verb, str) and len(verb) <= LONGEST_VERB else ""
    verb = verb if _VERB.fullmatch(verb) else ""
    do = one_line(do).rstrip(".") if isinstance(do, str) else ""
    do = do if len(do) <= LONGEST_DO else ""
    given = use_when if isinstance(use_when, list) else []
    phrases = [one_line(phrase) for phrase in given if isinstance(phrase, str)]
    phrases = [p for p in phrases if p and len(p) <= LONGEST_PHRASE][:MOST_PHRASES]
    other = Revision(
        str(entry.id),
        verb if verb != entry.verb else "",
        do if do != entry.do else "",
        phrases if phrases != entry.use_when else [],
    )
    return other if other.verb or other.do or other.use_when else None
