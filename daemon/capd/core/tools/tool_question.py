"""A question to the tool search: words to rank by, or the names to find.

`select:a,b` names tools; everything else is words. If a question is wrong, the error says so in a
sentence that a model can act on.
"""

from dataclasses import dataclass

from capd.core.errors import CapdError

SELECT = "select:"
MOST_RESULTS = 25
DEFAULT_RESULTS = 5


class BadQuestionError(CapdError):
    """The question cannot be searched; the text says what is wrong and what is right."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """Find what fits the words best."""

    words: str
    limit: int


@dataclass(frozen=True, slots=True)
class Selection:
    """Take exactly these, in this order."""

    names: tuple[str, ...]


def question(query: str, max_results: int = DEFAULT_RESULTS) -> Ranking | Selection:
    """Return the parsed question.

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
        return Ranking(asked, max_results)
    stripped = (name.strip() for name in asked.removeprefix(SELECT).split(","))
    names = tuple(dict.fromkeys(name for name in stripped if name))
    if not names:
        raise BadQuestionError(f"{SELECT} names no tool: write {SELECT}name,name.")
    return Selection(names)
