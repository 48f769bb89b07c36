"""Changes to YAML that leave every other byte of the text as it is.

PyYAML reports the position of each node, and what is added is inserted between nodes. The whole new
text is parsed again: if its data is not the expected data, nothing is changed.
"""

import json
from typing import Any

import yaml

from capd_client.install.plain_data import Path, found, is_same, is_there, with_value, without
from capd_client.install.yaml_tree import YamlError, compose, members, value_of

_UNIT = 2
_NULL = "tag:yaml.org,2002:null"


def put(text: str, path: Path, value: Any) -> str:
    """Return `text` with `value` at `path`; missing maps are created.

    Raises:
        YamlError: `text` is not YAML, or `value` cannot be put there.
    """
    root = compose(text)
    before = value_of(root)
    if root is not None and is_there(before, path) and is_same(found(before, path), value):
        return text
    for depth in range(len(path)):
        here = found(before, path[:depth])
        if here is not None and not isinstance(
            here, dict if isinstance(path[depth], str) else list
        ):
            where = ".".join(map(str, path[:depth])) or "the whole"
            raise YamlError(f"{where} is not a map", _line_at(root, path[:depth]))
    return _checked(_put(text, root, path, value), with_value(before, path, value))


def append(text: str, path: Path, value: Any) -> str:
    """Return `text` with `value` as the last item of the list at `path`.

    Raises:
        YamlError: `text` is not YAML, or there is something else at `path`.
    """
    root = compose(text)
    before = value_of(root)
    there = found(before, path)
    if there is None:
        return put(text, path, [value])
    if not isinstance(there, list):
        where = ".".join(map(str, path))
        raise YamlError(f"{where} is not a list", _line_at(root, path))
    node = _node(root, path)
    if isinstance(node, yaml.SequenceNode) and node.flow_style:
        after = _into_flow(text, node, json.dumps(value, ensure_ascii=False))
    elif isinstance(node, yaml.SequenceNode) and node.value:
        dash = node.start_mark.column
        # As many spaces after the dash as in the first item.
        step = node.value[0].start_mark.column - dash
        lines = _as_item(_lines(root, value), step if step > 1 else _UNIT)
        after = _with_lines(text, _end(text, node), lines, dash)
    else:
        raise YamlError("a list is written in a way that cannot be changed", _line_at(root, path))
    return _checked(after, with_value(before, path, [*there, value]))


def take(text: str, path: Path) -> str:
    """Return `text` without the value at `path`; comments around it stay.

    Raises:
        YamlError: `text` is not YAML, or the value cannot be removed.
    """
    root = compose(text)
    before = value_of(root)
    if not is_there(before, path):
        return text
    container = _node(root, path[:-1])
    after = _taken(text, container, path[-1])
    wanted = without(before, path)
    if not found(wanted, path[:-1]) and not _is_flow(container):
        # An empty block would not show whether it was a map or a list.
        wanted = with_value(wanted, path[:-1], None)
    return _checked(after, wanted)


def _put(text: str, root: yaml.Node | None, path: Path, value: Any) -> str:
    node = root
    for depth, step in enumerate(path):
        inner = _child(node, step)
        if inner is None:
            for name in reversed(path[depth + 1 :]):
                value = {name: value}
            return _insert(text, root, path[:depth], str(step), value)
        node = inner
    if node is None or _is_block(node):
        shorter = _taken(text, _node(root, path[:-1]), path[-1])
        return _put(shorter, compose(shorter), path, value)
    rendered = json.dumps(value, ensure_ascii=False)
    if isinstance(value, str) and not _is_flow(_node(root, path[:-1])):
        rendered = _scalar(value)
    space = " " if text[node.start_mark.index - 1 : node.start_mark.index] == ":" else ""
    return text[: node.start_mark.index] + space + rendered + text[node.end_mark.index :]


def _insert(text: str, root: yaml.Node | None, path: Path, name: str, value: Any) -> str:
    """Return `text` with the member `name` and its value added to the map at `path`."""
    container = _node(root, path)
    if container is None:
        return _with_lines(text, len(text), _lines(root, {name: value}), 0)
    if isinstance(container, yaml.MappingNode):
        if container.flow_style:
            label = name if name.isidentifier() else json.dumps(name)
            piece = f"{label}: {json.dumps(value, ensure_ascii=False)}"
            return _into_flow(text, container, piece)
        column = container.value[0][0].start_mark.column
        return _with_lines(text, _end(text, container), _lines(root, {name: value}), column)
    if container.tag == _NULL and not container.value and path:
        # Inserted directly below the key of the empty map, before any comments.
        key = _key(_node(root, path[:-1]), path[-1])
        lines = _lines(root, {name: value})
        return _with_lines(
            text, _line_end(text, key.end_mark.index), lines, key.start_mark.column + _unit(root)
        )
    rendered = json.dumps({name: value}, ensure_ascii=False)
    return text[: container.start_mark.index] + rendered + text[container.end_mark.index :]


def _taken(text: str, container: yaml.Node | None, step: str | int) -> str:
    if isinstance(container, yaml.MappingNode) and isinstance(step, str):
        place = _places(container)[step]
        key, value = container.value[place]
        start, end = key.start_mark.index, _stop(text, key, value)
    elif isinstance(container, yaml.SequenceNode) and isinstance(step, int):
        place, item = step, container.value[step]
        start, end = item.start_mark.index, _stop(text, None, item)
    else:
        raise YamlError("what is there is no map and no list", 1)
    if _is_flow(container):
        return _out_of_flow(text, container, place, start, end)
    line = text.rfind("\n", 0, start) + 1
    if text[line:start].strip(" \ufeff") not in ("", "-"):
        raise YamlError("it stands on a line with others", text.count("\n", 0, start) + 1)
    end = end if text[end - 1 : end] == "\n" else _line_end(text, end)
    if end == len(text) and not text.endswith("\n"):
        return text[:line].removesuffix("\n").removesuffix("\r")
    return text[:line] + text[end:]


