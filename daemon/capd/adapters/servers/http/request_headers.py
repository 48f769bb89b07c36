"""The HTTP headers that repeat parts of a message, as the stateless generation of MCP requires.

A request of that generation (2026-07-28) names its protocol version in `params._meta`. Its headers
repeat the version, the method, the name of the tool or other item, and the arguments that the
tool's schema marks with `x-mcp-header`. A request of the handshake generation has a header with the
negotiated version.
"""

import base64
from collections.abc import Iterator
from typing import Any

import msgspec

from capd.adapters.servers.server_lines import MOST_PAGE_BYTES, MOST_PAGE_VALUES, Incoming
from capd.core.lazy_patterns import lazy_pattern
from capd.core.protocol.tasks import TASK_METHODS
from capd.core.tools.tool_intake import MOST_TOOL_BYTES
from capd_protos.codec import JsonCodec, MalformedError

_NAMED_BY = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    **dict.fromkeys(TASK_METHODS, "task"),
}
_PLAIN = lazy_pattern(r"[\x21-\x7E]([\x20-\x7E]*[\x21-\x7E])?")
_TOKEN = lazy_pattern(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_ENCODED = lazy_pattern(r"=\?base64\?.*\?=")
_MARK = b"x-mcp-header"
MOST_TOOLS = 1000
"""The most tools of a server whose marked arguments are remembered."""
_MARKABLE_TYPES = {"string", "integer", "boolean"}
# Keywords of JSON Schema 2020-12 whose values are schemas, or lists or objects of them.
_SUBSCHEMAS = {
    *("items", "contains", "unevaluatedItems", "additionalProperties", "propertyNames"),
    *("unevaluatedProperties", "not", "if", "then", "else", "contentSchema"),
}
_SUBSCHEMA_LISTS = {"allOf", "anyOf", "oneOf", "prefixItems"}
_SUBSCHEMA_OBJECTS = {"patternProperties", "dependentSchemas", "$defs", "definitions"}

Path = tuple[str, ...]


class _Meta(msgspec.Struct):
    version: str = msgspec.field(name="io.modelcontextprotocol/protocolVersion", default="")


class _Params(msgspec.Struct):
    name: Any = ""
    uri: Any = ""
    task: Any = msgspec.field(name="taskId", default="")
    arguments: Any = None
    meta: _Meta = msgspec.field(name="_meta", default_factory=_Meta)


class _Tool(msgspec.Struct):
    name: str
    schema: msgspec.Raw = msgspec.field(name="inputSchema", default=msgspec.Raw(b"null"))


class _Tools(msgspec.Struct):
    tools: list[_Tool]


class _Version(msgspec.Struct):
    version: str = msgspec.field(name="protocolVersion")


_PARAMS: JsonCodec[_Params] = JsonCodec(_Params)
_TOOLS: JsonCodec[_Tools] = JsonCodec(_Tools)
_SCHEMA: JsonCodec[Any] = JsonCodec(Any)
_VERSION: JsonCodec[_Version] = JsonCodec(_Version)


def modern_version(message: Incoming) -> str:
    """Return the protocol version in a message of the stateless generation; empty for others.

    Such a message has its version in `_meta`, because there is no handshake.
    """
    if b"io.modelcontextprotocol/protocolVersion" not in bytes(message.params):
        return ""
    try:
        return _PARAMS.decode(message.params).meta.version
    except MalformedError:
        return ""


class RequestHeaders:
    """Computes the HTTP headers for the messages of one connection."""

    def __init__(self) -> None:
        self._negotiated = ""
        self._marked: dict[str, dict[Path, str]] = {}

    def of(self, message: Incoming) -> dict[str, str]:
        """Return the HTTP headers to send with `message`."""
        version = modern_version(message)
        if not version:
            return self.of_connection()
        params = _PARAMS.decode(message.params)
        headers = {"mcp-protocol-version": version, "mcp-method": field_value(message.method)}
        name = getattr(params, _NAMED_BY.get(message.method, ""), None)
        if isinstance(name, str):
            headers["mcp-name"] = field_value(name)
        if message.method == "tools/call" and isinstance(name, str):
            for path, token in self._marked.get(name, {}).items():
                value = _scalar(_at(params.arguments, path))
                if value is not None:
                    headers[f"mcp-param-{token}"] = field_value(value)
        return headers

    def of_connection(self) -> dict[str, str]:
        """Return the headers of requests that repeat nothing but the negotiated version.

        Those are all messages of the handshake generation, and requests without a message, such
        as the GET of a stream.
        """
        return {"mcp-protocol-version": self._negotiated} if self._negotiated else {}

    def forget(self) -> None:
        """Forget everything that the handshake has agreed on."""
        self._negotiated = ""

    def learn(self, method: str, result: bytes) -> None:
        """Learn from the result of the request `method` what later headers need.

        That is the version that `initialize` has agreed on, and the arguments that `tools/list`
        marks.
        """
        try:
            if method == "initialize":
                self._negotiated = field_value(_VERSION.decode(result).version)
            elif method == "tools/list" and (self._marked or _MARK in result):
                self._learn_tools(result)
        except MalformedError:
            return  # the caller that sent the request reports it

    def _learn_tools(self, result: bytes) -> None:
        # What is too large to be listed is not read here either.
        if len(result) > MOST_PAGE_BYTES or result.count(b",") > MOST_PAGE_VALUES:
            return
        for tool in _TOOLS.decode(result).tools[:MOST_TOOLS]:
            self._marked.pop(tool.name, None)
            schema = bytes(tool.schema)
            if _MARK in schema and len(schema) + len(tool.name) <= MOST_TOOL_BYTES:
                marked = marked_arguments(_SCHEMA.decode(schema))
                if marked:
                    self._marked[tool.name] = marked
        while len(self._marked) > MOST_TOOLS:
            del self._marked[next(iter(self._marked))]


def field_value(text: str) -> str:
    """Return `text` as the value of a header: unchanged if it is allowed there, else in base64."""
    if text == "" or (_PLAIN.fullmatch(text) and not _ENCODED.fullmatch(text)):
        return text
    return f"=?base64?{base64.b64encode(text.encode('utf-8', 'replace')).decode()}?="


def marked_arguments(schema: object) -> dict[Path, str]:
    """Return the arguments that become headers: the name of each header by the argument's path.

    `schema` is the input schema of a tool. If one mark (`x-mcp-header`) in it is not valid, all are
    ignored, because the server will then ignore them, too.
    """
    marked: dict[Path, str] = {}
    for path, position in _positions(schema):
        if "x-mcp-header" not in position:
            continue
        token, kind = position["x-mcp-header"], position.get("type")
        if not path or not isinstance(token, str) or not _TOKEN.fullmatch(token):
            return {}
        if not isinstance(kind, str) or kind not in _MARKABLE_TYPES:
            return {}
        if token.lower() in {each.lower() for each in marked.values()}:
            return {}
        marked[path] = token
    return marked


def _positions(root: object) -> Iterator[tuple[Path | None, dict[str, Any]]]:
    """Yield every subschema in the schema `root` with its path.

    The path is None if anything but `properties` leads to the subschema.
    """
    waiting: list[tuple[Path | None, object]] = [((), root)]
    while waiting:
        path, schema = waiting.pop()
        if not isinstance(schema, dict):
            continue
        yield path, schema
        for keyword, value in schema.items():
            if keyword == "properties" and isinstance(value, dict):
                waiting += [
                    (None if path is None else (*path, name), each) for name, each in value.items()
                ]
            elif keyword in _SUBSCHEMAS:
                waiting.append((None, value))
            elif keyword in _SUBSCHEMA_LISTS and isinstance(value, list):
                waiting += [(None, each) for each in value]
            elif keyword in _SUBSCHEMA_OBJECTS and isinstance(value, dict):
                waiting += [(None, each) for each in value.values()]


def _at(arguments: object, path: Path) -> object:
    for name in path:
        arguments = arguments.get(name) if isinstance(arguments, dict) else None
    return arguments


def _scalar(value: object) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str | int | float):
        return None
    try:
        return str(value)
    except ValueError:  # an integer of more digits than Python prints
        return None
