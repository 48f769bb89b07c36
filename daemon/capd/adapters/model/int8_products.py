"""Multiplies whole numbers in the model's 36 linear maps: half the time, and 29 MB less memory.

The file holds each matrix as int8, with a scale for each column, and two nodes that widen it to
float32. Here the numbers that are multiplied with a matrix become whole numbers, too:

    matrix ──Cast──Mul(scales)──┐                                       in the file
    given ──────────────────MatMul──> product

    given ──QuantizeLinear──┬──MatMulIntegerToFloat(matrix, scales)──Mul──> product        here
            (of each row)   └──── scale of each row ──────────────────┘

Each token's row of numbers has its own scale, so that its largest number becomes 127 or -127. A
text's vector therefore does not depend on the texts in its batch. The numbers are stored with 128
added, as 1 to 255, because processors multiply unsigned with signed bytes. Maps with the same input
(query, key and value) share its quantised numbers.

The product is float32 as before, so all other nodes stay as they are, but for two small changes:

    x * (0.5 * (1 + erf))  becomes  0.5 * (x * (1 + erf))    which onnxruntime computes in one node
    Softmax──IsNaN, Where  becomes  Softmax                  only a text without tokens gives NaN

`MatMulIntegerToFloat` is a node of onnxruntime's own. On x86 processors without VNNI instructions
it adds two products in 16 bits; four in 100,000 such sums are out of range and become the nearest
number in range. Emulated for four texts, that lowers the mean cosine with float32's vectors from
.9976 to .9970. The option session.x64quantprecision prevents it, but halves the speed of all
processors.
"""

import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from capd.adapters.model.protobuf import (
    ATTRIBUTE,
    DOMAIN,
    INITIALIZER,
    INPUT,
    NODE,
    OPERATOR,
    OPSET_OF_MODEL,
    OUTPUT,
    Field,
    message,
    node,
    number,
    renamed,
    text,
    texts_of,
    with_graph,
)

LAYERS = 6
MAPS = 6 * LAYERS
"""The linear maps. Each layer has six: query, key, value, the output of attention, and the two of
the feed-forward part."""

_DOMAIN = "com.microsoft"
_FLOAT, _UINT8, _INT64 = 1, 2, 7
_INT_ATTRIBUTE, _INTS_ATTRIBUTE = 2, 7
# Constants of the graph: their types, sizes and bytes.
_ONE, _PER_STEP, _PER_NEGATIVE_STEP, _MIDDLE, _FLAT = (
    f"int8.{name}" for name in ("one", "per_step", "per_negative_step", "middle", "flat")
)
_CONSTANTS = {
    _ONE: (_FLOAT, [], struct.pack("<f", 1)),
    _PER_STEP: (_FLOAT, [], struct.pack("<f", 1 / 127)),
    _PER_NEGATIVE_STEP: (_FLOAT, [], struct.pack("<f", -1 / 127)),
    _MIDDLE: (_UINT8, [], bytes([128])),
    _FLAT: (_INT64, [1], struct.pack("<q", -1)),
}


def with_int8_products(model: bytes) -> bytes:
    """Return the content of a model's file, in which the linear maps multiply whole numbers.

    The file may have been changed by the other functions of this package, but not by this one.

    Raises:
        ValueError: the model does not have the maps of all-MiniLM-L6-v2.
    """
    opset = message(OPSET_OF_MODEL, text(1, _DOMAIN), number(2, 1))
    return with_graph(model, _with_int8_products) + opset


class _Map(NamedTuple):
    """The names of the values that a linear map takes in the graph."""

    given: str
    matrix: str
    """The matrix, as int8."""
    scales: str
    widening: set[str]
    """The results of the two nodes that widen the matrix to float32."""


def _with_int8_products(graph: Sequence[Field]) -> Iterator[bytes | memoryview]:
    """Yield the protobuf fields of the changed graph: other nodes replace each map's `MatMul`."""
    nodes = {_made(field): field for field in graph if field.number == NODE}
    maps = _maps(nodes)
    if len(maps) != MAPS:
        raise ValueError(f"the model has {len(maps)} maps with int8 numbers, and not {MAPS}")
    other_inputs, removed = _shortened(nodes)
    removed = removed.union(*(each.widening for each in maps.values()))
    quantised: set[str] = set()
    for field in graph:
        made = _made(field) if field.number == NODE else ""
        if made in maps:
            if maps[made].given not in quantised:
                yield from _quantisation(maps[made].given)
                quantised.add(maps[made].given)
            yield from _product(maps[made], made)
        elif made in other_inputs:
            yield renamed(field, other_inputs[made])
        elif made not in removed:
            yield field.whole
    for name, (kind, sizes, content) in _CONSTANTS.items():
        dimensions = (number(1, size) for size in sizes)
        yield message(INITIALIZER, *dimensions, number(2, kind), text(8, name), message(9, content))