def _into_flow(text: str, container: Any, piece: str) -> str:
    if not container.value:
        return text[: container.start_mark.index + 1] + piece + text[container.end_mark.index - 1 :]
    last = container.value[-1]
    end = _stop(text, *last) if isinstance(last, tuple) else _stop(text, None, last)
    return text[:end] + ", " + piece + text[end:]


def _out_of_flow(text: str, container: Any, place: int, start: int, end: int) -> str:
    if place + 1 < len(container.value):
        following = container.value[place + 1]
        node = following[0] if isinstance(following, tuple) else following
        return text[:start] + text[node.start_mark.index :]
    if place > 0:
        last = container.value[place - 1]
        start = _stop(text, *last) if isinstance(last, tuple) else _stop(text, None, last)
    return text[:start] + text[end:]


def _with_lines(text: str, at: int, lines: list[str], column: int) -> str:
    """Return `text` with `lines`, indented by `column`, inserted at the position `at`.

    `at` is the start of a line, or the end of the text.
    """
    newline = "\r\n" if "\r\n" in text else "\n"
    block = newline.join(" " * column + line for line in lines)
    if at < len(text) or not text.strip("\ufeff") or text.endswith("\n"):
        return text[:at] + block + newline + text[at:]
    # A last line without a line end stays without one, so that removal restores the text.
    return text + newline + block


def _lines(root: yaml.Node | None, value: Any) -> list[str]:
    written = yaml.safe_dump(
        value, indent=_unit(root), sort_keys=False, allow_unicode=True, width=10_000
    )
    return str(written).splitlines()


def _unit(root: yaml.Node | None) -> int:
    """Return the number of spaces by which the text indents one level.

    It is taken from the first nested map of the text.
    """
    for _, key, value in members(root):
        if isinstance(value, yaml.MappingNode) and value.value and not value.flow_style:
            step = value.value[0][0].start_mark.column - key.start_mark.column
            return int(step) if step > 1 else _UNIT
    return _UNIT


def _as_item(lines: list[str], step: int) -> list[str]:
    return [("-" if at == 0 else "").ljust(step) + line for at, line in enumerate(lines)]


def _scalar(value: str) -> str:
    return (
        str(yaml.safe_dump(value, allow_unicode=True, width=10_000)).removesuffix("...\n").strip()
    )


def _end(text: str, node: yaml.Node) -> int:
    """Return the position in `text` of the first line after the block `node`."""
    key: yaml.Node | None = None
    while not _is_flow(node) and getattr(node, "value", None) and not _is_leaf(node):
        last = node.value[-1]
        key, node = last if isinstance(last, tuple) else (None, last)
        if key is not None and node.start_mark.index < key.start_mark.index:
            break
    at = _stop(text, key, node)
    return at if text[at - 1 : at] == "\n" else _line_end(text, at)


def _stop(text: str, key: yaml.Node | None, value: yaml.Node) -> int:
    """Return the position in `text` where a value ends.

    The node of an alias is elsewhere in the text, so for an alias this is the end of its key's
    line.
    """
    if key is not None and value.start_mark.index < key.start_mark.index:
        return len(text[: _line_end(text, key.end_mark.index)].rstrip("\r\n"))
    if _is_leaf(value) or _is_flow(value):
        return int(value.end_mark.index)
    return _end(text, value)


def _line_end(text: str, at: int) -> int:
    newline = text.find("\n", at)
    return len(text) if newline < 0 else newline + 1


def _places(container: yaml.MappingNode) -> dict[str, int]:
    """Return the index of each member of a map, by the member's name.

    If a name occurs twice, the last counts.
    """
    return {
        key.value: at
        for at, (key, _) in enumerate(container.value)
        if isinstance(key, yaml.ScalarNode)
    }


def _key(container: yaml.Node | None, step: str | int) -> yaml.Node:
    keys = {name: key for name, key, _ in members(container)}
    if not isinstance(step, str) or step not in keys:
        raise YamlError("an item of a list is empty", 1)
    return keys[step]


def _child(node: yaml.Node | None, step: str | int) -> yaml.Node | None:
    if isinstance(step, str):
        return {name: value for name, _, value in members(node)}.get(step)
    is_list = isinstance(node, yaml.SequenceNode) and step < len(node.value)
    return node.value[step] if is_list and node is not None else None


def _node(root: yaml.Node | None, path: Path) -> yaml.Node | None:
    for step in path:
        root = _child(root, step)
    return root


def _is_leaf(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode)


def _is_flow(node: yaml.Node | None) -> bool:
    return isinstance(node, yaml.CollectionNode) and bool(node.flow_style)


def _is_block(node: yaml.Node) -> bool:
    """Tell whether a node is in YAML's block style, on lines of its own."""
    if isinstance(node, yaml.ScalarNode):
        return node.style in ("|", ">")
    return not _is_flow(node)


def _line_at(root: yaml.Node | None, path: Path) -> int:
    node = _node(root, path)
    return 1 if node is None else node.start_mark.line + 1


def _checked(text: str, data: Any) -> str:
    try:
        is_right = is_same(value_of(compose(text)), data)
    except YamlError:
        is_right = False
    if not is_right:
        raise YamlError("it is written in a way that cannot be changed safely", 1)
    return text
