"""Which keys the file of a project may set: what narrows or tunes the project's own sessions.

A project's files come with a clone, from anybody. Whatever starts a command, widens what may be
used, opens a way in or speaks of other sessions is left out, with the reason; the rest of the file
counts.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from capd.core.settings.known_keys import Path
from capd.core.settings.layers import Tables, written
from capd.core.settings.toml_lines import line_of

FILE_NAME = ".capd.toml"

DOMAIN = ("domain",)
REPLACES, LOWERS, ADDS = "replaces", "lowers", "adds"
PROJECT_KEYS: Mapping[Path, str] = {
    DOMAIN: REPLACES,
    ("surface", "mode"): REPLACES,
    ("surface", "pins"): REPLACES,
    ("surface", "pass_through"): REPLACES,
    ("routing", "files"): REPLACES,
    ("routing", "session"): REPLACES,
    ("routing", "project"): REPLACES,
    ("sessions", "capabilities"): LOWERS,
    ("sessions", "tools"): LOWERS,
    ("policy", "allow"): ADDS,
    ("policy", "deny"): ADDS,
}
PROJECT_TABLES = frozenset({"curation"})
"""Tables of which a project may set every key."""

_STARTS = "it starts commands: put servers into .capd/capabilities, and have them trusted"
_OWN_FILE = "only your own config.toml may set it"
_REASONS: Mapping[str, str] = {
    "capabilities": _STARTS,
    "deps": _STARTS,
    "hooks": _STARTS,
    "mcp": _STARTS,
    "mcpServers": _STARTS,
    "clients": f"it is about other sessions than the project's; {_OWN_FILE}",
    "projects": f"it is about other projects as well; {_OWN_FILE}",
    "policy": f"it could weaken your policy; {_OWN_FILE}",
    "trust": f"a project cannot vouch for itself; {_OWN_FILE}",
    "trusted_hints": f"a project cannot vouch for itself; {_OWN_FILE}",
    "auto_approve": f"a project cannot vouch for itself; {_OWN_FILE}",
    "sandbox": f"it could weaken the sandbox; {_OWN_FILE}",
    "env_passthrough": f"it could lead to your secrets; {_OWN_FILE}",
    "secrets": f"it could lead to your secrets; {_OWN_FILE}",
    "listen": f"it opens a way in; {_OWN_FILE}",
    "listen_http": f"it opens a way in; {_OWN_FILE}",
    "socket": f"it opens a way in; {_OWN_FILE}",
    "taps": f"it names files of others; {_OWN_FILE}",
    "ledger": f"it holds for all projects; {_OWN_FILE}",
    "daemon": f"it holds for all projects; {_OWN_FILE}",
    "embedder": f"it holds for all projects; {_OWN_FILE}",
    "model": f"it holds for all projects; {_OWN_FILE}",
    "results": f"results of one server are shared by projects; {_OWN_FILE}",
    "servers": f"servers are shared by projects; {_OWN_FILE}",
}


@dataclass(frozen=True, slots=True)
class Permitted:
    """A project's file without what it may not set."""

    tables: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    """A line for each key that is left out, with the reason."""


def permitted(tables: Tables, text: str) -> Permitted:
    """Return what a project's file may set; `text` is where `tables` were read from."""
    kept: dict[str, Any] = {}
    notes: list[str] = []
    for path, value in _settings(tables):
        if path in PROJECT_KEYS or path[0] in PROJECT_TABLES:
            inner = kept
            for part in path[:-1]:
                inner = inner.setdefault(part, {})
            inner[path[-1]] = value
            continue
        reason = _REASONS.get(path[0], "it is none that a project's file may set")
        where = line_of(text, path)
        notes.append(f"line {where}: `{written(path)}` is left out: {reason}")
    return Permitted(kept, tuple(notes))


def lowered(project: Tables, effective: Tables) -> Permitted:
    """Return a project's tables with no limit above the user's, which are in `effective`."""
    kept: dict[str, Any] = {key: _copied(value) for key, value in project.items()}
    notes: list[str] = []
    for path, how in PROJECT_KEYS.items():
        wanted, most = value_at(project, path), value_at(effective, path)
        if how == LOWERS and wanted is not None and wanted > (math.inf if most is None else most):
            del kept[path[0]][path[1]]
            notes.append(f"`{written(path)}` = {wanted} is left out: yours is {most}, and lower")
    return Permitted(kept, tuple(notes))


def value_at(tables: Tables, path: Path) -> Any:
    """Return what is set at `path`, None where nothing is."""
    value: Any = tables
    for part in path:
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _settings(tables: Tables, above: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield what a file sets: its tables' keys, and tables that are none of capd's as a whole."""
    known = {path[0] for path in PROJECT_KEYS}
    for key, value in tables.items():
        path = (*above, key)
        is_opened = not above and (key in known or key in PROJECT_TABLES)
        if isinstance(value, Mapping) and is_opened and value:
            yield from _settings(value, path)
        else:
            yield path, value


def _copied(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else value
