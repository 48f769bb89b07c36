"""Without the model, only a complete trigger of one capability decides."""

import msgspec
import pytest

from capd.core.routing import words_alone
from capd.core.routing.words_alone import fitting, sure
from capd_protos.types import CapabilityId, CapabilityName, CapabilitySpec, TapName


def capability(name: str, *triggers: str) -> CapabilitySpec:
    id_ = CapabilityId(TapName("mine"), CapabilityName(name))
    return CapabilitySpec(id=id_, provider="default", triggers=triggers)


KNOWN = [
    capability("git", "show the commit history", "git"),
    capability("files", "list the directory", "show the notes"),
    capability("notes", "show the notes"),
]


@pytest.mark.parametrize("triggers", [1, 3])
def test_in_a_catalog_too_large_to_be_compared_nothing_is_sure(
    triggers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    phrases = [f"count the boxes in aisle {number}" for number in range(triggers)]
    several = [capability(name, *phrases) for name in ("one", "two", "three")]
    catalog = [*KNOWN, *several]
    monkeypatch.setattr(words_alone, "MOST_PHRASES", 5 + 3 * triggers)
    assert sure("show the commit history", catalog) == KNOWN[0].id

    monkeypatch.setattr(words_alone, "MOST_PHRASES", 4 + 3 * triggers)

    assert sure("show the commit history", catalog) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("please show the commit history on main", "git"),
        ("Show the commit history!", "git"),
        ("show me the history of our commits", None),
        ("git", None),
        ("show the notes", None),
        ("show the commit history and list the directory", None),
        ("explain how to show the commit history", None),
        ("write a poem: show the commit history", None),
        ("", None),
    ],
)
def test_a_whole_trigger_of_one_capability_is_sure(text: str, expected: str | None) -> None:
    found = sure(text, KNOWN)

    assert (found.name if found is not None else None) == expected


def test_a_trigger_that_a_server_gave_itself_is_not_sure() -> None:
    own = ("fix the bug", "write notes")
    evil = msgspec.structs.replace(
        capability("evil", "look into evil"), extra_triggers=own, tool_triggers=own
    )

    found = [
        sure(text, [*KNOWN, evil]) for text in ("fix the bug in main", "look into evil for this")
    ]

    assert found == [None, evil.id]


def test_a_trigger_that_a_server_gave_itself_keeps_nobody_else_off() -> None:
    own = ("show the commit history",)
    evil = msgspec.structs.replace(
        capability("evil", "use evil"), extra_triggers=own, tool_triggers=own
    )

    found = sure("please show the commit history", [*KNOWN, evil])

    assert found == KNOWN[0].id


def test_what_shares_words_is_listed_best_first() -> None:
    ranked = fitting("the commit history", KNOWN)

    assert ranked[0].id.name == "git"
    assert all(0 < score.score < 1 for score in ranked)


def test_what_shares_no_word_is_not_listed() -> None:
    assert fitting("zebra", KNOWN) == []
    assert fitting("zebra", []) == []
