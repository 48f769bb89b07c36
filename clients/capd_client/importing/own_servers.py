"""The servers in the user's own tap, as definitions to compare with."""

import tomllib
from collections.abc import Iterator
from typing import Any

from capd_client.importing.definition import Definition
from capd_client.importing.plan import IN_FOLDER
from capd_client.importing.variables import read_back
from capd_client.own_tap import OwnTap


def own_definitions(tap: OwnTap) -> dict[str, Definition]:
    """Return the servers of `tap` by name.

    For one whose file cannot be read, the definition is empty, and so is equal to no found server.
    """
    return dict(_each(tap))


def _each(tap: OwnTap) -> Iterator[tuple[str, Definition]]:
    for name in tap.names():
        try:
            text = (tap.folder / "capabilities" / name / "default.toml").read_text("utf-8")
            (server,) = tomllib.loads(text)["mcp"]["servers"]
            yield name, _definition(server)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            yield name, Definition()


def _definition(server: dict[str, Any]) -> Definition:
    words = [str(server.get("command") or ""), *map(str, server.get("args") or ())]
    cwd = ""
    if tuple(words[: len(IN_FOLDER)]) == IN_FOLDER:
        _, _, _, cwd, *words = words
    return Definition(
        line=tuple(map(read_back, words)) if words != [""] else (),
        url=read_back(str(server.get("url") or "")),
        env={key: read_back(value) for key, value in (server.get("env") or {}).items()},
        headers={key: read_back(value) for key, value in (server.get("headers") or {}).items()},
        cwd=read_back(cwd),
        tools=tuple(server.get("tools") or ()),
    )
