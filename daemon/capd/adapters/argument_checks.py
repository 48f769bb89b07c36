"""Checks a call's arguments against its tool's schema before anything is sent.

A simple check (`core/tools/plain_schema`) settles most calls. For the others a library is loaded,
and each schema is compiled once for all sessions. If a schema cannot be compiled, because of
another dialect or an external reference, its calls pass unchecked. Nothing is ever fetched, and no
pattern can make a check slow.
"""

import importlib
from collections.abc import Iterator
from typing import Any, Protocol

import msgspec

from capd.core.protocol.outcomes import NotSentError
from capd.core.tools.argument_errors import Fault, fault_text, is_certain
from capd.core.tools.plain_schema import surely_fits
from capd.core.tools.schema_cost import SchemaCost

MOST_KEPT = 2000
MOST_BYTES = 64 * 1024
"""Larger arguments are probably whole documents; checking them would cost more than it saves."""
_MOST_FAULTS = 50
_LIBRARY = "jsonschema_rs"


class _Validator(Protocol):
    def is_valid(self, instance: Any) -> bool: ...

    def iter_errors(self, instance: Any) -> Iterator[Any]: ...


class _Definition(msgspec.Struct):
    inputSchema: Any = None  # noqa: N815 - the protocol's name


class _Unusable:
    """What a definition has that cannot be read: its calls pass unchecked."""


_UNUSABLE = _Unusable()


class ArgumentChecks:
    """The schemas of all tools that were called, compiled if that was needed."""

    def __init__(self) -> None:
        self._schemas: dict[bytes, Any] = {}
        self._compiled: dict[bytes, tuple[_Validator, SchemaCost] | None] = {}

    def check(self, name: str, definition: bytes, arguments: bytes) -> None:
        """Raise if the arguments of a call do not fit the schema; the text says what is wrong.

        Raises:
            NotSentError: the arguments do not fit.
        """
        schema = self._schema(definition)
        if schema is _UNUSABLE or len(arguments) > MOST_BYTES:
            return
        try:
            given = msgspec.json.decode(arguments or b"{}")
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return
        if surely_fits(schema, given):
            return
        compiled = self._of(definition, schema)
        if compiled is None:
            return
        validator, cost = compiled
        if not cost.is_bounded(given):
            return
        try:
            if validator.is_valid(given):
                return
            faults = [
                fault
                for error, _ in zip(validator.iter_errors(given), range(_MOST_FAULTS), strict=False)
                if is_certain(fault := _fault(error, schema))
            ]
        except ValueError:
            # A number that Rust has no type for, or a pattern that went too far.
            return
        if faults:
            raise NotSentError(fault_text(name, faults, msgspec.json.encode(schema).decode()))

    def _schema(self, definition: bytes) -> Any:
        if definition not in self._schemas:
            if len(self._schemas) >= MOST_KEPT:
                self._schemas.clear()
                self._compiled.clear()
            try:
                schema = msgspec.json.decode(definition, type=_Definition).inputSchema
            except (msgspec.MsgspecError, RecursionError):
                schema = _UNUSABLE
            self._schemas[definition] = schema
        return self._schemas[definition]

    def _of(self, definition: bytes, schema: Any) -> tuple[_Validator, SchemaCost] | None:
        if definition not in self._compiled:
            self._compiled[definition] = _compile(schema)
        return self._compiled[definition]


def _compile(schema: Any) -> tuple[_Validator, SchemaCost] | None:
    # Loaded here: most daemons never need its 6 MB.
    library: Any = importlib.import_module(_LIBRARY)
    try:
        cost = SchemaCost(schema)
        if not cost.is_compiled:
            return None
        validator: _Validator = library.validator_for(
            schema,
            validate_formats=False,
            offline=True,
            pattern_options=library.RegexOptions(),
        )
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return validator, cost


def _fault(error: Any, schema: Any) -> Fault:
    kind = error.kind
    expected: Any = None
    match kind.name:
        case "type":
            expected = kind.types
        case "enum":
            expected = kind.options
        case "const":
            expected = [kind.expected_value]
        case "required":
            expected = _property(schema, error, kind.property)
    path = tuple(error.instance_path)
    return Fault(kind.name, path, error.message, error.instance, expected)


def _property(schema: Any, error: Any, name: str) -> Any:
    """Return the schema of a missing property, which stands beside `required`."""
    for step in list(error.schema_path)[:-1]:
        if isinstance(schema, dict):
            schema = schema.get(step)
        elif isinstance(schema, list) and isinstance(step, int) and step < len(schema):
            schema = schema[step]
        else:
            return None
    properties = schema.get("properties") if isinstance(schema, dict) else None
    return properties.get(name) if isinstance(properties, dict) else None
