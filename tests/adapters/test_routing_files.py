"""The routing profile and the background messages that are shipped with capd."""

from pathlib import Path

import pytest

from capd.adapters.model.minilm import ADAPTER_SHA256, MODEL
from capd.adapters.routing_files import (
    ProfileUnreadableError,
    background_messages,
    profile_text,
    read_profile,
)
from capd.core.routing.evidence import evidence_names
from capd.core.routing.projection import Projection


def test_the_profile_is_for_the_model_that_comes_with_it_and_weighs_all_evidence() -> None:
    got = read_profile()

    got.check(MODEL.id, MODEL.quantisation, MODEL.pooling, MODEL.revision, ADAPTER_SHA256)
    assert got.adapter == ADAPTER_SHA256
    assert got.scorer == "evidence"
    for_capabilities, for_none = evidence_names(has_projection=bool(got.projection))
    assert set(got.weights) == {*for_capabilities, *for_none}
    if got.projection:
        Projection.from_bytes(got.projection, MODEL.dimensions)
    assert 0 < got.suggest_at < got.threshold < 1


def test_a_profile_is_read_as_it_was_written(tmp_path: Path) -> None:
    file = tmp_path / "profile.json"
    file.write_bytes(profile_text(read_profile()))

    got = read_profile(file)

    assert got == read_profile()


@pytest.mark.parametrize("content", [b"", b"{}", b'{"model": 3}', b"\xff"])
def test_what_is_no_profile_is_refused_with_its_name(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "profile.json"
    file.write_bytes(content)

    with pytest.raises(ProfileUnreadableError, match=r"profile\.json"):
        read_profile(file)


def test_there_are_about_three_hundred_background_messages_and_none_twice() -> None:
    got = background_messages()

    assert 300 <= len(got) <= 340
    assert len({message.casefold() for message in got}) == len(got)
