"""Changes to TOML that leave every other byte of the text as it is.

A table is added by appending lines, and removed by cutting its lines. All other changes are made
with tomlkit, which also keeps comments and order. In either case the new text is parsed again: if
its data is not the expected data, nothing is changed.
"""

import re
import tomllib
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError

from capd_client.install import UnreadableError
from capd_client.install.plain_data import Path, found, is_same, is_there, with_value, without

_BOM = "\ufeff"
_HEADER = re.compile(r"\s*\[")
_AT_LINE = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)$")
_BARE = re.compile(r"[A-Za-z0-9_-]+")


class TomlError(UnreadableError):
    """The text is not TOML, or cannot be edited, at `line`."""

    def __init__(self, reason: str, line: int = 1) -> None:
        self.line = line
        super().__init__(reason)


def parse(text: str) -> dict[str, Any]:
    """Return the data of `text`.

    Raises:
        TomlError: it is not TOML.
    """
    try:
        return tomllib.loads(text.removeprefix(_BOM))
    except tomllib.TOMLDecodeError as error:
        # tomllib reports the line only in its message.
        at = _AT_LINE.search(str(error))
        line = int(at[1]) if at and at[1] else text.count("\n") + 1
        raise TomlError(_AT_LINE.sub("", str(error)), line) from None
    except RecursionError:
        raise TomlError("it is nested too deeply") from None


def put(text: str, path: Path, value: Any) -> str:
    """Return `text` with `value` at `path`; missing tables are created.

    Raises:
        TomlError: `text` is not TOML, or `value` cannot be put there.
    """
    before = parse(text)
    for depth in range(len(path)):
        if not isinstance(found(before, path[:depth]) or {}, dict):
            raise TomlError(f"{'.'.join(map(str, path[:depth]))} is not a table")
    if is_there(before, path) and is_same(found(before, path), value):
        return text
    wanted = with_value(before, path, value)
    mark = _BOM if text.startswith(_BOM) else ""
    body = text.removeprefix(_BOM)
    if isinstance(value, dict) and not is_there(before, path):
        after = mark + _appended(body, path, value)
        if _means(after, wanted):
            return after
    return _checked(mark + _like(body, _put_by_tomlkit(body, path, value)), wanted)


def take(text: str, path: Path) -> str:
    """Return `text` without the value at `path`, often a table; comments around it stay.

    Raises:
        TomlError: `text` is not TOML, or the value cannot be removed.
    """
    before = parse(text)
    if not is_there(before, path):
        return text
    wanted = without(before, path)
    mark = _BOM if text.startswith(_BOM) else ""
    body = text.removeprefix(_BOM)
    meanings = [wanted]
    for depth in range(len(path) - 1, 0, -1):
        if found(wanted, path[:depth]):
            break
        # A table that contained only this one disappears with its header.
        wanted = without(wanted, path[:depth])
        meanings.append(wanted)
    after = mark + _cut(body, path)
    if _means(after, *meanings):
        return after
    return _checked(mark + _like(body, _taken_by_tomlkit(body, path)), *meanings)


def _appended(text: str, path: Path, table: dict[str, Any]) -> str:
    newline = "\r\n" if "\r\n" in text else "\n"
    lines = [f"[{'.'.join(_key(str(step)) for step in path)}]"]
    lines += [f"{_key(key)} = {tomlkit.item(each).as_string()}" for key, each in table.items()]
    gap = ""
    if text.strip():
        gap = newline if text.endswith("\n") else newline * 2
    # A last line without a line end stays without one, so that removal restores the text.
    end = newline if not text or text.endswith("\n") else ""
    return text + gap + newline.join(lines) + end


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else tomlkit.string(name).as_string()


def _cut(text: str, path: Path) -> str:
    """Return `text` without the lines of the table at `path` and of the tables inside it."""
    names = r"\s*\.\s*".join(_named(str(step)) for step in path)
    ours = re.compile(rf"\s*\[\s*{names}\s*[.\]]")
    lines = text.splitlines(keepends=True)
    kept: list[str] = []
    at = 0
    while at < len(lines):
        if not ours.match(lines[at]):
            kept.append(lines[at])
            at += 1
            continue
        end = at + 1
        while end < len(lines) and not _HEADER.match(lines[end]):
            end += 1
        # Comments before the next table belong to that table.
        while end > at + 1 and _is_blank_or_comment(lines[end - 1]):
            end -= 1
        is_last = end == len(lines)
        if kept and not kept[-1].strip() and (is_last or not lines[end].strip()):
            kept.pop()
        if is_last and kept and not lines[-1].endswith("\n"):
            kept[-1] = kept[-1].rstrip("\r\n")
        at = end
    return "".join(kept)


def _named(step: str) -> str:
    name = re.escape(step)
    return rf"(?:{name}|\"{name}\"|'{name}')"


def _is_blank_or_comment(line: str) -> bool:
    return not line.strip() or line.lstrip().startswith("#")


def _put_by_tomlkit(text: str, path: Path, value: Any) -> str:
    try:
        document: Any = tomlkit.parse(text)
        container = document
        for step in path[:-1]:
            if step not in container:
                container[step] = tomlkit.table(is_super_table=True)
            container = container[step]
        container[path[-1]] = value
        return tomlkit.dumps(document)
    except (TOMLKitError, TypeError, KeyError, AttributeError, ValueError) as error:
        raise _too_odd() from error


def _taken_by_tomlkit(text: str, path: Path) -> str:
    try:
        document: Any = tomlkit.parse(text)
        container = document
        for step in path[:-1]:
            container = container[step]
        del container[path[-1]]
        return tomlkit.dumps(document)
    except (TOMLKitError, TypeError, KeyError, AttributeError, ValueError) as error:
        raise _too_odd() from error


def _like(text: str, after: str) -> str:
    r"""Return `after` with `\r\n` as its line ends if every line of `text` ends so."""
    if "\r\n" not in text or re.search(r"(?<!\r)\n", text):
        return after
    return re.sub(r"(?<!\r)\n", "\r\n", after)


def _means(text: str, *meanings: Any) -> bool:
    try:
        data = parse(text)
    except TomlError:
        return False
    return any(is_same(data, each) for each in meanings)


def _checked(text: str, *meanings: Any) -> str:
    if not _means(text, *meanings):
        raise _too_odd()
    return text


def _too_odd() -> TomlError:
    return TomlError("its tables are written in a way that cannot be changed safely")
