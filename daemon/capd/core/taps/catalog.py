"""All installed taps: their capabilities, skills and memories, looked up by name.

A tap is a folder or a git repository with capabilities, skills or memories. If several taps have a
capability of the same name, the name alone means the capability of the first tap, and `tap/name`
that of the given tap (docs/design/catalog.md). A capability is *routable* if a message can switch
it on.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from capd.core.memories.memory_format import MemoryRead
from capd.core.servers.identity import server_identity
from capd.core.taps.skills import SkillRead, prompt_names
from capd.core.taps.tap_format import CapabilityRead
from capd_protos.naming import Named, NameTable, Unclear
from capd_protos.types import (
    CapabilityId,
    CapabilityName,
    CapabilitySpec,
    Finding,
    MemorySpec,
    ServerIdentity,
    SkillSpec,
    TapName,
    ToolDefinition,
    WireName,
)


@dataclass(frozen=True, slots=True)
class Tap:
    """One tap, with everything that was read from its files."""

    name: TapName
    path: str
    revision: str
    reads: tuple[CapabilityRead, ...]
    scripts: Mapping[str, str]
    """The paths of the tap's dependency scripts, by `org/tool`."""
    error: str = ""
    """Why the tap's files could not be read again; empty if this is their newest state."""
    skill_reads: tuple[SkillRead, ...] = ()
    tap_findings: tuple[Finding, ...] = ()
    """Problems with the tap as a whole."""
    memory_reads: tuple[MemoryRead, ...] = ()
    tool_lists: Mapping[ServerIdentity, Sequence[ToolDefinition]] = field(default_factory=dict)
    """The tool lists that the tap records for servers (`tools.json`)."""
    vectors_digest: str = ""
    """The SHA-256 of the tap's `vectors.bin`; empty if it has no usable one."""

    @property
    def capabilities(self) -> tuple[CapabilitySpec, ...]:
        """The capabilities that a message can switch on, sorted by name."""
        return tuple(read.capability for read in self.reads if read.capability is not None)

    @property
    def unroutable(self) -> dict[str, str]:
        """The capabilities that no message can switch on, by name, each with the reason."""
        return {read.name: read.reason for read in self.reads if read.capability is None}

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All problems in the tap's files."""
        of_capabilities = (finding for read in self.reads for finding in read.findings)
        of_skills = (finding for read in self.skill_reads for finding in read.findings)
        of_memories = (finding for read in self.memory_reads for finding in read.findings)
        return (*self.tap_findings, *of_capabilities, *of_skills, *of_memories)

    @property
    def skills(self) -> tuple[SkillSpec, ...]:
        """The skills that can be used, in the order of their folders."""
        return tuple(read.skill for read in self.skill_reads if read.skill is not None)

    @property
    def memories(self) -> tuple[MemorySpec, ...]:
        """The memories about its capabilities and tools, in the order of their files."""
        return tuple(read.memory for read in self.memory_reads if read.memory is not None)


@dataclass(frozen=True, slots=True)
class Unknown:
    """Why a name means no capability or skill, with similar names."""

    reason: str
    near: tuple[str, ...] = ()


