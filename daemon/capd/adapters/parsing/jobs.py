"""The jobs that read other people's files. A job and its result are plain data.

A job runs in the parser process (`parser`), or in the present process if the text is the user's
own. The result is the same, because `run` is pure.
"""

from collections.abc import Mapping
from typing import Any, Protocol, TypeVar

import msgspec

from capd.core.memories.memory_format import MemoryFile, MemoryRead, read_memory
from capd.core.sessions.client_skills import SkillNeeds, skill_needs
from capd.core.settings.layers import Layer, UnusableError, check, tables_of
from capd.core.settings.project_keys import check_bounds, permitted
from capd.core.taps.overlays import Overlay, read_overlay
from capd.core.taps.skills import SkillFile, SkillRead, body, read_skill
from capd.core.taps.tap_format import CapabilityFiles, CapabilityRead, read_capability
from capd.core.taps.tool_snapshot import FILE as SNAPSHOT
from capd.core.taps.tool_snapshot import SnapshotRead, read_snapshot
from capd_protos.types import CapabilityName, Finding, TapName

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Job(Protocol[T_co]):
    """A text, or the texts of one folder, with the code that parses them."""

    def run(self) -> T_co:
        """Parse the text; return the result."""
        ...

    def unread(self, reason: str) -> T_co:
        """Return the result for a text that cannot be read; it contains `reason`."""
        ...


class Reader(Protocol):
    """Runs jobs, either in the parser process or in this process."""

    def read(self, job: Job[T]) -> T:
        """Return the result of a job; if the text cannot be read, it contains the reason."""
        ...

    @property
    def is_spent(self) -> bool:
        """Whether the files read so far have used up the available time."""
        ...


class Direct:
    """A `Reader` that runs jobs in this process, for the user's own texts and for commands."""

    is_spent = False

    def read(self, job: Job[T]) -> T:
        """Run a job in this process, and return its result."""
        return job.run()


DIRECT = Direct()


class SettingsRead(msgspec.Struct, frozen=True):
    """The result of reading a project's settings."""

    tables: dict[str, Any] = {}
    notes: tuple[str, ...] = ()
    error: str = ""
    """Why none of it can be used; empty if it can."""
    is_final: bool = True
    """False if parsing the same text may work later: the parser process failed, not the text."""

    def layer(self, origin: str) -> Layer:
        """Return the settings as a layer that `configuration.effective` merges.

        `origin` names the file in errors and as the origin of keys.

        Raises:
            UnusableError: nothing in the file can be used.
        """
        if self.error:
            raise UnusableError(self.error)
        return Layer(origin, self.tables, self.notes)


class SkillText(msgspec.Struct, frozen=True):
    """The text of a skill, without its front matter; None if the file is not a skill."""

    text: str | None


class ReadProjectSettings(msgspec.Struct, frozen=True, tag="settings"):
    """Parse a project's `.capd.toml`, without the keys that a project may not set."""

    text: str

    def run(self) -> SettingsRead:
        """Return the settings that the project may set, or why the file cannot be used."""
        # Imported here: it loads 40 modules that no other job needs, and somebody waits for a job.
        from capd.adapters.configuration import Configuration, PlaceTable  # noqa: PLC0415

        text = self.text
        try:
            kept = permitted(tables_of(text), text)
            domain = kept.tables.get("domain", "")
            check({"domain": domain}, PlaceTable, text)
            rest = {key: table for key, table in kept.tables.items() if key != "domain"}
            check(rest, Configuration, text)
            check_bounds(kept.tables, text)
        except UnusableError as error:
            return SettingsRead(error=str(error))
        return SettingsRead(kept.tables, kept.notes)

    def unread(self, reason: str) -> SettingsRead:
        """Return a result without settings, which says `reason`."""
        return SettingsRead(error=reason)


