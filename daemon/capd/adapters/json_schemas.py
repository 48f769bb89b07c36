"""Compiles JSON Schemas that strangers wrote: nothing is fetched, and patterns take linear time."""

import importlib
from collections.abc import Iterator
from typing import Any, Protocol

import msgspec

from capd.core.tools.schema_cost import SchemaCost

_LIBRARY = "jsonschema_rs"


class Validator(Protocol):
    """A compiled schema; both methods raise ValueError for a number that Rust has no type for."""

    def is_valid(self, instance: Any) -> bool:
        """Tell whether `instance` fits."""
        ...

    def iter_errors(self, instance: Any) -> Iterator[Any]:
        """Yield the errors of the library for `instance`."""
        ...


def compiled(schema: Any) -> tuple[Validator, SchemaCost] | None:
    """Return the compiled schema and its cost; None if it is invalid or costs too much.

    Formats are not checked: they mean something else in each draft.
    """
    # Loaded here: most daemons never need its 6 MB.
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
