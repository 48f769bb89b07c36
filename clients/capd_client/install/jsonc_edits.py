"""Changes to JSON with comments that leave every other byte of the text as it is.

New parts follow the text's own indentation and line ends. Removing a value that was put in restores
the text.
"""

import json
import re
from typing import Any

from capd_client.install.jsonc import JsoncError, Node, Path, find, parse

_SPACE = " \t\r\n"
_UNIT = "  "
_INDENT = re.compile(r"[ \t]*")


def put(text: str, path: Path, value: Any) -> str:
    """Return `text` with `value` at `path`; missing objects on the way are created.

    Raises:
        JsoncError: `text` is not JSON, or a value on the path is not an object.
    """
    text = text if text.strip(_SPACE + "\ufeff") else text + "{}\n"
    root = parse(text)
    node = root
    for depth, step in enumerate(path):
        _demand(text, node, list if isinstance(step, int) else dict, path[:depth])
        at = node.at(step)
        if at < 0:
            for name in reversed(path[depth + 1 :]):
                value = {name: value}
            return _insert(text, root, node, str(step), value)
        node = node.children[at].node
    # Compared as text, because True equals 1 in Python.
    if json.dumps(node.value, sort_keys=True) == json.dumps(value, sort_keys=True):
        return text
    rendered = _render(text, root, value, _indent_at(text, node.start))
    return text[: node.start] + rendered + text[node.end :]


def append(text: str, path: Path, value: Any) -> str:
    """Return `text` with `value` as the last item of the array at `path`.

    Raises:
        JsoncError: `text` is not JSON, or there is something else at `path`.
    """
    root = parse(text) if text.strip(_SPACE + "\ufeff") else None
    node = None if root is None else find(root, path)
    if root is None or node is None:
        return put(text, path, [value])
    _demand(text, node, list, path)
    return _insert(text, root, node, None, value)


def take(text: str, path: Path) -> str:
    """Return `text` without the value at `path`; comments around it stay.

    Raises:
        JsoncError: `text` is not JSON.
    """
    root = parse(text)
    container = find(root, path[:-1])
    at = -1 if container is None else container.at(path[-1])
    if container is None or at < 0:
        return text
    child = container.children[at]
    inside = (container.start + 1, container.end - 1)
    rest = text[inside[0] : child.start] + text[child.node.end : inside[1]]
    if len(container.children) == 1 and not rest.strip(_SPACE + ","):
        return text[: inside[0]] + text[inside[1] :]
    cuts = [_span_to_cut(text, child.start, child.node.end, child.comma)]
    if child.comma >= cuts[0][1]:
        cuts.append((child.comma, child.comma + 1))
    if child.comma < 0 and at > 0:
        comma = container.children[at - 1].comma
        cuts.append((comma, comma + 1))
    for start, end in sorted(cuts, reverse=True):
        text = text[:start] + text[end:]
    return text


def _demand(text: str, node: Node, kind: type, path: Path) -> None:
    if not isinstance(node.value, kind):
        where = ".".join(str(step) for step in path) or "the whole"
        what = "an object" if kind is dict else "a list"
        raise JsoncError(text, node.start, f"{where} is not {what}")


def _span_to_cut(text: str, start: int, end: int, comma: int) -> tuple[int, int]:
    """Return the span to cut to remove the child that spans `start` to `end`.

    `comma` is the position of the comma after the child, -1 if there is none. The comma is included
    if only white space precedes it. Whole lines are included if nothing else is on them.
    """
    if comma >= 0 and not text[end:comma].strip(_SPACE):
        end = comma + 1
    line = text.rfind("\n", 0, start) + 1
    newline = text.find("\n", end)
    is_alone = not text[line:start].strip(" \t") and newline >= 0
    if is_alone and not text[end:newline].strip(" \t\r"):
        return line, newline + 1
    if comma >= 0:
        while text[end : end + 1] in (" ", "\t"):
            end += 1
    else:
        # The line end is not cut: it may end a comment.
        while text[start - 1] in " \t":
            start -= 1
    return start, end


def _insert(text: str, root: Node, container: Node, name: str | None, value: Any) -> str:
    """Return `text` with one more child at the end of `container`.

    In an object, the child is a member with `name` and `value`; in an array, an item with `value`
    (`name` is None). `root` is the whole document.
    """
    newline = _newline(text)
    close = container.end - 1
    content_end = len(text[:close].rstrip(_SPACE))
    last = container.children[-1] if container.children else None
    has_trailing_comma = last is not None and last.comma >= 0
    is_inline = _is_inline(text, root, container)
    indent = _child_indent(text, root, container)
    label = "" if name is None else json.dumps(name, ensure_ascii=False) + _colon(text)
    piece = label + _render(text, root, value, None if is_inline else indent)
    if is_inline:
        before = " " if last is not None and _colon(text) == ": " else ""
        after = ""
    else:
        before = newline + indent
        has_break = "\n" in text[content_end:close]
        after = "" if has_break else newline + _indent_at(text, container.start)
    piece = before + piece + ("," if has_trailing_comma else "") + after
    text = text[:content_end] + piece + text[content_end:]
    if last is not None and not has_trailing_comma:
        text = text[: last.node.end] + "," + text[last.node.end :]
    return text


def _is_inline(text: str, root: Node, container: Node) -> bool:
    if container.children:
        return "\n" not in text[container.start : container.end]
    # An empty container has no layout to follow, so the document's is used.
    return bool(root.children) and "\n" not in text[root.start : root.end]


def _colon(text: str) -> str:
    is_compact = re.search(r'"\s*:\S', text) is not None and '": ' not in text
    return ":" if is_compact else ": "


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _unit(text: str, root: Node) -> str:
    """Return the white space by which the document indents one level."""
    if root.children:
        start = root.children[0].start
        line = text.rfind("\n", 0, start) + 1
        if line and start > line and not text[line:start].strip(" \t"):
            return text[line:start]
    return _UNIT


def _indent_at(text: str, at: int) -> str:
    """Return the indentation of the line in which the position `at` is."""
    match = _INDENT.match(text, text.rfind("\n", 0, at) + 1)
    return match.group() if match is not None else ""


def _child_indent(text: str, root: Node, container: Node) -> str:
    if container.children:
        start = container.children[0].start
        line = text.rfind("\n", 0, start) + 1
        if line > container.start and not text[line:start].strip(" \t"):
            return text[line:start]
    return _indent_at(text, container.start) + _unit(text, root)


def _render(text: str, root: Node, value: Any, indent: str | None) -> str:
    if indent is None or (root.children and "\n" not in text[root.start : root.end]):
        separators = (",", ":") if _colon(text) == ":" else (", ", ": ")
        return json.dumps(value, ensure_ascii=False, separators=separators)
    lines = json.dumps(value, ensure_ascii=False, indent=_unit(text, root))
    return lines.replace("\n", _newline(text) + indent)
