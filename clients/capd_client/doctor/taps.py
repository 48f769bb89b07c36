"""Checks for taps with problems, as the daemon loaded them or as the list of taps has them."""

from collections.abc import Iterator
from pathlib import Path

from capd_client.doctor.environment import CheckContext
from capd_client.doctor.findings import Finding
from capd_client.taps import TapError, TapList


def check_taps(seen: CheckContext) -> Iterator[Finding]:
    """Report taps that could not be loaded, and capabilities that are left out of one.

    Without a daemon, only the list of taps is checked.
    """
    if not seen.status:
        yield from _listed(seen)
        return
    for tap in seen.status.get("taps") or []:
        name, path = tap.get("name", "?"), tap.get("path", "")
        errors = [each for each in tap.get("findings") or [] if each.get("severity") == "error"]
        if tap.get("error"):
            yield Finding(
                "taps",
                "error",
                f"the tap {name} was not loaded in its present state",
                str(tap["error"]),
                f"correct it (`capd check {path}` has the lines), then `capd reload`",
            )
        elif errors:
            first = errors[0]
            yield Finding(
                "taps",
                "warning",
                f"{len(errors)} parts of the tap {name} are left out",
                f"the first: {first.get('path')}:{first.get('line')}: {first.get('reason')}",
                f"`capd check {path}` has them all; its author can correct them",
            )
        else:
            yield Finding("taps", "ok", f"{name}: {tap.get('routable', 0)} capabilities")


def _listed(seen: CheckContext) -> Iterator[Finding]:
    taps = TapList(seen.places.config)
    try:
        entries = taps.read()
    except TapError as error:
        what, _, fix = str(error).partition("\n")
        yield Finding("taps", "error", "the list of taps cannot be read", what, fix)
        return
    for entry in entries:
        if not Path(entry["path"], "capabilities").is_dir():
            yield Finding(
                "taps",
                "error",
                f"the tap {entry['name']} is not at {entry['path']}",
                "there is no folder `capabilities`",
                f"move it back, or run `capd tap remove {entry['name']}`",
            )
