"""Turns the entry of a server in a client's file into a `Definition`.

The table of clients (`known_clients`) has the keys that a client uses. This module interprets their
values, and has the keys that several clients share.
"""

import io
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import Any

from capd_client.importing import secret_detection
from capd_client.importing.definition import Definition, ProjectFolder, Reference, Text
from capd_client.importing.source_files import SourceEntry
from capd_client.importing.variables import (
    NULL,
    ImportValues,
    NotImportedError,
    Reader,
    small_file,
)
from capd_protos.secret_places import KEY

_ALLOWED = ("enabled_tools", "includeTools", "available_tools", "tools")
_EXCLUDED = ("disabled_tools", "disabledTools", "excludeTools")
_UNKNOWN_TYPES = {
    "ws": "it is reached by a WebSocket",
    "websocket": "it is reached by a WebSocket",
    "sdk": "it runs inside its client",
    "builtin": "it is a part of its client",
    "platform": "it is a part of its client",
    "frontend": "it is a part of its client",
    "inline_python": "it is a text that its client runs",
}
_HTTP_TYPES = frozenset(
    ("http", "sse", "remote", "streamable-http", "streamablehttp", "streamable_http", "https")
)
_SECONDS = {"claude": 0.001, "gemini": 0.001, "qwen": 0.001, "cline": 1.0, "cline-vscode": 1.0,
            "roo": 1.0, "goose": 1.0}  # fmt: skip
"""The seconds in one unit of a client's `timeout`, for clients whose `timeout` limits a call. The
`timeout` of other clients is not imported."""
_OF_EVERY_SERVER = frozenset(
    ("HOME", "PATH", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "TMPDIR", "DISPLAY")
)
"""Variables that capd passes to every server in any case."""
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_WORDS = 200
_LONGEST_TIMEOUT = 3600.0


@dataclass(frozen=True, slots=True)
class ReadEntry:
    """The result of one entry: a definition, or the reason why there is none."""

    entry: SourceEntry
    server: Definition | None = None
    reason: str = ""
    notes: tuple[str, ...] = ()
    is_own: bool = False
    """Whether the entry is capd itself."""


def read_entry(entry: SourceEntry, around: ImportValues, *, is_off: bool = False) -> ReadEntry:
    """Return the definition in `entry` with its secrets hidden, or why it cannot be imported.

    `around` has the values that placeholders stand for. `is_off` says that a list elsewhere in the
    file switches the server off.
    """
    value, client = entry.value, entry.client
    if _is_capd(entry):
        return ReadEntry(entry, is_own=True)
    off = next((key for key, is_off in client.off.items() if value.get(key) is is_off), "")
    if off or is_off:
        return ReadEntry(entry, reason="it is switched off there")
    around = ImportValues(around.env, around.home, around.project, entry.inputs)
    reader = Reader(client.variables, around, entry.origin.file.parent)
    try:
        server = _definition(entry, reader)
    except NotImportedError as error:
        return ReadEntry(entry, reason=str(error))
    excluded = [tool for key in _EXCLUDED for tool in _texts(value.get(key))]
    if excluded:
        names = ", ".join(excluded)[:_WORDS]
        reader.notes.append(f"not taken over: its client hides {names} (see `deny` in [policy])")
    if entry.is_of_project:
        reader.notes.append("a file of this project names it: look at what it starts")
    return ReadEntry(entry, server, notes=tuple(dict.fromkeys(reader.notes)))


def _definition(entry: SourceEntry, reader: Reader) -> Definition:
    value = entry.value
    kind = next(iter(_texts([value.get("type"), value.get("transport")])), "").casefold()
    if kind in _UNKNOWN_TYPES:
        raise NotImportedError(_UNKNOWN_TYPES[kind])
    tools = tuple(tool for key in _ALLOWED for tool in _texts(value.get(key)))
    tools = () if "*" in tools else tools
    description = value.get("description")
    url = _url(entry)
    if url and (kind in _HTTP_TYPES or not _command(entry)):
        server = Definition(url=_address(url, reader), headers=_headers(entry, reader))
    else:
        line, env = _line(entry, reader), _env(entry, reader)
        cwd = value.get(entry.client.stdio.cwd)
        folder = reader.text(cwd, "its working directory") if isinstance(cwd, str) and cwd else ()
        server = Definition(line=line, env=env, cwd=_folder(folder, reader))
    return replace(
        server,
        tools=tuple(map(_clean, tools)),
        timeout=_timeout(entry),
        description=_clean(description)[:_WORDS] if isinstance(description, str) else "",
    )


