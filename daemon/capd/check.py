"""`python -m capd check [PATH] [--json]`: finds mistakes in taps, overlays and settings.

A tap is a folder of capabilities and skills, and an overlay is a folder of additions to them. Each
finding has a file, a line and a reason. Without PATH, the command checks the settings, every tap of
the user's list, the starter tap that comes with capd, all overlays and the user's own memories.
With PATH it checks the tap or the overlay in that folder. All providers of a capability (its
alternative implementations) are checked, not only the selected one. No server is started and the
network is not used: a server's tools are taken from its last run.
"""

import json
import os
import re
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import SystemRandom
from typing import Literal

import msgspec
import trio

from capd.adapters.live_settings import LiveSettings
from capd.adapters.memory_files import read_memories
from capd.adapters.model.minilm import ModelUnusableError
from capd.adapters.overlay_files import read_overlay_folder, read_overlays
from capd.adapters.parsing.jobs import DIRECT, ReadCapability, Reader
from capd.adapters.parsing.parser import Parser
from capd.adapters.tap_files import (
    TapPlace,
    TapUnreadableError,
    capability_files,
    is_own,
    read_tap,
    starter_place,
    tap_places,
    tap_vectors,
)
from capd.adapters.tool_lists import ToolLists
from capd.core.memories.memory_format import OWN
from capd.core.servers.identity import server_identity
from capd.core.taps.catalog import Catalog, Tap
from capd.core.taps.overlays import OVERLAY_FILE, overlaid
from capd.core.taps.required_scripts import missing_scripts
from capd.core.taps.tap_format import (
    CapabilityFiles,
    CapabilityRead,
    provider_names,
)
from capd.core.taps.tap_vectors import FILE as VECTORS
from capd.core.taps.unmatched_filters import (
    ToolsOfServers,
    unapplied_edits,
    unknown_capabilities,
    unmatched_filters,
)
from capd.tap_build import embedded, phrases
from capd_protos.types import Finding, TapName

USAGE = "usage: capd check [PATH] [--json]"
FAILED = 1
WRONG_USAGE = 2
SCHEMA = 1
SAMPLE = 16
"""How many of a tap's vectors are computed again and compared."""
ALIKE = 0.99
"""The cosine from which two vectors of one text count as the same. The same model on another
machine gives more than 0.9999."""


@dataclass(slots=True)
class Report:
    """The taps that were checked, and the findings."""

    taps: list[Tap] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    @property
    def errors(self) -> int:
        """The number of findings that are errors. An error may exclude a capability from use."""
        return sum(finding.severity == "error" for finding in self.findings)


def main(
    arguments: Sequence[str],
    config: Path,
    cache: Path | None = None,
    memories: Path | None = None,
) -> int:
    """Check what `arguments` name, and print all findings.

    Return the exit code: 0 without errors, 1 with errors, 2 if the arguments are wrong.
    `config`, `cache` and `memories` are the folders of the user's settings, caches and memories.
    """
    paths = [Path(argument) for argument in arguments if argument != "--json"]
    if len(paths) > 1 or any(str(path).startswith("-") for path in paths):
        sys.stderr.write(USAGE + "\n")
        return WRONG_USAGE
    report = Report()
    parser = Parser()
    try:
        if paths and (paths[0] / OVERLAY_FILE).exists():
            report.findings += read_overlay_folder(paths[0], parser.reading()).findings
        else:
            list_file = config / "taps.toml"
            _check_taps(report, paths[0] if paths else None, list_file, cache, parser)
    finally:
        parser.close()
    if not paths:
        report.findings += _of_settings(config)
    if not paths and memories is not None:
        report.findings += _of_memories(memories)
    sys.stdout.write(_document(report) if "--json" in arguments else _text(report))
    return FAILED if report.errors else 0


