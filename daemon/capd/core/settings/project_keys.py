"""The keys that a project's file may set: they only restrict or tune the project's own sessions.

A project's files come with a clone, from anybody. A key that starts a command, permits more, lets
others in or affects other sessions is ignored, with the reason; the rest of the file is used.
`PROJECT_KEYS` says how each key restricts: no value of any of them lists, permits or starts
anything that would not be there without the file.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from capd.core.settings.known_keys import Path
from capd.core.settings.layers import Tables, UnusableError, key_path_text, key_text, notes_of
from capd.core.settings.toml_lines import KeyLines

FILE_NAME = ".capd.toml"

MOST_RULES = 64
"""The most items of each list of rules or pins: each item is matched with every tool."""
LARGEST_BYTES = 64 << 10
LONGEST_TEXT = 128
"""The most characters of a rule, of a pin or of the domain."""

How = Literal["adds", "falls back", "keeps", "lowers", "tunes"]
"""What the file may do with a key.

    adds        another table of rules beside the user's: each set of rules narrows further
    falls back  used only if the user's own settings give no value
    keeps       selects some of the user's values, and adds none
    lowers      used only if it is no higher than the user's value, in the key's order
    tunes       chooses between values that are all permitted anyway
"""

DOMAIN = ("domain",)
PINS = ("surface", "pins")
PROJECT_KEYS: Mapping[Path, How] = {
    DOMAIN: "falls back",
    ("surface", "mode"): "lowers",
    PINS: "keeps",
    ("surface", "pass_through"): "lowers",
    ("routing", "files"): "lowers",
    ("routing", "session"): "lowers",
    ("routing", "project"): "lowers",
    ("routing", "learn"): "lowers",
    ("sessions", "capabilities"): "lowers",
    ("sessions", "tools"): "lowers",
    ("policy", "allow"): "adds",
    ("policy", "deny"): "adds",
    ("policy", "ask"): "adds",
    ("curation", "kind"): "lowers",
    ("curation", "k"): "lowers",
    ("curation", "new_per_turn"): "lowers",
    ("curation", "scorer"): "tunes",
}
_ORDERS: Mapping[Path, tuple[str, ...]] = {
    # `auto` chooses one of its two neighbours, or lists all tools if they are few.
    ("surface", "mode"): ("stable", "auto", "dynamic", "pass-through"),
    ("curation", "kind"): ("top-k", "off"),
}
"""For keys whose values are words, the values in order. A project may replace a value only by an
earlier one."""

_STARTS = "it starts commands: put servers into .capd/capabilities, and have them trusted"
_OWN_FILE = "only your own config.toml may set it"
_REASONS: Mapping[str, str] = {
    "capabilities": _STARTS,
    "deps": _STARTS,
    "hooks": _STARTS,
    "mcp": _STARTS,
    "mcpServers": _STARTS,
    "clients": f"it is about other sessions than the project's; {_OWN_FILE}",
    "bridges": f"it opens a way in; {_OWN_FILE}",
    "profiles": f"it could choose your accounts; {_OWN_FILE}",
    "profile": f"it could choose your accounts; {_OWN_FILE}",
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
    """The settings of a project's file, reduced to the keys that it may set."""

    tables: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    """A line for each ignored key, with the reason."""


def permitted(tables: Tables, text: str) -> Permitted:
    """Return the settings that a project's file may make, and notes on those that are ignored.

    `tables` were read from `text`.
    """
    kept: dict[str, Any] = {}
    notes: list[str] = []
    lines = KeyLines(text)
    for path, value in _settings(tables):
        if path in PROJECT_KEYS:
            inner = kept
            for part in path[:-1]:
                inner = inner.setdefault(part, {})
            inner[path[-1]] = value
            continue
        reason = _REASONS.get(path[0], "it is none that a project's file may set")
        where = lines.line_of(path)
        notes.append(f"line {where}: `{key_text(path)}` is left out: {reason}")
    return Permitted(kept, tuple(notes_of(notes)))


def check_bounds(tables: Tables, text: str) -> None:
    """Raise `UnusableError` if a project's settings have too many or too long values.

    Rules are not cut off: the rest of a policy may permit more than its author meant.
    """
    for path in PROJECT_KEYS:
        value = value_at(tables, path)
        texts = value if isinstance(value, list | tuple) else [value]
        wrong = ""
        if len(texts) > MOST_RULES:
            wrong = f"it has {len(texts)} entries, and {MOST_RULES} at most count"
        elif any(isinstance(each, str) and len(each) > LONGEST_TEXT for each in texts):
            wrong = f"a text in it has more than {LONGEST_TEXT} characters"
        if wrong:
            raise UnusableError(
                f"line {KeyLines(text).line_of(path)}, `{key_path_text(path)}`: {wrong}"
            )


def limit_to_user(project: Tables, effective: Tables) -> Permitted:
    """Return a project's settings without the values that permit more than the user's.

    `effective` has the user's settings.
    """
    kept: dict[str, Any] = {key: _copied(value) for key, value in project.items()}
    notes: list[str] = []
    for path, how in PROJECT_KEYS.items():
        wanted, most = value_at(project, path), value_at(effective, path)
        if how != "lowers" or wanted is None or most is None:
            continue
        order = _ORDERS.get(path)
        less = "lower"
        if order is not None:
            wanted, most, less = order.index(wanted), order.index(most), "lists less"
        # Written as `not <=`, so that NaN counts as above everything.
        if not wanted <= most:
            value, yours = (_value_text(value_at(each, path)) for each in (project, effective))
            del kept[path[0]][path[1]]
            notes.append(
                f"`{key_path_text(path)}` = {value} is left out: yours is {yours}, and {less}"
            )
    return Permitted(kept, tuple(notes))


def _value_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def value_at(tables: Tables, path: Path) -> Any:
    """Return the setting at `path`; None if there is none."""
    value: Any = tables
    for part in path:
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _settings(tables: Tables, above: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield the settings of a file: keys of capd's tables, and any other table as a whole."""
    known = {path[0] for path in PROJECT_KEYS}
    for key, value in tables.items():
        path = (*above, key)
        is_opened = not above and key in known
        if isinstance(value, Mapping) and is_opened and value:
            yield from _settings(value, path)
        else:
            yield path, value


def _copied(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else value
