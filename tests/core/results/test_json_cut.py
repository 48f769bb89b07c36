"""JSON values cut to a size are valid, keep their shape, and are deterministic."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capd.core.results.json_cut import KeptPlaces, Omission, cut_json, water_level, width

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=300)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(st.text("ab/é\n"), inner),
    max_leaves=40,
)
CONTAINERS = st.lists(VALUES, max_size=20) | st.dictionaries(st.text("ab/é\n"), VALUES)


def is_cut_of(cut: Any, whole: Any) -> bool:
    """Tell whether a value is a shortened form of another, at every level."""
    if isinstance(whole, list):
        pairs = zip(cut, whole, strict=False)
        return isinstance(cut, list) and all(is_cut_of(each, of) for each, of in pairs)
    if isinstance(whole, dict):
        return isinstance(cut, dict) and all(is_cut_of(cut[k], whole[k]) for k in cut)
    if isinstance(whole, str) and isinstance(cut, str) and "more characters]" in cut:
        return whole.startswith(cut[: cut.rindex("… [")])
    return bool(cut == whole)


@settings(deadline=None)
@given(CONTAINERS, st.integers(2, 600), st.sampled_from([None, 1]), st.booleans())
def test_every_container_is_cut_to_a_valid_one_of_its_shape_within_the_room(
    whole: Any, room: int, indent: int | None, is_ascii: bool
) -> None:
    data = json.dumps(whole, indent=indent, ensure_ascii=is_ascii).encode()

    cut = cut_json(data, room)

    assert cut is not None
    assert width(cut.data) <= room
    assert is_cut_of(json.loads(cut.data), whole)
    assert cut == cut_json(data, room)
    assert bool(cut.omissions) == (json.loads(cut.data) != whole)


@settings(deadline=None)
@given(CONTAINERS)
def test_what_fits_stays_the_bytes_that_it_was(whole: Any) -> None:
    data = json.dumps(whole, indent=1).encode()

    cut = cut_json(data, len(data))

    assert cut is not None
    assert (cut.data, list(cut.omissions)) == (data, [])


def test_the_first_items_of_a_list_stay_and_none_takes_the_room_of_the_others() -> None:
    whole = [{"id": n, "body": "x" * 5000} for n in range(50)]

    cut = cut_json(json.dumps(whole).encode(), 4000)

    assert cut is not None
    kept = json.loads(cut.data)
    assert [each["id"] for each in kept] == list(range(len(kept)))
    assert len(kept) >= 7
    assert len({len(each["body"]) for each in kept}) <= 2


def test_numbers_and_texts_that_stay_are_not_written_anew() -> None:
    data = b'{"big":123456789012345678901234567890.10,"e":1E5,"u":"\\u00e9","x":"%s"}' % (
        b"y" * 500
    )

    cut = cut_json(data, 200)

    assert cut is not None
    assert cut.data.startswith(
        b'{"big":123456789012345678901234567890.10,"e":1E5,"u":"\\u00e9","x":"yyy'
    )
    (omission,) = cut.omissions
    assert (omission.path, omission.what, omission.whole) == (("x",), "characters", 500)


def test_places_that_must_stay_stay_as_long_as_they_have_room() -> None:
    whole = {"ids": list(range(60)), "note": "n" * 2000}
    data = json.dumps(whole, separators=(",", ":")).encode()

    full = cut_json(data, 400, KeptPlaces(full={("ids",)}))
    left_out = cut_json(data, 400, KeptPlaces(whole={("note",)}))
    too_much = cut_json(data, 400, KeptPlaces(whole={("note",)}, full={()}))

    assert full is not None
    assert json.loads(full.data)["ids"] == whole["ids"]
    assert [each.path for each in full.omissions] == [("note",)]
    assert left_out is not None
    assert "note" not in json.loads(left_out.data)
    assert too_much is None


def test_a_text_that_is_long_by_its_escapes_alone_is_whole_without_them() -> None:
    nothing = {"": None, "éé": None}
    whole = [None, None, None, {"": "\x0b𐀀𐀀𐀀", "a": nothing, "aa": {**nothing, "a": None}}]

    cut = cut_json(json.dumps(whole).encode(), 152)

    assert cut is not None
    assert json.loads(cut.data) == whole
    assert cut.omissions == []


def test_deep_nesting_ends_somewhere() -> None:
    data = b"[" * 300 + b'"' + b"x" * 3000 + b'"' + b"]" * 300

    cut = cut_json(data, 1000)

    assert cut is not None
    assert cut.data == b"[" * 33 + b"]" * 33
    assert list(cut.omissions) == [Omission((0,) * 32, "levels", 0, 1)]


@settings(deadline=None)
@given(st.lists(st.integers(0, 1000), max_size=30), st.integers(0, 5000))
def test_nobody_gets_less_than_the_level_while_another_gets_more(
    widths: list[int], room: int
) -> None:
    level = water_level(widths, room)

    shares = [min(each, level) for each in widths]
    assert sum(shares) <= max(room, 0)
    # One more for each would be too much, unless all have what they need.
    wanting = sum(each > level for each in widths)
    assert wanting == 0 or sum(shares) + wanting > room


@pytest.mark.parametrize("data", [b"[1,", b'{"a":tru}' + b" " * 50, b"[" * 9000])
def test_what_is_no_json_is_no_json(data: bytes) -> None:
    with pytest.raises((ValueError, msgspec.DecodeError)):
        cut_json(data + b"x" * 100, 20)
