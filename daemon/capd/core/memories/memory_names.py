"""Names of memories: the names of their files, which a person types."""

import unicodedata
from collections.abc import Container

from capd.core.lazy_patterns import lazy_pattern

LONGEST = 100
_LONGEST_MADE = 40
_NAME = lazy_pattern(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_OTHER = lazy_pattern(r"[^a-z0-9]+")


def is_name(name: str) -> bool:
    """Tell whether `name` is valid: 1 to 100 of A-Z a-z 0-9 . _ -, not beginning with . _ -."""
    return _NAME.fullmatch(name) is not None


def made_name(content: str, taken: Container[str]) -> str:
    """Return a name that is not in `taken`, made of the first words of `content`."""
    plain = unicodedata.normalize("NFKD", content).encode("ascii", "ignore").decode().lower()
    words = _OTHER.sub("-", plain).strip("-")[:_LONGEST_MADE].rsplit("-", 1)
    # The last word may be cut in its middle.
    first = words[0] if len(words) == 1 or len(plain) > _LONGEST_MADE else "-".join(words)
    name = first.strip("-") or "memory"
    number = 2
    found = name
    while found in taken:
        found = f"{name}-{number}"
        number += 1
    return found
