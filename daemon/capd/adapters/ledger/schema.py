"""The tables of the ledger, which records calls and decisions: one for each kind of note."""

from collections.abc import Iterable
from typing import Any, TypeVar, get_origin

import msgspec

from capd_protos.ledger import ActivationNote, CallNote, DecisionNote, Note, ScriptNote, SessionNote

T = TypeVar("T", bound=msgspec.Struct)

VERSION = 1
"""`PRAGMA user_version`. A file of another version is set aside: nothing in it is irreplaceable."""

TABLES: dict[type[Note], str] = {
    CallNote: "calls",
    DecisionNote: "decisions",
    ActivationNote: "activations",
    SessionNote: "sessions",
    ScriptNote: "scripts",
}
_ADDED = (ScriptNote,)
"""Tables that were added later: a file that an older daemon created may lack them."""
_INDEXES = ("calls(at)", "calls(identity, tool, at)", "decisions(at)", "decisions(session, at)")


def statements() -> list[str]:
    """Return the SQL statements that create the tables."""
    made = []
    for kind, table in TABLES.items():
        if kind not in _ADDED:
            made.append(_creation(kind, table))
    for number, index in enumerate(_INDEXES):
        made.append(f"CREATE INDEX index_{number} ON {index}")
    made.extend(
        f"CREATE INDEX {table}_by_time ON {table}(at)" for table in ("activations", "sessions")
    )
    made.append(f"PRAGMA user_version = {VERSION}")
    return made + added()


def added() -> list[str]:
    """Return the SQL statements that create the tables which an older file may lack."""
    made = []
    for kind in _ADDED:
        table = TABLES[kind]
        made.append(_creation(kind, f"IF NOT EXISTS {table}"))
        made.append(f"CREATE INDEX IF NOT EXISTS {table}_by_time ON {table}(at)")
    return made


def _creation(kind: type[Note], table: str) -> str:
    columns = ", ".join(field.name for field in msgspec.structs.fields(kind))
    return f"CREATE TABLE {table} ({columns})"


def insertion(kind: type[Note]) -> str:
    """Return the SQL statement that adds a note of this kind to its table."""
    marks = ", ".join("?" for _ in msgspec.structs.fields(kind))
    # The table's name is a constant; values are passed as parameters.
    return f"INSERT INTO {TABLES[kind]} VALUES ({marks})"  # noqa: S608


def row(note: Note) -> tuple[Any, ...]:
    """Return the values of `note` in the order of the columns of its table."""
    return tuple(
        msgspec.json.encode(value).decode() if isinstance(value, list | dict) else value
        for value in msgspec.structs.astuple(note)
    )


def read(kind: type[T], rows: Iterable[tuple[Any, ...]]) -> list[T]:
    """Return `rows` as structs of `kind`; each row has the fields of `kind` in their order.

    Rows that a damaged page has spoiled are left out.
    """
    fields = msgspec.structs.fields(kind)
    encoded = {f.name for f in fields if get_origin(f.type) in {list, dict}}
    found = []
    for values in rows:
        members = {field.name: value for field, value in zip(fields, values, strict=True)}
        try:
            for name in encoded:
                members[name] = msgspec.json.decode(members[name])
            found.append(msgspec.convert(members, kind))
        except (msgspec.MsgspecError, RecursionError, TypeError):
            continue
    return found