def _maps(nodes: Mapping[str, Field]) -> dict[str, _Map]:
    """Return the linear maps whose matrix is int8, each by the name of its product.

    `nodes` are the nodes of the graph, each by the name of its result.
    """
    found = {}
    for made, product in nodes.items():
        given, *others = texts_of(product, INPUT)
        if _operator(product) == "MatMul" and _operator(nodes.get(others[0])) == "Mul":
            as_float, scales = texts_of(nodes[others[0]], INPUT)
            if _operator(nodes.get(as_float)) == "Cast":
                [matrix] = texts_of(nodes[as_float], INPUT)
                found[made] = _Map(given, matrix, scales, {others[0], as_float})
    return found


def _shortened(nodes: Mapping[str, Field]) -> tuple[dict[str, dict[str, str]], set[str]]:
    """Return which nodes get other inputs, and which nodes are removed.

    The first result has, for each changed node, the new name of each input by its old name. A node
    is named by its result; `nodes` are all nodes by these names.
    """
    taken_by = {name: made for made, each in nodes.items() for name in texts_of(each, INPUT)}
    others: dict[str, dict[str, str]] = {}
    removed: set[str] = set()
    for made, each in nodes.items():
        if _operator(each) == "Erf":
            halved = taken_by[taken_by[made]]
            gelu = taken_by[halved]
            half, _ = texts_of(nodes[halved], INPUT)
            given, _ = texts_of(nodes[gelu], INPUT)
            others |= {halved: {half: given}, gelu: {given: half}}
        elif _operator(each) == "IsNaN":
            [sound] = texts_of(each, INPUT)
            replaced = taken_by[made]
            others[taken_by[replaced]] = {replaced: sound}
            removed |= {made, replaced}
    return others, removed


def _quantisation(given: str) -> Iterator[bytes]:
    """Yield the nodes that turn the value `given` into whole numbers and their scales.

    The results are `given`.int8, and `given`.step of shape [texts, tokens, 1].
    """
    step, rows, whole = f"{given}.step", f"{given}.rows", f"{given}.whole"
    last = message(ATTRIBUTE, text(1, "axes"), number(8, 2), number(20, _INTS_ATTRIBUTE))
    for extreme, operator, factor in (
        ("highest", "ReduceMax", _PER_STEP),
        ("lowest", "ReduceMin", _PER_NEGATIVE_STEP),
    ):
        yield node(operator, [given], f"{given}.{extreme}", last)
        yield node("Mul", [f"{given}.{extreme}", factor], f"{step}.{extreme}")
    yield node("Max", [f"{step}.highest", f"{step}.lowest"], step)
    # QuantizeLinear takes one list of scales (`step`), so the rows of all texts become one matrix.
    yield node("Reshape", [step, _FLAT], f"{step}s")
    yield node("Shape", [f"{step}s"], f"{step}s.shape")
    yield node("Expand", [_MIDDLE, f"{step}s.shape"], f"{given}.middles")
    yield node("Flatten", [given], rows, _int_attribute("axis", 2))
    quantised = [rows, f"{step}s", f"{given}.middles"]
    yield node("QuantizeLinear", quantised, whole, _int_attribute("axis", 0))
    yield node("Shape", [given], f"{given}.shape")
    yield node("Reshape", [whole, f"{given}.shape"], f"{given}.int8")


def _product(each: _Map, made: str) -> Iterator[bytes]:
    """Yield the nodes that compute `made`, the product of the map `each`, in whole numbers."""
    factors = [f"{each.given}.int8", each.matrix, _ONE, each.scales, _MIDDLE]
    yield node("MatMulIntegerToFloat", factors, f"{made}.steps", text(DOMAIN, _DOMAIN))
    yield node("Mul", [f"{made}.steps", f"{each.given}.step"], made)


def _made(each: Field) -> str:
    return texts_of(each, OUTPUT)[0]


def _operator(each: Field | None) -> str:
    return texts_of(each, OPERATOR)[0] if each else ""


def _int_attribute(name: str, value: int) -> bytes:
    return message(ATTRIBUTE, text(1, name), number(3, value), number(20, _INT_ATTRIBUTE))
