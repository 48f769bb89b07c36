"""Splits a stream into lines of JSON-RPC, and parses them only as far as the shim needs.

A line is passed on unchanged. In a long line, only the two ends are searched for its id, its method
and its kind, because the part between them may have 32 MiB.
"""

import _json

LINE_LIMIT_BYTES = 32 * 1024 * 1024
WINDOW_BYTES = 4096
"""How many bytes of each end of a long line are searched before the whole line is parsed."""
_LONGEST_NUMBER = 24


class _ScanOptions:
    """The options of `_json.make_scanner`, the C scanner below `json.loads`."""

    strict = False
    object_hook = None
    object_pairs_hook = None
    parse_float = float
    parse_int = int
    parse_constant = float
    memo: "dict[str, str]" = {}  # noqa: RUF012 - read by C code, as an attribute


def _refuse_type(value: object) -> str:
    raise TypeError(type(value).__name__)


_scan = _json.make_scanner(_ScanOptions())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
_pieces = _json.make_encoder(
    None, _refuse_type, _json.encode_basestring_ascii, None, ":", ",", False, False, True
)

# With the json package not imported, the scanner of 3.11 finds no class for its error and
# fails with SystemError instead.
_NOT_JSON = (ValueError, StopIteration, SystemError)


def encode(value: "dict[str, object]") -> bytes:
    """Return `value` as one line of JSON, newline included."""
    return ("".join(_pieces(value, 0)) + "\n").encode()


def parse(line: "bytes | bytearray") -> "dict[str, object] | None":
    """Return the object in `line`; None if it is something else."""
    try:
        text = line.decode().strip(" \t\r\n")
        value, end = _scan(text, 0)
    except (*_NOT_JSON, RecursionError, MemoryError):
        return None
    return value if isinstance(value, dict) and end == len(text) else None


def text_of(frame: "dict[str, object]", name: str) -> str:
    """Return the text in the member `name` of `frame`; empty if there is none."""
    value = frame.get(name)
    return value if isinstance(value, str) else ""


def object_of(frame: "dict[str, object]", name: str) -> "dict[str, object]":
    """Return the object in the member `name` of `frame`; empty if there is none."""
    value = frame.get(name)
    return value if isinstance(value, dict) else {}


def params_of(line: "bytes | bytearray") -> "dict[str, object]":
    """Return the `params` of the message in `line`; empty if there are none."""
    return object_of(parse(line) or {}, "params")


class TruncatedLine:
    """The first and the last bytes of a line that was too long to keep."""

    __slots__ = ("head", "tail")

    def __init__(self, head: bytes, tail: bytes) -> None:
        self.head = head
        self.tail = tail


class LineReader:
    """Splits a stream into lines, newline included.

    Of a line longer than `limit` only the two ends are kept.
    """

    __slots__ = ("_cut", "_limit", "_partial")

    def __init__(self, limit: int = LINE_LIMIT_BYTES) -> None:
        self._partial = bytearray()
        self._cut: TruncatedLine | None = None
        self._limit = limit

    @property
    def is_within_line(self) -> bool:
        """Whether a line has begun and not ended."""
        return bool(self._partial) or self._cut is not None

    def feed(self, chunk: bytes) -> "list[bytes | bytearray | TruncatedLine]":
        """Add the next bytes of the stream; return the lines that they complete."""
        lines: list[bytes | bytearray | TruncatedLine] = []
        start = 0
        while end := chunk.find(b"\n", start) + 1:
            piece = chunk[start:end]
            start = end
            if self._partial or self._cut is not None:
                self._add(piece)
                lines.append(self._take())
            else:
                lines.append(piece)
        if start < len(chunk):
            self._add(chunk[start:])
        return lines

    def _add(self, piece: bytes) -> None:
        if self._cut is not None:
            self._cut.tail = (self._cut.tail + piece)[-WINDOW_BYTES:]
            return
        # A bytearray grows in place: joining a list of chunks would hold the line twice.
        self._partial += piece
        if len(self._partial) > self._limit:
            self._cut = TruncatedLine(
                bytes(self._partial[:WINDOW_BYTES]), bytes(self._partial[-WINDOW_BYTES:])
            )
            self._partial = bytearray()

    def _take(self) -> "bytearray | TruncatedLine":
        line = self._partial if self._cut is None else self._cut
        self._partial, self._cut = bytearray(), None
        return line


