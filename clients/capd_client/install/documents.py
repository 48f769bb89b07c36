"""Reads what clients' files say, whatever their format; nothing is written here."""

import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

from capd_client.install import UnreadableError
from capd_client.install.jsonc import parse
from capd_client.install.known_clients import Format, ServersFile

_BOM = "\ufeff"
_DECODE_ERROR = "it is not TOML"


def is_blank(text: str) -> bool:
    """Tell whether a file has nothing but space."""
    return not text.strip(_BOM + " \t\r\n")


def read_document(text: str, kind: Format) -> Any:
    """Return the data of `text`; None for one that has none.

    Raises:
        UnreadableError: it is not of that format.
    """
    if is_blank(text):
        return None
    if kind == "toml":
        return _toml(text.removeprefix(_BOM))
    if kind == "yaml":
        # Imported here: most clients have no YAML, and it takes longer than all else.
        from capd_client.install.yaml_tree import compose, value_of  # noqa: PLC0415

        return value_of(compose(text))
    return parse(text).value


def read_servers(text: str, file: ServersFile) -> Mapping[str, Any]:
    """Return the entries of servers by name, as they stand in the file.

    Raises:
        UnreadableError: it is not of its format.
    """
    found = read_document(text, file.format)
    for key in file.servers:
        found = found.get(key) if isinstance(found, dict) else None
    if file.layout == "list":
        return dict(_named(found if isinstance(found, list) else []))
    return found if isinstance(found, dict) else {}


def program_of(entry: Any) -> str:
    """Return the program of a server's entry, in whichever client's way it is written."""
    if not isinstance(entry, dict):
        return ""
    # Goose says `cmd`; older Zeds have a table, and opencode a list with the arguments.
    command = entry.get("command", entry.get("cmd"))
    if isinstance(command, dict):
        command = command.get("path")
    if isinstance(command, list):
        command = command[0] if command else None
    return command if isinstance(command, str) else ""


def _named(items: list[Any]) -> Iterator[tuple[str, Any]]:
    for item in items:
        if isinstance(item, dict) and isinstance(item.get("name"), str):
            yield item["name"], item


def _toml(text: str) -> Any:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _unreadable(str(error) or _DECODE_ERROR, _line_of(str(error))) from None
    except RecursionError:
        raise _unreadable("it is nested too deeply", 1) from None


def _line_of(reason: str) -> int:
    """Return the line that tomllib names in its words, the only place where it has it."""
    _, _, rest = reason.rpartition("(at line ")
    number = rest.partition(",")[0]
    return int(number) if number.isdecimal() else 1


def _unreadable(reason: str, line: int) -> UnreadableError:
    error = UnreadableError(reason.partition(" (at ")[0])
    error.line = line
    return error
