"""The user's own edits of tools: overlays that `capd tool edit` writes, one for each tap.

    <config>/overlays/edits-TAP/overlay.toml               the tap whose capabilities are edited
    <config>/overlays/edits-TAP/capabilities/NAME.toml     NAME's tables `[tool."server:tool"]`

The files are ordinary overlays, and may be edited by hand as well (docs/tools.md).
"""

import fcntl
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from capd_client.toml_files import EditError, load, parse, store
from capd_protos.places import make_folders

if TYPE_CHECKING:
    from tomlkit import TOMLDocument

LONGEST_TITLE = 200
LONGEST_DESCRIPTION = 4000
"""Characters: the daemon leaves longer texts out. A test compares the limits with the daemon's."""


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes that one `capd tool edit` makes to a tool's edit.

    None leaves a key as it is; an empty text removes the key.
    """

    name: str | None = None
    title: str | None = None
    description: str | None = None
    disabled: bool | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    """New names of arguments."""
    descriptions: Mapping[str, str] = field(default_factory=dict)
    presets: Mapping[str, Any] = field(default_factory=dict)
    hidden: Sequence[str] = ()
    shown: Sequence[str] = ()
    """Arguments that will no longer be hidden or preset."""

    @property
    def are_none(self) -> bool:
        """Whether the edit changes nothing."""
        return self == Changes()


class ToolEdits:
    """The user's edits of tools, in overlays below the configuration folder `config`."""

    def __init__(self, config: str) -> None:
        self._overlays = Path(config, "overlays")

    def file(self, tap: str, capability: str) -> Path:
        """Return the file with the user's edits of a capability's tools, whether it exists or not.

        The capability belongs to the tap `tap`.
        """
        return self._overlays / f"edits-{tap}" / "capabilities" / f"{capability}.toml"

    def change(self, tap: str, capability: str, tool: str, changes: Changes) -> Path:
        """Make `changes` in the user's edit of `tool` (`server:tool`), and return its file.

        The tool belongs to the capability `capability` of `tap`.

        Raises:
            EditError: the file cannot be edited, or the daemon would leave a change out; the file
                is unchanged.
        """
        path = self.file(tap, capability)
        with self._locked():
            document = _load(path)
            head = path.parents[1] / "overlay.toml"
            if not head.exists():
                make_folders(path.parent)
                store(head, parse(f"tap = {json.dumps(tap)}\n"))
            tables = _table(document, "tool", path)
            _check(tables, tool, changes)
            table = _table(tables, tool, path)
            _apply(table, changes, path)
            if not table:
                del tables[tool]
            self._store(path, document)
        return path

    def reset(self, tap: str, capability: str, tool: str) -> bool:
        """Remove the user's edit of `tool` (`server:tool`); return whether there was one.

        The tool belongs to the capability `capability` of `tap`.

        Raises:
            EditError: the file cannot be edited; it is unchanged.
        """
        path = self.file(tap, capability)
        with self._locked():
            if not path.exists():
                return False
            document = _load(path)
            tables = document.get("tool", {})
            if tool not in tables:
                return False
            del tables[tool]
            self._store(path, document)
        return True

    def _store(self, path: Path, document: "TOMLDocument") -> None:
        if not document.get("tool"):
            document.pop("tool", None)
        if document:
            store(path, document)
            return
        path.unlink(missing_ok=True)
        # An overlay without a capability has no effect.
        with suppress(OSError):
            path.parent.rmdir()
            (path.parents[1] / "overlay.toml").unlink()
            path.parents[1].rmdir()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        make_folders(self._overlays)
        with (self._overlays / ".edits.lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def preset_value(text: str) -> Any:
    """Return the value that a person typed: JSON, or otherwise the text itself.

    Raises:
        EditError: TOML cannot represent the value.
    """
    try:
        value = json.loads(text)
    except ValueError:
        return text
    if _has_null(value):
        raise EditError(f"{text[:80]} has a null, which cannot be preset\nHide the argument.")
    return value


def _has_null(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_has_null, value.values()))
    return any(map(_has_null, value)) if isinstance(value, list) else value is None


def _check(tables: Mapping[str, Any], tool: str, changes: Changes) -> None:
    """Refuse what the daemon would leave out when it reads the file.

    Raises:
        EditError: a text is too long, or another edited tool of the server has the name.
    """
    texts = [("title", changes.title, LONGEST_TITLE)]
    texts += [
        ("description", each, LONGEST_DESCRIPTION)
        for each in (changes.description, *changes.descriptions.values())
    ]
    for key, text, most in texts:
        if text and len(text) > most:
            raise EditError(f"the {key} has {len(text)} characters\nIt may have {most} at most.")
    server = tool.partition(":")[0]
    for key, other in tables.items():
        if key == tool or key.partition(":")[0] != server or not isinstance(other, Mapping):
            continue
        if changes.name and other.get("name") == changes.name:
            raise EditError(f"{key} is called {changes.name} already\nChoose another name.")


def _load(path: Path) -> "TOMLDocument":
    from tomlkit.exceptions import TOMLKitError  # noqa: PLC0415 - 25 ms, which few need

    try:
        return load(path)
    except (TOMLKitError, UnicodeDecodeError) as error:
        raise EditError(f"{path} is not TOML: {error}\nCorrect it by hand.") from None


def _table(tables: Any, key: str, path: Path) -> Any:
    import tomlkit  # noqa: PLC0415 - as above

    if key not in tables:
        tables[key] = tomlkit.table()
    found = tables[key]
    if not isinstance(found, dict):
        raise EditError(f"in {path} `{key}` is not a table\nCorrect it by hand.")
    return found


def _apply(table: Any, changes: Changes, path: Path) -> None:
    for key in ("name", "title", "description", "disabled"):
        _put(table, key, getattr(changes, key), is_given=getattr(changes, key) is not None)
    arguments = _table(table, "arguments", path)
    for argument in (*changes.shown, *changes.hidden):
        of_argument = _table(arguments, argument, path)
        _put(of_argument, "preset", None)
        _put(of_argument, "hidden", argument in changes.hidden)
    for key, values in (
        ("name", changes.names),
        ("description", changes.descriptions),
        ("preset", changes.presets),
    ):
        for argument, value in values.items():
            _put(_table(arguments, argument, path), key, value)
    for argument in [each for each in arguments if not arguments[each]]:
        del arguments[argument]
    if not arguments:
        del table["arguments"]


def _put(table: Any, key: str, value: Any, *, is_given: bool = True) -> None:
    """Set `key` in `table`, or remove it if `value` is None, an empty text or False.

    For the key `preset`, only None removes it. Unless `is_given`, nothing changes.
    """
    if not is_given:
        return
    says_nothing = value is None or (key != "preset" and value in ("", False))
    if says_nothing:
        table.pop(key, None)
    else:
        table[key] = value
