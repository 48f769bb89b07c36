"""The table of clients: what each can do with tools, and how its tools are named.

The table is capd's own, merged key by key with the user's (`clients.toml`). An unusable entry
for a client is reported and ignored, and so is a file that cannot be read.
"""

import functools
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec

import capd_protos
from capd.adapters.regular_files import settings_text
from capd.core.sessions.client_traits import ClientTraits, ModeSetting, Relists

NAME = "clients.toml"
_NOT_OURS = ("install", "empty_list_for")
"""Keys of the package's table that only the `capd` command reads."""
_OBSOLETE = ("shrinks", "prompt_source")
"""Keys of older versions that a user's file may still have. They are ignored."""


class _Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    title: str = ""
    names: tuple[str, ...] = ()
    relists: Relists = "mid_turn"
    stateless_relists: bool = False
    appends: bool = False
    name_limit: Annotated[int, msgspec.Meta(ge=32, le=1024)] = 64
    tool_limit: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 128
    prefix: str | None = None
    reads_instructions: bool = True
    asks_per_tool: bool = False
    defers_tools: bool = False
    context: Annotated[int, msgspec.Meta(ge=1000)] = 200_000
    identity: tuple[str, ...] = ()
    mode: ModeSetting = "auto"


def client_table(
    own_file: Path | None = None, last_good: Mapping[str, ClientTraits] | None = None
) -> tuple[Mapping[str, ClientTraits], list[str]]:
    """Return the table of clients, and a message for each unusable part of the user's file.

    `own_file` is the user's file; None for capd's own table alone. If it cannot be read, the table
    is `last_good`, or capd's own if that is empty or None.
    """
    lines = dict(_shipped_lines())
    problems: list[str] = []
    set_by_user: set[str] = set()
    try:
        own = _read(own_file)
    except (OSError, ValueError, RecursionError) as error:
        problems.append(f"{own_file} is not used: {error}")
        if last_good:
            return last_good, problems
        own = {}
    for name, each in own.items():
        line = _without(each, _OBSOLETE) if isinstance(each, dict) else each
        merged = {**lines.get(name, {}), **line} if isinstance(line, dict) else line
        try:
            msgspec.convert(merged, _Line)
        except msgspec.ValidationError as error:
            problems.append(f"{own_file}: [{name}] is not used: {error}")
        else:
            lines[name] = merged
            if "relists" in line:
                set_by_user.add(name)
    # The user's lines first, because the first line with a client's name is used.
    ordered = {name: lines[name] for name in (*own, *lines) if name in lines}
    return {
        name: ClientTraits(
            **msgspec.structs.asdict(msgspec.convert(line, _Line)),
            is_relists_set=name in set_by_user,
        )
        for name, line in ordered.items()
    }, problems


@functools.cache
def _shipped_lines() -> dict[str, Any]:
    """Return the package's own table, which nobody may change.

    The table is parsed only once, because that takes 4 ms, and each save of a user's file merges
    the tables again.
    """
    # Found by its path: importlib.resources would import zipfile, which costs start-up time.
    text = Path(capd_protos.__path__[0], NAME).read_text(encoding="utf-8")
    return {name: _without(line, _NOT_OURS) for name, line in tomllib.loads(text).items()}


def _without(line: dict[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    return {key: value for key, value in line.items() if key not in keys}


def _read(own_file: Path | None) -> dict[str, Any]:
    if own_file is None:
        return {}
    try:
        return tomllib.loads(settings_text(own_file))
    except FileNotFoundError:
        return {}
