"""Placeholders in a server's definition: the keys that they use, and their replacement.

`{{ENV:KEY}}` and `{{INPUT:KEY}}` stand for a stored value, `{{CWD}}` and `{{PROJECT}}` for a
folder, and `{{{{X}}}}` for the text `{{X}}`. They may be in the command, its arguments, the URL,
the environment, the headers and the OAuth client's secret (docs/design/catalog.md). An empty value
counts as missing.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from capd.core.errors import CapdError
from capd.core.lazy_patterns import lazy_pattern
from capd_protos.types import ServerSpec

_PLACEHOLDER = lazy_pattern(
    r"\{\{\{\{(?P<literal>[^{}]*)\}\}\}\}"
    r"|\{\{(?:ENV|INPUT):(?P<key>[A-Za-z_][A-Za-z0-9_]*)\}\}"
    r"|\{\{(?P<folder>CWD|PROJECT)\}\}"
)


class MissingValueError(CapdError):
    """A definition uses secrets that have no value; `keys` are the names of these secrets."""

    def __init__(self, keys: list[str]) -> None:
        super().__init__(f"needs {', '.join(keys)}: store it with capd secret set {keys[0]}")
        self.keys = keys


@dataclass(frozen=True, slots=True)
class Folders:
    """The absolute paths that `{{CWD}}` and `{{PROJECT}}` stand for."""

    cwd: str
    project: str


def wanted_keys(server: ServerSpec) -> tuple[str, ...]:
    """Return the names of the secrets that a server's definition uses in placeholders.

    Each is returned once, in order of appearance.
    """
    keys: dict[str, None] = {}
    for text in _texts(server):
        for match in _PLACEHOLDER.finditer(text):
            if match["key"]:
                keys.setdefault(match["key"])
    return tuple(keys)


def has_folder_placeholder(server: ServerSpec) -> bool:
    """Tell whether any text of the definition contains `{{CWD}}` or `{{PROJECT}}`."""
    return any(match["folder"] for text in _texts(server) for match in _PLACEHOLDER.finditer(text))


def keys_in_args(server: ServerSpec) -> tuple[str, ...]:
    """Return the names of secrets that a server's arguments contain.

    Any user of the machine can read arguments with `ps`.
    """
    found = (m["key"] for text in server.args for m in _PLACEHOLDER.finditer(text))
    return tuple(dict.fromkeys(key for key in found if key))


def resolved(server: ServerSpec, values: Mapping[str, str], folders: Folders) -> ServerSpec:
    """Return `server` with every placeholder replaced.

    `values` are the secrets by name, and `folders` the paths for `{{CWD}}` and `{{PROJECT}}`.

    Raises:
        MissingValueError: keys have no value; the error names all of them.
    """
    missing = [key for key in wanted_keys(server) if not values.get(key)]
    if missing:
        raise MissingValueError(missing)

    def replace(match: re.Match[str]) -> str:
        if match["key"]:
            return values[match["key"]]
        if match["folder"]:
            return folders.cwd if match["folder"] == "CWD" else folders.project
        return "{{" + match["literal"] + "}}"

    def fill(text: str) -> str:
        return _PLACEHOLDER.sub(replace, text)

    return msgspec.structs.replace(
        server,
        command=fill(server.command),
        args=tuple(fill(arg) for arg in server.args),
        url=fill(server.url),
        further_urls=tuple(fill(url) for url in server.further_urls),
        env={key: fill(value) for key, value in server.env.items()},
        headers={key: fill(value) for key, value in server.headers.items()},
        oauth=server.oauth
        and msgspec.structs.replace(server.oauth, secret=fill(server.oauth.secret)),
    )


def _texts(server: ServerSpec) -> list[str]:
    return [
        server.command,
        *server.args,
        server.url,
        *server.further_urls,
        *server.env.values(),
        *server.headers.values(),
        *([server.oauth.secret] if server.oauth is not None else []),
    ]