def _is_capd(entry: SourceEntry) -> bool:
    words = _command(entry)
    paths = [PurePath(word) for word in words if isinstance(word, str)]
    names = [path.name for path in paths]
    is_program = names[:1] == ["capd-mcp"] or (names[:1] == ["capd"] and "mcp" in names[1:2])
    is_module = any(name.startswith("capd_client") for name in names)
    # The launcher starts the shim in this way.
    is_shim = any(path.match("capd_client/launch.py") for path in paths)
    return is_program or is_module or is_shim or "/capd.sock" in _url(entry)


def _url(entry: SourceEntry) -> str:
    urls = ("url", "httpUrl", "serverUrl", "uri") if entry.client.http.urls else ()
    keys = dict.fromkeys((*entry.client.http.urls, *urls))
    found = (entry.value.get(key) for key in keys)
    return next((each for each in found if isinstance(each, str) and each), "")


def _command(entry: SourceEntry) -> list[Any]:
    """Return the program and its arguments as `entry` has them; empty if it has none."""
    shape, value = entry.client.stdio, entry.value
    command = value.get(shape.command)
    arguments = value.get(shape.args)
    if isinstance(command, dict):
        arguments, command = command.get("args"), command.get("path")
    if isinstance(command, list):
        return [*command, *(_list(arguments) if shape.form == "program" else ())]
    return [command, *_list(arguments)] if isinstance(command, str) and command.strip() else []


def _line(entry: SourceEntry, reader: Reader) -> tuple[Text, ...]:
    words = _command(entry)
    if not words:
        if entry.value.get("source") == "extension" or "settings" in entry.value:
            raise NotImportedError(
                "an extension of its client starts it, by no command that it names"
            )
        raise NotImportedError("it has neither a command nor an address")
    if not all(isinstance(word, str | int | float) for word in words):
        raise NotImportedError("its command is not a list of words")
    words = [_word(word) for word in words]
    program = words[0].strip()
    if len(words) == 1 and " " in program and not Path(program).exists():
        try:
            words = shlex.split(program)
        except ValueError:
            raise NotImportedError("its command has a quote without an end") from None
        reader.notes.append("its command was one text, taken apart at the spaces")
    if words[0].startswith(("./", "../")):
        words[0] = str((reader.around.project / words[0]).resolve())
    where = ("its program", *(f"argument {number}" for number in range(1, len(words))))
    texts = tuple(map(reader.text, words, where))
    return secret_detection.of_line(texts)


def _env(entry: SourceEntry, reader: Reader) -> dict[str, Text]:
    shape, value = entry.client.stdio, entry.value
    given, command = value.get(shape.env), value.get(shape.command)
    given = command.get("env", given) if isinstance(command, dict) else given
    found: dict[str, Text] = {}
    if shape.env_file and isinstance(value.get(shape.env_file), str):
        found |= variables_in_file(value[shape.env_file], reader)
    for name, each in (given if isinstance(given, dict) else {}).items():
        key = str(name)
        if not KEY.fullmatch(key):
            raise NotImportedError(f"{key[:80]!r} is not a name of a variable")
        if NULL in entry.client.variables and each in (None, ""):
            found[key] = (Reference(key),)
        elif each is not None:
            found[key] = secret_detection.of_variable(key, reader.text(_word(each), key))
    passed = _list(value.get(shape.passed)) if shape.passed else []
    for key in _texts([each.get("name") if isinstance(each, dict) else each for each in passed]):
        if KEY.fullmatch(key) and key not in _OF_EVERY_SERVER:
            found.setdefault(key, (Reference(key),))
    return found


