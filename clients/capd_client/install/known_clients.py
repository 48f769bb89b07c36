"""Where each client keeps its MCP servers, the format of an entry, and whether it is installed.

The facts are the `install` tables of `capd_protos/clients.toml`.
"""

import glob
import re
import shutil
import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import msgspec

Format = Literal["json", "jsonc", "toml", "yaml", "lua", "elisp", "ui"]
"""`json` is for clients that accept no comments. No program can edit the last three safely."""
Layout = Literal["map", "list"]
"""`map`: an object with the servers by name. `list`: an array of servers, each with a `name`."""
Transport = Literal["http", "sse", ""]
"""How a URL is connected to; empty if the entry's `type` determines it."""
Variable = Literal[
    "${VAR}",
    "${VAR:-DEFAULT}",
    "$VAR",
    "${env:VAR}",
    "{env:VAR}",
    "{file:PATH}",
    "${input:ID}",
    "${workspaceFolder}",
    "${userHome}",
    "${{ secrets.NAME }}",
    "$: COMMAND",
    "NULL",
]
"""The ways to write a placeholder. `NULL` means that null, or an empty text, stands for the
variable of the same name."""
EDITED = frozenset({"json", "jsonc", "toml", "yaml"})
"""The formats that capd edits."""

_NAME = "clients.toml"
_REFERENCE = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}")