class Shape:
    """What the shim reads of a JSON-RPC line: its kind, its id and its method."""

    __slots__ = ("key", "kind", "method")

    def __init__(self, kind: str, key: "int | str | float | None", method: str) -> None:
        self.kind = kind
        """`request`, `notification`, `result` or `error`; empty for any other message."""
        self.key = key
        self.method = method


def shape_of(line: "bytes | bytearray | TruncatedLine") -> Shape:
    """Return the kind, id and method of a JSON-RPC line.

    A line over 4 KiB is parsed whole only if its first and last 4 KiB do not show its kind. A
    `TruncatedLine` is never parsed whole.
    """
    if isinstance(line, TruncatedLine):
        head, tail = line.head, line.tail
    elif len(line) > WINDOW_BYTES:
        head, tail = bytes(line[:WINDOW_BYTES]), bytes(line[-WINDOW_BYTES:])
    else:
        return _shape_of_whole(line)
    shape = Shape("", None, "")
    members = _members_from_head(head.decode("utf-8", "replace"))
    if members:
        # Of two members with the same name, the last counts, as for `parse`.
        members.update(_members_from_tail(tail.decode("utf-8", "replace")))
        shape = _classify(members)
    if shape.kind or isinstance(line, TruncatedLine):
        return shape
    return _shape_of_whole(line)


_ANSWER = b'{"jsonrpc":"2.0","id":'


def shape_from_daemon(line: "bytes | bytearray | TruncatedLine") -> Shape:
    """Return the shape of a line from the daemon: its kind, id and method.

    Most of the daemon's answers need no parsing: they begin with `{"jsonrpc":"2.0","id":` and a
    number.
    """
    if not isinstance(line, TruncatedLine) and line.startswith(_ANSWER):
        end = line.find(b",", len(_ANSWER), len(_ANSWER) + _LONGEST_NUMBER)
        digits = line[len(_ANSWER) : end]
        if end > 0 and digits.isdigit():
            if line.startswith(b'"result":', end + 1):
                return Shape("result", int(digits), "")
            if line.startswith(b'"error":', end + 1):
                return Shape("error", int(digits), "")
    return shape_of(line)


def _shape_of_whole(line: "bytes | bytearray") -> Shape:
    # A list is a batch, which the daemon answers; parsing it would find no id.
    whole = None if line[:1] == b"[" else parse(line)
    return Shape("", None, "") if whole is None else _classify(whole, is_whole=True)


def _classify(members: "dict[str, object]", *, is_whole: bool = False) -> Shape:
    key = id_of(members.get("id"))
    method = members.get("method")
    if isinstance(method, str):
        if "id" in members:
            return Shape("request", key, method)
        if is_whole or method.startswith("notifications/"):
            return Shape("notification", None, method)
    elif "id" in members:
        if "error" in members:
            return Shape("error", key, "")
        if "result" in members:
            return Shape("result", key, "")
    return Shape("", key, "")


_LOOKED_AT = ("id", "method")
"""The members whose values are needed. For other members, only their presence matters."""


def id_of(value: object) -> "int | str | float | None":
    """Return `value` as the id of a request; None if it cannot be one."""
    # `type`, not isinstance: True is an int in Python, and no id in JSON-RPC.
    if type(value) is int or type(value) is str:
        return value
    # Not "Infinity" and "NaN", which Python reads as numbers.
    return value if type(value) is float and value - value == 0 else None


