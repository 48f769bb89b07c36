"""A quick check whether a value fits a schema, without a library.

The library takes 6 MB of memory, and most calls have correct and simple arguments: objects with
texts and numbers. `surely_fits` returns True only if it knows every keyword that it meets, and each
means the same in every draft of JSON Schema. False means nothing.
"""

from collections.abc import Callable
from typing import Any

MOST_STEPS = 2000
"""Values and schemas that are held against each other."""

_NO_CONSTRAINT = {
    *("$schema", "$comment", "title", "description", "default", "examples"),
    *("deprecated", "readOnly", "writeOnly", "format"),
}
_CLASSES: dict[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    # Not bool, which is an int of Python's; and 5.0, an integer of JSON, is left to the library.
    "integer": lambda value: type(value) is int,
    "number": lambda value: type(value) in {int, float},
}


def surely_fits(schema: Any, value: Any) -> bool:
    """Tell whether `value` surely fits; both are decoded JSON."""
    return _Comparing().fits(schema, value)


class _Comparing:
    """One comparison, which ends after `MOST_STEPS`: `anyOf` may try many schemas on each item."""

    def __init__(self) -> None:
        self._left = MOST_STEPS

    def fits(self, schema: Any, value: Any) -> bool:
        self._left -= 1
        if self._left < 0:
            return False
        if schema is True:
            return True
        return isinstance(schema, dict) and all(
            keyword in _NO_CONSTRAINT or self._holds(keyword, expected, schema, value)
            for keyword, expected in schema.items()
        )

    def _holds(self, keyword: str, expected: Any, schema: dict[str, Any], value: Any) -> bool:
        match keyword, expected:
            case "type", str():
                return expected in _CLASSES and _CLASSES[expected](value)
            case "type", list():
                return any(self._holds("type", each, schema, value) for each in expected)
            case "enum", list():
                # 1 is True to Python, and 1.0 to JSON.
                return isinstance(value, str) and value in expected
            case "anyOf", list():
                return any(self.fits(each, value) for each in expected)
            case "minimum", int() | float():
                return _is_number(expected) and _is_number(value) and value >= expected
            case "maximum", int() | float():
                return _is_number(expected) and _is_number(value) and value <= expected
            case "required", list():
                return isinstance(value, dict) and all(
                    isinstance(name, str) and name in value for name in expected
                )
            case "properties", dict():
                return isinstance(value, dict) and all(
                    self.fits(expected[name], given)
                    for name, given in value.items()
                    if name in expected
                )
            case "additionalProperties", bool():
                own = schema.get("properties", {})
                # Beside patterns of names it would mean something else: those are not known here.
                return expected or (isinstance(value, dict) and value.keys() <= own.keys())
            case "items", dict() | bool():
                return isinstance(value, list) and all(self.fits(expected, each) for each in value)
            case _:
                return False


def _is_number(value: Any) -> bool:
    return type(value) in {int, float}
