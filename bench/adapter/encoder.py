"""The layers of all-MiniLM-L6-v2 in torch, with the weights of the model file that capd runs.

    text ──> tokens ──> layers 0 to 2 ──> hidden states ──> layers 3 to 5 ──> mean ──> unit vector
                         (never change)    (kept in a file)  (may change)

An adapter changes some linear maps of the last three layers: a map with the matrix W gets the
matrix W + down up. `down` has few columns, and `up` as many rows (LoRA, arXiv 2106.09685). The
layers below never change, so their results are computed once and kept.

Hidden states are packed: one row of 384 numbers for each token, the texts one after the other, in
ascending order of their length. `Packed` knows where each text begins.
"""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import onnx  # pyright: ignore[reportMissingImports]
import torch  # pyright: ignore[reportMissingImports]
from onnx import numpy_helper  # pyright: ignore[reportMissingImports]
from torch.nn import functional  # pyright: ignore[reportMissingImports]

from capd.adapters.model import low_rank
from capd.adapters.model.minilm import (
    MODEL,
    WORD_TABLE,
    _installed_model,
    load_tokenizer,
    token_ids,
)
from capd.core.errors import CapdError

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float32]
    Halves = npt.NDArray[np.float16]
    Rows = npt.NDArray[np.intp]

# With one thread, sums are added in one order, so that two runs learn the same bytes.
torch.set_num_threads(1)

DIMENSIONS = MODEL.dimensions
HEADS = 12
LAYERS = 6
FIRST = low_rank.CHANGED_LAYERS[0]
"""The first layer that changes."""
_EPSILON = 1e-12
"""The epsilon of each layer normalisation, as in the model's configuration."""
_TOKENS_AT_ONCE = 4096

Place = tuple[int, str]
"""A layer, counted from 0, and one of its linear maps (`_PARTS`)."""
Changes = Mapping[Place, tuple[torch.Tensor, torch.Tensor]]
"""`down` [in, rank] and `up` [rank, out] of each map that changes."""

_PARTS = (
    "attention.self.query",
    "attention.self.key",
    "attention.self.value",
    "attention.output.dense",
    "intermediate.dense",
    "output.dense",
)
"""The linear maps of a layer."""


class AdapterError(CapdError):
    """An adapter or a model file cannot be used."""


def adapter_bytes(changes: Changes) -> bytes:
    """Return the content of an adapter's file (`capd.adapters.model.low_rank`)."""
    return b"".join(
        half.detach().numpy().astype("<f2").tobytes()
        for layer, part, *_ in low_rank.changed_maps()
        for half in changes[layer, part]
    )


def changes_of(adapter: bytes) -> Changes:
    """Return the changes in the content of an adapter's file, as float32."""
    return {
        (each.layer, each.part): (
            _tensor(each.down).reshape(-1, low_rank.RANK),
            _tensor(each.up).reshape(low_rank.RANK, -1),
        )
        for each in low_rank.changes_in(adapter)
    }


def _tensor(numbers: bytes) -> torch.Tensor:
    return torch.from_numpy(np.frombuffer(numbers, "<f2").astype(np.float32))


def pinned_model() -> bytes:
    """Return the installed model file.

    Raises:
        AdapterError: it is not the file that capd runs.
        ModelUnusableError: the model's package is not installed.
    """
    content = _installed_model().read_bytes()
    if hashlib.sha256(content).hexdigest() != MODEL.sha256:
        raise AdapterError(f"the installed model is not {MODEL.revision}: reinstall that package")
    return content


def linear_maps(graph: "onnx.GraphProto") -> "dict[Place, onnx.NodeProto]":
    """Return the `MatMul` node of each linear map. Its second input is the matrix, [in, out].

    Only biases have kept their names in the file. A map's product is what its bias is added to.
    """
    made_by = {name: node for node in graph.node for name in node.output}
    added_in = {name: node for node in graph.node if node.op_type == "Add" for name in node.input}
    found = {}
    for layer in range(LAYERS):
        for part in _PARTS:
            bias = _name(layer, f"{part}.bias")
            [product] = [each for each in added_in[bias].input if each != bias]
            found[layer, part] = made_by[product]
    return found


def _name(layer: int, rest: str) -> str:
    return f"inner.encoder.layer.{layer}.{rest}"


class _Group(NamedTuple):
    """Texts of similar length, which are padded to the longest for their attention."""

    texts: int
    longest: int
    rows: torch.Tensor | None
    """Where the tokens stand in the padded rows; None if nothing is padded."""
    mask: torch.Tensor | None
    """[texts, 1, 1, longest]: 0 for a token, and a very low number for padding."""


