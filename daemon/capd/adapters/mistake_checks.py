"""Finds the memory whose mistake a call repeats; each schema is compiled once.

A memory may describe a mistake by a JSON Schema: the arguments of a call that repeats the mistake
match it. The schema has no references (`core/memories/mistakes`), and its patterns are matched in
linear time, so no check is slow.
"""

from collections.abc import Sequence

import msgspec

from capd.adapters.json_schemas import Validator, compiled
from capd_protos.types import MemorySpec

LARGEST_BYTES = 1 << 20
"""Larger arguments are not checked: they are probably documents, not a described mistake."""
MOST_KEPT = 2000


class MistakeChecks:
    """Finds the memory whose mistake a call repeats; keeps the compiled schemas of memories."""

    def __init__(self) -> None:
        self._compiled: dict[bytes, Validator | None] = {}

    def prepare(self, memories: Sequence[MemorySpec]) -> None:
        """Compile in advance the schemas of those `memories` that refuse calls.

        Loading the library alone takes a tenth of a second, for which no call should wait.
        """
        for memory in memories:
            if memory.refuses:
                self._validator(memory.arguments)

    def repeated(self, memories: Sequence[MemorySpec], arguments: bytes) -> MemorySpec | None:
        """Return the first of `memories` whose mistake `arguments` repeat.

        Return None if they repeat no known mistake.
        """
        if len(arguments) > LARGEST_BYTES:
            return None
        try:
            given = msgspec.json.decode(arguments or b"{}")
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None
        # A schema with `required` alone accepts every value that is not an object.
        if not isinstance(given, dict):
            return None
        for memory in memories:
            validator = self._validator(memory.arguments)
            try:
                if validator is not None and validator.is_valid(given):
                    return memory
            except ValueError:
                # The library is written in Rust, which has no type for some large numbers.
                continue
        return None

    def _validator(self, schema: bytes) -> Validator | None:
        if schema not in self._compiled:
            if len(self._compiled) >= MOST_KEPT:
                self._compiled.clear()
            self._compiled[schema] = _validator_of(schema)
        return self._compiled[schema]


def _validator_of(schema: bytes) -> Validator | None:
    try:
        found = compiled(msgspec.json.decode(schema))
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return None if found is None else found[0]
