"""Parses a question to the tool search: words to rank by, or names to look up.

    send a mail            words: the best tools for them
    +mail send it          words, of which `mail` must be somewhere in the tool's own text
    select:a,b             exactly these tools

If a question is not valid, the text of the error tells a model how to correct it.
"""

from dataclasses import dataclass

from capd.core.errors import CapdError
from capd.core.lazy_patterns import lazy_pattern

SELECT = "select:"
MOST_RESULTS = 25
DEFAULT_RESULTS = 5
MOST_QUERIES = 5
MOST_REQUIRED = 8
# A plus sign inside a word (c++, a+b) or before a number (+1) asks for nothing.
_REQUIRED = lazy_pattern(r"(?<!\S)\+([^\W\d]\w*)")


class BadQuestionError(CapdError):
    """A question to the tool search is not valid; the text says why, and what would be valid."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """A question to the tool search: which tools fit `words` best. At most `limit` are wanted."""

    words: str
    limit: int
    required: tuple[str, ...] = ()
    """Words, case-folded, that the text of each hit must contain."""


@dataclass(frozen=True, slots=True)
class Selection:
    """A question to the tool search for the tools with these names, in their order."""

    names: tuple[str, ...]


def question(query: str, max_results: int = DEFAULT_RESULTS) -> Ranking | Selection:
    """Return the question to the tool search that `query` stands for.

    Raises:
        BadQuestionError: the query is empty, or `max_results` is out of bounds.
    """
    asked = query.strip()
    if not asked:
        raise BadQuestionError(
            "`query` is empty: say in a few words what the tool should do, or name tools with "
            f"{SELECT}name,name."
        )
    if not 1 <= max_results <= MOST_RESULTS:
        raise BadQuestionError(f"`max_results` is {max_results}: it is from 1 to {MOST_RESULTS}.")
    if not asked.startswith(SELECT):
        required = tuple(dict.fromkeys(w.casefold() for w in _REQUIRED.findall(asked)))
        return Ranking(_REQUIRED.sub(r"\1", asked), max_results, required[:MOST_REQUIRED])
    stripped = (name.strip() for name in asked.removeprefix(SELECT).split(","))
    names = tuple(dict.fromkeys(name for name in stripped if name))
    if not names:
        raise BadQuestionError(f"{SELECT} names no tool: write {SELECT}name,name.")
    return Selection(names)
