"""Parses the tables `[tool."server:tool"]`, which edit the tools of a capability (docs/tools.md).

They are in an overlay's file for the capability, or in a provider file of the tap itself. Parts
that are not valid are left out and reported as findings; the rest is used.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from capd.core.definitions.hidden_text import cleaned
from capd.core.lazy_patterns import lazy_pattern
from capd.core.taps.toml_folder import TomlFolder
from capd_protos.types import ArgumentEdit, ServerName, ToolEdit, ToolName

KEY = "tool"
MOST_EDITS = 256
"""The most tools that one file edits."""
MOST_ARGUMENTS = 64
"""The most arguments of one tool that are edited."""
LONGEST_NAME = 64
LONGEST_TITLE = 200
LONGEST_DESCRIPTION = 4000
MOST_PRESET_BYTES = 4096

_TOOL_KEYS = frozenset({"name", "title", "description", "disabled", "arguments"})
_ARGUMENT_KEYS = frozenset({"name", "description", "hidden", "preset"})
_NAME = lazy_pattern(rf"[A-Za-z0-9_.-]{{1,{LONGEST_NAME}}}")
# In JavaScript, assigning this key to an object replaces its prototype.
_NO_NAME = "__proto__"


def tool_edits(body: Mapping[str, Any], file: str, folder: TomlFolder) -> tuple[ToolEdit, ...]:
    """Return how the tables `[tool."server:tool"]` in `body`, a parsed file, edit tools.

    Problems in them are reported to `folder`.
    """
    tables = body.get(KEY, {})
    if not isinstance(tables, dict):
        folder.add(file, f'`{KEY}` is not a table; write [{KEY}."server:tool"]', near=KEY)
        return ()
    if len(tables) > MOST_EDITS:
        reason = f"{len(tables)} tools are edited: those after the first {MOST_EDITS} are left out"
        folder.add(file, reason, near=KEY)
    edits: dict[tuple[str, str], ToolEdit] = {}
    names: dict[tuple[str, str], str] = {}
    for key, table in list(tables.items())[:MOST_EDITS]:
        edit = _Table(f'{KEY}."{key}"', key, file, folder).tool_edit(key, table)
        if edit is None:
            continue
        if edit.name and names.setdefault((edit.server, edit.name), key) != key:
            reason = f"{key}: the name {edit.name!r} is given twice, and is left out here"
            folder.add(file, reason, near=key)
            edit = msgspec.structs.replace(edit, name="")
        edits[edit.server, edit.tool] = edit
    return tuple(edits.values())


class _Table:
    """Parses one `[tool."server:tool"]` table, and reports the mistakes in it."""

    def __init__(self, path: str, near: str, file: str, folder: TomlFolder) -> None:
        self._path = path
        self._near = near
        self._file = file
        self._folder = folder

    def tool_edit(self, key: str, table: Any) -> ToolEdit | None:
        server, colon, tool = key.partition(":")
        if not colon or not server or not tool:
            self._add(f'is no tool; write [{KEY}."server:tool"]')
            return None
        if not isinstance(table, dict):
            self._add("is not a table")
            return None
        self._report_unknown(table, _TOOL_KEYS)
        edit = ToolEdit(
            ServerName(server),
            ToolName(tool),
            name=self._name(table),
            title=self._text(table, "title", LONGEST_TITLE),
            description=self._text(table, "description", LONGEST_DESCRIPTION),
            is_disabled=self._flag(table, "disabled"),
            arguments=self._arguments(table.get("arguments", {})),
            file=f"{self._folder.path}/{self._file}",
        )
        if edit == ToolEdit(edit.server, edit.tool, file=edit.file):
            self._add("changes nothing")
            return None
        return edit

    def _arguments(self, tables: Any) -> tuple[ArgumentEdit, ...]:
        if not isinstance(tables, dict):
            self._add("`arguments` is not a table of arguments")
            return ()
        if len(tables) > MOST_ARGUMENTS:
            self._add(f"arguments after the first {MOST_ARGUMENTS} are left out")
        found: list[ArgumentEdit] = []
        for name, table in list(tables.items())[:MOST_ARGUMENTS]:
            inner = _Table(f"{self._path}.arguments.{name}", self._near, self._file, self._folder)
            edit = inner.argument_edit(name, table)
            if edit is not None:
                found.append(edit)
        return tuple(found)

    def argument_edit(self, name: str, table: Any) -> ArgumentEdit | None:
        if not isinstance(table, dict):
            self._add("is not a table")
            return None
        self._report_unknown(table, _ARGUMENT_KEYS)
        edit = ArgumentEdit(
            name,
            name=self._name(table),
            description=self._text(table, "description", LONGEST_DESCRIPTION),
            is_hidden=self._flag(table, "hidden"),
            preset=self._preset(table),
        )
        if edit == ArgumentEdit(name):
            self._add("changes nothing")
            return None
        return edit

    def _name(self, table: Mapping[str, Any]) -> str:
        name = table.get("name", "")
        if name == "":
            return ""
        if not isinstance(name, str) or not _NAME.fullmatch(name) or name == _NO_NAME:
            self._add(f"`name` is 1 to {LONGEST_NAME} letters, digits, `_`, `.`, `-`")
            return ""
        return name

    def _text(self, table: Mapping[str, Any], key: str, most: int) -> str:
        text = table.get(key, "")
        if not isinstance(text, str):
            self._add(f"`{key}` is not text")
            return ""
        if len(text) > most:
            self._add(f"`{key}` has more than {most} characters")
            return ""
        return cleaned(text).text.strip()

    def _flag(self, table: Mapping[str, Any], key: str) -> bool:
        value = table.get(key, False)
        if not isinstance(value, bool):
            self._add(f"`{key}` is true or false")
            return False
        return value

    def _preset(self, table: Mapping[str, Any]) -> bytes:
        if "preset" not in table:
            return b""
        try:
            written = msgspec.json.encode(_json_value(table["preset"]))
        except (TypeError, ValueError, RecursionError):
            # TOML has hexadecimal numbers, which may have more digits than Python writes.
            self._add("`preset` is not a value of JSON")
            return b""
        if len(written) > MOST_PRESET_BYTES:
            self._add(f"`preset` has more than {MOST_PRESET_BYTES} bytes")
            return b""
        return written

    def _report_unknown(self, table: Mapping[str, Any], known: frozenset[str]) -> None:
        for key in table:
            if key not in known:
                self._add(f"`{key}` is not a key here: left out")

    def _add(self, reason: str) -> None:
        self._folder.add(self._file, f"{self._path}: {reason}", near=self._near)


def _json_value(value: Any) -> Any:
    """Return a TOML value if it can be written as JSON.

    Raises:
        TypeError: the value is or contains a date, an infinity or a NaN.
    """
    if isinstance(value, dict):
        return {key: _json_value(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_json_value(inner) for inner in value]
    # NaN is the only number that does not equal itself.
    is_number = isinstance(value, int | float) and value == value and abs(value) != float("inf")  # noqa: PLR0124
    if isinstance(value, str) or is_number:
        return value
    raise TypeError
