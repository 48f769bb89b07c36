"""The settings at this moment: the user's files, a project's file, and `CAPD_*`, in that order.

Each of `current` is an immutable whole that is replaced when files change: who reads it twice may
get two, and never half of one. What each key is from is known, and what only a restart changes.
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
from capd.adapters.good_file import GoodFile, age_of
from capd.adapters.parsing.jobs import DIRECT, Reader, ReadProjectSettings
from capd.adapters.patient_reads import NoAnswerError, PatientReads
from capd.adapters.session_settings import session_rules
from capd.core.sessions.client_traits import ClientTraits
from capd.core.sessions.policy import PolicyRules
from capd.core.sessions.session_rules import SessionRules
from capd.core.settings.known_keys import ANY, known_keys
from capd.core.settings.known_keys import Path as KeyPath
from capd.core.settings.layers import (
    Layer,
    Merged,
    UnusableError,
    parsed,
    written,
)
from capd.core.settings.project_keys import (
    FILE_NAME,
    LARGEST_BYTES,
    lowered,
    value_at,
)

CONFIG_FILE = "config.toml"
MOST_PROJECTS = 256
LONGEST_READ = 4.0
"""Seconds for a project's file, which may be the first that the parser process is started for."""

_NO_PINS = "`surface.pins` has no effect: it chooses among your own pins, and you have none"

RESTARTS = frozenset({"embedder", "listen_http", "taps", "sandbox", "ledger"})
"""Tables of which a change counts from the next start on."""
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
    """What holds, for the daemon or for one project's sessions."""

    configuration: Configuration = field(default_factory=Configuration)
    merged: Merged = field(default_factory=Merged)
    domain: str = ""
    """What the project's file says, where it says one."""
    rules: tuple[PolicyRules, ...] = ()
    """What the project's file forbids."""
    kept_pins: tuple[str, ...] | None = None
    """Which of the user's pins the project's file keeps; None for all."""
    notes: tuple[str, ...] = ()
    """What of the project's file does not count, and why."""


