"""Results whose structured content is not an object, for clients that accept only objects.

In the stateless generation of MCP, a tool's output schema and its structured content may be of any
type, such as a list. In the handshake generation both have to be objects, and clients with an
official SDK refuse whatever is not. For them the tool is listed without its schema, and a value
that is not an object is put into one, under the key that the official SDKs use for this:

    "structuredContent":[1,2]   ->   "structuredContent":{"result":[1,2]}
"""

import msgspec

from capd.core.protocol.generations import joined, members_of
from capd.core.results.cut_schemas import output_schema
from capd_protos.codec import MalformedError

_CONTENT = "structuredContent"


def promises_any_value(definition: bytes) -> bool:
    """Tell whether a tool's output schema is not one of an object; False without a schema."""
    try:
        schema = output_schema(definition)
    except MalformedError:
        return True
    return schema is not None and schema.get("type") != "object"


def with_object(result: bytes) -> bytes:
    """Return a result of `tools/call` with its structured content in an object, if it is none."""
    try:
        members = members_of(result)
    except MalformedError:
        return result
    content = bytes(members.get(_CONTENT, b"{}")).lstrip()
    if content.startswith(b"{"):
        return result
    members[_CONTENT] = msgspec.Raw(b'{"result":%s}' % content)
    return joined(members)
