"""`capd doctor`: finds what is wrong around capd, and says how to repair it."""

import os
from collections import Counter
from collections.abc import Iterable

import click

from capd_client import tables
from capd_client.commands.shared import EXIT_DEGRADED, EXIT_FAILED, print_json
from capd_client.terminal import width, wrapped

_MARKS = {"ok": "ok      ", "note": "note    ", "warning": "WARNING ", "error": "ERROR   "}
_COLOURS = {"ok": "green", "note": "cyan", "warning": "yellow", "error": "red"}
_EXITS = {"ok": 0, "note": 0, "warning": EXIT_DEGRADED, "error": EXIT_FAILED}


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def doctor(*, as_json: bool) -> None:
    """Check everything that capd depends on; exit code 1 on errors, 4 on warnings only."""
    # Imported here, because no other command uses them.
    from capd_client.doctor.checks import run_checks  # noqa: PLC0415
    from capd_client.doctor.environment import read_context  # noqa: PLC0415
    from capd_client.doctor.findings import Finding, document, worst  # noqa: PLC0415

    findings: list[Finding] = []
    for finding in run_checks(read_context(os.environ, os.getuid())):
        findings.append(finding)
        if not as_json:
            # Printed as it is found: a shell's start-up files or a hanging daemon may take seconds.
            _say(finding.level, finding.check, finding.what, finding.why, finding.fix)
    if as_json:
        print_json(document(findings))
    else:
        _sum_up(finding.level for finding in findings)
    click.get_current_context().exit(_EXITS[worst(findings)])


def _say(level: str, check: str, what: str, why: str, fix: str) -> None:
    mark = _MARKS[level]
    is_plain = bool(os.environ.get("NO_COLOR"))
    coloured = mark if is_plain else click.style(mark, fg=_COLOURS[level])
    first, *others = wrapped(f"{check}: {what}", width() - len(mark), further="  ")
    click.echo(f"{coloured}{first}")
    for line in others:
        click.echo(f"{'':{len(mark)}}{line}")
    for name, text in (("why", why), ("fix", fix)):
        if text:
            tables.say(f"{'':{len(mark)}}{name}: {text}")


def _sum_up(levels: Iterable[str]) -> None:
    counted = Counter(levels)
    if counted["error"] or counted["warning"]:
        click.echo(f"\nerrors: {counted['error']}, warnings: {counted['warning']}")
    else:
        click.echo("\nnothing is wrong")


COMMANDS = {"doctor": doctor}
