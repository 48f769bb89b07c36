"""Adds low-rank changes of some matrices to the model, which an input turns on or off.

Routing compares vectors of a changed encoder: a matrix W becomes W + A B, where A has 8 columns and
B as many rows. Everything else compares vectors of the model as it is. One session computes both
kinds, because the graph gets one more input, `SWITCH`:

    given ──MatMul(W)───────────────────────────────┐
    given ──MatMul(A)──Mul(SWITCH)──MatMul(B)───────Add──> Add(bias)

With the switch at 0, the vectors are those of the model without these nodes.

The numbers of A and B are in one file, as float16, little-endian: A and then B of each map, in the
order of `changed_maps`. `python -m bench.adapter` learns them (docs/design/routing-low-rank.md).
Only bytes are moved here, so nothing needs the package onnx.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from capd.adapters.model.protobuf import (
    ATTRIBUTE,
    INITIALIZER,
    INPUT,
    INPUT_OF_GRAPH,
    NODE,
    OPERATOR,
    OUTPUT,
    Field,
    message,
    node,
    number,
    text,
    texts_of,
    with_graph,
)

SWITCH = "changed"
"""The input, one number: 1 for the vectors of the changed encoder, 0 for those of the model."""
RANK = 8
CHANGED_LAYERS = (3, 4, 5)
"""The last three of six layers, counted from 0."""
_WIDTH, _INNER = 384, 1536
CHANGED_PARTS = {
    "attention.self.query": (_WIDTH, _WIDTH),
    "attention.self.value": (_WIDTH, _WIDTH),
    "intermediate.dense": (_WIDTH, _INNER),
    "output.dense": (_INNER, _WIDTH),
}
"""The maps that change in each layer, with the sizes of what goes in and out."""
_NUMBER_BYTES = 2
_FLOAT, _FLOAT16 = 1, 10


class Change(NamedTuple):
    """The low-rank change of one linear map of the model."""

    layer: int
    part: str
    down: bytes
    """A: a row for each number that goes in, and `RANK` columns."""
    up: bytes
    """B: `RANK` rows, and a column for each number that comes out."""

    @property
    def bias(self) -> str:
        """The name of the map's bias in the model's file."""
        return f"inner.encoder.layer.{self.layer}.{self.part}.bias"


def changed_maps() -> Iterator[tuple[int, str, int, int]]:
    """Yield the layer, the part and the sizes (in, out) of each map that changes, in order."""
    for layer in CHANGED_LAYERS:
        for part, (size_in, size_out) in CHANGED_PARTS.items():
            yield layer, part, size_in, size_out


SIZE_BYTES = sum(RANK * (into + out) * _NUMBER_BYTES for *_, into, out in changed_maps())
"""The size of the file: 258,048 bytes."""


def changes_in(adapter: bytes) -> list[Change]:
    """Return the changes in `adapter`, the content of a file of low-rank changes.

    Raises:
        ValueError: its size is wrong.
    """
    if len(adapter) != SIZE_BYTES:
        raise ValueError(f"an adapter has {SIZE_BYTES} bytes, and not {len(adapter)}")
    changes, at = [], 0
    for layer, part, size_in, size_out in changed_maps():
        middle = at + size_in * RANK * _NUMBER_BYTES
        end = middle + RANK * size_out * _NUMBER_BYTES
        changes.append(Change(layer, part, adapter[at:middle], adapter[middle:end]))
        at = end
    return changes


def with_switch(model: bytes, adapter: bytes) -> bytes:
    """Return the content of the model's file with the changes of `adapter` and the input `SWITCH`.

    Raises:
        ValueError: the adapter's size is wrong, or a map is not found in the model.
    """
    changes = changes_in(adapter)
    return with_graph(model, lambda graph: _changed(graph, changes))


def _changed(graph: Sequence[Field], changes: list[Change]) -> Iterator[bytes | memoryview]:
    """Yield the protobuf fields of a graph with `changes` and the input `SWITCH`.

    `graph` has the fields before that. Several nodes replace each `MatMul` whose matrix changes.
    """
    nodes = [field for field in graph if field.number == NODE]
    added_in = {name: each for each in nodes for name in texts_of(each, INPUT)}
    made_by = {name: each for each in nodes for name in texts_of(each, OUTPUT)}
    by_product: dict[str, Change] = {}
    for change in changes:
        try:
            [product] = [
                name for name in texts_of(added_in[change.bias], INPUT) if name != change.bias
            ]
            [operator] = texts_of(made_by[product], OPERATOR)
        except (KeyError, ValueError) as error:
            raise ValueError(f"the model adds {change.bias} to no product") from error
        if operator != "MatMul":
            raise ValueError(f"the model adds {change.bias} to the result of {operator}")
        by_product[product] = change
    for field in graph:
        change_of = None
        if field.number == NODE:
            [made, *_] = texts_of(field, OUTPUT)
            change_of = by_product.get(made)
        if change_of is None:
            yield field.whole
        else:
            yield from _with_change(field, change_of)
    yield message(INPUT_OF_GRAPH, text(1, SWITCH), message(2, _one_number()))


def _with_change(product: Field, change: Change) -> Iterator[bytes]:
    """Yield the constants and nodes that replace the node `product`, a MatMul, for `change`."""
    given, matrix = texts_of(product, INPUT)
    [made] = texts_of(product, OUTPUT)
    name = f"adapter.{change.layer}.{change.part}"
    for half, numbers, sizes in (
        ("down", change.down, (len(change.down) // RANK // _NUMBER_BYTES, RANK)),
        ("up", change.up, (RANK, len(change.up) // RANK // _NUMBER_BYTES)),
    ):
        yield message(
            INITIALIZER,
            *(number(1, size) for size in sizes),
            number(2, _FLOAT16),
            text(8, f"{name}.{half}_half"),
            message(9, numbers),
        )
        to_float = message(ATTRIBUTE, text(1, "to"), number(3, _FLOAT), number(20, 2))
        yield node("Cast", [f"{name}.{half}_half"], f"{name}.{half}", to_float)
    yield node("MatMul", [given, matrix], f"{name}.product")
    yield node("MatMul", [given, f"{name}.down"], f"{name}.inner")
    yield node("Mul", [f"{name}.inner", SWITCH], f"{name}.switched")
    yield node("MatMul", [f"{name}.switched", f"{name}.up"], f"{name}.change")
    yield node("Add", [f"{name}.product", f"{name}.change"], made)


def _one_number() -> bytes:
    """Return the type of the input `SWITCH`, a tensor of one float32, as a protocol buffer."""
    shape = message(2, message(1, number(1, 1)))
    return message(1, number(1, _FLOAT), shape)
