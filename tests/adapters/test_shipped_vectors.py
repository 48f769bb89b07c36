"""The vectors that are shipped for the starter tap and the background messages."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from capd.adapters.model.minilm import ROUTING, MiniLM
from capd.adapters.routing_files import background_messages, background_vectors
from capd.adapters.tap_files import TapPlace, read_tap, starter_place, tap_vectors
from capd.core.taps.tap_vectors import FILE, written_vectors
from capd.tap_build import phrases
from capd_protos.types import TapName

Vectors = npt.NDArray[np.float32]
SAMPLE = 8


@pytest.fixture(scope="module")
def model() -> MiniLM:
    return MiniLM()


def starter() -> tuple[list[str], Mapping[str, Vectors]]:
    tap = read_tap(starter_place())
    vectors = tap_vectors(tap)
    assert vectors is not None, tap.findings
    texts = phrases(tap)
    return texts, vectors.of(texts)


def test_the_starter_tap_ships_the_vector_of_each_of_its_phrases() -> None:
    texts, found = starter()

    # `python -m capd tap build taps/starter` writes the file anew.
    assert [text for text in texts if text not in found] == []


def test_each_background_message_has_its_vector() -> None:
    # `python -m bench.background_vectors` writes the file anew.
    assert list(background_vectors()) == list(background_messages())


def test_what_is_shipped_is_what_the_model_says(model: MiniLM) -> None:
    texts, found = starter()
    known = {**found, **background_vectors()}
    sample = [*texts[:: len(texts) // SAMPLE], *background_messages()[::80]]

    own = model.embed(sample, is_changed=True)

    cosines = [float(row @ known[text]) for text, row in zip(sample, own, strict=True)]
    assert min(cosines) > 0.999


def folder(tmp_path: Path) -> TapPlace:
    own = tmp_path / "tap" / "capabilities" / "alpha"
    own.mkdir(parents=True)
    (own / "config.toml").write_text('triggers = ["alpha one", "alpha two", "alpha three"]\n')
    (own / "default.toml").write_text('[deps]\nrequire = ["some/tool"]\n')
    return TapPlace(TapName("tap"), tmp_path / "tap")


def test_a_tap_is_another_one_with_other_vectors_and_says_what_is_wrong_with_them(
    tmp_path: Path,
) -> None:
    place = folder(tmp_path)
    row = np.zeros(ROUTING.dimensions, np.float32)
    row[0] = 1
    without = read_tap(place)
    (place.path / FILE).write_bytes(
        written_vectors({"alpha one": row}, ROUTING.key, ROUTING.dimensions)
    )
    with_vectors = read_tap(place)
    (place.path / FILE).write_bytes(b"\0" * 1000)
    broken = read_tap(place)

    vectors = tap_vectors(with_vectors)

    assert vectors is None, "the file is another one by now"
    assert len({without.revision, with_vectors.revision}) == 2
    assert [each.path for each in broken.findings] == [FILE]
    assert "it is no file of vectors" in broken.findings[0].reason
    assert broken.capabilities == without.capabilities


def test_vectors_that_are_a_link_out_of_the_tap_are_not_read(tmp_path: Path) -> None:
    place = folder(tmp_path)
    (tmp_path / "elsewhere").write_bytes(b"\0")
    (place.path / FILE).symlink_to(tmp_path / "elsewhere")

    tap = read_tap(place)

    assert (tap.vectors_digest, tap.findings) == ("", ())
