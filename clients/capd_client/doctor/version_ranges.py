"""Ranges of versions as package.json writes them in `engines`, as far as these are written there.

What cannot be read counts as kept: a doctor that is in doubt does not accuse.
"""

import re

Version = tuple[int, int, int]

_VERSION = re.compile(r"v?(\d+)(?:\.(\d+|[x*]))?(?:\.(\d+|[x*]))?(?:[-+].*)?")
_COMPARATOR = re.compile(r"(>=|<=|>|<|=|\^|~)?\s*(v?\d[^\s]*)")


def is_within(version: str, wanted: str) -> bool:
    """Tell whether `version` is in the range `wanted`."""
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
    """Return the first version that is beyond what was written."""
    major, minor, patch = _bottom(match)
    is_minor, is_patch = (bool(part) and part.isdigit() for part in match.groups("")[1:])
    if sign == "^" and (major or not is_minor):
        return major + 1, 0, 0
    if not is_minor:
        return major + 1, 0, 0
    if not is_patch or sign in {"~", "^"}:
        return major, minor + 1, 0
    return major, minor, patch + 1