def variables_in_file(name: str, reader: Reader) -> dict[str, Text]:
    """Return the variables in the file that an entry names `name`, with their secrets hidden.

    `reader` is that of the entry: it translates the name, and gets a note on the values.

    Raises:
        NotImportedError: the file cannot be read, or its name has a variable.
    """
    from dotenv.parser import parse_stream  # noqa: PLC0415 - as few files need it

    parts = reader.text(name, "its file of variables")
    pieces = [str(reader.around.project) if isinstance(p, ProjectFolder) else p for p in parts]
    if not all(isinstance(piece, str) for piece in pieces):
        raise NotImportedError("its file of variables is named by a variable")
    path = reader.folder / "".join(map(str, pieces))
    try:
        text = small_file(path)
    except (OSError, ValueError):
        raise NotImportedError(f"its file of variables cannot be read: {name[:80]}") from None
    reader.notes.append(f"its variables are what {name[:80]} held at this moment")
    bindings = [(b.key, b.value) for b in parse_stream(io.StringIO(text))]
    return {
        key: secret_detection.of_variable(key, (value,))
        for key, value in bindings
        if key and value and KEY.fullmatch(key)
    }


def _address(url: str, reader: Reader) -> Text:
    if not url.startswith(("http://", "https://", "$", "{")):
        raise NotImportedError(f"its address is not http or https: {url.partition(':')[0][:20]}")
    return secret_detection.of_address(reader.text(url.strip(), "its address"))


def _headers(entry: SourceEntry, reader: Reader) -> dict[str, Text]:
    shape, value = entry.client.http, entry.value
    if value.get("headersHelper"):
        raise NotImportedError("a program of its client writes its headers")
    given, options = value.get(shape.headers or "headers"), value.get("requestOptions")
    if given is None and isinstance(options, dict):
        given = options.get("headers")
    found: dict[str, Text] = {}
    for name, each in (given if isinstance(given, dict) else {}).items():
        if not _HEADER.fullmatch(str(name)):
            raise NotImportedError(f"{str(name)[:80]!r} is not a name of a header")
        if each is not None:
            found[str(name)] = secret_detection.of_header(
                str(name), reader.text(_word(each), str(name))
            )
    named = value.get(shape.header_variables) if shape.header_variables else None
    for name, key in (named if isinstance(named, dict) else {}).items():
        found[str(name)] = (Reference(_word(key)),)
    bearer = value.get(shape.bearer_variable) if shape.bearer_variable else None
    if isinstance(bearer, str) and bearer:
        found["Authorization"] = ("Bearer ", Reference(bearer))
    if any(
        isinstance(p, Reference) and not KEY.fullmatch(p.key) for t in found.values() for p in t
    ):
        raise NotImportedError(
            "a header takes its value from something that is not the name of a variable"
        )
    return found


def _folder(folder: Text, reader: Reader) -> Text:
    if folder in ((), (ProjectFolder(),), (".",), (str(reader.around.project),)):
        # capd starts the server in that folder in any case.
        return ()
    if len(folder) == 1 and isinstance(folder[0], str):
        path = folder[0]
        if path.startswith("~/"):
            return (str(reader.around.home / path[2:]),)
        if reader.folder.is_relative_to(reader.around.project):
            return (str(reader.around.project / path),)
        return (path,) if path.startswith("/") else (ProjectFolder(), f"/{path}")
    return folder


def _timeout(entry: SourceEntry) -> float:
    value = entry.value.get("tool_timeout_sec")
    seconds = 1.0
    if value is None and entry.client.id in _SECONDS:
        value, seconds = entry.value.get("timeout"), _SECONDS[entry.client.id]
    if not isinstance(value, int | float) or isinstance(value, bool):
        return 0.0
    return min(max(1.0, value * seconds), _LONGEST_TIMEOUT) if value > 0 else 0.0


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    raise NotImportedError("one of its values is neither a text nor a number")


def _clean(text: str) -> str:
    """Return `text` without lone surrogates, which no file accepts."""
    return text.encode(errors="replace").decode()


def _texts(value: Any) -> list[str]:
    """Return the texts in `value`, if that is a list.

    Other items are ignored, because as text they could be of any size.
    """
    return [each for each in _list(value) if isinstance(each, str) and each]


def _list(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        return []
    return value if isinstance(value, list) else []