def _check_taps(
    report: Report, path: Path | None, list_file: Path, cache: Path | None, parser: Parser
) -> None:
    """Add the tap at `path` to `report`, with its mistakes.

    Without `path`, all installed taps are added, and the overlays are checked as well. `list_file`
    is the user's list of taps. `cache` is capd's cache folder, which has the tools that servers
    listed in their last runs; without it they are unknown. `parser` reads the files of strangers.
    """

    def reader_of(place: TapPlace) -> Reader:
        return DIRECT if is_own(place, list_file) else parser.reading()

    of_list = Report()
    installed = [
        (place, tap)
        for place in _installed(of_list, list_file)
        if (tap := _read(of_list, place, reader_of(place))) is not None
    ]
    checked = installed
    if path is None:
        report.findings += of_list.findings
    else:
        place = TapPlace(TapName(path.resolve().name), path)
        tap = _read(report, place, parser.reading())
        checked = [] if tap is None else [(place, tap)]
        # Checked together with the installed taps, because its skills may need their capabilities.
        others = [each for each in installed if each[0].name != place.name]
        installed = [*checked, *others]
    catalog = Catalog(tap for _, tap in installed)
    for place, tap in checked:
        report.taps.append(tap)
        report.findings += _of_tap(place, tap, catalog, cache, parser.reading())
    taps = [tap for _, tap in checked]
    overlays = read_overlays(list_file, parser.reading(), taps=taps) if path is None else []
    said_more = overlaid(taps, overlays)
    report.findings += said_more.findings
    for tap in said_more.taps:
        report.findings += unapplied_edits(tap, _known_tools(tap, cache))


def _of_settings(config: Path) -> list[Finding]:
    """Return the mistakes in config.toml, clients.toml and the `CAPD_*` environment variables."""
    settings = LiveSettings(config, os.environ, None)
    settings.load()
    return [_of_setting(config, problem) for problem in settings.problems]


def _of_setting(config: Path, problem: str) -> Finding:
    # An unknown key is ignored; with any other mistake, something is left out.
    severity: Literal["error", "warning"] = "warning" if "unknown key" in problem else "error"
    found = re.fullmatch(
        rf"({re.escape(str(config))}/[^:]+?):?(?: line (\d+):)? (.*)", problem, re.DOTALL
    )
    if found is None:
        return Finding("the environment", 0, problem, severity)
    return Finding(found[1], int(found[2] or 0), found[3], severity)


def _of_memories(folder: Path) -> list[Finding]:
    """Return the mistakes in the user's own memories."""
    reads, findings = read_memories(OWN, folder)
    found = (*findings, *(each for read in reads for each in read.findings))
    return [msgspec.structs.replace(each, path=f"{folder.parent}/{each.path}") for each in found]


def _installed(report: Report, list_file: Path) -> list[TapPlace]:
    try:
        return tap_places(list_file)
    except TapUnreadableError as error:
        report.findings.append(Finding(str(list_file), 0, str(error)))
        return [starter_place()]


def _read(report: Report, place: TapPlace, reader: Reader) -> Tap | None:
    try:
        return read_tap(place, reader)
    except TapUnreadableError as error:
        report.findings.append(Finding(str(place.path), 0, str(error)))
        return None


def _of_tap(
    place: TapPlace, tap: Tap, catalog: Catalog, cache: Path | None, reader: Reader
) -> list[Finding]:
    files = {each.name: each for each in capability_files(place)}
    others = [read for each in files.values() for read in _other_providers(place, each, reader)]
    whole = replace(tap, reads=(*tap.reads, *others))
    findings = list(whole.findings)
    for name, reason in tap.unroutable.items():
        folder = f"capabilities/{name}"
        if not any(finding.path.startswith(f"{folder}/") for finding in findings):
            findings.append(Finding(folder, 0, f"not routable: {reason}", "warning"))
    findings += missing_scripts(whole, lambda command: shutil.which(command) is not None)
    lists = _known_tools(whole, cache)
    tools = {identity: [tool.name for tool in listed] for identity, listed in lists.items()}
    for capability in whole.capabilities:
        findings += unmatched_filters(files[capability.id.name], capability, tools)
    findings += unknown_capabilities(tap, catalog)
    findings += _of_vectors(tap)
    return [
        Finding(f"{tap.path}/{finding.path}", finding.line, finding.reason, finding.severity)
        for finding in dict.fromkeys(findings)
    ]


