"""Prompts and resources are shown without hidden text, and requested by their original names."""

import pytest

from capd.core.definitions.entries import MOST_BYTES, MOST_ENTRIES, MOST_ENTRY_BYTES, EntryIntake


@pytest.mark.parametrize(
    ("kind", "entry", "expected"),
    [
        ("prompts", '{"name":"a","title":"b\u202e"}', ['{"name":"a","title":"b"}']),
        ("prompts", '{"name":"a\u200b","title":"b"}', []),
        ("resources", '{"uri":"a://b","name":"c\u200b"}', ['{"uri":"a://b","name":"c"}']),
        ("resources", '{"uri":"a://b\u200b","name":"c"}', []),
        ("resources/templates", '{"uriTemplate":"a://{x}\u202e"}', []),
        (
            "resources",
            '{ "uri":"a://b", "name":"می\u200cخ"}',
            ['{ "uri":"a://b", "name":"می\u200cخ"}'],
        ),
        ("resources", "7", []),
    ],
)
def test_an_entry_is_cleaned_or_left_out(kind: str, entry: str, expected: list[str]) -> None:
    intake = EntryIntake(kind)

    intake.take(entry.encode())

    assert [each.decode() for each in intake.entries.values()] == expected
    assert bool(intake.finding) == (not expected)


@pytest.mark.parametrize("kind", list(MOST_ENTRIES))
def test_the_first_entries_of_too_many_are_listed_and_a_finding_says_so(kind: str) -> None:
    key = {"prompts": "name", "resources": "uri"}.get(kind, "uriTemplate")
    intake, most = EntryIntake(kind), MOST_ENTRIES[kind]

    for number in range(most + 10):
        intake.take(b'{"%s":"%d"}' % (key.encode(), number))

    assert list(intake.entries) == [str(number) for number in range(most)]
    assert intake.is_full
    assert intake.finding.startswith(f"the first {most} of its {kind} are listed")


def test_a_list_has_a_bound_in_bytes() -> None:
    intake = EntryIntake("resources")
    for number in range(100):
        rest = b"x" * (MOST_ENTRY_BYTES - 100)
        intake.take(b'{"uri":"%d","name":"%s"}' % (number, rest))

    assert sum(map(len, intake.entries.values())) <= MOST_BYTES
    assert intake.is_full


@pytest.mark.parametrize(
    "entry",
    [
        b"7",
        b"{}",
        b'{"name":7}',
        b'{"name":"a","title":"%s"}' % (b"x" * MOST_ENTRY_BYTES),
        b'{"name":"a","title":"%s"}' % (b"\\u200b" * 6000),
    ],
)
def test_what_cannot_be_asked_for_or_read_is_left_out_by_itself(entry: bytes) -> None:
    intake = EntryIntake("prompts")

    for each in (entry, b'{"name":"b"}', b'{"name":"b","title":"again"}'):
        intake.take(each)

    assert intake.entries == {"b": b'{"name":"b"}'}
    assert intake.finding == "1 of its prompts are not listed: they cannot be read"
