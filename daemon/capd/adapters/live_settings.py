"""The current settings: from the user's files, a project's file, and `CAPD_*`, in that order.

`current` is immutable and replaced as a whole when files change, so a reader never sees a mixture.
This module also records the origin of each key, and knows which keys need a restart.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import trio

from capd.adapters.client_table import NAME as CLIENTS_FILE
from capd.adapters.client_table import client_table
from capd.adapters.configuration import Configuration, effective
from capd.adapters.last_good_file import LastGoodFile, age_of
from capd.adapters.parsing.jobs import DIRECT, Reader, ReadProjectSettings
from capd.adapters.session_settings import session_rules
from capd.adapters.timed_reads import NoAnswerError, TimedReads
from capd.core.sessions.client_traits import ClientTraits
from capd.core.sessions.policy import PolicyRules
from capd.core.sessions.session_rules import SessionRules
from capd.core.settings.known_keys import ANY, known_keys
from capd.core.settings.known_keys import Path as KeyPath
from capd.core.settings.layers import (
    Layer,
    Merged,
    UnusableError,
    key_path_text,
    parse_layer,
)
from capd.core.settings.project_keys import (
    FILE_NAME,
    LARGEST_BYTES,
    limit_to_user,
    value_at,
)

CONFIG_FILE = "config.toml"
MOST_PROJECTS = 256
LONGEST_READ = 4.0
"""Seconds for reading a project's file, including the start of the parser process."""

_NO_PINS = "`surface.pins` has no effect: it chooses among your own pins, and you have none"

RESTARTS = frozenset({"embedder", "listen_http", "taps", "sandbox", "ledger"})
"""Tables whose changes apply from the next start."""
RESTART_KEYS = frozenset(
    {
        ("results", "store_mib"),
        ("routing", "scorer"),
        ("scripts", "workers"),
        *(("servers", each) for each in ("definitions", "longest_call", "may_connect")),
        *(("servers", each) for each in ("most_processes", "most_memory_mib")),
    }
)


@dataclass(frozen=True, slots=True)
class Effective:
    """The settings in force, for the daemon or for one project's sessions."""

    configuration: Configuration = field(default_factory=Configuration)
    merged: Merged = field(default_factory=Merged)
    domain: str = ""
    """The domain that the project's file sets; empty if it sets none."""
    rules: tuple[PolicyRules, ...] = ()
    """The policy rules of the project's file."""
    kept_pins: tuple[str, ...] | None = None
    """The user's pins that the project's file keeps; None for all."""
    notes: tuple[str, ...] = ()
    """The parts of the project's file that are ignored, with the reason."""


