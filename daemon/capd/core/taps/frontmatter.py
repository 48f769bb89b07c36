"""Parses the YAML front matter of a Markdown file, between two lines `---`.

The values of fields are texts, lists of texts, and tables of these. `yes`, `1.0` and dates are
texts, as they are written. Other parts of YAML, such as tags and merged mappings, are not
supported.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from capd.core.errors import CapdError
from capd.core.lazy_patterns import lazy_pattern

LONGEST_HEAD = 16_384
"""The most characters of front matter: the YAML parser takes a second for a megabyte."""

_FENCE = lazy_pattern(r"^---[ \t]*\r?$", re.MULTILINE)


class FrontmatterError(CapdError):
    """The file has no readable front matter."""

    def __init__(self, reason: str, line: int) -> None:
        super().__init__(reason)
        self.line = line
        """The line of the problem, counted from 1."""


@dataclass(frozen=True, slots=True)
class Item:
    """A text in the value of a front matter field, and its line."""

    text: str
    line: int


@dataclass(frozen=True, slots=True)
class Field:
    """The value of one front matter field."""

    line: int
    items: tuple[Item, ...] = ()
    is_list: bool = False
    is_odd: bool = False
    """Whether the value is, or contains, something that is neither a text nor a list of texts."""
    members: Mapping[str, "Field"] = field(default_factory=dict)
    """The fields of a table. A table has `is_odd` as well, because few fields may be tables."""

    @property
    def text(self) -> str:
        """The text, on one line; empty if the value is no text."""
        return "" if self.is_list or not self.items else " ".join(self.items[0].text.split())


@dataclass(frozen=True, slots=True)
class Frontmatter:
    """The fields of a file's front matter, and the text below it."""

    fields: Mapping[str, Field]
    body: str


def frontmatter(text: str) -> Frontmatter:
    """Return the fields of the front matter, and the text below it.

    Raises:
        FrontmatterError: there is no front matter, or it is not YAML.
    """
    text = text.removeprefix("\ufeff")
    opening = _FENCE.match(text)
    if opening is None:
        raise FrontmatterError("it does not begin with a line `---`, so it has no frontmatter", 1)
    closing = _FENCE.search(text, opening.end(), opening.end() + LONGEST_HEAD)
    if closing is None:
        reason = f"no line `---` closes the frontmatter within {LONGEST_HEAD} characters"
        raise FrontmatterError(reason, 1)
    fields = _fields(text[opening.end() + 1 : closing.start()])
    return Frontmatter(fields, text[closing.end() :].strip())


def _fields(head: str) -> dict[str, Field]:
    import yaml  # noqa: PLC0415 - 20 ms that a catalog without skills never pays

    try:
        # This loader treats every scalar as text, and composing builds no objects.
        root = yaml.compose(head, Loader=yaml.BaseLoader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 2 if error.problem_mark else 1
        raise FrontmatterError(f"frontmatter: {error.problem or 'not YAML'}", line) from None
    except yaml.YAMLError as error:
        raise FrontmatterError(f"frontmatter: {str(error).splitlines()[0]}", 1) from None
    # `chr()` fails on an invalid escape, and a thousand brackets recurse too deeply.
    except (ValueError, OverflowError, RecursionError):
        raise FrontmatterError("frontmatter: it cannot be read as YAML", 1) from None
    if root is None:
        return {}
    if not isinstance(root, yaml.MappingNode):
        raise FrontmatterError("frontmatter: it is not a table of `key: value` lines", 2)
    return {
        key.value: _field(value, key.start_mark.line + 2)
        for key, value in root.value
        if isinstance(key, yaml.ScalarNode)
    }


def _field(node: object, line: int, *, is_inside: bool = False) -> Field:
    import yaml  # noqa: PLC0415 - as above

    if isinstance(node, yaml.ScalarNode):
        return Field(line, (Item(_sendable(node.value), line),))
    if isinstance(node, yaml.MappingNode) and not is_inside:
        members = {
            key.value: _field(value, key.start_mark.line + 2, is_inside=True)
            for key, value in node.value
            if isinstance(key, yaml.ScalarNode)
        }
        return Field(line, is_odd=True, members=members)
    if not isinstance(node, yaml.SequenceNode):
        return Field(line, is_odd=True)
    items = tuple(
        Item(_sendable(each.value), each.start_mark.line + 2)
        for each in node.value
        if isinstance(each, yaml.ScalarNode)
    )
    return Field(line, items, is_list=True, is_odd=len(items) < len(node.value))


def _sendable(text: str) -> str:
    # An escape in YAML may be half of a surrogate pair.
    return text.encode("utf-8", "replace").decode()