def _members_from_head(text: str) -> "dict[str, object]":
    """Return the members of an object from its beginning to the first that is an object or a list.

    That member's value is None. Return nothing if a value that is needed cannot be read.
    """
    members: dict[str, object] = {}
    at = _after_space(text, 0)
    if text[at : at + 1] != "{":
        return members
    while True:
        start = _after_space(text, at + 1)
        end = _string_end(text, start)
        name = _scalar(text[start:end])
        at = _after_space(text, end)
        if not isinstance(name, str) or text[at : at + 1] != ":":
            return members
        start = _after_space(text, at + 1)
        end = _scalar_end(text, start)
        at = _after_space(text, end)
        # A value that is cut off at the end of the window is not used: 12 may be the start of 123.
        if end == start or at >= len(text):
            members[name] = None
            return {} if name in _LOOKED_AT else members
        members[name] = _scalar(text[start:end])
        if text[at] != ",":
            return members


def _members_from_tail(text: str) -> "dict[str, object]":
    """Return the members of an object that follow its last object or list.

    Reading backwards is unambiguous: backslashes occur only in strings, so each quote without a
    backslash before it opens or closes a string.
    """
    members: dict[str, object] = {}
    at = _before_space(text, len(text))
    if text[at - 1 : at] != "}":
        return members
    while True:
        end = _before_space(text, at - 1)
        start = _scalar_start(text, end)
        at = _before_space(text, start)
        if start == end or text[at - 1 : at] != ":":
            return members
        name_end = _before_space(text, at - 1)
        name_start = _string_start(text, name_end)
        name = _scalar(text[name_start:name_end])
        if not isinstance(name, str):
            return members
        members.setdefault(name, _scalar(text[start:end].strip(_SPACE)))
        at = _before_space(text, name_start)
        if text[at - 1 : at] != ",":
            return members


_SPACE = " \t\r\n"


def _after_space(text: str, at: int) -> int:
    while text[at : at + 1] and text[at] in _SPACE:
        at += 1
    return at


def _before_space(text: str, at: int) -> int:
    while at > 0 and text[at - 1] in _SPACE:
        at -= 1
    return at


def _backslashes(text: str, quote: int) -> int:
    """Return how many backslashes are directly before the position `quote` in `text`.

    An odd number means that the quote is escaped.
    """
    at = quote
    while at > 0 and text[at - 1] == "\\":
        at -= 1
    return quote - at


def _string_end(text: str, start: int) -> int:
    """Return the index after the JSON string that begins at `start`; `start` if there is none."""
    if text[start : start + 1] != '"':
        return start
    quote = text.find('"', start + 1)
    while quote > 0 and _backslashes(text, quote) % 2:
        quote = text.find('"', quote + 1)
    return quote + 1 if quote > 0 else start


def _string_start(text: str, end: int) -> int:
    """Return the index at which the JSON string before `end` begins; `end` if there is none."""
    if text[end - 1 : end] != '"':
        return end
    quote = text.rfind('"', 0, end - 1)
    while quote > 0 and _backslashes(text, quote) % 2:
        quote = text.rfind('"', 0, quote)
    # If only backslashes are before the quote, their number cannot be seen within the window.
    return quote if quote > _backslashes(text, quote) else end


def _scalar_end(text: str, start: int) -> int:
    first = text[start : start + 1]
    if first == '"':
        return _string_end(text, start)
    at = start
    while at < len(text) and text[at] not in ',{}[]":' + _SPACE:
        at += 1
    return at


def _scalar_start(text: str, end: int) -> int:
    if text[end - 1 : end] == '"':
        return _string_start(text, end)
    at = end
    while at > 0 and text[at - 1] not in ',{}[]":' + _SPACE:
        at -= 1
    return at


def _scalar(text: str) -> object:
    """Return the value in `text`: a string, a number or a literal; None if it is something else."""
    try:
        value, end = _scan(text, 0)
    except _NOT_JSON:
        return None
    return value if end == len(text) else None
