"""Translates clients' placeholders into capd's, or says why that is impossible.

Each client has its own placeholders (`variables` in the table of clients). Anything else is plain
text for that client, and stays so.
"""

import os
import re
import stat
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from capd_client.importing.definition import Hidden, Part, ProjectFolder, Reference, Text
from capd_protos.secret_places import FILE_LIMIT_BYTES, KEY

_SYNTAX = {
    "${VAR}": r"\$\{(?P<braced>[A-Za-z_]\w*)\}",
    "${VAR:-DEFAULT}": r"\$\{(?P<defaulted>[A-Za-z_]\w*):-(?P<default>[^}]*)\}",
    "$VAR": r"\$(?P<bare>[A-Za-z_]\w*)",
    "${env:VAR}": r"\$\{env:(?P<env>[^}]+)\}",
    "{env:VAR}": r"(?<!\$)\{env:(?P<env_alone>[^}]+)\}",
    "{file:PATH}": r"(?<!\$)\{file:(?P<file>[^}]+)\}",
    "${input:ID}": r"\$\{input:(?P<input>[^}]+)\}",
    "${workspaceFolder}": r"\$\{(?P<project>workspaceFolder|workspaceRoot|cwd)\}",
    "${userHome}": r"\$\{(?P<home>userHome)\}",
    "${{ secrets.NAME }}": r"\$\{\{\s*(?:secrets|inputs)\.(?P<secret>[^}\s]+)\s*\}\}",
}
_REFERENCES = ("braced", "bare", "env", "env_alone", "input", "secret")
_UNKNOWN = re.compile(r"\$\{[A-Za-z][^}]*\}")
_WITH_WORKSPACE = "${workspaceFolder}"
_COMMAND = "$: COMMAND"
_ESCAPED = re.compile(r"\{\{((?:ENV|INPUT):[A-Za-z_]\w*|CWD|PROJECT)\}\}")
_ANY_PART = re.compile(r"[^A-Za-z0-9]+")

_LONGEST = 64 << 10
"""Characters. A longer value could hardly be passed to a program, and searching it for secrets
would take long."""

NULL = "NULL"
"""The syntax in which null stands for the variable of the same name."""


class NotImportedError(Exception):
    """A server cannot be imported; the text says why, and contains no value."""


@dataclass(frozen=True, slots=True)
class ImportValues:
    """The values that placeholders stand for, as they are during the import."""

    env: Mapping[str, str]
    home: Path
    project: Path
    descriptions: Mapping[str, str] = field(default_factory=dict)
    """Descriptions of inputs, by their ids."""


@dataclass(slots=True)
class Reader:
    """Translates the placeholders in one entry; `notes` are remarks for the person who imports."""

    syntaxes: Iterable[str]
    """The placeholders that the client knows: some of `known_clients.Variable`."""
    around: ImportValues
    folder: Path
    """The folder of the file, to which its paths are relative."""
    notes: list[str] = field(default_factory=list)

    def text(self, value: str, where: str) -> Text:
        """Translate `value` into plain texts, references, project folders and secrets, in order.

        `where` names the value in errors and notes.

        Raises:
            NotImportedError: the value is too long, names a file that cannot be read, or contains
                something that no placeholder of capd stands for, such as a command.
        """
        if len(value) > _LONGEST:
            raise NotImportedError(f"{where} has more than {_LONGEST >> 10} KiB")
        if _COMMAND in self.syntaxes and value.startswith("$:"):
            raise NotImportedError(f"{where} is what a command prints, which capd does not run")
        pattern = "|".join(_SYNTAX[each] for each in self.syntaxes if each in _SYNTAX)
        parts: list[Part] = []
        at = 0
        for match in re.finditer(pattern, value) if pattern else ():
            parts += [self._plain(value[at : match.start()], where), self._part(match, where)]
            at = match.end()
        parts.append(self._plain(value[at:], where))
        return joined(parts)

    def _plain(self, text: str, where: str) -> str:
        unknown = _UNKNOWN.search(text) if _WITH_WORKSPACE in self.syntaxes else None
        if unknown:
            raise NotImportedError(
                f"{where} has {unknown.group()[:40]}, which capd has no word for"
            )
        return text.replace("${/}", "/") if _WITH_WORKSPACE in self.syntaxes else text

    def _part(self, match: re.Match[str], where: str) -> Part:
        groups = {name: value for name, value in match.groupdict().items() if value is not None}
        if "project" in groups:
            return ProjectFolder()
        if "home" in groups:
            return str(self.around.home)
        if "file" in groups:
            return self._file(groups["file"], where)
        if "defaulted" in groups:
            return self._defaulted(groups["defaulted"], groups["default"])
        name = next(groups[kind] for kind in _REFERENCES if kind in groups)
        if "input" in groups and name in self.around.descriptions:
            self.notes.append(f"{key_of(name)} is its input: {self.around.descriptions[name]}")
        if name == "CLAUDE_PROJECT_DIR":
            return ProjectFolder()
        return str(self.around.home) if name == "HOME" else self._reference(name, where)

    def _defaulted(self, name: str, default: str) -> Part:
        if name == "CLAUDE_PROJECT_DIR":
            return ProjectFolder()
        if self.around.env.get(name):
            return Reference(name)
        self.notes.append(f"{name} is not set here: its default is taken for good")
        return default

    def _reference(self, name: str, where: str) -> Reference:
        key = name if KEY.fullmatch(name) else key_of(name)
        if not KEY.fullmatch(key):
            raise NotImportedError(f"{where} names a value that no key of capd's can stand for")
        return Reference(key)

    def _file(self, name: str, where: str) -> Part:
        path = Path(name.strip())
        if path.parts[:1] == ("~",):
            path = self.around.home.joinpath(*path.parts[1:])
        try:
            value = small_file(self.folder / path).strip()
        except (OSError, ValueError):
            raise NotImportedError(
                f"{where} is the content of the file {name[:80]}, which cannot be read"
            ) from None
        self.notes.append(f"{where} is what {name[:80]} held at this moment")
        return Hidden(value, key_of(path.name)) if value else ""


