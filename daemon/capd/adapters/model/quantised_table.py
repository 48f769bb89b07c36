"""Keeps the model's table of words in eight bits: 12 MB in memory instead of 47 MB.

The file holds each weight as int8 with its scales, and two nodes that widen it to float32. When it
loads, onnxruntime computes every value that does not depend on the input. That is right for the
weights, because every text needs all of them. It is wrong for the table of words, because a text
needs only one row for each token:

    table ──Cast──Mul(scales)──Gather(ids)──>                 in the file: widened as a whole
    table ──Gather(ids)──Cast──Mul(scales──Gather(ids))──>    the same numbers, to the bit

Only these nodes are reordered, in the bytes of the file. An ONNX file is a protocol buffer; this
module knows the numbers of a few of its fields.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

_GRAPH_OF_MODEL = 7
_NODE_OF_GRAPH = 1
_INPUT, _OUTPUT, _NAME, _OPERATOR = 1, 2, 3, 4

_LENGTH_DELIMITED = 2
_MORE = 0x80
"""The bit of a number's byte that says that another one follows."""


class _Field(NamedTuple):
    number: int
    content: memoryview
    """Empty if the field is a plain number: none of these is read."""
    whole: memoryview
    """The whole field with its key and length, to be copied unchanged."""


def look_up_before_widening(model: bytes, table: str) -> bytes:
    """Return `model`, changed so that rows of `table` are looked up before they are widened.

    Raises:
        ValueError: no value of that name is widened and then used in a lookup.
    """
    parts: list[bytes | memoryview] = []
    for field in _fields(memoryview(model)):
        if field.number == _GRAPH_OF_MODEL:
            graph = list(_exchanged(list(_fields(field.content)), table))
            parts += [_head(_GRAPH_OF_MODEL, sum(map(len, graph))), *graph]
        else:
            parts.append(field.whole)
    return b"".join(parts)


def _exchanged(graph: Sequence[_Field], table: str) -> Iterator[bytes | memoryview]:
    """Yield the fields of the graph, in which the lookup comes before the nodes that widen rows."""
    nodes = [field for field in graph if field.number == _NODE_OF_GRAPH]
    [scaling] = [node for node in nodes if table in _texts(node, _OUTPUT)]
    as_float, scales = _texts(scaling, _INPUT)
    [cast] = [node for node in nodes if as_float in _texts(node, _OUTPUT)]
    [narrow] = _texts(cast, _INPUT)
    [lookup] = [node for node in nodes if table in _texts(node, _INPUT)]
    [rows] = _texts(lookup, _OUTPUT)
    found = [_texts(node, _OPERATOR) for node in (cast, scaling, lookup)]
    if found != [["Cast"], ["Mul"], ["Gather"]]:
        raise ValueError(f"{table} is made and used by {found}")
    narrow_rows, row_scales = f"{narrow}_rows", f"{scales}_rows"
    for field in graph:
        if field is lookup:
            yield _renamed(lookup, {table: narrow, rows: narrow_rows})
            yield _renamed(lookup, {table: scales, rows: row_scales})
            yield _renamed(cast, {narrow: narrow_rows})
            yield _renamed(scaling, {scales: row_scales, table: rows})
        elif field is not cast and field is not scaling:
            yield field.whole


def _renamed(node: _Field, names: Mapping[str, str]) -> bytes:
    """Return a node with other inputs and outputs, and without its name, which must be unique."""
    parts: list[bytes | memoryview] = []
    for field in _fields(node.content):
        if field.number in {_INPUT, _OUTPUT}:
            name = str(field.content, "utf-8")
            text = names.get(name, name).encode()
            parts += [_head(field.number, len(text)), text]
        elif field.number != _NAME:
            parts.append(field.whole)
    content = b"".join(parts)
    return _head(node.number, len(content)) + content


def _texts(node: _Field, number: int) -> list[str]:
    fields = _fields(node.content)
    return [str(field.content, "utf-8") for field in fields if field.number == number]


def _fields(message: memoryview) -> Iterator[_Field]:
    """Yield the fields of a protocol buffer message, in order."""
    at = 0
    while at < len(message):
        key, content_at = _varint(message, at)
        match key & 7:
            case 0:
                _, end = _varint(message, content_at)
                content_at = end
            case 1:
                content_at = end = content_at + 8
            case 2:
                size, content_at = _varint(message, content_at)
                end = content_at + size
            case 5:
                content_at = end = content_at + 4
            case kind:
                raise ValueError(f"no field of a protocol buffer is of kind {kind}")
        yield _Field(key >> 3, message[content_at:end], message[at:end])
        at = end


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    """Return the varint at `at`, and the position after it."""
    value = shift = 0
    while message[at] & _MORE:
        value |= message[at] % _MORE << shift
        shift += 7
        at += 1
    return value | message[at] << shift, at + 1


def _head(number: int, size: int) -> bytes:
    """Return the key and the length of a field that has `size` bytes."""
    return _as_varint(number << 3 | _LENGTH_DELIMITED) + _as_varint(size)


def _as_varint(value: int) -> bytes:
    encoded = bytearray()
    while value >= _MORE:
        encoded.append(value % _MORE | _MORE)
        value >>= 7
    return bytes([*encoded, value])
