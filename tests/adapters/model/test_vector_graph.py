"""The graph of many vectors is reloaded, rebuilt when outdated, and as good as exact search."""

import importlib.metadata
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from capd.adapters.model.vector_graph import NEAREST, VectorGraph, vector_graph
from capd.core.tools.vector_search import ExactSearch

TEXTS = [f"tool number {at}" for at in range(3000)]


def unit(rows: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    found: npt.NDArray[np.float32] = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return found


def clusters(count: int, seed: int = 5) -> npt.NDArray[np.float32]:
    chance = np.random.default_rng(seed)
    centres = chance.normal(size=(100, 384))
    rows = centres[chance.integers(0, 100, count)] + 0.5 * chance.normal(size=(count, 384))
    return unit(rows.astype(np.float32))


ROWS = clusters(len(TEXTS))
QUESTIONS = ROWS[:40]


class Built:
    """Counts how often the vectors were needed, which is once for each build."""

    def __init__(self, rows: npt.NDArray[np.float32] = ROWS) -> None:
        self.rows = rows
        self.times = 0

    def __call__(self) -> npt.NDArray[np.float32]:
        self.times += 1
        return self.rows


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Return the content of a file that is right."""
    path = tmp_path_factory.mktemp("graph") / "tools.graph"
    vector_graph(path, "model", TEXTS, Built())
    return path.read_bytes()


@pytest.fixture
def file(tmp_path: Path, made: bytes) -> Path:
    path = tmp_path / "tools.graph"
    path.write_bytes(made)
    path.chmod(0o600)
    return path


def best(search: VectorGraph | ExactSearch, question: npt.NDArray[np.float32]) -> set[int]:
    return set(np.argsort(-search.cosines(question, ()))[:10].tolist())


def test_it_finds_what_a_comparison_with_all_finds(file: Path) -> None:
    graph, exact = vector_graph(file, "model", TEXTS, Built()), ExactSearch(ROWS)

    found = [len(best(graph, each) & best(exact, each)) for each in QUESTIONS]

    assert sum(found) >= 0.98 * 10 * len(QUESTIONS)


def test_a_cosine_is_exact_to_half_precision_or_zero(file: Path) -> None:
    graph, exact = vector_graph(file, "model", TEXTS, Built()), ExactSearch(ROWS)

    got, right = graph.cosines(QUESTIONS[0], ()), exact.cosines(QUESTIONS[0], ())

    compared = got != 0
    assert int(compared.sum()) == NEAREST
    np.testing.assert_allclose(got[compared], right[compared], atol=2e-3)


def test_a_row_that_is_asked_for_is_compared_however_far_it_is(file: Path) -> None:
    graph = vector_graph(file, "model", TEXTS, Built())
    right = ExactSearch(ROWS).cosines(QUESTIONS[0], ())
    far = np.argsort(right)[:3].tolist()

    got = graph.cosines(QUESTIONS[0], far)

    np.testing.assert_allclose(got[far], right[far], atol=2e-3)


def test_the_file_of_an_earlier_daemon_is_used_and_private(tmp_path: Path) -> None:
    path, first, second = tmp_path / "tools.graph", Built(), Built()
    before = vector_graph(path, "model", TEXTS, first)

    after = vector_graph(path, "model", TEXTS, second)

    assert (first.times, second.times) == (1, 0)
    assert path.stat().st_mode & 0o777 == 0o600
    for each in QUESTIONS:
        np.testing.assert_array_equal(before.cosines(each, ()), after.cosines(each, ()))


@pytest.mark.parametrize(
    ("model", "texts"),
    [
        pytest.param("another", TEXTS, id="the model"),
        pytest.param("model", [*TEXTS[:-1], "a new text"], id="a text"),
        pytest.param("model", TEXTS[::-1], id="the order"),
        pytest.param("model", [f"{TEXTS[0]}{TEXTS[1]}", "", *TEXTS[2:]], id="where a text ends"),
    ],
)
def test_it_is_built_again_when_what_it_was_made_from_changes(
    file: Path, model: str, texts: list[str]
) -> None:
    first, second = Built(), Built()

    vector_graph(file, model, texts, first)
    vector_graph(file, model, texts, second)

    assert (first.times, second.times) == (1, 0)


def test_it_is_built_again_for_another_usearch(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda _: "0.0")
    built = Built()

    vector_graph(file, "model", TEXTS, built)

    assert built.times == 1


def flipped(made: bytes, at: int) -> bytes:
    return made[:at] + bytes([made[at] ^ 0x55]) + made[at + 1 :]


@pytest.mark.parametrize("at", [0, 8, 12, 16, 24, 40, 70, 128, -20_000, -1])
def test_a_damaged_file_is_built_again(file: Path, made: bytes, at: int) -> None:
    file.write_bytes(flipped(made, at % len(made)))
    built = Built()

    graph = vector_graph(file, "model", TEXTS, built)

    assert built.times == 1
    assert file.read_bytes()[:64] == made[:64]
    assert graph.rows == len(TEXTS)


@pytest.mark.parametrize("length", [0, 7, 100, 128, 100_000])
def test_a_truncated_file_is_built_again(file: Path, made: bytes, length: int) -> None:
    file.write_bytes(made[:length])
    built = Built()

    vector_graph(file, "model", TEXTS, built)

    assert built.times == 1


def test_a_file_that_others_can_write_is_built_again(file: Path) -> None:
    file.chmod(0o666)
    built = Built()

    vector_graph(file, "model", TEXTS, built)

    assert built.times == 1
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_file_with_lengths_that_overflow_is_built_again(file: Path, made: bytes) -> None:
    file.write_bytes(made[:16] + struct.pack("<2Q", 1 << 62, 1 << 62) + made[32:])
    built = Built()

    vector_graph(file, "model", TEXTS, built)

    assert built.times == 1


def test_without_room_for_the_file_it_searches_from_memory(tmp_path: Path) -> None:
    (tmp_path / "a file").write_text("not a folder")

    graph = vector_graph(tmp_path / "a file" / "tools.graph", "model", TEXTS, Built())

    assert int(graph.cosines(QUESTIONS[0], ()).argmax()) == 0


def test_a_process_may_search_the_graph_first_and_load_the_model_later() -> None:
    """In the other order of the two imports the process ends with a segmentation fault."""
    program = (
        "from capd.embedder_process import import_before_usearch, load_model;"
        "import_before_usearch();"
        "import usearch.index;"
        "print(len(load_model().embed(['a text'])))"
    )
    command = [sys.executable, "-P", "-c", program]

    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert (ran.returncode, ran.stdout) == (0, "1\n")
