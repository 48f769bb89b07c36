"""JSON with comments as a tree of spans: where in the text each value is.

Comments, trailing commas and a byte order mark are allowed, because the clients that read
these files allow them. Of two members with the same name, the last counts.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from capd_client.install import UnreadableError

Path = tuple[str | int, ...]

_SPACE = " \t\r\n\ufeff"
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_LITERAL = re.compile(r"-?\d[\d.eE+-]*|true|false|null")
_DEEPEST = 200


class JsoncError(UnreadableError):
    """The text is not JSON with comments, or cannot be edited, at `line`."""

    def __init__(self, text: str, at: int, reason: str) -> None:
        self.line = text.count("\n", 0, at) + 1
        super().__init__(reason)


@dataclass(frozen=True, slots=True)
class Child:
    """A member of an object, or an item of an array; the `name` of an item is None."""

    start: int
    """Where it begins in the text; for a member, where its name does."""
    name: str | None
    node: "Node"
    comma: int
    """The position of the comma after it; -1 if there is none."""


@dataclass(frozen=True, slots=True)
class Node:
    """A value of the document: its place in the text is `text[start:end]`.

    Only objects and arrays have children.
    """

    start: int
    end: int
    value: Any
    children: tuple[Child, ...] = ()

    def at(self, step: str | int) -> int:
        """Return the index of the child that `step` names; -1 if there is none."""
        if isinstance(step, int):
            is_there = isinstance(self.value, list) and step < len(self.children)
            return step if is_there else -1
        names = [child.name for child in self.children]
        return len(names) - 1 - names[::-1].index(step) if step in names else -1


def find(root: Node, path: Path) -> Node | None:
    """Return the node at `path`, whose steps are names and indexes; None if there is none."""
    node = root
    for step in path:
        at = node.at(step)
        if at < 0:
            return None
        node = node.children[at].node
    return node


def parse(text: str) -> Node:
    """Return the tree of `text`.

    Raises:
        JsoncError: it is not JSON with comments.
    """
    reader = _Reader(text)
    root = reader.value(reader.after_space(0), 0)
    end = reader.after_space(root.end)
    if end < len(text):
        raise JsoncError(text, end, f"there is more after the end: {text[end]!r}")
    return root


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text

    def after_space(self, at: int) -> int:
        """Return the first position, from `at` on, that is neither space nor in a comment."""
        text = self._text
        while at < len(text):
            if text[at] in _SPACE:
                at += 1
            elif text.startswith("//", at):
                end = text.find("\n", at)
                at = len(text) if end < 0 else end
            elif text.startswith("/*", at):
                end = text.find("*/", at + 2)
                if end < 0:
                    raise JsoncError(text, at, "a comment has no end")
                at = end + 2
            else:
                break
        return at

    def value(self, at: int, depth: int) -> Node:
        if depth > _DEEPEST:
            raise JsoncError(self._text, at, "it is nested too deeply")
        first = self._text[at : at + 1]
        if first == "{":
            children, end = self._children(at, "}", depth)
            return Node(at, end, {child.name: child.node.value for child in children}, children)
        if first == "[":
            children, end = self._children(at, "]", depth)
            return Node(at, end, [child.node.value for child in children], children)
        return self._scalar(at)

    def _scalar(self, at: int) -> Node:
        pattern = _STRING if self._text[at : at + 1] == '"' else _LITERAL
        match = pattern.match(self._text, at)
        if match is None:
            found = repr(self._text[at]) if at < len(self._text) else "the end of the file"
            raise JsoncError(self._text, at, f"a value was expected, not {found}")
        try:
            return Node(at, match.end(), json.loads(match.group()))
        except ValueError:
            raise JsoncError(self._text, at, f"{match.group()[:40]} is not a value") from None

    def _children(self, start: int, closing: str, depth: int) -> tuple[tuple[Child, ...], int]:
        children = tuple(self._each_child(start + 1, closing, depth))
        last = start + 1
        if children:
            last = max(children[-1].node.end, children[-1].comma + 1)
        # _each_child has seen that the closing bracket is there.
        return children, self.after_space(last) + 1

    def _each_child(self, at: int, closing: str, depth: int) -> Iterator[Child]:
        text = self._text
        at = self.after_space(at)
        while text[at : at + 1] != closing:
            start, name = at, None
            if closing == "}":
                name, at = self._name(at)
            node = self.value(at, depth + 1)
            at = self.after_space(node.end)
            has_comma = text[at : at + 1] == ","
            if not has_comma and text[at : at + 1] != closing:
                found = repr(text[at]) if at < len(text) else "the end of the file"
                raise JsoncError(text, at, f"',' or '{closing}' was expected, not {found}")
            yield Child(start, name, node, at if has_comma else -1)
            if has_comma:
                at = self.after_space(at + 1)

    def _name(self, at: int) -> tuple[str, int]:
        if self._text[at : at + 1] != '"':
            found = repr(self._text[at]) if at < len(self._text) else "the end of the file"
            raise JsoncError(self._text, at, f"a name in quotes or '}}' was expected, not {found}")
        name = self._scalar(at)
        at = self.after_space(name.end)
        if self._text[at : at + 1] != ":":
            raise JsoncError(self._text, at, f"':' was expected behind {name.value!r}")
        return str(name.value), self.after_space(at + 1)
