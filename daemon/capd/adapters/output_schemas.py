"""Checks structured content against a tool's output schema.

The schema was written by a server, so checking it must neither use the network nor take long.
References are not fetched. Patterns are matched in linear time; a validator that used Python's
regular expressions took eight seconds for 28 characters. The schema's size was limited when the
tool was listed.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import msgspec

from capd.core.results.json_cut import Path
from capd.core.results.schema_fit import Objections
from capd.core.tools.schema_cost import SchemaCost
from capd_protos.codec import JsonCodec, MalformedError

_MOST_ERRORS = 500
_MARK = b"outputSchema"


class _Definition(msgspec.Struct):
    outputSchema: dict[str, Any] | None = None  # noqa: N815 - the protocol's name


_DEFINITION: JsonCodec[_Definition] = JsonCodec(_Definition)


@lru_cache(maxsize=64)
def objections_of(definition: bytes) -> Objections | None:
    """Return a function that checks structured content; None if the tool has no output schema.

    `definition` is the tool's definition as JSON. The function takes the content as JSON. It
    returns the path of each value that violates the schema; only the empty path, for the whole
    content, if it cannot be checked.
    """
    if _MARK not in definition:
        return None
    try:
        schema = _DEFINITION.decode(definition).outputSchema
    except MalformedError:
        return None
    return None if schema is None else _checked_by(schema)


def _checked_by(schema: dict[str, Any]) -> Objections:
    # Imported here: it takes 27 ms, and most sessions never see a result that long.
    import jsonschema_rs  # noqa: PLC0415

    cost = SchemaCost(schema)
    if not cost.is_compiled:
        return lambda _: [()]
    try:
        validator = jsonschema_rs.validator_for(
            schema, offline=True, pattern_options=jsonschema_rs.RegexOptions()
        )
    except (ValueError, jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError):
        # The schema cannot be checked, so all content counts as violating it.
        return lambda _: [()]

    def objections(data: bytes) -> Sequence[Path]:
        found: list[Path] = []
        try:
            value = msgspec.json.decode(data)
            if not cost.is_bounded(value):
                return [()]
            for error in validator.iter_errors(value):
                found.append(tuple(error.instance_path))
                if len(found) == _MOST_ERRORS:
                    break
        except (msgspec.MsgspecError, ValueError, RecursionError):
            # Python or Rust has no type for some large numbers. A server may write one on purpose;
            # if this error were ignored, the result would be passed on unshortened.
            return [()]
        return found

    return objections