class LiveSettings:
    """Everything that can be set, and where it is from."""

    def __init__(
        self,
        config: Path,
        environment: Mapping[str, str],
        state: Path | None,
        reads: PatientReads | None = None,
        reader: Reader = DIRECT,
        *,
        clock: Callable[[], float] = time.monotonic,
        age: Callable[[Path], float] = age_of,
    ) -> None:
        """`state` is where last good states are kept, None to keep none.

        `reads` are of projects: on a network that hangs, their sessions begin without their files.
        `clock` and `age` say when a file that may be half written has stood still.
        `reader` parses those files.
        """
        self._clock, self._age = clock, age
        self._reader = reader
        self.folder = config
        self._environment = environment
        kept = state / "good" / CONFIG_FILE if state is not None else None
        self._file = GoodFile(
            config / CONFIG_FILE, self._user_layer, kept=kept, clock=clock, age=age
        )
        self._clients = config / CLIENTS_FILE
        self.reads = reads or PatientReads(LONGEST_READ)
        self._projects: dict[str, GoodFile] = {}
        self.silent: dict[str, str] = {}
        """Why projects that did not answer when they were read last did not."""
        self._of_projects: dict[str, Effective] = {}
        self.effective = Effective()
        self.table: Mapping[str, ClientTraits] = {}
        self._table_problems: list[str] = []
        self._variable_problems: list[str] = []
        self._began_with: Configuration | None = None
        self._loading = trio.Lock()
        self.met = trio.Event()
        """Set when another project is to be followed; whoever follows them puts another."""

    @property
    def current(self) -> Configuration:
        """What holds for the daemon, and for sessions of projects without a file."""
        return self.effective.configuration

    @property
    def projects(self) -> tuple[str, ...]:
        """The projects whose files were asked for."""
        return tuple(self._projects)

    @property
    def wait(self) -> float:
        """Seconds after which files are to be read again whose state is in doubt; 0 for never."""
        waits = [file.wait for file in (self._file, *self._projects.values()) if file.wait]
        return min(waits, default=0.0)

    @property
    def problems(self) -> list[str]:
        """A line for each thing of the user's own files that does not count."""
        notes = self._file.layer.notes if self._file.layer is not None else ()
        return [
            *([self._file.problem] if self._file.problem else []),
            *(f"{self._file.file}: {note}" for note in notes),
            *self._variable_problems,
            *self._table_problems,
        ]

    @property
    def project_problems(self) -> dict[str, list[str]]:
        """The same of each project's file."""
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
        """The keys whose values count from the next start on, and are others than in use."""
        before = self._began_with or self.current
        paths = dict.fromkeys(_up_to_names(key.path) for key in known_keys(Configuration))
        return [
            written(path)
            for path in paths
            if is_for_restart(path) and _value(before, path) != _value(self.current, path)
        ]

    def load(self) -> bool:
        """Read the user's files again; tell whether anything holds that did not before."""
        before = (self.effective, self.table, self._of_projects)
        self._file.load()
        self.table, self._table_problems = self._client_table()
        self.effective, self._variable_problems = self._effective(None)
        if self._began_with is None:
            self._began_with = self.current
        self._of_projects = {name: self._of_file(file) for name, file in self._projects.items()}
        return before != (self.effective, self.table, self._of_projects)

    async def reload(self) -> bool:
        """Do what `load` does, beside all else, with the files of projects."""
        async with trio.open_nursery() as nursery:
            for project, file in self._projects.items():
                nursery.start_soon(self._read, project, file)
        async with self._loading:
            return await trio.to_thread.run_sync(self.load)

    async def meet(self, project: str) -> None:
        """Read the file of a project whose sessions are to follow it from here on."""
        if not project or project in self._projects:
            return
        file = self._project_file(project)
        # Outside the lock: one that does not answer keeps nobody else waiting.
        await self._read(project, file)
        async with self._loading:
            if project in self._projects:
                return
            if len(self._projects) >= MOST_PROJECTS:
                self._forget_one()
            self._projects[project] = file
            self._of_projects[project] = self._of_file(file)
        self.met.set()

    async def _read(self, project: str, file: GoodFile) -> None:
        try:
            await self.reads.of(project, file.load)
        except NoAnswerError as error:
            self.silent[project] = str(error)
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
        """Return what holds for sessions of `project`, by its file if that was read."""
        return self._of_projects.get(project, self.effective)

    def rules(self, project: str) -> SessionRules:
        """Return the rules of sessions of `project`."""
        found = self.of(project)
        rules = session_rules(found.configuration, self.table)
        own = tuple((project, each) for each in found.rules)
        projects = (*rules.projects, *own)
        return replace(rules, projects=projects, kept_pins=found.kept_pins)

    def domain(self, client: str, project: str) -> str:
        """Return a session's domain: the user's word on its project or client, or the project's."""
        return self.current.domains().of(client, project) or self.of(project).domain

    # Reading

    def _user_layer(self, text: str) -> Layer:
        return parsed(text, Configuration, str(self.folder / CONFIG_FILE))

    def _client_table(self) -> tuple[Mapping[str, ClientTraits], list[str]]:
        table, problems = client_table(self._clients)
        is_unread = any("is not used" in each and "[" not in each for each in problems)
        return (self.table if is_unread and self.table else table), problems

    def _project_file(self, project: str) -> GoodFile:
        file = Path(project, FILE_NAME)

        def read(text: str) -> Layer:
            if len(text) > LARGEST_BYTES:
                raise UnusableError(f"it is larger than {LARGEST_BYTES >> 10} KiB")
            return self._reader.read(ReadProjectSettings(text)).layer(str(file))

        return GoodFile(file, read, clock=self._clock, age=self._age)

    def _of_file(self, file: GoodFile) -> Effective:
        if file.layer is None:
            return self.effective
        own = dict(file.layer.tables)
        domain = own.pop("domain", "")
        policy = own.pop("policy", {})
        place = f"[policy] of {file.file}"
        rules = PolicyRules(place, tuple(policy.get("allow", ())), tuple(policy.get("deny", ())))
        users = self._user_configuration()
        limits = lowered(own, msgspec.to_builtins(users))
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
        """Forget a project that was met long ago, one that has no file rather than one that has."""
        bare = (name for name, file in self._projects.items() if file.layer is None)
        oldest = next(bare, next(iter(self._projects)))
        del self._projects[oldest]
        del self._of_projects[oldest]
        self.silent.pop(oldest, None)


def is_for_restart(path: KeyPath) -> bool:
    """Tell whether a change of a key counts from the next start on."""
    return path[0] in RESTARTS or path in RESTART_KEYS


def _up_to_names(path: KeyPath) -> KeyPath:
    """Return where a key is, or the table of names that it is in."""
    return path[: path.index(ANY)] if ANY in path else path


def _value(configuration: Configuration, path: KeyPath) -> Any:
    return value_at(msgspec.to_builtins(configuration), path)
