"""`python -m capd check [PATH]`: each broken item of taps and overlays, with file, line, reason.

Without PATH: every tap of the user's list, the starter tap and all overlays. With it: the tap, or
the overlay, in that folder. Nothing is started and the network is not touched.
"""

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from capd.adapters.overlay_files import read_overlay_folder, read_overlays
from capd.adapters.tap_files import (
    TapPlace,
    TapUnreadableError,
    read_tap,
    starter_place,
    tap_places,
)
from capd.core.taps.catalog import Tap
from capd.core.taps.overlays import OVERLAY_FILE, overlaid
from capd.core.taps.required_scripts import missing_scripts
from capd_protos.types import Finding, TapName

USAGE = "usage: capd check [PATH]"
FAILED = 1
WRONG_USAGE = 2


def main(arguments: Sequence[str], config: Path) -> int:
    """Print all findings; return 1 where one of them is an error."""
    paths = [Path(argument) for argument in arguments]
    if len(paths) > 1 or any(argument.startswith("-") for argument in arguments):
        sys.stderr.write(USAGE + "\n")
        return WRONG_USAGE
    findings = _of_folder(paths[0]) if paths else _of_everything(config / "taps.toml")
    for finding in findings:
        sys.stdout.write(_line(finding))
    errors = sum(finding.severity == "error" for finding in findings)
    sys.stdout.write(f"{errors} errors, {len(findings) - errors} warnings\n")
    return FAILED if errors else 0


def _of_everything(list_file: Path) -> list[Finding]:
    findings: list[Finding] = []
    try:
        places = tap_places(list_file)
    except TapUnreadableError as error:
        findings.append(Finding(str(list_file), 0, str(error)))
        places = [starter_place()]
    taps: list[Tap] = []
    for place in places:
        try:
            taps.append(read_tap(place))
        except TapUnreadableError as error:
            findings.append(Finding(str(place.path), 0, str(error)))
    for tap in taps:
        findings += _of_tap(tap)
    return [*findings, *overlaid(taps, read_overlays(list_file)).findings]


def _of_folder(folder: Path) -> list[Finding]:
    if (folder / OVERLAY_FILE).exists():
        return list(read_overlay_folder(folder).findings)
    try:
        return _of_tap(read_tap(TapPlace(TapName(folder.resolve().name), folder)))
    except TapUnreadableError as error:
        return [Finding(str(folder), 0, str(error))]


def _of_tap(tap: Tap) -> list[Finding]:
    findings = list(tap.findings)
    for name, reason in tap.unroutable.items():
        folder = f"capabilities/{name}"
        if not any(finding.path.startswith(f"{folder}/") for finding in findings):
            findings.append(Finding(folder, 0, f"not routable: {reason}", "warning"))
    findings += missing_scripts(tap, lambda command: shutil.which(command) is not None)
    return [
        Finding(f"{tap.path}/{finding.path}", finding.line, finding.reason, finding.severity)
        for finding in findings
    ]


def _line(finding: Finding) -> str:
    where = f"{finding.path}:{finding.line}" if finding.line else finding.path
    text = f"{where}: {finding.severity}: {finding.reason}"
    # A tap is somebody else's text: nothing of it may steer a terminal.
    return (
        "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text) + "\n"
    )
