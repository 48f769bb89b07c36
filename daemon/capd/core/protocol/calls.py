"""What a result says of its call, without decoding what is only passed on."""

import msgspec

from capd.core.results.half_pairs import decoded
from capd.core.results.large_results import LargeResult, Result
from capd_protos.codec import JsonCodec, MalformedError


class _Flag(msgspec.Struct):
    isError: bool = False  # noqa: N815 - the protocol's name


_FLAG: JsonCodec[_Flag] = JsonCodec(_Flag)


def is_success(result: Result) -> bool:
    """Tell whether a `tools/call` result counts as a use of its tool (30-activation)."""
    if isinstance(result, LargeResult):
        return result.is_success
    # A search for the member's name is a hundred times faster than parsing a large result.
    if b'"isError"' not in result:
        return True
    try:
        return not decoded(_FLAG, result).isError
    except MalformedError:
        return False
