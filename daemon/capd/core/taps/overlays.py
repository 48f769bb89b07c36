"""Overlays: folders that add phrases, a description or edits of tools to a tap's capabilities.

A tap is a folder or a git repository of capabilities, often written by somebody else.

An overlay has a file `overlay.toml`, which says which tap it is for, and a file
`capabilities/<name>.toml` for each capability that it changes. It is for the tap with a given name,
or for any tap that has enough of the capabilities that the overlay names. Servers, filters, scripts
and keys stay as the tap defines them (docs/taps.md). An edit changes how clients see a tool, and
not the rules that apply to the tool (docs/tools.md).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from capd.core.lazy_patterns import lazy_pattern
from capd.core.servers.identity import server_identity
from capd.core.taps.catalog import Tap
from capd.core.taps.edit_tables import KEY as EDITS
from capd.core.taps.edit_tables import tool_edits
from capd.core.taps.toml_folder import TomlFolder
from capd_protos.types import (
    CapabilityName,
    CapabilitySpec,
    Finding,
    ServerIdentity,
    ServerSpec,
    TapName,
    ToolEdit,
    ToolName,
)

OVERLAY_FILE = "overlay.toml"

_OVERLAY_KEYS = frozenset({"tap", "least_in_common"})
_WORDS_KEYS = frozenset({"triggers", "description", "parts", "files", EDITS})
_CAPABILITY_FILE = lazy_pattern(r"capabilities/(.+)\.toml")
_BETWEEN_WORDS = lazy_pattern(r"[\W_]+")


@dataclass(frozen=True, slots=True)
class AddedWords:
    """What an overlay, a folder of changes to taps, adds to one capability.

    That is phrases, a description, file patterns, and edits of tools.
    """

    name: CapabilityName
    triggers: tuple[str, ...]
    description: str
    parts: frozenset[str]
    """Names of servers and of scripts (`org/tool`). The additions are only for a capability that
    has one of them; empty if it need not have any."""
    files: tuple[str, ...] = ()
    """Patterns of file names in a project's root that make the capability more likely."""
    edits: tuple[ToolEdit, ...] = ()
    """The edits of tools of the capability's servers."""

    def are_of(self, capability: CapabilitySpec) -> bool:
        """Tell whether the additions are for `capability`.

        They are if the capability has one of `parts`, or if `parts` is empty.
        """
        has = {*(str(server.name) for server in capability.servers), *capability.requires}
        return not self.parts or not self.parts.isdisjoint(has)


@dataclass(frozen=True, slots=True)
class Overlay:
    """One overlay, a folder of changes to a tap's capabilities, as its files were read."""

    path: str
    tap: TapName | None
    """The name of the tap that the overlay is for. None if it is for any tap that has at least
    `least_in_common` of the capabilities that the overlay names."""
    least_in_common: int
    words: tuple[AddedWords, ...]
    findings: tuple[Finding, ...]

    def is_for(self, tap: Tap) -> bool:
        """Tell whether the overlay applies to the capabilities of `tap`."""
        if self.tap is not None:
            return tap.name == self.tap
        capabilities = {capability.id.name: capability for capability in tap.capabilities}
        common = [
            w for w in self.words if w.name in capabilities and w.are_of(capabilities[w.name])
        ]
        return 0 < self.least_in_common <= len(common)


@dataclass(frozen=True, slots=True)
class Overlaid:
    """The taps with the changes of all overlays, and the findings about the overlays."""

    taps: tuple[Tap, ...]
    findings: tuple[Finding, ...]


def read_overlay(path: str, texts: Mapping[str, str]) -> Overlay:
    """Return an overlay, a folder of changes to a tap's capabilities.

    `texts` are its files by their names below `path`.
    """
    folder = TomlFolder(path, texts)
    if OVERLAY_FILE not in texts:
        folder.add(OVERLAY_FILE, f"no {OVERLAY_FILE}: nothing says whose capabilities are meant")
        return Overlay(path, None, 0, (), tuple(folder.findings))
    head = folder.parsed(OVERLAY_FILE)
    if head is None:
        return Overlay(path, None, 0, (), tuple(folder.findings))
    tap, least = _whose(head, folder)
    words = []
    for file in sorted(texts):
        named = _CAPABILITY_FILE.fullmatch(file)
        read = _words(CapabilityName(named[1]), file, folder) if named else None
        if read is None:
            continue
        if tap is None and not read.parts:
            # If the name were enough, a capability `git` of any tap would count as in common.
            folder.add(file, "no `parts`, by which the tap is known: left out")
            continue
        words.append(read)
    return Overlay(path, tap, least, tuple(words), tuple(folder.findings))


