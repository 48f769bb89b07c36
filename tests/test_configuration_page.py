"""docs/configuration.md and the schema agree with the settings structs."""

import json
import runpy
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest

from capd.adapters.configuration import VARIABLES, Configuration
from capd.adapters.key_documents import key_documents, schema
from capd.core.settings.known_keys import known_keys

DOCS = Path(__file__).parents[1] / "docs"


def test_the_table_of_keys_is_as_the_structs_have_it() -> None:
    generator = runpy.run_path(str(DOCS / "regenerate.py"))

    assert generator["page_text"]() == (DOCS / "configuration.md").read_text("utf-8"), (
        "run python docs/regenerate.py"
    )


def test_every_key_says_what_it_means() -> None:
    assert [each.name for each in key_documents() if not each.meaning] == []


def test_every_key_says_what_values_it_takes() -> None:
    types = {each.name: each.type for each in key_documents()}

    assert [name for name, type_ in types.items() if not type_ or "null" in type_] == []
    assert types["servers.most_memory_mib"] == "whole number"


def test_every_variable_sets_a_key_that_there_is() -> None:
    known = {key.path for key in known_keys(Configuration)}

    assert [name for name, path in VARIABLES.items() if path not in known] == []


@pytest.mark.parametrize(
    ("document", "is_good"),
    [
        ({}, True),
        ({"servers": {"linger": 5}}, True),
        ({"servers": {"linger": -5}}, False),
        ({"surface": {"mode": "moon"}}, False),
        ({"clients": {"zed": {"domain": "d"}}}, True),
        ({"clients": {"zed": {"domain": 3}}}, False),
    ],
)
def test_the_schema_takes_what_the_daemon_takes(document: dict[str, Any], is_good: bool) -> None:
    written = json.loads(msgspec.json.encode(schema()))

    got = jsonschema.Draft202012Validator(written).is_valid(document)

    assert got == is_good


def test_the_schema_has_meanings_bounds_and_defaults() -> None:
    linger = schema()["$defs"]["ServersTable"]["properties"]["linger"]

    assert linger == {
        "type": "number",
        "minimum": 0,
        "maximum": 86400,
        "default": 30.0,
        "description": "Seconds for which a server that no session uses any more is kept.",
    }
