"""Takes out the containers that capd made and nothing is left in."""

from capd_client.install.jsonc import Path, find, parse
from capd_client.install.jsonc_edits import take


def prune(text: str, path: Path, original: str | None) -> str:
    """Return `text` without what is empty at `path` and above, and was not in `original`.

    Where the original is not known, an empty container may be the user's, and stays.
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