class Packed:
    """Where each text begins and ends in packed hidden states."""

    def __init__(self, lengths: "Rows") -> None:
        """Group texts of these lengths in tokens, which must be in ascending order."""
        self._count = len(lengths)
        self._owners = torch.from_numpy(np.repeat(np.arange(self._count), lengths))
        self._shares = torch.from_numpy((1 / lengths).astype(np.float32))[:, None]
        self._groups: list[_Group] = []
        self._sizes: list[int] = []
        at = 0
        while at < self._count:
            to = int(np.searchsorted(lengths, lengths[at] * 1.35 + 2, side="right"))
            self._add(lengths[at:to])
            at = to

    def _add(self, lengths: "Rows") -> None:
        longest = int(lengths[-1])
        is_token = np.arange(longest)[None] < lengths[:, None]
        rows = mask = None
        if not is_token.all():
            rows = torch.from_numpy(np.flatnonzero(is_token))
            mask = torch.from_numpy(np.where(is_token, 0, -1e9).astype(np.float32))[:, None, None]
        self._groups.append(_Group(len(lengths), longest, rows, mask))
        self._sizes.append(int(lengths.sum()))

    def attended(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        """Return what each token attends to in its own text; all are [tokens, 384]."""
        split = (each.split(self._sizes) for each in (query, key, value))
        return torch.cat(
            [
                _attended(group, *each)
                for group, each in zip(self._groups, zip(*split, strict=True), strict=True)
            ]
        )

    def means(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the mean of each text's rows: [tokens, 384] to [texts, 384], in float32."""
        sums = torch.zeros(self._count, DIMENSIONS).index_add(0, self._owners, hidden.float())
        return sums * self._shares


def _attended(
    group: _Group, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor
) -> torch.Tensor:
    texts, longest, width = group.texts, group.longest, DIMENSIONS // HEADS

    def by_head(packed: torch.Tensor) -> torch.Tensor:
        """[tokens, 384] to [texts * heads, longest, width]."""
        if group.rows is not None:
            padded = packed.new_zeros(texts * longest, DIMENSIONS)
            packed = padded.index_copy(0, group.rows, packed)
        split = packed.reshape(texts, longest, HEADS, width).transpose(1, 2)
        return split.reshape(texts * HEADS, longest, width)

    scores = torch.bmm(by_head(query), by_head(key).transpose(1, 2)).float() * width**-0.5
    if group.mask is not None:
        scores = scores.view(texts, HEADS, longest, longest) + group.mask
        scores = scores.view(texts * HEADS, longest, longest)
    found = torch.bmm(torch.softmax(scores, 2).to(value.dtype), by_head(value))
    found = found.view(texts, HEADS, longest, width).transpose(1, 2)
    found = found.reshape(texts * longest, DIMENSIONS)
    return found if group.rows is None else found.index_select(0, group.rows)


class Encoder:
    """The layers, in one precision: bfloat16 to learn, float32 to compute and to check."""

    def __init__(self, model: bytes, precision: torch.dtype) -> None:
        """Read the weights out of the model file's content."""
        self._precision = precision
        graph = onnx.load_from_string(model).graph
        values = _Values(graph)
        table = WORD_TABLE.removesuffix("word_embeddings.weight")
        self._words = values.tensor(WORD_TABLE)
        self._positions = values.tensor(f"{table}position_embeddings.weight")
        self._type = values.tensor(f"{table}token_type_embeddings.weight")[0]
        self._first_norm = values.pair(f"{table}LayerNorm")
        self._linear = {}
        for (layer, part), node in linear_maps(graph).items():
            matrix = values.tensor(node.input[1]).T.contiguous()
            bias = values.tensor(_name(layer, f"{part}.bias"))
            self._linear[layer, part] = (matrix.to(precision), bias.to(precision))
        self._norms = {
            (layer, name): tuple(
                each.to(precision) for each in values.pair(_name(layer, f"{name}.LayerNorm"))
            )
            for layer in range(LAYERS)
            for name in ("attention.output", "output")
        }

    def below(self, ids: torch.Tensor, positions: torch.Tensor, packed: Packed) -> torch.Tensor:
        """Return the hidden states that enter layer `FIRST`, of packed token ids: [tokens, 384]."""
        hidden = self._words[ids] + self._positions[positions] + self._type
        hidden = functional.layer_norm(hidden, (DIMENSIONS,), *self._first_norm, _EPSILON)
        for layer in range(FIRST):
            hidden = self._layer(layer, hidden, packed, {})
        return hidden

    def vectors(self, hidden: torch.Tensor, packed: Packed, changes: Changes) -> torch.Tensor:
        """Return each text's unit vector [texts, 384] from the states that enter layer `FIRST`."""
        for layer in range(FIRST, LAYERS):
            hidden = self._layer(layer, hidden, packed, changes)
        return functional.normalize(packed.means(hidden), dim=1)

    def _layer(
        self, layer: int, hidden: torch.Tensor, packed: Packed, changes: Changes
    ) -> torch.Tensor:
        def linear(part: str, given: torch.Tensor) -> torch.Tensor:
            made = functional.linear(given, *self._linear[layer, part])
            if (layer, part) in changes:
                down, up = (each.to(self._precision) for each in changes[layer, part])
                made = made + given @ down @ up
            return made

        def normalised(name: str, given: torch.Tensor) -> torch.Tensor:
            return functional.layer_norm(given, (DIMENSIONS,), *self._norms[layer, name], _EPSILON)

        hidden = hidden.to(self._precision)
        attended = packed.attended(
            linear("attention.self.query", hidden),
            linear("attention.self.key", hidden),
            linear("attention.self.value", hidden),
        )
        hidden = normalised("attention.output", hidden + linear("attention.output.dense", attended))
        inner = functional.gelu(linear("intermediate.dense", hidden))
        return normalised("output", hidden + linear("output.dense", inner))


class _Values:
    """The weights of a graph, by name."""

    def __init__(self, graph: "onnx.GraphProto") -> None:
        self._constants = {each.name: each for each in graph.initializer}
        self._made_by = {name: node for node in graph.node for name in node.output}

    def tensor(self, name: str) -> torch.Tensor:
        return torch.from_numpy(self._value(name).copy())

    def pair(self, name: str) -> tuple[torch.Tensor, torch.Tensor]:
        """Return a layer normalisation's weight and bias."""
        return self.tensor(f"{name}.weight"), self.tensor(f"{name}.bias")

    def _value(self, name: str) -> "Floats":
        """Return a constant, or the product of int8 numbers and their scales."""
        if name in self._constants:
            value: Floats = numpy_helper.to_array(self._constants[name]).astype(np.float32)
            return value
        node = self._made_by[name]
        if node.op_type == "Cast":
            return self._value(node.input[0])
        if node.op_type == "Mul":
            return self._value(node.input[0]) * self._value(node.input[1])
        raise AdapterError(f"the weight {name} is made by {node.op_type}, which is not known here")


class Texts:
    """Texts, with the hidden states that enter layer `FIRST`."""

    def __init__(self, texts: Sequence[str], folder: Path, model: bytes) -> None:
        """Read the hidden states from `folder`, or compute and write them: 770 bytes a token.

        The file's name depends on the model, on the layer and on each text, so a file never becomes
        out of date. Computing the states of 10,000 texts takes a minute.
        """
        self.row_of = {text: row for row, text in enumerate(dict.fromkeys(texts))}
        tokenizer = load_tokenizer()
        tokens = [np.array(token_ids(tokenizer, text)) for text in self.row_of]
        self.lengths = np.array([len(each) for each in tokens], np.intp)
        self._starts: Rows = np.cumsum(self.lengths) - self.lengths
        digest = hashlib.sha256(repr((MODEL.key, FIRST, list(self.row_of))).encode()).hexdigest()
        file = folder / f"hidden-{digest[:16]}.npy"
        if not file.exists():
            part = file.with_suffix(".part")
            with part.open("wb") as opened:
                np.save(opened, self._computed(tokens, Encoder(model, torch.float32)))
            part.replace(file)
        # Copy on write: torch takes no array that cannot be written to.
        self._hidden = torch.from_numpy(np.load(file, mmap_mode="c"))

    def _computed(self, tokens: "Sequence[Rows]", encoder: Encoder) -> "Halves":
        hidden = np.zeros((int(self.lengths.sum()), DIMENSIONS), np.float16)
        for rows in self.batches(np.arange(len(tokens))):
            ids = torch.from_numpy(np.concatenate([tokens[row] for row in rows]))
            positions = torch.from_numpy(self._positions(rows))
            with torch.no_grad():
                found = encoder.below(ids, positions, Packed(self.lengths[rows]))
            hidden[self._tokens(rows)] = found.numpy()
        return hidden

    def batches(self, rows: "Rows") -> "list[Rows]":
        """Return `rows` in ascending order of length, in batches of some 4,096 tokens."""
        ordered = rows[np.argsort(self.lengths[rows], kind="stable")]
        batch_of = np.cumsum(self.lengths[ordered]) // _TOKENS_AT_ONCE
        return np.split(ordered, np.flatnonzero(np.diff(batch_of)) + 1)

    def packed(self, rows: "Rows") -> tuple[torch.Tensor, Packed]:
        """Return the packed hidden states of `rows`, which must be in ascending order of length."""
        return self._hidden[self._tokens(rows)].float(), Packed(self.lengths[rows])

    def vectors(self, rows: "Rows", encoder: Encoder, changes: Changes) -> "Floats":
        """Return the unit vectors of `rows`, [rows, 384], rounded as capd's caches round them."""
        every = np.zeros((len(self.lengths), DIMENSIONS), np.float32)
        for batch in self.batches(rows):
            with torch.no_grad():
                every[batch] = encoder.vectors(*self.packed(batch), changes).numpy()
        return every[rows].astype("<f2").astype("<f4")

    def _tokens(self, rows: "Rows") -> "Rows":
        """Return where the tokens of `rows` stand in the hidden states."""
        return np.repeat(self._starts[rows], self.lengths[rows]) + self._positions(rows)

    def _positions(self, rows: "Rows") -> "Rows":
        """Return the position of each token in its own text."""
        return np.concatenate([np.arange(length) for length in self.lengths[rows].tolist()])
