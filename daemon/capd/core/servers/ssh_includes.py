"""Finds the `Include` patterns in the text of an `ssh` configuration (ssh_config(5))."""

import shlex

MOST_BYTES = 1 << 16


def included(text: str) -> list[str]:
    """Return the patterns of all `Include` lines in `text`, in their order."""
    found: list[str] = []
    for line in text[:MOST_BYTES].splitlines():
        keyword, _, rest = line.strip().replace("=", " ", 1).replace("\t", " ").partition(" ")
        if keyword.lower() != "include":
            continue
        try:
            found += shlex.split(rest, comments=True)
        except ValueError:
            continue
    return found
