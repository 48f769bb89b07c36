"""YAML as a tree of nodes with their positions in the text.

Tags are ignored: their meaning is the application's own, and no object is constructed.
"""

import itertools
from collections.abc import Iterator
from typing import Any

import yaml

from capd_client.install import UnreadableError

_DEEPEST = 200
_MOST = 100_000
"""The most nodes of a document. Nodes that an alias repeats count each time, because a few lines of
aliases can stand for more data than any memory holds."""


class YamlError(UnreadableError):
    """The text is not YAML, or cannot be edited, at `line`."""

    def __init__(self, reason: str, line: int) -> None:
        self.line = line
        super().__init__(reason)


def compose(text: str) -> yaml.Node | None:
    """Return the tree of the one document in `text`; None if the text is empty.

    Raises:
        YamlError: it is not YAML, or more than one document.
    """
    try:
        return yaml.SafeLoader(text).get_single_node()
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise YamlError(error.problem or "it is not YAML", line) from None
    except yaml.YAMLError as error:
        raise YamlError(str(error).partition("\n")[0], 1) from None
    except RecursionError:
        raise YamlError("it is nested too deeply", 1) from None


def value_of(node: yaml.Node | None) -> Any:
    """Return the data of a node as maps, lists, texts, decimal integers, booleans and None.

    Raises:
        YamlError: it is too large, or nested too deeply (for example, if a node contains itself).
    """
    return _value(node, 0, itertools.count())


def members(node: yaml.Node | None) -> Iterator[tuple[str, yaml.Node, yaml.Node]]:
    """Yield name, key and value of each member of a mapping; nothing for any other node."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                yield key.value, key, value


def _value(node: yaml.Node | None, depth: int, count: Iterator[int]) -> Any:
    if node is not None and depth > _DEEPEST:
        raise YamlError("it is nested too deeply", node.start_mark.line + 1)
    if node is not None and next(count) > _MOST:
        raise YamlError("it is too large", node.start_mark.line + 1)
    if isinstance(node, yaml.MappingNode):
        return {name: _value(value, depth + 1, count) for name, _, value in members(node)}
    if isinstance(node, yaml.SequenceNode):
        return [_value(each, depth + 1, count) for each in node.value]
    return None if node is None else _scalar(node)


def _scalar(node: yaml.Node) -> Any:
    """Return a scalar as text, decimal integer, bool or None.

    A value of any other type, such as `1.5` or `0x1F`, is returned as its text.
    """
    text = str(node.value)
    if node.tag == "tag:yaml.org,2002:null":
        return None
    # These clients read YAML 1.2, where `yes` and `on` are texts, unlike in YAML 1.1.
    if node.tag == "tag:yaml.org,2002:bool" and text.lower() in ("true", "false"):
        return text.lower() == "true"
    if node.tag == "tag:yaml.org,2002:int" and text.lstrip("+-").isdecimal():
        return int(text)
    return text
