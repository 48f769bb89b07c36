"""Taking secrets out of texts that leave the daemon: errors, logs, the status (80, D7).

By value, for nothing else is known of them: the value as it is, quoted for a URL, and in base64.
Values under four characters are left alone; they would tear every text apart and hide nothing.
"""

import base64
from collections.abc import Callable, Iterable
from urllib.parse import quote

SHORTEST = 4
MARK = "[secret]"


def redactor(values: Iterable[str]) -> Callable[[str], str]:
    """Return a function that replaces every one of `values` in a text."""
    forms: set[str] = set()
    for value in values:
        if len(value) < SHORTEST:
            continue
        encoded = value.encode("utf-8", "surrogatepass")
        forms |= {value, quote(encoded, safe=""), base64.b64encode(encoded).decode().rstrip("=")}
    # The longest first: a secret may be a part of another.
    ordered = sorted(forms, key=len, reverse=True)

    def redacted(text: str) -> str:
        for form in ordered:
            text = text.replace(form, MARK)
        return text

    return redacted