class ReadCapability(msgspec.Struct, frozen=True, tag="capability"):
    """Parse the files of a capability's folder."""

    tap: TapName
    name: CapabilityName
    path: str
    texts: Mapping[str, str]
    provider: str = ""

    def run(self) -> CapabilityRead:
        """Return the capability that the files of the folder define."""
        files = CapabilityFiles(self.name, self.path, self.texts)
        return read_capability(self.tap, files, self.provider)

    def unread(self, reason: str) -> CapabilityRead:
        """Return a result without a capability, which says `reason`."""
        finding = Finding(self.path, 0, f"left out: {reason}")
        return CapabilityRead(self.name, None, reason, (finding,), bool(self.provider))


class ReadSkill(msgspec.Struct, frozen=True, tag="skill"):
    """Parse a SKILL.md of a tap."""

    tap: TapName
    file: SkillFile

    def run(self) -> SkillRead:
        """Return the skill that the file defines."""
        return read_skill(self.tap, self.file)

    def unread(self, reason: str) -> SkillRead:
        """Return a result without a skill, which says `reason`."""
        finding = Finding(self.file.path, 0, f"left out: {reason}")
        return SkillRead(self.file.folder, self.file.path, None, (finding,))


class ReadSkillText(msgspec.Struct, frozen=True, tag="skill_text"):
    """Get the text of a SKILL.md, without its front matter."""

    content: bytes

    def run(self) -> SkillText:
        """Return the text of the skill."""
        return SkillText(body(self.content))

    def unread(self, reason: str) -> SkillText:  # noqa: ARG002 - the result has no place for it
        """Return a result without a text."""
        return SkillText(None)


class ReadSkillNeeds(msgspec.Struct, frozen=True, tag="skill_needs"):
    """Get the tools and capabilities that a SKILL.md of a client names."""

    content: bytes

    def run(self) -> SkillNeeds:
        """Return the tools and capabilities that the skill names."""
        return skill_needs(self.content)

    def unread(self, reason: str) -> SkillNeeds:
        """Return a result without tools, which says `reason`."""
        return SkillNeeds(error=reason)


class ReadMemory(msgspec.Struct, frozen=True, tag="memory"):
    """Parse a file of a folder `memories`."""

    tap: TapName
    file: MemoryFile

    def run(self) -> MemoryRead:
        """Return the memory that the file defines."""
        return read_memory(self.tap, self.file)

    def unread(self, reason: str) -> MemoryRead:
        """Return a result without a memory, which says `reason`."""
        finding = Finding(self.file.path, 0, f"left out: {reason}")
        return MemoryRead(self.file.path, None, (finding,))


class ReadOverlay(msgspec.Struct, frozen=True, tag="overlay"):
    """Parse the files of an overlay's folder."""

    path: str
    texts: Mapping[str, str]

    def run(self) -> Overlay:
        """Return the overlay that the folder's files define."""
        return read_overlay(self.path, self.texts)

    def unread(self, reason: str) -> Overlay:
        """Return an empty overlay, which says `reason`."""
        return Overlay(self.path, None, 0, (), (Finding(self.path, 0, reason),))


class ReadToolSnapshot(msgspec.Struct, frozen=True, tag="tools"):
    """Parse a tap's `tools.json`."""

    data: bytes

    def run(self) -> SnapshotRead:
        """Return the tools that the file records."""
        return read_snapshot(self.data)

    def unread(self, reason: str) -> SnapshotRead:
        """Return a result without tools, which says `reason`."""
        return SnapshotRead(findings=(Finding(SNAPSHOT, 0, f"left out: {reason}"),))


AnyJob = (
    ReadProjectSettings
    | ReadCapability
    | ReadSkill
    | ReadSkillText
    | ReadSkillNeeds
    | ReadMemory
    | ReadOverlay
    | ReadToolSnapshot
)
RESULTS: Mapping[type, type] = {
    ReadProjectSettings: SettingsRead,
    ReadCapability: CapabilityRead,
    ReadSkill: SkillRead,
    ReadSkillText: SkillText,
    ReadSkillNeeds: SkillNeeds,
    ReadMemory: MemoryRead,
    ReadOverlay: Overlay,
    ReadToolSnapshot: SnapshotRead,
}
"""The type of each job's result."""
