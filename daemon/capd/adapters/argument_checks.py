"""Checks a call's arguments against its tool's schema before anything is sent.

A simple check (`core/tools/plain_schema`) decides most calls. The other calls are checked with a
library, which compiles each schema once for all sessions. If a schema cannot be compiled, for
example because it is written in an unknown dialect or refers to another document, capd sends the
calls without a check. Nothing is ever fetched, and no pattern can make a check slow.
"""

from typing import Any

import msgspec

from capd.adapters.json_schemas import Validator, compiled
from capd.core.protocol.outcomes import NotSentError
from capd.core.tools.argument_errors import Fault, fault_text, is_certain
from capd.core.tools.plain_schema import surely_fits
from capd.core.tools.schema_cost import SchemaCost, target_of

MOST_KEPT = 2000
MOST_BYTES = 64 * 1024
"""Larger arguments are not checked: they are probably documents, which take long to check."""
_MOST_FAULTS = 50
_MOST_REFERENCES = 8


class _Definition(msgspec.Struct):
    inputSchema: Any = None  # noqa: N815 - the protocol's name


class _Unusable:
    """Marks a definition whose schema cannot be decoded."""


_UNUSABLE = _Unusable()


class ArgumentChecks:
    """Checks the arguments of tool calls; caches the schema of each called tool."""

    def __init__(self) -> None:
        self._schemas: dict[bytes, Any] = {}
        self._compiled: dict[bytes, tuple[Validator, SchemaCost] | None] = {}

    def check(self, name: str, definition: bytes, arguments: bytes) -> None:
        """Check the JSON `arguments` of a call of the tool `name`.

        `definition` is the tool's definition, as JSON from its server. Arguments that cannot be
        checked are accepted.

        Raises:
            NotSentError: the arguments do not fit the schema; the text says why.
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
        checker = self._of(definition, schema)
        if checker is None:
            return
        validator, cost = checker
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
            # The library cannot represent some huge numbers (`json_schemas`).
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

    def _of(self, definition: bytes, schema: Any) -> tuple[Validator, SchemaCost] | None:
        if definition not in self._compiled:
            self._compiled[definition] = compiled(schema)
        return self._compiled[definition]


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
    """Return the schema of the missing property `name`; None if `schema` does not describe it.

    `error` is the library's error, which says where in `schema` the property is required. A schema
    without a default that refers to another is replaced by it.
    """
    document = schema
    for step in list(error.schema_path)[:-1]:
        if isinstance(schema, dict):
            schema = schema.get(step)
        elif isinstance(schema, list) and isinstance(step, int) and step < len(schema):
            schema = schema[step]
        else:
            return None
    properties = schema.get("properties") if isinstance(schema, dict) else None
    found = properties.get(name) if isinstance(properties, dict) else None
    for _ in range(_MOST_REFERENCES):
        if not isinstance(found, dict) or "default" in found or "$ref" not in found:
            break
        found = target_of(document, str(found["$ref"]))
    return found