class LiveSettings:
    """All settings, with their origins."""

    def __init__(
        self,
        config: Path,
        environment: Mapping[str, str],
        state: Path | None,
        reads: TimedReads | None = None,
        reader: Reader = DIRECT,
        *,
        clock: Callable[[], float] = time.monotonic,
        age: Callable[[Path], float] = age_of,
    ) -> None:
        """Note where the settings are: in the folder `config` and in variables of `environment`.

        `load` reads them. `state` is the folder for last good states; None to save none. `reads`
        limits the wait for projects: if a network file system hangs, sessions start without the
        project's file. `clock` and `age` tell whether a file that may be half written is stable.
        `reader` parses projects' files.
        """
        self._clock, self._age = clock, age
        self._reader = reader
        self.folder = config
        self._environment = environment
        kept = state / "good" / CONFIG_FILE if state is not None else None
        self._file = LastGoodFile(
            config / CONFIG_FILE, self._user_layer, kept=kept, clock=clock, age=age
        )
        self._clients = config / CLIENTS_FILE
        self.reads = reads or TimedReads(LONGEST_READ)
        self._projects: dict[str, LastGoodFile] = {}
        self.silent: dict[str, str] = {}
        """By project: why its file was not read in time at the last attempt."""
        self._of_projects: dict[str, Effective] = {}
        self.effective = Effective()
        self.table: Mapping[str, ClientTraits] = {}
        self._table_problems: list[str] = []
        self._variable_problems: list[str] = []
        self._began_with: Configuration | None = None
        self._loading = trio.Lock()
        self.project_added = trio.Event()
        """Set when another project is to be followed. The task that follows projects then replaces
        this event by a new one."""

    @property
    def current(self) -> Configuration:
        """The settings of the daemon, and of sessions in projects without a file."""
        return self.effective.configuration

    @property
    def projects(self) -> tuple[str, ...]:
        """The projects whose files are read and followed."""
        return tuple(self._projects)

    @property
    def wait(self) -> float:
        """Seconds after which files that may be half written have to be read again; 0 for never."""
        waits = [file.wait for file in (self._file, *self._projects.values()) if file.wait]
        return min(waits, default=0.0)

    @property
    def problems(self) -> list[str]:
        """A line for each part of the user's files, and each variable, that is ignored."""
        notes = self._file.layer.notes if self._file.layer is not None else ()
        return [
            *([self._file.problem] if self._file.problem else []),
            *(f"{self._file.file}: {note}" for note in notes),
            *self._variable_problems,
            *self._table_problems,
        ]

    @property
    def project_problems(self) -> dict[str, list[str]]:
        """For each project, a line for each part of its file that is ignored."""
        found: dict[str, list[str]] = {}
        for project, file in self._projects.items():
            notes = self._of_projects[project].notes
            problem = self._silence(project) or file.problem
            lines = [*([problem] if problem else []), *notes]
            if lines:
                found[project] = lines
        return found

    @property
    def needs_restart(self) -> list[str]:
        """The keys whose values have changed but apply only after a restart."""
        before = self._began_with or self.current
        paths = dict.fromkeys(_up_to_names(key.path) for key in known_keys(Configuration))
        return [
            key_path_text(path)
            for path in paths
            if is_for_restart(path) and _value(before, path) != _value(self.current, path)
        ]

    def load(self) -> bool:
        """Read the user's files again; return whether any setting has changed."""
        before = (self.effective, self.table, self._of_projects)
        self._file.load()
        self.table, self._table_problems = client_table(self._clients, self.table)
        self.effective, self._variable_problems = self._effective(None)
        if self._began_with is None:
            self._began_with = self.current
        self._of_projects = {name: self._of_file(file) for name, file in self._projects.items()}
        return before != (self.effective, self.table, self._of_projects)

    async def reload(self) -> bool:
        """Read the files of all projects again, then do what `load` does, without blocking."""
        async with trio.open_nursery() as nursery:
            for project, file in self._projects.items():
                nursery.start_soon(self._read_again, project, file)
        async with self._loading:
            return await trio.to_thread.run_sync(self.load)

    async def load_project(self, project: str) -> None:
        """Read the file of a project, and follow its changes from now on."""
        if not project or project in self._projects:
            return
        file = self._project_file(project)
        # Outside the lock, so that a project that does not answer delays no other.
        reason = await self._read(project, file)
        async with self._loading:
            if project in self._projects:
                # Another task has read it meanwhile.
                return
            if len(self._projects) >= MOST_PROJECTS:
                self._forget_one()
            self._projects[project] = file
            self._note_silence(project, reason)
            self._of_projects[project] = self._of_file(file)
        self.project_added.set()

    async def _read_again(self, project: str, file: LastGoodFile) -> None:
        self._note_silence(project, await self._read(project, file))

    async def _read(self, project: str, file: LastGoodFile) -> str:
        """Read a project's file; return an empty text, or why the file did not answer in time."""
        try:
            await self.reads.of(project, file.load)
        except NoAnswerError as error:
            return str(error)
        return ""

    def _note_silence(self, project: str, reason: str) -> None:
        if reason:
            self.silent[project] = reason
        else:
            self.silent.pop(project, None)

    def _silence(self, project: str) -> str:
        reason = self.silent.get(project, "")
        if not reason:
            return ""
        file = self._projects[project]
        used = "its last good state stays in use" if file.layer is not None else "the defaults are"
        return f"{file.file} is not used: {reason} ({used})"

    def of(self, project: str) -> Effective:
        """Return the settings for sessions of `project`.

        The settings in the project's own file are included if it was read.
        """
        return self._of_projects.get(project, self.effective)

    def rules(self, project: str) -> SessionRules:
        """Return the rules for sessions of `project`."""
        found = self.of(project)
        rules = session_rules(found.configuration, self.table)
        own = tuple((project, each) for each in found.rules)
        projects = (*rules.projects, *own)
        return replace(rules, projects=projects, kept_pins=found.kept_pins)

    def domain(self, client: str, project: str) -> str:
        """Return the domain (a kind of work, such as `devops`) of a session; empty if it has none.

        If the user's own settings name one for the project or the client, it is used instead of the
        one in the project's file.
        """
        return self.current.domains().of(client, project) or self.of(project).domain

    def _user_layer(self, text: str) -> Layer:
        return parse_layer(text, Configuration, str(self.folder / CONFIG_FILE))

    def _project_file(self, project: str) -> LastGoodFile:
        file = Path(project, FILE_NAME)

        def read(text: str) -> Layer:
            if len(text) > LARGEST_BYTES:
                raise UnusableError(f"it is larger than {LARGEST_BYTES >> 10} KiB")
            found = self._reader.read(ReadProjectSettings(text))
            if not found.is_final:
                raise NoAnswerError(found.error)
            return found.layer(str(file))

        return LastGoodFile(file, read, clock=self._clock, age=self._age)

    def _of_file(self, file: LastGoodFile) -> Effective:
        if file.layer is None:
            return self.effective
        own = dict(file.layer.tables)
        domain = own.pop("domain", "")
        policy = own.pop("policy", {})
        place = f"[policy] of {file.file}"
        lists = (tuple(policy.get(key, ())) for key in ("allow", "deny", "ask"))
        rules = PolicyRules(place, *lists)
        users = self._user_configuration()
        limits = limit_to_user(own, msgspec.to_builtins(users))
        kept_pins = limits.tables.get("surface", {}).pop("pins", None)
        found, _ = self._effective(replace(file.layer, tables=limits.tables))
        origins: dict[KeyPath, str] = {("domain",): str(file.file)} if domain else {}
        for key in policy:
            origins["policy", key] = str(file.file)
        whole = Merged(found.merged.tables, {**found.merged.origins, **origins})
        notes = [*file.layer.notes, *limits.notes]
        if kept_pins and not users.surface.pins:
            notes.append(_NO_PINS)
        return replace(
            found,
            merged=whole,
            domain=domain,
            rules=(rules,),
            kept_pins=None if kept_pins is None else tuple(kept_pins),
            notes=tuple(notes),
        )

    def _user_configuration(self) -> Configuration:
        tables = self._file.layer.tables if self._file.layer is not None else {}
        return msgspec.convert(tables, Configuration)

    def _effective(self, project: Layer | None) -> tuple[Effective, list[str]]:
        layers = [each for each in (self._file.layer, project) if each is not None]
        configuration, whole, problems = effective(layers, self._environment)
        return Effective(configuration, whole), problems

    def _forget_one(self) -> None:
        """Forget the project that was added longest ago; projects without a file go first."""
        bare = (name for name, file in self._projects.items() if file.layer is None)
        oldest = next(bare, next(iter(self._projects)))
        del self._projects[oldest]
        del self._of_projects[oldest]
        self.silent.pop(oldest, None)


def is_for_restart(path: KeyPath) -> bool:
    """Tell whether a change of the key at `path` applies only from the next start."""
    return path[0] in RESTARTS or path in RESTART_KEYS


def _up_to_names(path: KeyPath) -> KeyPath:
    """Return the path of a key, cut before a name that the user chose.

    For example, `clients.NAME.x` gives `clients`.
    """
    return path[: path.index(ANY)] if ANY in path else path


def _value(configuration: Configuration, path: KeyPath) -> Any:
    return value_at(msgspec.to_builtins(configuration), path)
