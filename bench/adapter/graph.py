"""Puts an adapter into the ONNX graph of the model file, in place or with a switch.

In the file, each matrix is int8 with scales. In place, the change is added to the matrix:

    int8 ──Cast──Mul(scales)──┐
    down ──Cast──MatMul───────Add──> MatMul(given)──> Add(bias)
    up ────Cast──┘

With a switch, the graph has one more input, which is 0 for the vectors of the model as it is and 1
for the changed ones. The change is computed for each text:

    given ──MatMul(matrix)───────────────────────────┐
    given ──MatMul(down)──Mul(switch)──MatMul(up)────Add──> Add(bias)

In place, nothing of this depends on the input, so onnxruntime computes it once while it loads.
`down` and `up` are stored as float16, 260 KB for the maps of `bench.adapter.learning`. On a busy
machine, with texts of 17 tokens:

    as it is        85 MB   5.8 ms a text
    in place        85 MB   6.3 ms
    with a switch   86 MB   7.1 ms

The changed vectors are for routing alone. Tools are found worse by them: by cosine alone, the first
one was right for .43 of the BFCL queries, and for .62 with the model as it is. So a daemon in which
tools and memories are searched with the same session needs the switch.

What else changes where an adapter is adopted: the size and the sha256 of the model file, or of the
adapter beside it; a second `ModelManifest` for the changed vectors, with a key of its own for their
caches; the vectors that ship (`bench.background_vectors`, `vectors.bin` of the taps); the routing
profile (`bench.routing_tuning`). The installed package has the file without a change. To add these
nodes at load, as `capd/adapters/model/quantised_table.py` does with others, no onnx is needed.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx  # pyright: ignore[reportMissingImports]
import torch  # pyright: ignore[reportMissingImports]
from bench.adapter.encoder import Adapter, AdapterError, Changes, Encoder, Texts, linear_maps
from onnx import helper, numpy_helper  # pyright: ignore[reportMissingImports]

from capd.adapters.model.minilm import (
    WORD_TABLE,
    _open_session,
    load_tokenizer,
    token_ids,
)
from capd.adapters.model.quantised_table import look_up_before_widening

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float32]

SWITCH = "changed"
"""The input of a graph with a switch: 1 for changed vectors, 0 for those of the model as it is."""
LEAST_COSINE = 0.9999
"""Of the two vectors of a text, by onnxruntime and by torch."""


def with_adapter(model: bytes, adapter: Adapter, *, is_switched: bool = False) -> bytes:
    """Return the model file's content with the changes of an adapter.

    With `is_switched`, the result has the input `SWITCH`, [1] in float32.
    """
    changed = onnx.load_from_string(model)
    graph = changed.graph
    maps = linear_maps(graph)
    places = {maps[place].output[0]: place for place in adapter.changes}
    if is_switched:
        of_switch = helper.make_tensor_value_info(SWITCH, onnx.TensorProto.FLOAT, [1])
        graph.input.append(of_switch)
    nodes = list(graph.node)
    del graph.node[:]
    # An ONNX graph lists its nodes in order of use, so new ones stand beside the product.
    for node in nodes:
        place = places.get(node.output[0])
        if place is None:
            graph.node.append(node)
            continue
        layer, part = place
        name = f"adapter.{layer}.{part}"
        for half, values in zip(("down", "up"), adapter.changes[place], strict=True):
            narrow, wide = f"{name}.{half}_half", f"{name}.{half}"
            graph.initializer.append(numpy_helper.from_array(values, narrow))
            cast = helper.make_node("Cast", [narrow], [wide], to=onnx.TensorProto.FLOAT)
            graph.node.append(cast)
        graph.node.extend(_switched(node, name) if is_switched else _in_place(node, name))
    onnx.checker.check_model(changed)
    content: bytes = changed.SerializeToString(deterministic=True)
    return content


def _in_place(product: "onnx.NodeProto", name: str) -> "list[onnx.NodeProto]":
    """Return the nodes for given (matrix + down up)."""
    given, matrix = product.input
    made = helper.make_node
    return [
        made("MatMul", [f"{name}.down", f"{name}.up"], [f"{name}.change"]),
        made("Add", [matrix, f"{name}.change"], [f"{name}.matrix"]),
        made("MatMul", [given, f"{name}.matrix"], list(product.output)),
    ]


def _switched(product: "onnx.NodeProto", name: str) -> "list[onnx.NodeProto]":
    """Return the nodes for given matrix + switch (given down) up."""
    given, matrix = product.input
    made = helper.make_node
    return [
        made("MatMul", [given, matrix], [f"{name}.product"]),
        made("MatMul", [given, f"{name}.down"], [f"{name}.inner"]),
        made("Mul", [f"{name}.inner", SWITCH], [f"{name}.switched"]),
        made("MatMul", [f"{name}.switched", f"{name}.up"], [f"{name}.change"]),
        made("Add", [f"{name}.product", f"{name}.change"], list(product.output)),
    ]


def checked(
    changed: bytes, model: bytes, adapter: Adapter, texts: Texts, *, is_switched: bool = False
) -> float:
    """Return the lowest cosine of `changed` in onnxruntime with torch, over `texts`.

    Raises:
        AdapterError: it is below `LEAST_COSINE`.
    """
    session = _open_session(look_up_before_widening(changed, WORD_TABLE))
    encoder = Encoder(model, torch.float32)
    compared: list[tuple[dict[str, Floats], Changes]] = [({}, adapter.tensors())]
    if is_switched:
        compared = [
            ({SWITCH: np.array([position], np.float32)}, changes)
            for position, changes in ((1, adapter.tensors()), (0, {}))
        ]
    lowest = 1.0
    for inputs, changes in compared:
        expected = texts.vectors(np.arange(len(texts.row_of)), encoder, changes)
        found = _vectors(session, list(texts.row_of), inputs)
        lowest = min(lowest, float((found * expected).sum(axis=1).min()))
    if not lowest >= LEAST_COSINE:
        raise AdapterError(f"the graph's vectors are not the adapter's: a cosine is {lowest:.5f}")
    return lowest


def _vectors(session: Any, texts: Sequence[str], inputs: "dict[str, Floats]") -> "Floats":
    """Return the unit vectors of `texts` by an onnxruntime session, [texts, 384]."""
    tokenizer = load_tokenizer()
    means = []
    for text in texts:
        ids = np.array([token_ids(tokenizer, text)])
        (hidden,) = session.run(
            None,
            {
                "input_ids": ids,
                "attention_mask": np.ones_like(ids),
                "token_type_ids": np.zeros_like(ids),
                **inputs,
            },
        )
        means.append(hidden[0].mean(axis=0))
    stacked: Floats = np.stack(means)
    unit: Floats = stacked / np.linalg.norm(stacked, axis=1, keepdims=True)
    return unit
