"""Removes empty objects and arrays that capd created in JSON with comments."""

from capd_client.install.jsonc import Path, find, parse
from capd_client.install.jsonc_edits import take


def prune(text: str, path: Path, original: str | None) -> str:
    """Return `text` without the containers along `path` that are empty and not in `original`.

    If `original` is None, the text before capd is not known. Then an empty container stays, because
    it may be the user's.

    Raises:
        JsoncError: one of the texts is not JSON.
    """
    if original is None:
        return text
    known = parse(original) if original.strip() else None
    for depth in range(len(path), 0, -1):
        container = find(parse(text), path[:depth])
        if container is None:
            continue
        was_there = known is not None and find(known, path[:depth]) is not None
        if container.value or was_there:
            break
        text = take(text, path[:depth])
    return text
