"""Reads and writes protocol buffers, the format of ONNX files.

The module does only what is needed to change a model's nodes. It checks no value. It knows a few
fields of a model, of its graph and of a node; their numbers are the constants below.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

GRAPH_OF_MODEL, OPSET_OF_MODEL = 7, 8
NODE, INITIALIZER, INPUT_OF_GRAPH = 1, 5, 11
INPUT, OUTPUT, NAME, OPERATOR, ATTRIBUTE, DOMAIN = 1, 2, 3, 4, 5, 7

_LENGTH_DELIMITED = 2
_MORE = 0x80
"""The bit of a number's byte that says that another byte follows."""


class Field(NamedTuple):
    """One field of a protocol buffer message."""

    number: int
    content: memoryview
    """Empty if the field is a plain number, because capd reads no such field."""
    whole: memoryview
    """The whole field with its key and length, to be copied unchanged."""


def fields(message: memoryview) -> Iterator[Field]:
    """Yield the fields of a protocol buffer message, in order.

    Raises:
        ValueError: a field is of an unknown kind.
    """
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
        yield Field(key >> 3, message[content_at:end], message[at:end])
        at = end


def texts_of(message: Field, number: int) -> list[str]:
    """Return the texts in the fields of `message` that have this number, in order."""
    return [
        str(field.content, "utf-8") for field in fields(message.content) if field.number == number
    ]


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    """Return the variable-length number at the position `at`, and the position after it."""
    value = shift = 0
    while message[at] & _MORE:
        value |= message[at] % _MORE << shift
        shift += 7
        at += 1
    return value | message[at] << shift, at + 1


def head(number: int, size: int) -> bytes:
    """Return the key of the field `number` and its length `size`, with which the field begins."""
    return _as_varint(number << 3 | _LENGTH_DELIMITED) + _as_varint(size)


def number(field: int, value: int) -> bytes:
    """Return the bytes of a field that is a plain number, which must not be negative.

    `field` is the field's number, and `value` its content.
    """
    return _as_varint(field << 3) + _as_varint(value)


def message(field: int, *parts: bytes) -> bytes:
    """Return the bytes of the field `field` with the content `parts`: fields, or a text's bytes."""
    return head(field, sum(map(len, parts))) + b"".join(parts)


def text(field: int, content: str) -> bytes:
    """Return the bytes of the field `field` with a text as its content."""
    return message(field, content.encode())


def node(operator: str, inputs: Iterable[str], output: str, *others: bytes) -> bytes:
    """Return a node of an ONNX graph as bytes: its operator, its inputs and its output by name.

    `others` are more of its fields, such as attributes.
    """
    names = [text(INPUT, each) for each in inputs]
    return message(NODE, *names, text(OUTPUT, output), text(OPERATOR, operator), *others)


def renamed(field: Field, names: Mapping[str, str]) -> bytes:
    """Return the node `field` with renamed inputs and outputs; `names` has new names by old ones.

    The node's own name is left out, because it must be unique.
    """
    parts: list[bytes] = []
    for each in fields(field.content):
        if each.number in {INPUT, OUTPUT}:
            name = str(each.content, "utf-8")
            parts.append(text(each.number, names.get(name, name)))
        elif each.number != NAME:
            parts.append(bytes(each.whole))
    return message(field.number, *parts)


def with_graph(
    model: bytes, change: Callable[[Sequence[Field]], Iterable[bytes | memoryview]]
) -> bytes:
    """Return `model` with another graph.

    `change` gets the fields of the model's graph, and returns those of the new one.
    """
    parts: list[bytes | memoryview] = []
    for field in fields(memoryview(model)):
        if field.number == GRAPH_OF_MODEL:
            graph = list(change(list(fields(field.content))))
            parts += [head(GRAPH_OF_MODEL, sum(map(len, graph))), *graph]
        else:
            parts.append(field.whole)
    return b"".join(parts)


def _as_varint(value: int) -> bytes:
    encoded = bytearray()
    while value >= _MORE:
        encoded.append(value % _MORE | _MORE)
        value >>= 7
    return bytes([*encoded, value])
