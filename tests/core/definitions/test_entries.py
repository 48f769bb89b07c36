"""Prompts and resources are cleaned where people read them, and asked for as they are."""

import pytest

from capd.core.definitions.entries import cleaned_entries


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
        ("resources", "7", ["7"]),
    ],
)
def test_an_entry_is_cleaned_or_left_out(kind: str, entry: str, expected: list[str]) -> None:
    got = [each.decode() for each in cleaned_entries(kind, [entry.encode()])]

    assert got == expected
