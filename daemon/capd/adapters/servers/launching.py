"""Decides how a launcher, such as npx or uv, starts in an untrusted folder.

`core.servers.launchers` has the rules. This module looks up which files exist: in the working
directory and in the folders above it, where launchers look too. The user's home folder and the
folders above it are the user's own. Every function blocks.
"""

import contextlib
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

from capd.adapters import platform
from capd.adapters.regular_files import opened_regular
from capd.adapters.trust.trust_check import UntrustedError
from capd.core.errors import CapdError
from capd.core.lazy_patterns import lazy_pattern
from capd.core.servers.launchers import (
    LOADING_VARIABLES,
    NAMES_IN_ANY_CASE,
    FilesRead,
    all_names,
    launch,
    outside,
    program_name,
    reading,
    shim_names,
)
from capd.core.servers.runners import path_advice
from capd_protos.places import make_folders

ENTER_PROJECT = Path(platform.__file__).with_name("enter_project.sh")
_SCRIPT_BYTES = 65536
_MOST_ENTRIES = 10_000
_MODULES = (".py", ".pyc", ".so", ".pyd")
_PYTHON = lazy_pattern(r"(?:python|cpython-|pypy)(\d+)\.(\d+)")
_FIND_INTERPRETERS = frozenset({"pipx", "uv", "uvx"})
_VERSIONS = ".tool-versions"
"""A file that some version managers read. It may make them run a program of the project."""
_OLDEST_SAFE_PATH = (3, 11)


class NoEmptyFolderError(CapdError):
    """An empty folder in which a launcher would run could not be created."""


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """How a launcher starts a server, given the files that exist at this moment."""

    argv: tuple[str, ...] = field(repr=False)
    env: Mapping[str, str] = field(repr=False)
    is_elsewhere: bool = False
    """Whether the launcher starts in an empty folder."""
    enters_project: bool = False
    """Whether the server itself still runs in its usual working directory."""
    reason: str = ""
    """Why the start differs from what the definition says, for a person; empty if it does not."""