def overlaid(taps: Iterable[Tap], overlays: Iterable[Overlay]) -> Overlaid:
    """Return `taps` with the changes of `overlays`.

    If several overlays add a description to a capability, the first one counts. There is a finding
    for each capability that an overlay names and its tap lacks.
    """
    result = list(taps)
    findings: list[Finding] = []
    edits = _Edits()
    for overlay in overlays:
        findings += overlay.findings
        meant = [at for at, tap in enumerate(result) if overlay.is_for(tap)]
        if overlay.tap is not None and not meant:
            reason = f"no tap is named {overlay.tap!r}"
            findings.append(Finding(f"{overlay.path}/{OVERLAY_FILE}", 0, reason, "warning"))
        for at in meant:
            findings += _unmatched(overlay, result[at])
            edits.take_overlay(overlay, result[at])
            result[at] = _with_words(result[at], overlay)
    if edits.has_any or any(server.edits for tap in result for server in _servers(tap)):
        for tap in result:
            edits.take_tap(tap)
        result = [edits.put_into(tap) for tap in result]
    return Overlaid(tuple(result), (*findings, *edits.findings))


def folded(phrase: str) -> str:
    """Return a phrase in lower case with single spaces for punctuation, to compare phrases."""
    return _BETWEEN_WORDS.sub(" ", phrase.casefold()).strip()


def lacking(capability: CapabilitySpec, phrases: Iterable[str]) -> tuple[str, ...]:
    """Return those of `phrases` that are no trigger of the capability, each once.

    Phrases that differ only in case, spaces and punctuation count as the same.
    """
    has = {folded(each) for each in (*capability.triggers, *capability.extra_triggers)}
    found: dict[str, str] = {}
    for phrase in phrases:
        if folded(phrase) not in has:
            found.setdefault(folded(phrase), phrase)
    return tuple(found.values())


def _whose(head: Mapping[str, Any], folder: TomlFolder) -> tuple[TapName | None, int]:
    _report_foreign(head, _OVERLAY_KEYS, OVERLAY_FILE, folder)
    tap, least = head.get("tap"), head.get("least_in_common")
    if isinstance(tap, str) and tap and least is None:
        return TapName(tap), 0
    if tap is None and type(least) is int and least > 0:
        return None, least
    folder.add(OVERLAY_FILE, "either `tap`, a name, or `least_in_common`, a number from 1")
    return None, 0


def _words(name: CapabilityName, file: str, folder: TomlFolder) -> AddedWords | None:
    body = folder.parsed(file)
    if body is None:
        return None
    _report_foreign(body, _WORDS_KEYS, file, folder)
    triggers = folder.phrases(body, file)
    description = body.get("description", "")
    if not isinstance(description, str):
        folder.add(file, "`description` is not text", near="description")
        description = ""
    parts = folder.strings(body.get("parts", []), file, "parts")
    if "parts" in body and not parts:
        folder.add(file, "`parts` names nothing, so no capability is meant", near="parts")
        return None
    files = folder.strings(body.get("files", []), file, "files")
    edits = tool_edits(body, file, folder)
    if not triggers and not description.strip() and not files and not edits:
        if EDITS not in body:
            folder.add(file, "neither `triggers` nor `description` nor `files` nor `tool`")
        return None
    return AddedWords(name, triggers, description.strip(), frozenset(parts), files, edits)


def _report_foreign(
    table: Mapping[str, Any], known: frozenset[str], file: str, folder: TomlFolder
) -> None:
    for key in table:
        if key not in known:
            folder.add(file, f"`{key}` is not a key of an overlay: left out", near=key)


def _unmatched(overlay: Overlay, tap: Tap) -> list[Finding]:
    capabilities = {capability.id.name: capability for capability in tap.capabilities}
    findings = []
    for words in overlay.words:
        capability = capabilities.get(words.name)
        if capability is None:
            reason = f"{tap.name} has no capability {words.name!r}"
        elif not words.are_of(capability):
            parts = ", ".join(sorted(words.parts))
            reason = f"{capability.id} has none of {parts}: it stays as it is"
        else:
            continue
        path = f"{overlay.path}/capabilities/{words.name}.toml"
        findings.append(Finding(path, 0, reason, "warning"))
    return findings


