"""Lessons from failed calls: a call that failed, and the next call of the same tool that worked.

    failed ──worked with some arguments changed──> a lesson, counted with equal ones
    failed ──worked with the same arguments, or with many changed──> nothing

Only short plain values of arguments are kept, and only while the daemon runs. Long texts, nested
values, and what looks like a secret never become part of a lesson.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from capd.core.redaction import looks_secret
from capd_protos.types import ServerName, ToolName

MOST_FAILED = 20
"""The most failed calls of one session that are kept for comparison. The oldest is dropped."""
MOST_LESSONS = 200
MOST_CHANGES = 3
"""Two calls that differ in more arguments give no lesson: it is not clear which was wrong."""
MOST_ITEMS = 10
LONGEST_VALUE = 80
LARGEST_BYTES = 16 * 1024

Plain = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Lesson:
    """A mistake in calls of one tool, and a text that says what worked instead."""

    server: ServerName
    tool: ToolName
    content: str
    schema: bytes = b""
    """A JSON Schema that the wrong arguments match; empty if an argument was missing."""


@dataclass(slots=True)
class Failures:
    """The last failed calls of one session, to be compared with calls that work."""

    _failed: dict[tuple[ServerName, ToolName, bytes], Mapping[str, Any]] = field(
        default_factory=dict
    )

    are_none: bool = True
    """Whether no call has failed so far."""

    def failed(self, server: ServerName, tool: ToolName, arguments: bytes) -> None:
        """Note a call that its server answered with an error."""
        given = _arguments(arguments)
        if given is None:
            return
        self._failed.pop((server, tool, arguments), None)
        self._failed[server, tool, arguments] = given
        self.are_none = False
        while len(self._failed) > MOST_FAILED:
            del self._failed[next(iter(self._failed))]

    def worked(self, server: ServerName, tool: ToolName, arguments: bytes) -> list[Lesson]:
        """Note a successful call; return what it teaches about calls that failed before.

        Each failed call of the same tool gives one lesson at most, and is then dropped.
        """
        if not self._failed:
            return []
        failed = [key for key in self._failed if key[:2] == (server, tool)]
        if not failed:
            return []
        right = _arguments(arguments)
        lessons = []
        for key in failed:
            wrong = self._failed.pop(key)
            found = None if right is None else _lesson(server, tool, wrong, right)
            if found is not None:
                lessons.append(found)
        return lessons


@dataclass(slots=True)
class Lessons:
    """The lessons of all sessions, and how often each came up."""

    _counts: dict[Lesson, int] = field(default_factory=dict)

    def learned(self, lesson: Lesson) -> None:
        """Add one to the count of a lesson."""
        count = self._counts.pop(lesson, 0)
        self._counts[lesson] = count + 1
        while len(self._counts) > MOST_LESSONS:
            del self._counts[next(iter(self._counts))]

    def forget(self, lesson: Lesson) -> None:
        """Stop proposing that a lesson becomes a memory."""
        self._counts.pop(lesson, None)

    def proposals(self) -> list[tuple[Lesson, int]]:
        """Return every lesson with its count, the most frequent first."""
        newest = list(reversed(self._counts.items()))
        return sorted(newest, key=lambda each: -each[1])


def _arguments(arguments: bytes) -> dict[str, Any] | None:
    if len(arguments) > LARGEST_BYTES:
        return None
    try:
        given = msgspec.json.decode(arguments or b"{}")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return given if isinstance(given, dict) else None


def _lesson(
    server: ServerName, tool: ToolName, wrong: Mapping[str, Any], right: Mapping[str, Any]
) -> Lesson | None:
    names = [
        name
        for name in dict.fromkeys((*wrong, *right))
        if name not in wrong or name not in right or not _is_same(wrong[name], right[name])
    ]
    if not names or len(names) > MOST_CHANGES:
        return None
    words: list[str] = []
    properties: dict[str, Any] = {}
    for name in names:
        if not all(_is_plain(each[name]) for each in (wrong, right) if name in each):
            return None
        words.append(_words(name, wrong, right))
        if name in wrong:
            properties[name] = _mistake(wrong[name], right.get(name))
    content = " ".join(words)
    if looks_secret(content) or any(len(name) > LONGEST_VALUE for name in names):
        return None
    schema = b""
    if properties:
        whole = {"required": list(properties), "properties": properties}
        schema = msgspec.json.encode(whole, order="sorted")
    return Lesson(server, tool, content, schema)


def _words(name: str, wrong: Mapping[str, Any], right: Mapping[str, Any]) -> str:
    if name not in wrong:
        return f"It failed without `{name}` and worked with {_shown(right[name])}."
    if name not in right:
        return f"`{name}` = {_shown(wrong[name])} failed; without `{name}` it worked."
    return f"`{name}` = {_shown(wrong[name])} failed; {_shown(right[name])} worked."


def _mistake(wrong: Any, right: Any) -> dict[str, Any]:
    """Return a JSON Schema that wrong values of an argument match.

    `wrong` is the value in the call that failed, and `right` the one in the call that worked. If
    both are lists, the schema describes lists with the items of `wrong` that `right` lacks.
    """
    if isinstance(wrong, list) and isinstance(right, list):
        gone = [each for each in wrong if not any(_is_same(each, other) for other in right)]
        if gone:
            return {
                "type": "array",
                "allOf": [{"type": "array", "contains": {"const": each}} for each in gone],
            }
    return {"const": wrong}


def _is_same(one: Any, other: Any) -> bool:
    # `1 == True` in Python, and not in JSON.
    return msgspec.json.encode(one) == msgspec.json.encode(other)


def _is_plain(value: Any) -> bool:
    if isinstance(value, list):
        return len(value) <= MOST_ITEMS and all(_is_scalar(each) for each in value)
    return _is_scalar(value)


def _is_scalar(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) <= LONGEST_VALUE and value.isprintable()
    return value is None or isinstance(value, bool | int | float)


def _shown(value: Any) -> str:
    return msgspec.json.encode(value).decode()
