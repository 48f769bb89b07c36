"""Finds the memory whose mistake a call repeats; each schema is compiled once.

A schema uses a part of JSON Schema without references (`core/memories/mistakes`), and its patterns
are matched in linear time, so no check is slow.
"""

import importlib
from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from capd.core.tools.schema_cost import SchemaCost
from capd_protos.types import MemorySpec

LARGEST_BYTES = 1 << 20
"""Larger arguments are probably whole documents, and no mistake that somebody described."""
MOST_KEPT = 2000
_LIBRARY = "jsonschema_rs"


class _Validator(Protocol):
    def is_valid(self, instance: Any) -> bool: ...


class MistakeChecks:
    """The compiled schemas of all memories."""

    def __init__(self) -> None:
        self._compiled: dict[bytes, _Validator | None] = {}

    def prepare(self, memories: Sequence[MemorySpec]) -> None:
        """Compile the schemas in advance; loading the library alone takes a tenth of a second."""
        for memory in memories:
            if memory.refuses:
                self._validator(memory.arguments)

    def repeated(self, memories: Sequence[MemorySpec], arguments: bytes) -> MemorySpec | None:
        """Return the first of `memories` whose mistake these arguments repeat."""
        if len(arguments) > LARGEST_BYTES:
            return None
        try:
            given = msgspec.json.decode(arguments or b"{}")
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None
        # `required` is true of all that is no object.
        if not isinstance(given, dict):
            return None
        for memory in memories:
            validator = self._validator(memory.arguments)
            try:
                if validator is not None and validator.is_valid(given):
                    return memory
            except ValueError:
                # A number that Rust has no type for.
                continue
        return None

    def _validator(self, schema: bytes) -> _Validator | None:
        if schema not in self._compiled:
            if len(self._compiled) >= MOST_KEPT:
                self._compiled.clear()
            self._compiled[schema] = _compiled(schema)
        return self._compiled[schema]


def _compiled(schema: bytes) -> _Validator | None:
    library: Any = importlib.import_module(_LIBRARY)
    try:
        decoded = msgspec.json.decode(schema)
        if not SchemaCost(decoded).is_compiled:
            return None
        validator: _Validator = library.validator_for(
            decoded,
            validate_formats=False,
            offline=True,
            pattern_options=library.RegexOptions(),
        )
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return validator
