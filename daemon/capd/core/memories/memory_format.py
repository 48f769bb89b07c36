"""The format of a memory file: TOML, or Markdown with the same keys in its front matter.

    memories/labels.toml    kind, content, tool, arguments, refuses, ...
    memories/labels.md      the same keys in the front matter; the text below it is the content

A memory belongs to a capability or a tool, and is delivered when that capability or tool is
switched on. A file with a mistake is left out, and a finding says why and in which line. An unknown
key is reported and ignored.
"""

import hashlib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import (
    Any,
    get_args,
)

import msgspec

from capd.core.definitions.hidden_text import cleaned
from capd.core.errors import CapdError
from capd.core.memories.mistakes import MistakeError, checked_mistake
from capd.core.redaction import looks_secret
from capd.core.settings.toml_lines import line_of, line_of_error
from capd.core.taps.frontmatter import FrontmatterError, frontmatter
from capd_protos.naming import near_names
from capd_protos.types import (
    Finding,
    MemoryKind,
    MemorySpec,
    TapName,
)

KINDS: tuple[MemoryKind, ...] = get_args(MemoryKind)
SUFFIXES = (".toml", ".md")
LARGEST_BYTES = 64 * 1024
LONGEST_NAME = 100
LONGEST_WORD = 200
"""The most characters of `kind`, `capability` and `tool`."""
MOST_PRIORITY = 100.0
OWN = TapName("~")
"""The name of the tap for memories in the user's own folder. No real tap can have it."""

_KEYS = (
    *("kind", "content", "confidence", "priority", "capability", "tool"),
    *("arguments", "refuses", "learned_from"),
)


class MemoryFileError(CapdError):
    """The file contains no valid memory."""

    def __init__(self, reason: str, line: int = 0) -> None:
        super().__init__(reason)
        self.line = line


@dataclass(frozen=True, slots=True)
class MemoryFile:
    """The content of one memory file, and where it was found."""

    path: str
    """The path for a person, used in findings."""
    file: str
    """The full path of the file, which is stored in the memory."""
    content: bytes
    """The file's bytes. If it is too large, only the first `LARGEST_BYTES` + 1 of them."""


@dataclass(frozen=True, slots=True)
class MemoryRead:
    """The result of reading one memory file: a memory, or only findings, which name problems."""

    path: str
    memory: MemorySpec | None
    findings: tuple[Finding, ...] = ()
    revision: str = ""
    """Content hash of the file."""


@dataclass(slots=True)
class _Written:
    """The keys of a memory file with their values, and the line of each."""

    values: dict[str, Any]
    lines: dict[str, int] = field(default_factory=dict)

    def line(self, key: str) -> int:
        return self.lines.get(key, 0)

    def wrong(self, key: str, reason: str) -> MemoryFileError:
        return MemoryFileError(reason, self.line(key))


def read_memory(tap: TapName, file: MemoryFile) -> MemoryRead:
    """Return the memory that a file defines, or the findings that say why it defines none."""
    revision = hashlib.sha256(file.content).hexdigest()
    try:
        text = _text(file.content)
        written = _markdown(text) if file.path.endswith(".md") else _toml(text)
        memory = _memory(tap, file, written)
    except MemoryFileError as error:
        finding = Finding(file.path, error.line, f"left out: {error}")
        return MemoryRead(file.path, None, (finding,), revision)
    findings = tuple(
        Finding(file.path, written.line(key), _unread(key), "warning")
        for key in written.values
        if key not in _KEYS
    )
    return MemoryRead(file.path, memory, findings, revision)


def written_memory(fields: Mapping[str, Any]) -> str:
    """Return the text of a memory's TOML file; `fields` are its values by key.

    Empty values are left out.
    """
    lines = []
    for key in _KEYS:
        value = fields.get(key)
        if value is None or value == "" or value is False or key == "arguments":
            continue
        lines.append(f"{key} = {_toml_value(value)}")
    schema = fields.get("arguments")
    if schema:
        # As JSON in a text, the form in which other tools write schemas.
        document = msgspec.json.format(msgspec.json.encode(schema), indent=2).decode()
        quoted = f"'''\n{document}\n'''" if "'''" not in document else _toml_value(document)
        lines.append(f"arguments = {quoted}")
    return "\n".join(lines) + "\n"


def _toml_value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    # A JSON string is a basic string of TOML, except for the character DEL.
    return msgspec.json.encode(str(value)).decode().replace("\x7f", "\\u007F")


def _unread(key: str) -> str:
    near = near_names(key, _KEYS)
    hint = f" Did you mean `{near[0]}`?" if near else ""
    return f"nothing reads `{key[:LONGEST_WORD]}`.{hint}"


def _text(content: bytes) -> str:
    if len(content) > LARGEST_BYTES:
        raise MemoryFileError(f"it is larger than {LARGEST_BYTES // 1024} KiB")
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise MemoryFileError("it is not UTF-8", content.count(b"\n", 0, error.start) + 1) from None
    if "\0" in text:
        raise MemoryFileError("it is binary", text.count("\n", 0, text.index("\0")) + 1)
    for number, line in enumerate(text.splitlines(), 1):
        _check_deliverable(line, number)
    return text


