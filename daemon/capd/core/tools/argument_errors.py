"""Decides which faults in a call's arguments are certain, and writes the text about them.

A call that works without capd must work through capd, and servers accept more than their schemas
say: they read "5" as a number and a string of JSON as a list, and ignore unknown properties. So a
call is refused only for a fault that no server would accept. Everything else is left to the server.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

MOST_FAULTS = 5
MOST_SCHEMA = 6000
"""The most characters of a schema in the answer."""

_SCALARS = frozenset({"string", "number", "integer", "boolean"})
_CERTAIN = frozenset(
    {
        "required",
        "minItems",
        "maxItems",
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
    }
)


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault that a JSON Schema validator has found in the arguments of a call."""

    keyword: str
    path: tuple[str | int, ...]
    message: str
    value: Any
    expected: Any = None
    """For `type` and `enum`: the valid names or values. For `required`: the schema of the missing
    property, if it has one."""


def is_certain(fault: Fault) -> bool:
    """Tell whether every server would refuse arguments with this fault."""
    match fault.keyword:
        case "type":
            return not _may_be_read_as(fault.value, set(fault.expected or ()))
        case "enum" | "const":
            given = str(fault.value).casefold()
            return all(str(each).casefold() != given for each in fault.expected or ())
        case "required":
            # Some schemas list arguments with a default in `required`.
            return not (isinstance(fault.expected, dict) and "default" in fault.expected)
        case keyword:
            return keyword in _CERTAIN and not isinstance(fault.value, str)


def _may_be_read_as(value: Any, expected: set[str]) -> bool:
    # A string may contain JSON, and null may stand for an absent optional argument.
    if value is None or isinstance(value, str):
        return True
    return isinstance(value, bool | int | float) and bool(expected & _SCALARS)


def fault_text(name: str, faults: Sequence[Fault], schema: str) -> str:
    """Return the text for a model whose call of `name` was not sent because of `faults`."""
    lines = [f"{_place(fault)}{_cut(fault.message, 300)}" for fault in faults[:MOST_FAULTS]]
    more = f"; {len(faults) - MOST_FAULTS} more" if len(faults) > MOST_FAULTS else ""
    wrong = "; ".join(lines)
    return (
        f"The arguments do not fit {name}, so the call was not sent: {wrong}{more}.\n"
        f"Its schema: {_cut(schema, MOST_SCHEMA)}"
    )


def _place(fault: Fault) -> str:
    return f"{'.'.join(map(str, fault.path))}: " if fault.path else ""


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
