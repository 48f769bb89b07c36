import hashlib
import os
import resource
import stat
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from capd.adapters.model.vector_cache import VectorCache

Vector = npt.NDArray[np.float32]
DIMENSIONS = 3
ONE = np.array([1, 0, 0], np.float32)
TWO = np.array([0, 0.6, 0.8], np.float32)


def listed(vectors: Mapping[str, "npt.NDArray[np.floating[Any]]"]) -> dict[str, list[float]]:
    """Return vectors as they are stored."""
    return {text: vector.astype(np.float16).tolist() for text, vector in vectors.items()}


def opened(path: Path, key: str = "model", dimensions: int = DIMENSIONS) -> VectorCache:
    return VectorCache(path, key, dimensions)


@contextmanager
def disk_full_after(size: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextmanager
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    try:
        yield
    finally:
        os.umask(before)


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    path = tmp_path / "vectors"
    opened(path).put({"one": ONE, "two": TWO})
    return path


def test_a_file_that_does_not_exist_is_an_empty_cache_without_complaint(tmp_path: Path) -> None:
    cache = opened(tmp_path / "absent")

    assert (len(cache), cache.reason, cache.get(["one"])) == (0, None, {})


def test_what_rests_is_found_as_before(stored: Path) -> None:
    cache = opened(stored)
    before = cache.get(["one", "two"])

    cache.rest()

    assert listed(cache.get(["one", "two"])) == listed({"one": ONE, "two": TWO})
    assert listed(before) == listed({"one": ONE, "two": TWO})


def test_an_empty_cache_may_rest(tmp_path: Path) -> None:
    cache = opened(tmp_path / "absent")

    cache.rest()

    assert len(cache) == 0


def test_what_was_put_is_found_after_a_restart(stored: Path) -> None:
    cache = opened(stored)

    assert cache.reason is None
    assert listed(cache.get(["two", "unknown", "one"])) == listed({"two": TWO, "one": ONE})


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    rounds=st.lists(
        st.dictionaries(
            st.text(st.characters(), max_size=8),
            arrays(np.float32, DIMENSIONS, elements=st.floats(-1, 1, width=32)),
            max_size=5,
        ),
        max_size=4,
    )
)
def test_any_texts_put_in_any_rounds_are_found_with_their_last_vectors(
    tmp_path: Path, rounds: list[dict[str, Vector]]
) -> None:
    path = tmp_path / "vectors"
    path.unlink(missing_ok=True)
    cache = opened(path)
    expected: dict[str, Vector] = {}

    for vectors in rounds:
        cache.put(vectors)
        expected |= vectors

    again = opened(path)
    assert (again.reason, len(again)) == (None, len(expected))
    assert listed(again.get(expected)) == listed(cache.get(expected)) == listed(expected)


def test_texts_that_differ_in_half_a_surrogate_pair_have_their_own_vectors(tmp_path: Path) -> None:
    cache = opened(tmp_path / "vectors")
    vectors = {chr(0xD83D): ONE, chr(0xD83E): TWO}

    cache.put(vectors)

    assert listed(cache.get(vectors)) == listed(vectors)


