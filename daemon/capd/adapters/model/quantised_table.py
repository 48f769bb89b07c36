"""Keeps the model's table of words in eight bits: 12 MB in memory instead of 47 MB.

The file holds each weight as int8 with its scales, and two nodes that widen it to float32. When
onnxruntime loads a file, it computes every value that does not depend on the input. That is right
for the weights, because every text needs all of them. It is wrong for the table of words, because a
text needs only one row for each token:

    table ──Cast──Mul(scales)──Gather(ids)──>                 in the file: widened as a whole
    table ──Gather(ids)──Cast──Mul(scales──Gather(ids))──>    the same numbers, to the bit

Only these nodes are reordered, in the bytes of the file (`protobuf`).
"""

from collections.abc import Iterator, Sequence

from capd.adapters.model.protobuf import (
    INPUT,
    NODE,
    OPERATOR,
    OUTPUT,
    Field,
    renamed,
    texts_of,
    with_graph,
)


def look_up_before_widening(model: bytes, table: str) -> bytes:
    """Return `model`, changed so that rows of `table` are looked up before they are widened.

    Raises:
        ValueError: no value of that name is widened and then used in a lookup.
    """
    return with_graph(model, lambda graph: _exchanged(graph, table))


def _exchanged(graph: Sequence[Field], table: str) -> Iterator[bytes | memoryview]:
    """Yield the protobuf fields of the changed graph, which widens only the rows that it looks up.

    `graph` has the fields before the change. There the int8 table is widened as a whole, into the
    value called `table`, and rows of that are looked up.
    """
    nodes = [field for field in graph if field.number == NODE]
    [scaling] = [node for node in nodes if table in texts_of(node, OUTPUT)]
    as_float, scales = texts_of(scaling, INPUT)
    [cast] = [node for node in nodes if as_float in texts_of(node, OUTPUT)]
    [narrow] = texts_of(cast, INPUT)
    [lookup] = [node for node in nodes if table in texts_of(node, INPUT)]
    [rows] = texts_of(lookup, OUTPUT)
    found = [texts_of(node, OPERATOR) for node in (cast, scaling, lookup)]
    if found != [["Cast"], ["Mul"], ["Gather"]]:
        raise ValueError(f"{table} is made and used by {found}")
    narrow_rows, row_scales = f"{narrow}_rows", f"{scales}_rows"
    for field in graph:
        if field is lookup:
            yield renamed(lookup, {table: narrow, rows: narrow_rows})
            yield renamed(lookup, {table: scales, rows: row_scales})
            yield renamed(cast, {narrow: narrow_rows})
            yield renamed(scaling, {scales: row_scales, table: rows})
        elif field is not cast and field is not scaling:
            yield field.whole
