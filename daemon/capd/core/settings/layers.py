"""Layers of settings, merged key by key: a key that a layer lacks keeps its value.

A layer is used as a whole or not at all. If a file has one wrong value, the whole file is ignored,
because the rest could permit more than its author wanted. Unknown keys are reported and ignored.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import msgspec

from capd.core.lazy_patterns import lazy_pattern
from capd.core.settings.known_keys import Path, unknown_keys
from capd.core.settings.toml_lines import KeyLines, line_of, line_of_error

Tables = Mapping[str, Any]

_AT = lazy_pattern(r" - at `(?:key in )?\$(.*)`$")
_STEP = lazy_pattern(r"\.([^.\[]+)|\[(\.\.\.|\d+)\]")


MOST_NOTES = 20
"""Limit for one file: of many unknown keys only the first ones are reported."""
_LONGEST_KEY = 100


class UnusableError(Exception):
    """A source of settings (a file or a variable) cannot be used; the text says where and why."""


@dataclass(frozen=True, slots=True)
class Layer:
    """One source of settings: a file or an environment variable, with its values."""

    origin: str
    """Its name for a person: a file, or a variable."""
    tables: Tables
    notes: tuple[str, ...] = ()
    """The parts of it that are ignored, and why."""


@dataclass(frozen=True, slots=True)
class Merged:
    """The settings that apply, and the source (a file or a variable) that each comes from."""

    tables: dict[str, Any] = field(default_factory=dict)
    origins: dict[Path, str] = field(default_factory=dict)
    """The source of each key that a layer sets; every other key has its default."""


def merge_layers(layers: Sequence[Layer]) -> Merged:
    """Return the settings of all `layers`; of two that set the same key, the later one counts."""
    result = Merged()
    origins = result.origins
    for layer in layers:
        _merge(result.tables, layer.tables)
        tables = {path[:n] for path in origins for n in range(1, len(path))}
        for path in _leaves(layer.tables):
            # If one layer has a value and the other a table, the later one replaces it.
            for n in range(1, len(path)):
                origins.pop(path[:n], None)
            if path in tables:
                for other in [each for each in origins if each[: len(path)] == path]:
                    del origins[other]
            origins[path] = layer.origin
    return result


def parse_layer(text: str, model: type[msgspec.Struct], origin: str) -> Layer:
    """Return the settings in a TOML text; `model` has the keys and their types.

    `origin` names the source for a person.

    Raises:
        UnusableError: `text` is not TOML, or a value in it is wrong.
    """
    tables = tables_of(text)
    check(tables, model, text)
    unknown = list(islice(unknown_keys(tables, model), MOST_NOTES + 1))
    lines = KeyLines(text) if unknown else None
    notes = [_unknown(lines, path, near) for path, near in unknown if lines is not None]
    return Layer(origin, tables, tuple(notes_of(notes)))


def notes_of(notes: Sequence[str]) -> list[str]:
    """Return the first `MOST_NOTES` of `notes`, and a line about the rest, if there is more."""
    if len(notes) <= MOST_NOTES:
        return list(notes)
    return [*notes[:MOST_NOTES], "more of its keys are left out for the like reasons"]


def tables_of(text: str) -> dict[str, Any]:
    """Return the tables of a TOML text.

    Raises:
        UnusableError: `text` is not TOML.
    """
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise UnusableError("nested too deeply") from None
    # tomllib also raises a plain ValueError, for a number of five thousand digits.
    except ValueError as error:
        message = str(error)
        raise UnusableError(message if line_of_error(error) else f"not TOML: {message}") from None


def check(tables: Tables, model: type[msgspec.Struct], text: str) -> None:
    """Raise `UnusableError` if a value of `tables`, read from `text`, is wrong."""
    try:
        msgspec.convert(tables, model)
    except msgspec.ValidationError as error:
        raise UnusableError(_message_of(error, text)) from None


def with_variable(
    tables: Tables, model: type[msgspec.Struct], path: Sequence[str], value: str, origin: str
) -> Layer:
    """Return the setting that one environment variable makes, for the key at `path`.

    `value` is the variable's value, `origin` its name. The value must be valid together with
    `tables`, the settings so far.

    Raises:
        UnusableError: the value is invalid for that key.
    """
    wanted: dict[str, Any] = {}
    inner = wanted
    for part in path[:-1]:
        inner = inner.setdefault(part, {})
    inner[path[-1]] = value
    both: dict[str, Any] = {}
    _merge(both, tables)
    _merge(both, wanted)
    try:
        msgspec.convert(both, model, strict=False)
    except msgspec.ValidationError as error:
        raise UnusableError(str(error)) from None
    return Layer(origin, wanted)


def key_path_text(path: Sequence[str]) -> str:
    """Return a key as a person writes it; `path` has the names of its tables, then its own."""
    plain = re.compile(r"[A-Za-z0-9_-]+")
    return ".".join(part if plain.fullmatch(part) else f'"{part}"' for part in path)


def key_text(path: Sequence[str]) -> str:
    """Return a settings key as messages show it, shortened.

    A stranger's key may be a megabyte long.
    """
    key = key_path_text(path)
    return key if len(key) <= _LONGEST_KEY else f"{key[:_LONGEST_KEY]}…"


def _merge(into: dict[str, Any], tables: Tables) -> None:
    for key, value in tables.items():
        if isinstance(value, Mapping):
            known = into.get(key)
            inner = dict(known) if isinstance(known, Mapping) else {}
            _merge(inner, value)
            into[key] = inner
        else:
            into[key] = value


def _leaves(tables: Tables, above: Path = ()) -> Iterator[Path]:
    for key, value in tables.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, (*above, key))
        else:
            yield (*above, key)


def _message_of(error: msgspec.ValidationError, text: str) -> str:
    """Return which key is wrong, on which line, and why."""
    message = str(error)
    at = _AT.search(message)
    if at is None:
        return message
    steps = [step[0] or step[1] for step in _STEP.findall(at[1])]
    key = [step for step in steps if not step.isdigit()]
    reason = message[: at.start()]
    line = line_of(text, key) or _line_of_last(text, key)
    where = f"line {line}, " if line else ""
    return f"{where}`{'.'.join('NAME' if step == '...' else step for step in key)}`: {reason}"


def _line_of_last(text: str, key: Sequence[str]) -> int:
    """Return the first line that sets a key with the last name in `key`, in any table."""
    name = re.compile(rf"\s*{re.escape(key[-1])}\s*=") if key else None
    lines = enumerate(text.splitlines(), 1)
    return next((n for n, line in lines if name is not None and name.match(line)), 0)


def _unknown(lines: KeyLines, path: Path, near: str) -> str:
    line = lines.line_of(path)
    hint = f"; did you mean `{near}`?" if near else ""
    return f"line {line}: unknown key `{key_text(path)}` is read over{hint}"