def test_every_changed_bit_of_the_file_is_noticed(stored: Path) -> None:
    whole = stored.read_bytes()
    unnoticed = []

    for bit in range(len(whole) * 8):
        broken = bytearray(whole)
        broken[bit // 8] ^= 1 << bit % 8
        stored.write_bytes(broken)
        cache = opened(stored)
        if len(cache) or cache.reason is None:
            unnoticed.append(bit)

    assert unnoticed == []


def test_every_other_length_of_the_file_is_noticed(stored: Path) -> None:
    whole = stored.read_bytes()
    contents = [whole[:length] for length in range(len(whole))] + [whole + b"\0", whole * 2]
    unnoticed = []

    for content in contents:
        stored.write_bytes(content)
        cache = opened(stored)
        if len(cache) or cache.reason is None:
            unnoticed.append(len(content))

    assert unnoticed == []


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(content=st.binary(max_size=300))
def test_any_other_file_is_an_empty_cache(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "vectors"
    path.write_bytes(content)

    cache = opened(path)

    assert (len(cache), cache.reason is None) == (0, False)


@pytest.mark.parametrize(("key", "dimensions"), [("another", DIMENSIONS), ("model", 2), ("", 3)])
def test_another_models_file_is_not_used(stored: Path, key: str, dimensions: int) -> None:
    cache = opened(stored, key, dimensions)

    assert (len(cache), cache.reason) == (
        0,
        f"vector cache {stored} is ignored: another model made it",
    )


def test_an_unusable_file_is_replaced_by_the_next_put(stored: Path) -> None:
    stored.write_bytes(b"junk")
    cache = opened(stored)

    cache.put({"one": ONE})

    assert cache.reason is None
    assert listed(opened(stored).get(["one"])) == listed({"one": ONE})


def test_the_file_is_private_whatever_the_umask(tmp_path: Path) -> None:
    path = tmp_path / "vectors"

    with open_umask():
        opened(path).put({"one": ONE})

    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_a_file_that_somebody_else_can_write_is_not_used(stored: Path, mode: int) -> None:
    stored.chmod(mode)

    cache = opened(stored)

    assert (len(cache), cache.reason) == (
        0,
        f"vector cache {stored} is ignored: somebody else can write it",
    )


def test_a_symbolic_link_is_not_followed(stored: Path) -> None:
    link = stored.with_name("link")
    link.symlink_to(stored)

    cache = opened(link)

    assert (len(cache), cache.reason is None) == (0, False)


def test_a_fifo_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "vectors"
    os.mkfifo(path)

    cache = opened(path)

    assert cache.reason == f"vector cache {path} is ignored: it is not a regular file"


def test_the_file_holds_no_text(tmp_path: Path) -> None:
    path = tmp_path / "vectors"

    opened(path).put({"delete the repository": ONE})

    assert not any(word in path.read_bytes() for word in (b"delete", b"repository"))


def test_the_oldest_vectors_leave_when_there_are_too_many(tmp_path: Path) -> None:
    path = tmp_path / "vectors"
    cache = VectorCache(path, "model", DIMENSIONS, max_entries=3)
    cache.put({"a": ONE, "b": ONE, "c": ONE})
    cache.put({"a": TWO})

    cache.put({"d": ONE})

    again = VectorCache(path, "model", DIMENSIONS, max_entries=3)
    assert (again.reason, listed(again.get("abcd"))) == (
        None,
        listed({"a": TWO, "c": ONE, "d": ONE}),
    )


def test_a_file_larger_than_the_cap_is_not_read(stored: Path) -> None:
    cache = VectorCache(stored, "model", DIMENSIONS, max_entries=1)

    assert (len(cache), cache.reason) == (0, f"vector cache {stored} is ignored: it is too large")


def test_a_write_that_fails_halfway_loses_nothing(stored: Path) -> None:
    cache = opened(stored)

    with disk_full_after(stored.stat().st_size + 10):
        cache.put({"three": ONE})

    assert cache.reason == f"vector cache {stored} cannot be written: File too large"
    assert set(cache.get(["one", "two", "three"])) == {"one", "two", "three"}
    assert set(opened(stored).get(["one", "two", "three"])) == {"one", "two"}
    assert list(stored.parent.iterdir()) == [stored]


def test_the_put_after_a_failed_one_writes_everything(tmp_path: Path) -> None:
    path = tmp_path / "directory" / "vectors"
    path.parent.write_bytes(b"in the way")
    cache = opened(path)
    cache.put({"one": ONE})
    path.parent.unlink()

    cache.put({"two": TWO})

    assert cache.reason is None
    assert listed(opened(path).get(["one", "two"])) == listed({"one": ONE, "two": TWO})


def test_what_a_crash_left_behind_does_not_stop_the_next_put(stored: Path) -> None:
    stored.with_name(".vectors.partial").write_bytes(b"half")
    cache = opened(stored)

    cache.put({"three": ONE})

    assert cache.reason is None
    assert list(stored.parent.iterdir()) == [stored]


def test_a_vector_changed_by_its_owner_does_not_change_in_the_cache(tmp_path: Path) -> None:
    cache = opened(tmp_path / "vectors")
    mine = ONE.copy()
    cache.put({"one": mine})

    mine[:] = 9

    assert listed(cache.get(["one"])) == listed({"one": ONE})


@pytest.mark.parametrize("is_reloaded", [False, True])
def test_a_vector_from_the_cache_cannot_be_changed(stored: Path, is_reloaded: bool) -> None:
    cache = opened(stored)
    if not is_reloaded:
        cache.put({"one": ONE})
    vector = cache.get(["one"])["one"]

    with pytest.raises(ValueError, match="read-only"):
        vector[0] = 9


def test_a_vector_of_another_shape_is_the_callers_mistake(tmp_path: Path) -> None:
    cache = opened(tmp_path / "vectors")

    with pytest.raises(ValueError, match="in 3 dimensions"):
        cache.put({"one": np.zeros(2, np.float32)})


def test_ten_thousand_vectors_come_back_whole(tmp_path: Path) -> None:
    path = tmp_path / "vectors"
    matrix = np.random.default_rng(1).random((10_000, 384), np.float32)
    texts = [f"trigger {row}" for row in range(10_000)]
    opened(path, dimensions=384).put(dict(zip(texts, matrix, strict=True)))

    found = opened(path, dimensions=384).get(texts)

    assert np.array_equal(np.stack([found[text] for text in texts]), matrix.astype(np.float16))


def test_a_file_of_the_first_format_is_read_and_written_anew(tmp_path: Path) -> None:
    path = tmp_path / "vectors"
    head = struct.pack("<8s4I", b"capdvec\n", 1, DIMENSIONS, 1, 0)
    head += hashlib.sha256(b"model").digest()
    payload = hashlib.sha256(b"one").digest() + ONE.astype("<f4").tobytes()
    path.write_bytes(head + hashlib.sha256(head + payload).digest() + payload)
    path.chmod(0o600)

    cache = opened(path)
    found = listed(cache.get(["one"]))
    cache.put({"two": TWO})

    assert (cache.reason, found) == (None, listed({"one": ONE}))
    again = opened(path)
    assert listed(again.get(["one", "two"])) == listed({"one": ONE, "two": TWO})
    assert path.read_bytes()[8:12] == struct.pack("<I", 2)
