"""The documentation of each key, read from the structs of the configuration.

The text under a field is the key's meaning; type and default are the field's own. The table in
docs/configuration.md and the JSON Schema of `capd config schema` are made from it.
"""

import ast
import inspect
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import msgspec

from capd.adapters.configuration import VARIABLES, Configuration
from capd.adapters.live_settings import is_for_restart
from capd.core.settings.known_keys import KnownKey, Path, known_keys
from capd.core.settings.project_keys import PROJECT_KEYS, How

_PROJECT_WORDS: Mapping[How, str] = {
    "adds": "adds",
    "falls back": "where you set none",
    "keeps": "chooses among yours",
    "lowers": "downwards",
    "tunes": "yes",
}


@dataclass(frozen=True, slots=True)
class KeyDocument:
    """The documentation of one key of the configuration."""

    name: str
    type: str
    default: str
    meaning: str
    variable: str
    """The environment variable that sets it; empty if there is none."""
    is_live: bool
    """Whether a change applies while the daemon runs."""
    project: str
    """What a project's file may do with it; empty for nothing."""


def key_documents() -> list[KeyDocument]:
    """Return the documentation of every key of the configuration, in the order of the structs."""
    variables: dict[Path, str] = {path: variable for variable, path in VARIABLES.items()}
    return [
        KeyDocument(
            key.name,
            _type_text(_schema_of(key.type)),
            _default_text(key.default),
            meaning_of(key.table, key.field),
            variables.get(key.path, ""),
            not is_for_restart(key.path),
            _project_text(key),
        )
        for key in known_keys(Configuration)
    ]


def schema() -> dict[str, Any]:
    """Return the JSON Schema of `config.toml`, with the meaning of each key."""
    (root,), components = msgspec.json.schema_components(
        [Configuration], ref_template="#/$defs/{name}"
    )
    tables = {key.table for key in known_keys(Configuration)} | {Configuration}
    for table in tables:
        for name, property_ in components[table.__name__].get("properties", {}).items():
            if meaning := meaning_of(table, name):
                property_["description"] = meaning
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "capd config.toml",
        **root,
        "$defs": components,
    }


def meaning_of(table: type[msgspec.Struct], field: str) -> str:
    """Return the documentation text below a struct's field as one line; empty for none."""
    for each in table.__mro__:
        if field in _texts_of(each):
            return _texts_of(each)[field]
    return ""


@cache
def _texts_of(table: type) -> Mapping[str, str]:
    """Return the text under each field of a class, which Python itself does not keep."""
    try:
        source = inspect.getsource(inspect.getmodule(table) or table)
    except (OSError, TypeError):
        return {}
    named = [
        node
        for node in ast.parse(source).body
        if isinstance(node, ast.ClassDef) and node.name == table.__name__
    ]
    body = named[0].body if named else []
    found: dict[str, str] = {}
    for field, text in itertools.pairwise(body):
        match field, text:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(meaning))),
            ):
                found[name] = " ".join(meaning.split())
    return found


def _schema_of(type_: Any) -> Mapping[str, Any]:
    return msgspec.json.schema(type_)


def _type_text(schema_: Mapping[str, Any]) -> str:
    """Return a description of the values that the JSON Schema `schema_` allows, for a person."""
    if "anyOf" in schema_:
        # The key may be unset. Its default says so; the type need not.
        return _type_text(next(each for each in schema_["anyOf"] if each != {"type": "null"}))
    if "enum" in schema_:
        return ", ".join(f"`{each}`" for each in schema_["enum"])
    words = {"string": "text", "boolean": "true or false", "integer": "whole number"}
    kind = schema_.get("type", "")
    match kind:
        case "array":
            items = schema_.get("items", {})
            return f"list of {_type_text(items)}{'' if 'enum' in items else 's'}"
        case "object":
            return f"{_type_text(schema_.get('additionalProperties', {}))} by name"
        case "integer" | "number":
            least = schema_.get("minimum", schema_.get("exclusiveMinimum"))
            most = schema_.get("maximum", schema_.get("exclusiveMaximum"))
            above = "above " if "exclusiveMinimum" in schema_ else ""
            bounds = f", {above}{least} to {most}" if most is not None else ""
            return words.get(kind, "number") + bounds
    return words.get(kind, str(kind))


def _default_text(value: Any) -> str:
    if value is msgspec.NODEFAULT:
        return ""
    return msgspec.json.encode(value).decode()


def _project_text(key: KnownKey) -> str:
    how = PROJECT_KEYS.get(key.path)
    return _PROJECT_WORDS[how] if how is not None else ""
