"""Reads clients' files in all formats: JSON with comments, TOML and YAML."""

from collections.abc import Iterator, Mapping
from typing import Any

from capd_client.install.jsonc import parse
from capd_client.install.known_clients import Format, ServersFile


def is_blank(text: str) -> bool:
    """Tell whether `text` contains only white space and byte order marks."""
    return not text.strip("\ufeff \t\r\n")


def read_document(text: str, kind: Format) -> Any:
    """Return the data of `text`, which is in the format `kind`; None if `text` is blank.

    Raises:
        UnreadableError: `text` is not in that format.
    """
    if is_blank(text):
        return None
    # Imported here: most clients have JSON, and these libraries take longer than all else.
    if kind == "toml":
        from capd_client.install import toml_edits  # noqa: PLC0415

        return toml_edits.parse(text)
    if kind == "yaml":
        from capd_client.install.yaml_tree import compose, value_of  # noqa: PLC0415

        return value_of(compose(text))
    return parse(text).value


def read_servers(text: str, file: ServersFile) -> Mapping[str, Any]:
    """Return the entries of the servers in `text` by name; `file` says where they are.

    An entry may be of any type, because a person may have written it.

    Raises:
        UnreadableError: the text is not in the file's format.
    """
    found = read_document(text, file.format)
    for key in file.servers:
        found = found.get(key) if isinstance(found, dict) else None
    if file.layout == "list":
        return dict(_named(found if isinstance(found, list) else []))
    return found if isinstance(found, dict) else {}


def program_of(entry: Any) -> str:
    """Return the program that a server's entry starts; empty if there is none, as with a URL."""
    if not isinstance(entry, dict):
        return ""
    # Goose's key is `cmd`; older Zeds have a table, and opencode a list with the arguments.
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