def _check_deliverable(text: str, line: int) -> None:
    if looks_secret(text):
        raise MemoryFileError(
            "it holds what looks like a secret, and what is in a memory is told to models: take it "
            "out, and keep it with capd secret set NAME",
            line,
        )
    if cleaned(text).gone:
        raise MemoryFileError("it contains invisible characters", line)


def _toml(text: str) -> _Written:
    try:
        values = tomllib.loads(text.replace("\r\n", "\n"))
    except (ValueError, RecursionError) as error:
        raise MemoryFileError(f"it is not TOML: {error}", line_of_error(error)) from None
    return _Written(values, {key: line_of(text, [key]) for key in values})


def _markdown(text: str) -> _Written:
    try:
        head = frontmatter(text)
    except FrontmatterError as error:
        raise MemoryFileError(str(error), error.line) from None
    written = _Written({}, {key: each.line for key, each in head.fields.items()})
    for key, each in head.fields.items():
        if each.is_odd or each.is_list or not each.items:
            raise written.wrong(
                key, f"`{key[:LONGEST_WORD]}` is not a text; a schema is written as JSON, in quotes"
            )
        written.values[key] = _plain(each.items[0].text)
    if "content" in written.values:
        raise written.wrong("content", "its content is the text below the front matter")
    written.values["content"] = head.body
    return written


def _plain(text: str) -> str | bool | float:
    """Return a front matter text as a bool or a number, if it is one."""
    if text in {"true", "false"}:
        return text == "true"
    try:
        return float(text)
    except ValueError:
        return text


def _memory(tap: TapName, file: MemoryFile, written: _Written) -> MemorySpec:
    name = PurePath(file.path).stem
    if not name or len(name) > LONGEST_NAME:
        raise MemoryFileError(f"its name has more than {LONGEST_NAME} characters")
    word = _word(written, "kind")
    kind: MemoryKind | None = next((each for each in KINDS if each == word), None)
    if kind is None:
        problem = f"`kind` is {word[:LONGEST_WORD]!r}" if word else "`kind` is missing"
        raise written.wrong("kind", f"{problem}: one of {', '.join(KINDS)}")
    content, learned_from = _content(written), _learned(written)
    # Checked after decoding too: an escape hides a character in the file.
    _check_deliverable(content, written.line("content"))
    _check_deliverable(learned_from, written.line("learned_from"))
    capability, tool = _word(written, "capability"), _word(written, "tool")
    if not capability and not tool:
        raise MemoryFileError(
            "it belongs to nothing, so that nobody would ever be told: set `capability` or `tool` "
            "(what every session is to know belongs into a bootstrap file)"
        )
    arguments = _arguments(written, tool)
    _check_deliverable(arguments.decode(), written.line("arguments"))
    refuses = written.values.get("refuses", False)
    if not isinstance(refuses, bool):
        raise written.wrong("refuses", "`refuses` must be true or false")
    if refuses and (kind != "corrective" or not arguments):
        raise written.wrong(
            "refuses", "only a corrective memory of a tool with `arguments` can refuse a call"
        )
    return MemorySpec(
        tap=tap,
        name=name,
        kind=kind,
        content=content,
        confidence=_number(written, "confidence", 1.0),
        priority=_number(written, "priority", MOST_PRIORITY),
        capability=capability,
        tool=tool,
        arguments=arguments,
        refuses=refuses,
        learned_from=learned_from,
        file=file.file,
    )


def _content(written: _Written) -> str:
    content = written.values.get("content", "")
    if not isinstance(content, str):
        content = str(content)
    if not content.strip():
        raise written.wrong("content", "it has no content")
    return content.strip()


def _word(written: _Written, key: str) -> str:
    value = written.values.get(key, "")
    if not isinstance(value, str):
        raise written.wrong(key, f"`{key}` is not a text")
    word = value.strip()
    if len(word) > LONGEST_WORD or len(word.split()) > 1:
        raise written.wrong(
            key, f"`{key}` is not a name: use one word of at most {LONGEST_WORD} characters"
        )
    return word


def _learned(written: _Written) -> str:
    value = written.values.get("learned_from", "")
    if not isinstance(value, str):
        raise written.wrong("learned_from", "`learned_from` is not a text")
    return " ".join(value.split())


def _number(written: _Written, key: str, most: float) -> float:
    value = written.values.get(key, 1.0)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
        raise written.wrong(key, f"`{key}` is not a number from 0 to {most:g}")
    return float(value)


def _arguments(written: _Written, tool: str) -> bytes:
    schema = written.values.get("arguments")
    if schema is None:
        return b""
    if not tool:
        raise written.wrong("arguments", "`arguments` are a tool's: set `tool` as well")
    if isinstance(schema, str):
        try:
            schema = msgspec.json.decode(schema)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise written.wrong("arguments", f"`arguments` is not JSON: {error}") from None
    try:
        return checked_mistake(schema)
    except MistakeError as error:
        raise written.wrong("arguments", str(error)) from None
