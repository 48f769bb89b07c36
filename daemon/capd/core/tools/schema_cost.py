r"""Decides whether checking a value against a stranger's schema is cheap enough.

Two kinds of schemas cost more than their size suggests. In the first, a schema refers to itself in
two places, which doubles the work with each level of a value: 14 levels took three seconds and half
a gigabyte. In the second, a pattern repeats a repetition, and the regular expression engine expands
each: `(\w{100}){100}` becomes ten thousand states. A check that would be too expensive is skipped,
as if there were no schema.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from capd.core.lazy_patterns import lazy_pattern
from capd.core.tools.schema_bounds import REFERENCES

MOST_BRANCHES = 10_000
MOST_PATTERN_WORK = 20_000
"""The most characters of all patterns together, with each repetition written out."""
_CLASS_WORK = 10
_LONGEST_CLASS = 200
"""A class of characters that is longer than this counts with its full length."""
_REPETITION = lazy_pattern(r"\{(\d{0,6})(?:,(\d{0,6}))?\}")


class SchemaCost:
    """The highest possible cost of checking values against one JSON Schema."""

    def __init__(self, schema: Any) -> None:
        patterns, references = _found(schema)
        self._has_dear_patterns = sum(map(pattern_work, patterns)) > MOST_PATTERN_WORK
        self._references = len(references) if _is_recursive(schema, references) else 0

    @property
    def is_compiled(self) -> bool:
        """Whether the schema may be compiled: its patterns are not too expensive."""
        return not self._has_dear_patterns

    def is_bounded(self, value: Any) -> bool:
        """Tell whether checking `value` against the schema is cheap enough.

        A check with at most `MOST_BRANCHES` branches is cheap enough.
        """
        if self._references <= 1:
            return True
        branches = 1
        for _ in range(depth_of(value)):
            branches *= self._references
            if branches > MOST_BRANCHES:
                return False
        return True


def depth_of(value: Any) -> int:
    """Return how deeply objects and lists are nested in a decoded value. A scalar has depth 0."""
    level, depth = [value], 0
    while level := [each for each in level if isinstance(each, dict | list)]:
        depth += 1
        level = [i for each in level for i in (each.values() if isinstance(each, dict) else each)]
    return depth


def pattern_work(pattern: str) -> int:
    """Return the approximate length of a regular expression with each repetition written out."""
    groups = [0]
    last = at = 0
    while at < len(pattern):
        character = pattern[at]
        repeated = _REPETITION.match(pattern, at) if character == "{" else None
        if repeated is not None:
            times = int(repeated[2] or repeated[1] or 1)
            groups[-1] += last * max(0, times - 1)
            last *= max(1, times)
            at = repeated.end()
            continue
        if character == "(":
            groups.append(0)
            last = 0
        elif character == ")" and len(groups) > 1:
            last = groups.pop()
            groups[-1] += last
        else:
            end = _class_end(pattern, at)
            last = 1 if end == at else _CLASS_WORK
            groups[-1] += last
            at = end
        at += 1
    return sum(groups)


def _class_end(pattern: str, at: int) -> int:
    """Return the end of the class of characters, such as `[a-z]`, that begins at `at`.

    The result is `at` if none begins there.
    """
    if pattern[at] == "[":
        return max(at, pattern.find("]", at + 2, at + _LONGEST_CLASS))
    if pattern[at] != "\\":
        return at
    if pattern[at + 1 : at + 3] in {"p{", "P{"}:
        return max(at + 1, pattern.find("}", at, at + _LONGEST_CLASS))
    return at + 2 if pattern[at + 1 : at + 2] in {"p", "P"} else at + 1


def _found(schema: Any) -> tuple[list[str], list[str]]:
    """Return the regular expressions in a JSON Schema, and the references in it."""
    patterns: list[str] = []
    references: list[str] = []
    for each in _tables(schema):
        pattern = each.get("pattern")
        patterns += [pattern] if isinstance(pattern, str) else []
        named = each.get("patternProperties")
        patterns += list(named) if isinstance(named, Mapping) else []
        references += [str(each[key]) for key in REFERENCES if key in each]
    return patterns, references


def _tables(schema: Any) -> Iterator[Mapping[str, Any]]:
    waiting = [schema]
    while waiting:
        each = waiting.pop()
        if isinstance(each, Mapping):
            yield each
            waiting += each.values()
        elif isinstance(each, list):
            waiting += each


def _is_recursive(schema: Any, references: list[str]) -> bool:
    """Tell whether a JSON Schema refers to itself, directly or through other references.

    True, too, if a reference cannot be followed within the document.
    """
    leads = {each: target_of(schema, each) for each in dict.fromkeys(references)}
    if None in leads.values():
        return True
    followed = {each: set(_found(target)[1]) for each, target in leads.items()}
    while followed:
        ends = [each for each, onward in followed.items() if not onward & followed.keys()]
        if not ends:
            return True
        for each in ends:
            del followed[each]
    return False


def target_of(schema: Any, reference: str) -> Any:
    """Return the target of a reference that begins with `#/`; None for any other reference."""
    if not reference.startswith("#/"):
        return None
    target = schema
    for step in reference[2:].split("/"):
        key = step.replace("~1", "/").replace("~0", "~")
        target = target.get(key) if isinstance(target, Mapping) else None
    return target