def _of_vectors(tap: Tap) -> list[Finding]:
    """Compare a sample of the vectors that a tap ships with those that the model computes.

    Return a finding for each problem.
    """
    vectors = tap_vectors(tap)
    if vectors is None:
        return []
    texts = phrases(tap)
    shipped = vectors.of(texts)
    findings = []
    if missing := len(texts) - len(shipped):
        why = f"{missing} of {len(texts)} phrases have no vector in it: `capd tap build` adds them"
        findings.append(Finding(VECTORS, 0, why, "warning"))
    # Chosen at random, so that nobody can know in advance which vectors are checked.
    sample = SystemRandom().sample(sorted(shipped), min(SAMPLE, len(shipped)))
    try:
        own = embedded(sample, {})
    except ModelUnusableError as error:
        return [*findings, Finding(VECTORS, 0, f"not compared with the model: {error}", "warning")]
    wrong = [text for text in sample if float(own[text] @ shipped[text]) < ALIKE]
    if wrong:
        why = f"its vector of {wrong[0]!r} is not what the model says: `capd tap build` repairs it"
        findings.append(Finding(VECTORS, 0, why))
    return findings


def _other_providers(
    place: TapPlace, files: CapabilityFiles, reader: Reader
) -> list[CapabilityRead]:
    """Read the capability in `files` once for each provider that has a file of its own.

    A provider is one implementation of a capability, such as `<provider>.toml`. `default.toml` and
    files that only name another provider are not read.
    """
    return [
        reader.read(ReadCapability(place.name, files.name, files.path, files.texts, name))
        for name in provider_names(files)
    ]


def _known_tools(tap: Tap, cache: Path | None) -> ToolsOfServers:
    if cache is None:
        return {}
    servers = {server_identity(server) for c in tap.capabilities for server in c.servers}
    lists = trio.run(ToolLists(cache / "tools").load_all, sorted(servers))
    return {identity: kept.tools for identity, kept in lists.items()}


def _document(report: Report) -> str:
    document = {
        "schema": SCHEMA,
        "taps": [
            {
                "name": tap.name,
                "path": tap.path,
                "routable": len(tap.capabilities),
                "unroutable": tap.unroutable,
                "skills": len(tap.skills),
                "memories": len(tap.memories),
            }
            for tap in report.taps
        ],
        "findings": msgspec.to_builtins(report.findings),
        "errors": report.errors,
        "warnings": len(report.findings) - report.errors,
    }
    return json.dumps(document, indent=2) + "\n"


def _text(report: Report) -> str:
    lines = [_line(finding) for finding in report.findings]
    for tap in report.taps:
        reasons = ", ".join(sorted(set(tap.unroutable.values())))
        unroutable = f", {len(tap.unroutable)} not ({reasons})" if tap.unroutable else ""
        skills = f", {_count(len(tap.skills), 'skill')}" if tap.skills else ""
        memories = f", {len(tap.memories)} memor{'y' if len(tap.memories) == 1 else 'ies'}"
        memories = memories if tap.memories else ""
        lines.append(f"{tap.name}: {len(tap.capabilities)} routable{unroutable}{skills}{memories}")
    warnings = len(report.findings) - report.errors
    lines.append(f"{_count(report.errors, 'error')}, {_count(warnings, 'warning')}")
    # Escape control characters, because others have written the tap.
    return "".join(f"{_printable(line)}\n" for line in lines)


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _line(finding: Finding) -> str:
    where = f"{finding.path}:{finding.line}" if finding.line else finding.path
    return f"{where}: {finding.severity}: {finding.reason}"


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