def _with_words(tap: Tap, overlay: Overlay) -> Tap:
    by_name = {words.name: words for words in overlay.words}
    reads = []
    for read in tap.reads:
        words = by_name.get(read.name)
        capability = read.capability
        if words is None or capability is None or not words.are_of(capability):
            reads.append(read)
        else:
            reads.append(replace(read, capability=_said_more(capability, words)))
    return replace(tap, reads=tuple(reads))


def _said_more(capability: CapabilitySpec, words: AddedWords) -> CapabilitySpec:
    return msgspec.structs.replace(
        capability,
        extra_triggers=(*capability.extra_triggers, *lacking(capability, words.triggers)),
        extra_description=capability.extra_description or words.description,
        files=tuple(dict.fromkeys((*capability.files, *words.files))),
    )


def _servers(tap: Tap) -> Iterable[ServerSpec]:
    return (server for each in tap.capabilities for server in each.servers)


class _Edits:
    """How the tools of each server are edited; equal definitions are the same server.

    For a tool with several edits, the one of the first overlay counts, or else that of the first
    tap that defines the server. Other taps cannot edit the server's tools.
    """

    def __init__(self) -> None:
        self.findings: list[Finding] = []
        self._edits: dict[ServerIdentity, dict[ToolName, ToolEdit]] = {}
        self._owners: dict[ServerIdentity, TapName] = {}

    @property
    def has_any(self) -> bool:
        """Whether any tool is edited."""
        return bool(self._edits)

    def take_overlay(self, overlay: Overlay, tap: Tap) -> None:
        """Add an overlay's edits of tools, for the servers of a tap."""
        capabilities = {capability.id.name: capability for capability in tap.capabilities}
        for words in overlay.words:
            capability = capabilities.get(words.name)
            if capability is None or not words.are_of(capability):
                continue
            servers = {server.name: server for server in capability.servers}
            for edit in words.edits:
                server = servers.get(edit.server)
                if server is None:
                    self._add(edit, f"{capability.id} has no server {edit.server!r}")
                else:
                    self._take(server, edit)

    def take_tap(self, tap: Tap) -> None:
        """Add a tap's own edits of tools, for those of its servers that no earlier tap defines."""
        for server in _servers(tap):
            owner = self._owners.setdefault(server_identity(server), tap.name)
            for its_edit in server.edits:
                edit = msgspec.structs.replace(its_edit, file=f"{tap.path}/{its_edit.file}")
                if owner == tap.name:
                    self._take(server, edit)
                else:
                    self._add(edit, f"tap {owner} has the same server, and comes first")

    def put_into(self, tap: Tap) -> Tap:
        """Return a tap whose servers' definitions include all edits of their tools."""
        reads = (
            read if (it := read.capability) is None else replace(read, capability=self._put(it))
            for read in tap.reads
        )
        return replace(tap, reads=tuple(reads))

    def _put(self, capability: CapabilitySpec) -> CapabilitySpec:
        servers = tuple(self._edited(server) for server in capability.servers)
        if servers == capability.servers:
            return capability
        return msgspec.structs.replace(capability, servers=servers)

    def _edited(self, server: ServerSpec) -> ServerSpec:
        edits = self._edits.get(server_identity(server), {}).values()
        named = tuple(msgspec.structs.replace(edit, server=server.name) for edit in edits)
        return server if named == server.edits else msgspec.structs.replace(server, edits=named)

    def _take(self, server: ServerSpec, edit: ToolEdit) -> None:
        of_server = self._edits.setdefault(server_identity(server), {})
        first = of_server.setdefault(edit.tool, edit)
        same = msgspec.structs.replace(edit, file=first.file, server=first.server)
        if same != first:
            self._add(edit, f"{first.file} edits this tool, and comes first")

    def _add(self, edit: ToolEdit, reason: str) -> None:
        text = f'{EDITS}."{edit.server}:{edit.tool}": {reason}: the edit changes nothing'
        self.findings.append(Finding(edit.file, 0, text, "warning"))