class Catalog:
    """All taps, in order of precedence, with everything that they define."""

    def __init__(self, taps: Iterable[Tap] = ()) -> None:
        self.taps = tuple(taps)
        self._by_id: dict[CapabilityId, CapabilitySpec] = {}
        self._winners: dict[CapabilityName, CapabilitySpec] = {}
        barred: set[CapabilityName] = set()
        for tap in self.taps:
            for capability in tap.capabilities:
                self._by_id[capability.id] = capability
                if capability.id.name not in barred:
                    self._winners.setdefault(capability.id.name, capability)
            # The user chose a provider of this tap that cannot be used. The capability of another
            # tap must not take its place.
            barred.update(read.name for read in tap.reads if read.is_binding)
        self._skills = prompt_names(skill for tap in self.taps for skill in tap.skills)

    @cached_property
    def winners(self) -> tuple[CapabilitySpec, ...]:
        """The capabilities that names without a tap mean: for each name, the first tap's."""
        return tuple(self._winners.values())

    @cached_property
    def with_files(self) -> tuple[CapabilitySpec, ...]:
        """Those of `winners` that have patterns for a project's files."""
        return tuple(each for each in self.winners if each.files)

    @property
    def skills(self) -> dict[WireName, SkillSpec]:
        """Every skill by the name under which clients know its prompt.

        They are in the order of taps and folders.
        """
        return self._skills

    @property
    def memories(self) -> tuple[MemorySpec, ...]:
        """Every memory, in the order of taps and files."""
        return tuple(memory for tap in self.taps for memory in tap.memories)

    def tool_lists(self, shipped: TapName) -> dict[ServerIdentity, Sequence[ToolDefinition]]:
        """Return the tool lists that taps record for servers.

        For a server that several taps define, only the list of the first of these taps counts, so
        that no tap describes another tap's servers to models. `shipped` is the tap that comes with
        capd; it may describe a server that an earlier tap defines.
        """
        lists: dict[ServerIdentity, Sequence[ToolDefinition]] = {}
        is_defined: set[ServerIdentity] = set()
        for tap in self.taps:
            theirs = {server_identity(s) for each in tap.capabilities for s in each.servers}
            may_say = theirs if tap.name == shipped else theirs - is_defined
            for identity in may_say & tap.tool_lists.keys():
                lists.setdefault(identity, tap.tool_lists[identity])
            is_defined |= theirs
        return lists

    @property
    def wanted_keys(self) -> tuple[str, ...]:
        """The names of the secrets that placeholders in any definition use, sorted."""
        return tuple(sorted({key for c in self._by_id.values() for key in c.wanted_keys}))

    def find(self, name: str) -> CapabilitySpec | Unknown:
        """Return the capability that `name`, which may be `tap/name`, means; or why there is none.

        Other spellings of a name are accepted, as in `NameTable`.
        """
        tap_name, slash, bare = name.strip().rpartition("/")
        if slash:
            return self._find_pinned(tap_name, bare)
        found = self._winners.get(CapabilityName(bare))
        if found is not None:
            return found
        for tap in self.taps:
            if bare in tap.unroutable:
                return Unknown(f"{tap.name} has {bare!r}, but with {tap.unroutable[bare]}")
        meant = self._book.find(bare)
        if isinstance(meant, Named):
            return self._winners[CapabilityName(meant.name)]
        return _unknown(f"no tap has a capability {bare!r}", meant)

    def find_skill(self, name: str) -> tuple[WireName, SkillSpec] | Unknown:
        """Return a skill and the name of its prompt; or why there is none.

        `name` is the name of the prompt, or `tap/name` of the skill.
        """
        wanted = name.strip()
        for prompt, skill in self._skills.items():
            if wanted in {prompt, f"{skill.tap}/{skill.name}"}:
                return prompt, skill
        meant = NameTable(self._skills).find(wanted)
        if isinstance(meant, Named):
            return WireName(meant.name), self._skills[WireName(meant.name)]
        return _unknown(f"no tap has a skill {wanted[:100]!r}", meant)

    def tap_of(self, capability: CapabilityId) -> Tap | None:
        """Return the tap of `capability`; None if it is not installed."""
        return next((tap for tap in self.taps if tap.name == capability.tap), None)

    @cached_property
    def _book(self) -> NameTable:
        return NameTable(self._winners)

    def _find_pinned(self, tap_name: str, name: str) -> CapabilitySpec | Unknown:
        meant_tap = NameTable(tap.name for tap in self.taps).find(tap_name)
        if isinstance(meant_tap, Unclear):
            return _unknown(f"no tap {tap_name!r}", meant_tap)
        tap = next(tap for tap in self.taps if tap.name == meant_tap.name)
        found = self._by_id.get(CapabilityId(tap.name, CapabilityName(name)))
        if found is not None:
            return found
        if name in tap.unroutable:
            return Unknown(f"{tap.name} has {name!r}, but with {tap.unroutable[name]}")
        meant = NameTable(capability.id.name for capability in tap.capabilities).find(name)
        if isinstance(meant, Named):
            return self._by_id[CapabilityId(tap.name, CapabilityName(meant.name))]
        return _unknown(f"tap {str(tap.name)!r} has no capability {name!r}", meant)


def _unknown(reason: str, meant: Unclear) -> Unknown:
    # The names are only in `near`, so that the caller can leave out what a policy denies.
    return Unknown(f"{reason}, and several fit" if meant.is_ambiguous else reason, meant.near)
