"""The arguments and definitions of capd's tools for finding and calling unlisted tools.

The descriptions are constant. If one named, say, the number of installed tools, each new tool would
change the list, and a changed list invalidates the client's prompt cache.
"""

import msgspec

from capd.core.errors import CapdError
from capd.core.tools.tool_question import DEFAULT_RESULTS, MOST_QUERIES, MOST_RESULTS
from capd_protos.types import WireName

TOOL_SEARCH = WireName("tool_search")
TOOL_CALL = WireName("tool_call")
TOOL_CALL_READONLY = WireName("tool_call_readonly")
DETAILS = ("names", "summary", "full")
STUBS = "stubs"
"""The value of `detail` that gives hits as Python functions for scripts. Only the description of
`script_run` names it, because the definition of `tool_search` is on every list and has to be
short."""

SEARCH_DEFINITION = msgspec.json.encode(
    {
        "name": TOOL_SEARCH,
        "title": "Find tools",
        "description": (
            "Find tools among all that are installed, listed here or not. The answer says how "
            "each is called, and switches them on. Ask all at once (queries). select:name,name "
            "gives schemas."
        ),
        "inputSchema": {
            "type": "object",
            "properties": {
                "query": {
                    "type": "string",
                    "description": "What the tool should do; +word must be in its text.",
                },
                "queries": {
                    "type": "array",
                    "items": {"type": "string"},
                    "maxItems": MOST_QUERIES,
                },
                "max_results": {
                    "type": "integer",
                    "minimum": 1,
                    "maximum": MOST_RESULTS,
                    "default": DEFAULT_RESULTS,
                },
                "detail": {
                    "type": "string",
                    "enum": list(DETAILS),
                },
                "capability": {"type": "string"},
                "category": {"type": "string"},
            },
        },
        "annotations": {"readOnlyHint": True, "openWorldHint": False},
    }
)

CALL_DEFINITION = msgspec.json.encode(
    {
        "name": TOOL_CALL,
        "title": "Call a tool",
        "description": (
            "Call any installed tool by its exact name, also one that is not listed here. The "
            "result is the tool's own."
        ),
        "inputSchema": {
            "type": "object",
            "properties": {
                "name": {"type": "string", "description": "As tool_search names it."},
                "arguments": {"type": "object", "description": "As the tool's schema says."},
            },
            "required": ["name"],
        },
        "annotations": {"readOnlyHint": False, "openWorldHint": True},
    }
)


CALL_READONLY_DEFINITION = msgspec.json.encode(
    {
        "name": TOOL_CALL_READONLY,
        "title": "Call a read-only tool",
        "description": "As tool_call, for tools that change nothing. Refuses all others.",
        "inputSchema": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "arguments": {"type": "object"}},
            "required": ["name"],
        },
        "annotations": {"readOnlyHint": True, "openWorldHint": True},
    }
)


class BadCallError(CapdError):
    """The arguments of one of capd's own tools are invalid; the text says what is wrong."""


class SearchArguments(msgspec.Struct, frozen=True):
    """The arguments of `tool_search`."""

    query: str = ""
    max_results: int = DEFAULT_RESULTS
    detail: str = ""
    queries: list[str] = []
    capability: str = ""
    category: str = ""

    @property
    def questions(self) -> list[str]:
        """All questions of a search, each once; one empty question if there is none."""
        given = [each for each in (self.query, *self.queries) if each.strip()]
        return list(dict.fromkeys(given)) or [""]


class CallArguments(msgspec.Struct, frozen=True):
    """The arguments of `tool_call`. `arguments` is unparsed JSON, as the model wrote it."""

    name: str = ""
    arguments: msgspec.Raw = msgspec.Raw(b"{}")


def checked_search(given: SearchArguments) -> SearchArguments:
    """Return the arguments of a search if they are valid.

    Raises:
        BadCallError: `detail` has an unknown value, or there are too many questions.
    """
    if len(given.questions) > MOST_QUERIES:
        raise BadCallError(f"{len(given.questions)} questions in one call: at most {MOST_QUERIES}.")
    if given.detail not in {"", *DETAILS, STUBS}:
        raise BadCallError(f"`detail` is {given.detail[:40]!r}: it is one of {', '.join(DETAILS)}.")
    return given


def called(given: CallArguments) -> tuple[str, msgspec.Raw]:
    """Return the name of the tool to call, as clients know it, and its arguments as a JSON object.

    Arguments that are a JSON object within a string are accepted, and `null` counts as `{}`.

    Raises:
        BadCallError: there is no name, or the arguments are not an object.
    """
    name = given.name.strip()
    if not name:
        raise BadCallError("`name` is missing: which tool?")
    written = bytes(given.arguments).strip()
    if written.startswith(b'"'):
        # Some models write the object as a string.
        written = msgspec.json.decode(written, type=str).strip().encode()
        try:
            msgspec.json.decode(written, type=dict[str, msgspec.Raw])
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            written = b"[]"
    if written == b"null":
        written = b"{}"
    if not written.startswith(b"{"):
        raise BadCallError("`arguments` is not an object: write them as the tool's schema says.")
    return name, msgspec.Raw(written)