@dataclass(frozen=True, slots=True)
class Launching:
    """Plans the start of one server in the folder in which it is about to run."""

    name: str
    argv: tuple[str, ...] = field(repr=False)
    """The command of the definition, with `{{PROJECT}}` not filled in."""
    declared: Mapping[str, str] = field(repr=False)
    """The environment that the definition sets, with placeholders not filled in."""
    folder: Path
    """Its usual working directory."""
    project: str
    """The project as the client named it; empty if there is none."""
    home: str
    empty_folders: Path
    """The folder in which empty folders are created."""
    is_trusted: Callable[[str, FilesRead], bool]
    """Tells whether a person trusts all files that a command reads in a project, given the
    project's real path and what the command reads."""
    can_enter: bool = True
    """Whether the server may go from the empty folder into the project."""

    def plan(self, argv: tuple[str, ...], env: Mapping[str, str]) -> LaunchPlan:
        """Return how to start the server; `argv` and `env` have no placeholders any more.

        Raises:
            UntrustedError: it would run code of an untrusted project.
        """
        usual = LaunchPlan(argv, env)
        real = os.path.realpath(self.folder)
        if _is_users_own(real, self.home) or (self.project and self.is_trusted_now(argv, env)):
            return usual
        path = _outside(env.get("PATH", os.defpath), {str(self.folder), real}, self.project)
        own = os.path.dirname(sys.executable)  # noqa: PTH120 - text to text
        if own in _folders(env) and own not in path.split(os.pathsep):
            # capd itself is installed in the project, so programs beside it are trusted.
            path = f"{path}{os.pathsep}{own}" if path else own
        kept = {**env, "PATH": path}
        command = _program(argv[0], path)
        if self.project and not command and _which(argv[0], env, real):
            raise self._refused(f"{argv[0]}, a program of")
        found = self._reading(command, path)
        if self.project and found.project_file:
            if found.project_file == argv[0] and not os.path.lexists(f"{real}/{argv[0]}"):
                raise UntrustedError(
                    f"{self.name} cannot start: {real}/{argv[0]} is not an executable file:"
                    f" {path_advice(argv[0])}"
                )
            raise self._refused(f"{found.project_file}, a file of")
        if not found.is_reading:
            return LaunchPlan(argv, kept)
        there = look(real, found, self.home)
        can_enter = (
            self.can_enter
            and os.access(ENTER_PROJECT, os.X_OK)
            and not any(name.lower() == "npm_config_script_shell" for name in self.declared)
        )
        way = launch(
            argv,
            found,
            there,
            project=self.project,
            has_safe_path=_has_safe_path(command),
            can_enter=can_enter,
        )
        if way.enters_project:
            kept |= {
                "npm_config_script_shell": str(ENTER_PROJECT),
                "CAPD_SERVER_FOLDER": str(self.folder),
            }
        return LaunchPlan(way.argv, kept, way.is_elsewhere, way.enters_project, way.reason)

    def is_trusted_now(self, argv: tuple[str, ...], env: Mapping[str, str]) -> bool:
        """Tell whether a person trusts all files of the project that an unrestricted start reads.

        `argv` and `env` are the server's command and environment, without placeholders.
        """
        path = env.get("PATH", os.defpath)
        found = self._reading(_program(argv[0], path), path)
        return self.is_trusted(os.path.realpath(self.folder), found)

    def _reading(self, command: str, path: str) -> FilesRead:
        return reading(
            self.argv,
            self.declared,
            script=_shell_script(command),
            interpreter=_interpreter(command),
            shim_folder=_shim_folder(command, path),
        )

    def refuse_in_container(self) -> None:
        """Check that a container does not run code of a project that is not trusted.

        Only files that the command line names matter: the launcher itself starts in a folder of the
        image, so it reads no file of the project by itself.

        Raises:
            UntrustedError: the container would; the text names the file.
        """
        found = reading(self.argv, self.declared)
        if not self.project or self.is_trusted(os.path.realpath(self.folder), found):
            return
        loaded = [
            value
            for name, value in self.declared.items()
            if name in LOADING_VARIABLES and ("{{PROJECT}}" in value or "{{CWD}}" in value)
        ]
        if found.project_file or loaded:
            raise self._refused(f"{found.project_file or loaded[0]}, a file of")

    def rests_on_trust(self, argv: tuple[str, ...], env: Mapping[str, str]) -> bool:
        """Tell whether the server would start differently if the project were not trusted.

        `argv` and `env` are its command and environment, without placeholders.
        """
        try:
            held = replace(self, is_trusted=lambda _, __: False).plan(argv, env)
        except UntrustedError:
            return True
        return held != LaunchPlan(argv, env)

    def empty_folder(self) -> Path:
        """Create a folder in which, and above which, launchers find no files.

        Raises:
            NoEmptyFolderError: none could be created.
        """
        everything = FilesRead(names=all_names())
        for base in (self.empty_folders, Path(tempfile.gettempdir())):
            try:
                make_folders(base)
                folder = Path(tempfile.mkdtemp(prefix="capd-empty-", dir=base)).resolve()
            except OSError:
                continue
            if not look(str(folder), everything, self.home):
                return folder
            folder.rmdir()
        raise NoEmptyFolderError(
            f"{self.name} cannot start: a launcher's files are in every folder above"
            f" {self.empty_folders} and {tempfile.gettempdir()}: remove them, or run"
            f" capd trust {self.project}"
        )

    def _refused(self, what: str) -> UntrustedError:
        return UntrustedError(
            f"{self.name} starts {what} the project {self.project}, which is not trusted:"
            f" look at it, and agree to it, with capd trust {self.project}"
        )


def remove_empty(folders: Path) -> None:
    """Remove the empty folders in `folders` that earlier starts left.

    A folder into which a server has written stays.
    """
    for folder in folders.glob("capd-empty-*"):
        with contextlib.suppress(OSError):
            folder.rmdir()


def look(folder: str, found: FilesRead, home: str) -> list[str]:
    """Return which of the files that a launcher reads are in `folder` or above it.

    `found` has the names of the files that the launcher reads. `folder` is a real path. In the
    result, files in `folder` are given by name, and those above it by path. Home and the folders
    above it are not searched.

    If the launcher may import any module, `folder` is searched for one, even if it is home. Then
    one more text may follow: the path of such a file, or why `folder` was not searched to its end.
    """
    there: list[str] = []
    for place in _upwards(folder, home):
        names = sorted(_there(place, found.names))
        there += names if place == folder else [f"{place.rstrip('/')}/{each}" for each in names]
    if found.reads_modules:
        there += [path or name for name, path in modules(folder).items()][:1]
    return there


def _there(place: str, names: frozenset[str]) -> set[str]:
    """Return the entries of the folder `place` that a launcher finds if it looks for `names`."""
    there = {each for each in names if os.path.lexists(f"{place}/{each}")}
    in_any_case = names & NAMES_IN_ANY_CASE
    if in_any_case:
        # A folder that cannot be listed: the launcher cannot find such a file there either.
        with contextlib.suppress(OSError), os.scandir(place) as entries:
            there |= {each.name for each in entries if each.name.lower() in in_any_case}
    return there


def _upwards(folder: str, home: str) -> Iterator[str]:
    real_home = os.path.realpath(home)
    while not _is_users_own(folder, real_home):
        yield folder
        above = os.path.dirname(folder)  # noqa: PTH120 - text to text
        if above == folder:
            return
        folder = above


