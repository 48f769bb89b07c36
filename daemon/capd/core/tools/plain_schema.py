"""A quick check whether a value fits a JSON Schema, without the library `jsonschema`.

Importing that library takes 6 MB of memory, and most calls have correct and simple arguments, such
as an object with texts and numbers. `surely_fits` knows the keywords that mean the same in every
draft of JSON Schema. If it returns False, the value may still fit.
"""

from collections.abc import Callable
from typing import Any

MOST_STEPS = 2000
"""How many pairs of a value and a schema are compared before the check gives up."""

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
    # In Python a bool is an int. 5.0, an integer in JSON Schema, is left to the library.
    "integer": lambda value: type(value) is int,
    "number": lambda value: type(value) in {int, float},
}


def surely_fits(schema: Any, value: Any) -> bool:
    """Tell whether `value` certainly fits `schema`; both are decoded JSON.

    If the result is False, the value may still fit.
    """
    return _Comparing().fits(schema, value)


class _Comparing:
    """Compares one value with one JSON Schema.

    It gives up after `MOST_STEPS` steps, because `anyOf` may try many schemas for each item.
    """

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
                # Only texts: in Python `1 == True`, and in JSON Schema 1 equals 1.0.
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
                # `patternProperties` would change the meaning, but it is not a known keyword.
                return expected or (isinstance(value, dict) and value.keys() <= own.keys())
            case "items", dict() | bool():
                return isinstance(value, list) and all(self.fits(expected, each) for each in value)
            case _:
                return False


def _is_number(value: Any) -> bool:
    return type(value) in {int, float}
