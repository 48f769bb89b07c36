"""Compiles JSON Schemas that strangers wrote: nothing is fetched, and patterns take linear time."""

import importlib
from collections.abc import Iterator
from typing import Any, Protocol

import msgspec

from capd.core.tools.schema_cost import SchemaCost

_LIBRARY = "jsonschema_rs"


class Validator(Protocol):
    """A compiled schema.

    Both methods raise ValueError for numbers that the library cannot represent.
    """

    def is_valid(self, instance: Any) -> bool:
        """Tell whether `instance` is valid by the schema."""
        ...

    def iter_errors(self, instance: Any) -> Iterator[Any]:
        """Yield the library's error for each fault of `instance`; none if it is valid."""
        ...


def compiled(schema: Any) -> tuple[Validator, SchemaCost] | None:
    """Return the compiled schema and its cost; None if it is invalid or costs too much.

    Formats are not checked, because their meaning differs between the drafts of JSON Schema.
    """
    # Imported on first use: it takes 6 MB, and most daemons never need it.
    library: Any = importlib.import_module(_LIBRARY)
    try:
        cost = SchemaCost(schema)
        if not cost.is_compiled:
            return None
        validator: Validator = library.validator_for(
            schema,
            validate_formats=False,
            offline=True,
            pattern_options=library.RegexOptions(),
        )
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return validator, cost
