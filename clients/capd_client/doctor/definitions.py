"""Checks what capabilities need: secrets, exact versions of packages, a recent Node.js.

None of these is a fault of capd. Because of each, a server may fail to start, or its next start may
run another version of the server.
"""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from capd_client.doctor.environment import CheckContext
from capd_client.doctor.findings import Finding

Version = tuple[int, int, int]
_VERSION = re.compile(r"v?(\d+)(?:\.(\d+|[x*]))?(?:\.(\d+|[x*]))?(?:[-+].*)?")
_COMPARATOR = re.compile(r"(>=|<=|>|<|=|\^|~)?\s*(v?\d[^\s]*)")
_NAMED = 5
_TIMEOUT = 10.0


def is_within(version: str, wanted: str) -> bool:
    """Tell whether `version` is in the npm version range `wanted`, such as `>=18 <21 || ^22.1`.

    A version or a range that cannot be parsed counts as met: in doubt, nothing is reported.
    """
    match = _VERSION.fullmatch(version.strip())
    if match is None:
        return True
    found = _bottom(match)
    return any(_meets_all(found, each.strip()) for each in wanted.split("||"))


def _meets_all(found: Version, wanted: str) -> bool:
    low, dash, high = wanted.partition(" - ")
    if dash:
        return _meets_all(found, f">={low} <={high}")
    return all(_meets(found, *each.groups("")) for each in _COMPARATOR.finditer(wanted))


def _meets(found: Version, sign: str, text: str) -> bool:
    match = _VERSION.fullmatch(text)
    if match is None:
        return True
    bottom, top = _bottom(match), _top(match, sign)
    match sign:
        case ">=":
            return found >= bottom
        case ">":
            return found >= top
        case "<":
            return found < bottom
        case "<=":
            return found < top
    return bottom <= found < top


def _bottom(match: re.Match[str]) -> Version:
    major, minor, patch = (int(part) if part and part.isdigit() else 0 for part in match.groups())
    return major, minor, patch


def _top(match: re.Match[str], sign: str) -> Version:
    """Return the lowest version above the range that `match` and `sign` stand for.

    `match` is a version, and `sign` the sign before it. `^1.2` ends at 2.0.0, `^0.2.3` at 0.3.0,
    `^0.0.3` at 0.0.4, `~1.2.3` at 1.3.0, and `1.2` without a sign at 1.3.0.
    """
    major, minor, patch = _bottom(match)
    is_minor, is_patch = (bool(part) and part.isdigit() for part in match.groups("")[1:])
    if sign == "^" and (major or not is_minor):
        return major + 1, 0, 0
    if not is_minor:
        return major + 1, 0, 0
    if not is_patch or sign == "~" or (sign == "^" and minor):
        return major, minor + 1, 0
    return major, minor, patch + 1


def check_secrets(seen: CheckContext) -> Iterator[Finding]:
    """Yield the keys that capabilities ask for and that have no value; no value is shown."""
    wanted: dict[str, list[str]] = {}
    for capability in seen.capabilities:
        for key in capability.get("missing") or []:
            wanted.setdefault(key, []).append(f"{capability['tap']}/{capability['name']}")
    for key, names in sorted(wanted.items())[:_NAMED]:
        yield Finding(
            "secrets",
            "note",
            f"{key} has no value; wanted by {some(names)}",
            fix=f"capd secret set {key}, or start the editor with it",
        )
    if len(wanted) > _NAMED:
        more = len(wanted) - _NAMED
        yield Finding("secrets", "note", f"{more} further ones are missing (`capd secret list`)")
    if seen.capabilities and not wanted:
        yield Finding("secrets", "ok", "every secret that a capability asks for has a value")


def check_packages(seen: CheckContext) -> Iterator[Finding]:
    """Yield the packages that are started without an exact version."""
    users: dict[str, list[str]] = {}
    for capability in seen.capabilities:
        for package in capability.get("unpinned") or []:
            users.setdefault(package, []).append(f"{capability['tap']}/{capability['name']}")
    if users:
        named = "; ".join(f"{name} ({some(of)})" for name, of in sorted(users.items())[:_NAMED])
        more = f"; and {len(users) - _NAMED} more" if len(users) > _NAMED else ""
        yield Finding(
            "packages",
            "note",
            f"without an exact version, so each start may run other code: {named}{more}",
            fix="write NAME@1.2.3 (npx) or NAME==1.2.3 (uvx); `capd check` has the lines",
        )
    elif seen.capabilities:
        yield Finding("packages", "ok", "every package of a capability has an exact version")


def check_node(seen: CheckContext) -> Iterator[Finding]:
    """Compare Node.js with the version that packages in the cache of npx require."""
    node = shutil.which("node", path=seen.search_path)
    wanted = {
        package: some([f"{each['tap']}/{each['name']}" for each in users])
        for package, users in _npm_users(seen.capabilities).items()
    }
    if node is None or not wanted:
        return
    version = _version(node)
    for package, needs in _fetched(seen):
        if package in wanted and version and not is_within(version, needs):
            yield Finding(
                "node",
                "error",
                f"{package} needs node {needs}, and {node} is {version}; wanted by"
                f" {wanted[package]}",
                "its server cannot start, or fails where it uses what is newer",
                "install a Node.js of that version (nodejs.org, or your version manager)",
            )


def some(names: Sequence[str]) -> str:
    """Return the first of `names` as a text, with the number of the others: `a, b and 3 more`."""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}"


def _npm_users(capabilities: Sequence[Any]) -> dict[str, list[Any]]:
    users: dict[str, list[Any]] = {}
    for capability in capabilities:
        for package in capability.get("npm_packages") or []:
            users.setdefault(package, []).append(capability)
    return users


def _fetched(seen: CheckContext) -> Iterator[tuple[str, str]]:
    """Yield each package in the cache of npx, with the range of Node.js that it requires."""
    home = seen.env.get("HOME") or Path.home()
    cache = Path(seen.env.get("npm_config_cache") or Path(home, ".npm"), "_npx")
    for manifest in sorted(cache.glob("*/package.json")):
        for package in _read(manifest).get("dependencies") or {}:
            of = _read(manifest.parent / "node_modules" / package / "package.json")
            needs = (of.get("engines") or {}).get("node")
            if isinstance(needs, str):
                yield package, needs


def _read(manifest: Path) -> dict[str, Any]:
    try:
        found = json.loads(manifest.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _version(node: str) -> str:
    try:
        done = subprocess.run(
            [node, "--version"],
            # In the current folder a version manager would read that folder's settings.
            cwd="/",
            env={"PATH": os.path.dirname(node)},  # noqa: PTH120 - of a string, back to one
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TIMEOUT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode(errors="replace").strip()
