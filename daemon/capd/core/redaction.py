"""Removes secrets from texts that leave the daemon: errors, logs, the status.

Known values are removed first: as they are, quoted for a URL, and in base64. Values under four
characters are left alone, because replacing them would spoil every text and hide nothing. A secret
that nobody declared is recognised only if its maker gave it a distinctive form.
"""

import base64
import re
from collections.abc import Callable, Iterable
from urllib.parse import quote

from capd.core.lazy_patterns import lazy_pattern

SHORTEST = 4
MARK = "[secret]"
SHORTEST_ANYWHERE = 8
"""A shorter value is removed only from the texts of its own server, not from all texts."""

_LOOKS = lazy_pattern(
    r"(?:"
    r"gh[pousr]_[A-Za-z0-9]{20,255}|github_pat_[A-Za-z0-9_]{20,255}|glpat-[A-Za-z0-9_-]{20,255}"
    r"|sk-[A-Za-z0-9_-]{20,255}|xox[abprs]-[A-Za-z0-9-]{10,255}|AKIA[0-9A-Z]{16}"
    r"|npm_[A-Za-z0-9]{30,255}|pypi-[A-Za-z0-9_-]{40,255}|AIza[A-Za-z0-9_-]{30,255}"
    r"|eyJ[A-Za-z0-9_-]{10,4000}\.[A-Za-z0-9_-]{10,4000}\.[A-Za-z0-9_-]{1,4000}"
    r")"
)
"""Tokens whose makers gave them a prefix: GitHub, GitLab, OpenAI and others, Slack, AWS, npm,
PyPI, Google, and JSON web tokens."""

_STORED_SECRETS = (
    lazy_pattern(r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----"),
    lazy_pattern(r"[a-z][a-z0-9+.-]{1,30}://[^\s/:@]{1,200}:[^\s/:@]{3,200}@", re.IGNORECASE),
    # A word for a secret, followed by a value that is no ordinary word.
    lazy_pattern(
        r"(?:passw(?:or)?d|passphrase|secret|token|api[_-]?key|authorization|bearer)"
        r"[\"'`]?\s{0,3}(?:[:=]|\s)\s{0,3}[\"'`]?"
        r"(?=[^\s\"'`]{0,200}\d)(?=[^\s\"'`]{0,200}[A-Za-z])[A-Za-z0-9+/_=.~-]{16,}",
        re.IGNORECASE,
    ),
    # Forty letters and digits of both cases are a key: paths and digests do not look like that.
    lazy_pattern(
        r"(?<![A-Za-z0-9+_-])(?=[A-Za-z0-9+_-]{0,200}[a-z])(?=[A-Za-z0-9+_-]{0,200}[A-Z])"
        r"(?=[A-Za-z0-9+_-]{0,200}\d)[A-Za-z0-9+_-]{40,}"
    ),
)
"""Other forms of secrets, for texts that are stored: known values are not removed from these."""


def redactor(values: Iterable[str]) -> Callable[[str], str]:
    """Return a function that replaces each of `values` in a text by `MARK`.

    A value is also found quoted for a URL and in base64. A value of fewer than `SHORTEST`
    characters is left alone.
    """
    forms: set[str] = set()
    for value in values:
        if len(value) < SHORTEST:
            continue
        encoded = value.encode("utf-8", "surrogatepass")
        forms |= {value, quote(encoded, safe=""), base64.b64encode(encoded).decode().rstrip("=")}
    # The longest first, because a secret may be part of another one.
    ordered = sorted(forms, key=len, reverse=True)

    def redacted(text: str) -> str:
        for form in ordered:
            text = text.replace(form, MARK)
        return text

    return redacted


def general_redactor(values: Iterable[str]) -> Callable[[str], str]:
    """Return a function for texts of all kinds: it removes `values`, and what looks like a token.

    Short values and paths are left alone, because ordinary texts are full of them.
    """
    redacted = redactor(v for v in values if len(v) >= SHORTEST_ANYWHERE and v[0] not in "/~")
    return lambda text: _LOOKS.sub(MARK, redacted(text))


def looks_secret(text: str) -> bool:
    """Tell whether a text contains something that looks like a secret, and must not be stored."""
    return any(pattern.search(text) for pattern in (_LOOKS, *_STORED_SECRETS))