def small_file(path: Path) -> str:
    """Return the text in the regular file at `path`, of at most `FILE_LIMIT_BYTES` bytes.

    Other kinds of files are refused, because reading a pipe or a device in a clone could block.

    Raises:
        OSError, ValueError: the file cannot be read, is not a regular file, is larger, or is not
            UTF-8.
    """
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError("it is no file")
        data = file.read(FILE_LIMIT_BYTES + 1)
        if len(data) > FILE_LIMIT_BYTES:
            raise ValueError("it is too large")
        return data.decode()


def key_of(text: str) -> str:
    """Return `text` as the name of a variable: `api-key (v2)` gives `API_KEY_V2`."""
    name = _ANY_PART.sub("_", text).strip("_").upper()
    return f"_{name}" if name[:1].isdigit() else name


def joined(parts: Iterable[Part]) -> Text:
    """Return `parts` as a text: without empty ones, and with adjacent plain texts joined."""
    made: list[Part] = []
    for part in parts:
        if isinstance(part, str) and made and isinstance(made[-1], str):
            made[-1] += part
        elif part != "":
            made.append(part)
    return tuple(made)


def written(text: Text, key: Callable[[Hidden], str]) -> str:
    """Return `text` as it is written in a definition of capd; `key` returns the key of a secret.

    Raises:
        NotImportedError: braces in the text would be read as a placeholder.
    """
    asked = joined(Reference(key(p)) if isinstance(p, Hidden) else p for p in text)
    put = "".join(map(_put, asked))
    if read_back(put) != asked:
        raise NotImportedError("it has braces in a row, which capd would read as a placeholder")
    return put


def _put(part: Part) -> str:
    if isinstance(part, Reference):
        return f"{{{{ENV:{part.key}}}}}"
    return _ESCAPED.sub(r"{{{{\1}}}}", part) if isinstance(part, str) else "{{PROJECT}}"


_WRITTEN = re.compile(
    r"\{\{\{\{(?P<literal>[^{}]*)\}\}\}\}|\{\{(?:ENV|INPUT):(?P<key>[A-Za-z_]\w*)\}\}"
    r"|\{\{(?P<folder>CWD|PROJECT)\}\}"
)


def read_back(text: str) -> Text:
    """Return the parts of a text in a definition of capd: the inverse of `written`."""
    parts: list[Part] = []
    at = 0
    for match in _WRITTEN.finditer(text):
        parts.append(text[at : match.start()])
        if match["key"]:
            parts.append(Reference(match["key"]))
        else:
            parts.append(ProjectFolder() if match["folder"] else f"{{{{{match['literal']}}}}}")
        at = match.end()
    return joined([*parts, text[at:]])
