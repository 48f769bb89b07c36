"""capd's own tool `result_read`, and its texts (docs/design/context.md).

The tool reads a stored result by position, by words, or by JSON path. Positions count the
characters of the part that is read, or bytes if the result is too large to be parsed.
"""

from dataclasses import dataclass

import msgspec

from capd.core.errors import CapdError
from capd.core.protocol.generations import raw
from capd.core.results.blocks import ResultParts
from capd_protos.codec import JsonCodec, MalformedError
from capd_protos.types import WireName

RESULT_READ = WireName("result_read")
LENGTH = 8_000
LONGEST = 24_000
RAW = "raw"
STRUCTURED = "structured"
PARSED_BYTES = 32 * 1024 * 1024
"""A result of more bytes is not parsed, and can be read only by position."""

DEFINITION = msgspec.json.encode(
    {
        "name": RESULT_READ,
        "title": "Read a long result",
        "description": (
            "Read any part of a tool result that was too long to show, by the handle that stands "
            "in its place. Give offset and length, or query, or json_path."
        ),
        "inputSchema": {
            "type": "object",
            "properties": {
                "handle": {"type": "string"},
                "offset": {
                    "type": "integer",
                    "description": "First character; negative counts from the end.",
                },
                "length": {"type": "integer", "minimum": 1, "maximum": LONGEST},
                "query": {
                    "type": "string",
                    "description": "Words; finds the lines or JSON items that have all of them.",
                },
                "json_path": {"type": "string", "description": "RFC 9535: $.items[20:40].id"},
                "part": {
                    "type": "string",
                    "description": (
                        'Which part: a number from 0, "structured", or "raw" for the whole '
                        "result as JSON. Left out: the structured content, else all text."
                    ),
                },
            },
            "required": ["handle"],
        },
        "annotations": {"readOnlyHint": True, "openWorldHint": False},
    }
)


class BadReadError(CapdError):
    """The arguments name nothing that can be read; the text says what would be valid."""


class Arguments(msgspec.Struct, frozen=True):
    """The arguments of the tool `result_read`, as a model wrote them."""

    handle: str = ""
    offset: int | None = None
    length: int | None = None
    query: str = ""
    json_path: str = ""
    part: str | int = ""


_ARGUMENTS: JsonCodec[Arguments] = JsonCodec(Arguments)


def arguments_of(arguments: bytes | msgspec.Raw) -> Arguments:
    """Return the arguments of a call, which are JSON.

    Raises:
        BadReadError: the arguments are invalid.
    """
    try:
        wanted = _ARGUMENTS.decode(arguments if len(arguments) else b"{}")
    except MalformedError as error:
        raise BadReadError(f"The arguments are wrong: {error}") from None
    if not wanted.handle:
        text = "`handle` is missing: it stands in the result that was too long, after `handle`."
        raise BadReadError(text)
    if wanted.query and not wanted.query.split():
        raise BadReadError("`query` has no words: name one or more that the lines must have.")
    ways = [bool(wanted.query), bool(wanted.json_path), wanted.offset is not None]
    if sum(ways) > 1:
        raise BadReadError("Give only one of offset, query and json_path.")
    if wanted.length is not None and not 1 <= wanted.length <= LONGEST:
        raise BadReadError(f"`length` is from 1 to {LONGEST:,}; read on with the next offset.")
    return msgspec.structs.replace(wanted, handle=wanted.handle.strip(), part=str(wanted.part))


def foreign() -> str:
    """Return the answer for a model that names the handle of another session's result."""
    return (
        "This handle belongs to another session, and only that one and the sessions that it "
        "started may read it. Call the tool again here."
    )


@dataclass(frozen=True, slots=True)
class ResultPage:
    """A range of a stored result's part, from `start` to `end`.

    The part has `whole` characters or bytes.
    """

    start: int
    end: int
    whole: int
    unit: str = "characters"

    def head(self) -> str:
        """Return the first line of the answer: the position, and how to read on."""
        more = f" Next: offset {self.end}." if self.end < self.whole else " This is the end."
        return f"[capd] {self.unit} {self.start} to {self.end} of {self.whole:,}.{more}"


def page(wanted: Arguments, whole: int, unit: str = "characters") -> ResultPage:
    """Return the range that the arguments ask for, of a part with `whole` characters or bytes.

    `unit` says which of them are counted.

    Raises:
        BadReadError: the range begins after the end of the part.
    """
    offset = wanted.offset or 0
    start = max(whole + offset, 0) if offset < 0 else offset
    if start >= whole and start > 0:
        raise BadReadError(
            f"Offset {start} is out of range: this part has {whole:,} {unit}, so offsets go from "
            f"0 to {max(whole - 1, 0)}."
        )
    return ResultPage(start, min(start + (wanted.length or LENGTH), whole), whole, unit)


def part_of(parts: ResultParts, result: bytes, part: str) -> str:
    """Return the text of the part that a model names; `result` is the whole result.

    Raises:
        BadReadError: there is no such part.
    """
    texts = [block.text for block in parts.blocks]
    if part == RAW:
        return result.decode()
    if part == STRUCTURED or (not part and parts.structured):
        if parts.structured:
            return parts.structured.decode()
        raise BadReadError(f"This result has no structured content. {_choices(parts)}")
    if not part:
        found = [text for text in texts if text is not None]
        return "\n".join(found) if found else result.decode()
    if not part.isdecimal() or int(part[:9]) >= len(texts):
        raise BadReadError(f"There is no part {part[:20]!r}. {_choices(parts)}")
    index = int(part)
    text = texts[index]
    return text if text is not None else msgspec.json.encode(parts.blocks[index].members).decode()


def _choices(parts: ResultParts) -> str:
    numbers = f"0 to {len(parts.blocks) - 1}" if parts.blocks else ""
    named = [numbers, STRUCTURED if parts.structured else "", RAW]
    return f"Its parts are: {', '.join(each for each in named if each)}."


def found(query: str, count: int, shown: list[str], what: str) -> tuple[str, str | None]:
    """Return the answer to a search in a result: a line about the hits, then the hits or None.

    `count` is the number of all hits, `shown` are those that fit, and `what` names their kind.
    """
    if not count:
        return f"[capd] None of the {what} has all the words of {query[:200]!r}.", None
    more = "" if len(shown) == count else f" The first {len(shown):,} are shown."
    verb = "has" if count == 1 else "have"
    return f"[capd] {count:,} of the {what} {verb} all the words.{more}", "\n".join(shown)


def too_large(size_bytes: int) -> str:
    """Return the answer to a search or a path in a result that is too large to be parsed."""
    return (
        f"This result has {size_bytes:,} bytes. Over {PARSED_BYTES:,} it can only be read by "
        "offset and length (in bytes of its JSON), not by query, json_path or part."
    )


def answer(head: str, body: str | None = None, *, is_error: bool = False) -> bytes:
    """Return the tool's result: the line `head` about what was read, then `body`, the text."""
    texts = [head] if body is None else [head, body]
    content = [{"type": "text", "text": text} for text in texts]
    return msgspec.json.encode({"content": content, "isError": is_error})


def contents(uri: str, mime: str, base64: bytes) -> bytes:
    """Return the result of `resources/read` for an image or audio that became a link."""
    held = {"uri": uri, "mimeType": mime, "blob": msgspec.Raw(base64)}
    return msgspec.json.encode({"contents": [held]})


def values(found: list[msgspec.Raw]) -> bytes:
    """Return the values that a JSON path has found, as a JSON list."""
    return bytes(raw(found))
