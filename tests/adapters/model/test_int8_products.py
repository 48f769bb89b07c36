"""The linear maps of the model, which multiply whole numbers."""

import functools
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from capd.adapters.model import minilm
from capd.adapters.model.int8_products import LAYERS, MAPS, with_int8_products
from capd.adapters.model.low_rank import SIZE_BYTES, SWITCH, with_switch
from capd.adapters.model.minilm import MiniLM, load_tokenizer, token_ids
from capd.adapters.model.protobuf import (
    GRAPH_OF_MODEL,
    NODE,
    OPERATOR,
    OUTPUT,
    fields,
    texts_of,
    with_graph,
)

DOCS = sorted(Path(__file__).parents[3].glob("docs/*.md"))
LINES = [line for page in DOCS for line in page.read_text().splitlines() if line][::40]
SAMPLE = ["git", "take a screenshot of the login page", "The tests were green yesterday. " * 12]
ADAPTER = np.random.default_rng(1).normal(0, 0.02, SIZE_BYTES // 2).astype("<f2").tobytes()


@functools.cache
def pinned() -> bytes:
    return minilm._installed_model().read_bytes()


@functools.cache
def model() -> MiniLM:
    return MiniLM(adapter=ADAPTER)


def vectors(session: Any, texts: list[str], **others: Any) -> npt.NDArray[np.float32]:
    """Return the vectors of texts, embedded one by one."""
    tokenizer = load_tokenizer()
    means = []
    for text in texts:
        ids = np.array([token_ids(tokenizer, text)], np.int64)
        inputs = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
        zeros = np.zeros_like(ids)
        (hidden,) = session.run(None, inputs | {"token_type_ids": zeros} | others)
        means.append(hidden[0].mean(axis=0))
    found = np.array(means, np.float32)
    unit: npt.NDArray[np.float32] = found / np.linalg.norm(found, axis=1, keepdims=True)
    return unit


def operators(content: bytes) -> Counter[str]:
    """Return how many nodes of each operator a model has."""
    return Counter(
        texts_of(field, OPERATOR)[0]
        for part in fields(memoryview(content))
        if part.number == GRAPH_OF_MODEL
        for field in fields(part.content)
        if field.number == NODE
    )


def without_node(content: bytes, output: str) -> bytes:
    """Return a model without the node that makes `output`."""
    return with_graph(
        content,
        lambda graph: [
            field.whole
            for field in graph
            if field.number != NODE or texts_of(field, OUTPUT) != [output]
        ],
    )


@pytest.mark.real
@pytest.mark.parametrize("is_changed", [False, True])
def test_a_text_has_the_same_vector_to_the_bit_alone_and_in_a_batch(*, is_changed: bool) -> None:
    together = model().embed(LINES, is_changed=is_changed)

    alone = [model().embed([line], is_changed=is_changed)[0] for line in LINES]
    assert [
        line
        for line, one, other in zip(LINES, together, alone, strict=True)
        if not np.array_equal(one, other)
    ] == []


@pytest.mark.real
def test_vectors_are_close_to_those_of_float32_products() -> None:
    widened = vectors(minilm._open_session(pinned()), LINES)

    whole = model().embed(LINES)

    cosines = (whole * widened).sum(axis=1)
    assert cosines.min() > 0.98
    assert cosines.mean() > 0.997


@pytest.mark.real
def test_a_switch_that_is_off_changes_no_bit_of_the_int8_model() -> None:
    plain = minilm._open_session(with_int8_products(pinned()))
    switched = minilm._open_session(with_int8_products(with_switch(pinned(), ADAPTER)))

    off, on = (
        vectors(switched, SAMPLE, **{SWITCH: np.array([number], np.float32)}) for number in (0, 1)
    )

    np.testing.assert_array_equal(off, vectors(plain, SAMPLE))
    assert ((off * on).sum(axis=1) < 0.999).all()


@pytest.mark.real
def test_the_switched_change_is_that_of_the_float32_model() -> None:
    given = {SWITCH: np.ones(1, np.float32)}
    model_with_switch = with_switch(pinned(), ADAPTER)
    widened = vectors(minilm._open_session(model_with_switch), SAMPLE, **given)

    whole = vectors(minilm._open_session(with_int8_products(model_with_switch)), SAMPLE, **given)

    assert ((whole * widened).sum(axis=1) > 0.99).all()


@pytest.mark.real
def test_onnxruntime_computes_the_nodes_that_are_meant(tmp_path: Path) -> None:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimised.onnx")
    options.log_severity_level = 3

    ort.InferenceSession(with_int8_products(pinned()), options, ["CPUExecutionProvider"])

    found = operators((tmp_path / "optimised.onnx").read_bytes())
    assert {name: found[name] for name in ("MatMulIntegerToFloat", "BiasGelu", "Erf", "IsNaN")} == {
        "MatMulIntegerToFloat": MAPS,
        "BiasGelu": LAYERS,
        "Erf": 0,
        "IsNaN": 0,
    }
    # Query, key and value share the numbers of one QuantizeLinear.
    assert found["QuantizeLinear"] == MAPS - 2 * LAYERS


@pytest.mark.real
@pytest.mark.parametrize("output", ["val_50", "val_49", "val_49_f"], ids=["MatMul", "Mul", "Cast"])
def test_a_model_that_lacks_a_node_of_a_map_is_refused(output: str) -> None:
    lacking = without_node(pinned(), output)

    with pytest.raises(ValueError, match="the model has 35 maps with int8 numbers, and not 36"):
        with_int8_products(lacking)


@pytest.mark.real
def test_a_model_that_has_int8_products_is_refused() -> None:
    made = with_int8_products(pinned())

    with pytest.raises(ValueError, match="the model has 0 maps"):
        with_int8_products(made)