def _is_users_own(folder: str, home: str) -> bool:
    """Tell whether `folder` is the home folder, or above it."""
    real_home = os.path.realpath(home) if home else ""
    return real_home not in {"", "/"} and f"{real_home}/".startswith(f"{folder.rstrip('/')}/")


def modules(folder: str) -> dict[str, str]:
    """Return what Python could import from `folder`.

    A key is the name of a file or folder in `folder`, and its value the path of one module there.
    A folder without `__init__` counts, too: Python joins it with an installed package of its name
    (a namespace package, such as `google`). If `folder` cannot be searched, the only key says why.
    """
    found: dict[str, str] = {}
    folders, left = [(folder, "")], _MOST_ENTRIES
    for place, top in folders:
        if top in found:
            continue
        if left < 0:
            found[top] = top
            continue
        try:
            with os.scandir(place) as entries:
                for entry in islice(entries, left + 1):
                    left -= 1
                    if entry.name.endswith(_MODULES):
                        found.setdefault(top or entry.name, os.path.relpath(entry.path, folder))
                        if top:
                            break
                    is_name = entry.name.isidentifier() and entry.name != "node_modules"
                    if is_name and entry.is_dir():
                        folders.append((entry.path, top or entry.name))
        except OSError:
            # Python finds nothing in a folder below that cannot be read.
            if not top:
                return {"a folder that cannot be read": ""}
        if left < 0:
            if not top:
                return {"many files": ""}
            found[top] = top
    return found


def _outside(path: str, folders: Iterable[str], project: str) -> str:
    for folder in folders:
        path = outside(path, folder if project else "")
    return path


def _program(word: str, path: str) -> str:
    return word if "/" in word else shutil.which(word, path=path) or ""


def _which(command: str, env: Mapping[str, str], folder: str) -> bool:
    folders = (f"{folder}/{each}" if each[:1] != "/" else each for each in _folders(env))
    return shutil.which(command, path=os.pathsep.join(folders)) is not None


def _folders(env: Mapping[str, str]) -> list[str]:
    return env.get("PATH", os.defpath).split(os.pathsep)


def _shell_script(command: str) -> str:
    """Return the beginning of the file of `command` if it is a shell script; otherwise empty."""
    data = _beginning(command)
    first = data.split(b"\n", 1)[0]
    if not re.match(rb"#!.*\b(?:sh|bash|dash|zsh|ksh|fish)\b", first):
        return ""
    return data.decode(errors="replace")


def _interpreter(command: str) -> tuple[str, ...]:
    """Return the command line in the first line of the file of `command`; empty if it has none."""
    match = re.match(rb"#![ \t]*(\S+)[ \t]*(.*)", _beginning(command))
    if match is None:
        return ()
    program, argument = match[1].decode(errors="replace"), match[2].decode(errors="replace").strip()
    if program_name(program) != "env":
        return (program, argument) if argument else (program,)
    # env splits the line's one argument into words only with -S.
    text = re.sub(r"^(?:-v?S|--split-string=)", "", argument)
    return (program, *(word.strip("\"'") for word in text.split()))


def _shim_folder(command: str, path: str) -> str:
    """Return the folder in which a version manager provides `command`; empty if none does.

    `path` is the search path, on which the command's interpreter is looked for.
    """
    if not command:
        return ""
    words = _interpreter(command)
    is_env = bool(words) and program_name(words[0]) == "env"
    named = next((word for word in words[is_env:] if re.fullmatch(r"[\w./+][\w./+-]*", word)), "")
    interpreter = shutil.which(named, path=path) if named else None
    folders = [os.path.dirname(each) for each in (command, interpreter or "")]  # noqa: PTH120
    if {program_name(each) for each in (command, *words)} & _FIND_INTERPRETERS:
        # These programs run the interpreters on PATH, in the folder in which they start.
        folders += [each for each in path.split(os.pathsep) if _VERSIONS in shim_names(each)]
    return next((each for each in folders if shim_names(each)), "")


def _beginning(path: str) -> bytes:
    try:
        with opened_regular(path) as (descriptor, _):
            return os.read(descriptor, _SCRIPT_BYTES)
    except OSError:
        return b""


def _has_safe_path(command: str) -> bool:
    """Tell whether the Python `command` is known to be 3.11 or later, without starting it."""
    real = os.path.realpath(command)
    match = _PYTHON.search(os.path.basename(real)) or _PYTHON.search(real)  # noqa: PTH119
    if match is None:
        # For a virtual environment on a system that copies the interpreter.
        settings = Path(command).parent.parent / "pyvenv.cfg"
        text = _beginning(str(settings)).decode(errors="replace")
        match = re.search(r"^version(?:_info)?\s*=\s*(\d+)\.(\d+)", text, re.MULTILINE)
    return match is not None and (int(match[1]), int(match[2])) >= _OLDEST_SAFE_PATH
