"""The order of entries: set by a person, use, fit with the project, recency, order of taps."""

import msgspec
import pytest

from capd.core.index.entries import entry_texts, in_order, new_texts
from capd_protos.index import IndexEntry
from capd_protos.types import CapabilityId, CapabilityName, TapName


def id_of(name: str) -> CapabilityId:
    return CapabilityId(TapName("mine"), CapabilityName(name))


@pytest.mark.parametrize(
    ("priorities", "uses", "fitting", "last_at", "expected"),
    [
        ({}, {}, [], {}, "abc"),
        ({}, {"c": 2, "b": 1}, [], {}, "cba"),
        ({}, {}, ["c"], {}, "cab"),
        ({}, {}, [], {"b": 5.0, "c": 9.0}, "cba"),
        ({}, {"b": 1}, ["c"], {"a": 9.0}, "bca"),
        ({"a": 1}, {"b": 3}, ["c"], {}, "abc"),
    ],
)
def test_what_is_wanted_most_comes_first(
    priorities: dict[str, int],
    uses: dict[str, int],
    fitting: list[str],
    last_at: dict[str, float],
    expected: str,
) -> None:
    entries = [
        IndexEntry(id_of(name), "", "", uses=uses.get(name, 0), priority=priorities.get(name, 0))
        for name in "abc"
    ]

    ordered = in_order(
        entries, [id_of(each) for each in fitting], {id_of(k): at for k, at in last_at.items()}
    )

    assert "".join(each.id.name for each in ordered) == expected


def test_only_entries_that_have_changed_have_texts_to_count() -> None:
    before = [
        IndexEntry(CapabilityId(TapName("t"), CapabilityName(name)), "read", "Reads", ["read it"])
        for name in ("a", "b", "c")
    ]
    changed = msgspec.structs.replace(before[1], do="Writes")
    new = IndexEntry(CapabilityId(TapName("t"), CapabilityName("d")), "read", "Reads", [])

    texts = list(new_texts([before[0], changed, new], before))

    assert texts == [*entry_texts(changed), *entry_texts(new)]