class Stdio(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The keys that a client uses in the entry of a server that it starts as a program."""

    form: Literal["program", "line"] = "program"
    """`program`: `command` is the program, and `args` its arguments. `line`: `command` is a list
    of both. Some clients accept a table {path, args, env} as well."""
    command: str = "command"
    args: str = "args"
    env: str = "env"
    cwd: str = "cwd"
    passed: str = ""
    """The key of a list of variables whose values come from the client's environment or keyring."""
    env_file: str = ""


class Http(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The keys that a client uses in the entry of a server that it reaches by URL."""

    urls: dict[str, Transport]
    headers: str = ""
    header_variables: str = ""
    """The key of a table of headers; each value is the name of a variable."""
    bearer_variable: str = ""


class _FileLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    path: str
    format: Format | None = None
    layout: Layout | None = None
    servers: tuple[str, ...] = ()


class _Systems(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    linux: tuple[str, ...]
    darwin: tuple[str, ...]
    windows: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ServersFile:
    """A client's file of MCP servers; the nested keys in `servers` lead to its servers."""

    path: Path
    format: Format
    layout: Layout
    servers: tuple[str, ...]


class KnownClient(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One entry of the table of clients: an editor or agent that capd can be added to."""

    title: str
    behaviour: str
    """The key in `clients.toml` of the entry that contains this one: its clients behave alike."""
    format: Format
    id: str = ""
    aliases: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    """Folders that it creates in a home folder; patterns are allowed."""
    layout: Layout = "map"
    user: tuple[str, ...] | _Systems = ()
    project: tuple[str | _FileLine, ...] = ()
    system: tuple[str, ...] = ()
    """Files that an administrator writes for all users; never changed."""
    servers: tuple[str, ...] = ()
    """The keys that lead to the servers."""
    local: tuple[str, ...] = ()
    """The keys that lead to a project's own servers within the user's file."""
    switched_off: tuple[tuple[str, ...], ...] = ()
    """The keys that lead to lists of servers that the user has switched off in this project."""
    inputs: tuple[str, ...] = ()
    """The keys that lead to the definitions of `${input:ID}`."""
    stdio: Stdio = Stdio()
    http: Http = Http({})
    off: dict[str, bool] = {}
    """The member that switches a server off in its entry, with the value that does so."""
    variables: tuple[Variable, ...] = ()
    entry: dict[str, Any] = {}
    """The entry that capd adds; `{launcher}` is its program."""
    defaults: dict[str, Any] = {}
    """Members that capd adds once; the user may change them afterwards."""
    new_file: dict[str, Any] = {}
    """Members that a new file begins with."""
    displaces: tuple[str, ...] = ()
    """Files that the client reads only if the user's file does not exist."""
    hook_limit: float = 0.0
    """Seconds that the client lets a prompt hook of capd's run; 0 if not known."""
    no_prompts: str = ""
    """Why its user's messages do not reach capd; empty if they do."""
    by_hand: str = ""
    """What a person has to add to which file, if capd cannot."""
    after: str = ""
    """What the user has to do or to know after capd was added."""

    @property
    def is_edited(self) -> bool:
        """Whether capd edits its file; otherwise a person has to."""
        return self.format in EDITED

    def user_files(
        self, env: Mapping[str, str], platform: str = sys.platform
    ) -> tuple[ServersFile, ...]:
        """Return the user's files, whether or not they exist.

        A path is left out if it needs a variable that `env` does not have.
        """
        paths = self.user
        if isinstance(paths, _Systems):
            system = "windows" if platform == "win32" else platform
            paths = getattr(paths, system, paths.linux)
        return tuple(self._file(path) for each in paths if (path := expanded(each, env)))

    def user_file(self, env: Mapping[str, str]) -> ServersFile | None:
        """Return the file that capd is added to; None if capd does not edit one.

        It is the first file that exists, otherwise the last of the table.
        """
        known = self.user_files(env) if self.is_edited else ()
        return next((file for file in known if file.path.exists()), known[-1] if known else None)

    def project_files(self, project: Path) -> tuple[ServersFile, ...]:
        """Return a project's files that may list servers; patterns become the files that exist."""
        return tuple(self._project_files(project))

    def is_detected(self, env: Mapping[str, str]) -> bool:
        """Tell whether the client is on this machine: its program, folder or file exists."""
        search = env.get("PATH", "")
        if any(shutil.which(program, path=search) for program in self.programs):
            return True
        paths = [path for each in self.folders if (path := expanded(each, env))]
        return any(_has_files(path) for path in paths) or any(
            file.path.exists() for file in self.user_files(env)
        )

    def _project_files(self, project: Path) -> Iterator[ServersFile]:
        for each in self.project:
            line = _FileLine(each) if isinstance(each, str) else each
            found = sorted(project.glob(line.path)) if "*" in line.path else [project / line.path]
            for path in found:
                yield self._file(path, line)

    def _file(self, path: Path, line: _FileLine | None = None) -> ServersFile:
        return ServersFile(
            path,
            (line and line.format) or self.format,
            (line and line.layout) or self.layout,
            (line and line.servers) or self.servers,
        )


def _has_files(pattern: Path) -> bool:
    """Tell whether a folder that matches `pattern` has files.

    An empty folder proves nothing: `capd uninstall` leaves the folders that `install` created.
    """
    folders = glob.glob(str(pattern))  # noqa: PTH207 - a pattern from the root
    return any(path.is_file() for folder in folders for path in Path(folder).rglob("*"))


def expanded(path: str, env: Mapping[str, str]) -> Path | None:
    """Return a path of the table with `~`, `${VAR}` and `${VAR:-DEFAULT}` replaced from `env`.

    None if a variable without a default is not set.
    """
    home = env.get("HOME") or str(Path.home())

    def value(match: re.Match[str]) -> str:
        return env.get(match[1]) or match[2] or "\0"

    text = _REFERENCE.sub(value, path)
    if "\0" in text:
        return None
    return Path(home + text[1:] if text[:1] == "~" else text)


@cache
def known_clients() -> Mapping[str, KnownClient]:
    """Return the table of clients by their ids, the names that `capd install` takes."""
    text = files("capd_protos").joinpath(_NAME).read_text(encoding="utf-8")
    return {
        name: msgspec.convert(
            {"title": line["title"], **program, "behaviour": behaviour, "id": name}, KnownClient
        )
        for behaviour, line in tomllib.loads(text).items()
        for name, program in line.get("install", {}).items()
    }


def known_client(name: str) -> KnownClient | None:
    """Return the client with the id or alias `name`, in any case; None if there is none."""
    folded = name.casefold()
    clients = known_clients()
    return clients.get(folded) or next(
        (each for each in clients.values() if folded in each.aliases), None
    )
