"""Decides when a changed settings file is used: at once, or after it has not changed for a while.

Many editors save in place: they truncate the file and write it again. A reader in between sees an
empty file or the first half, and both may be valid TOML that forbids less than before.

    new text adds or changes keys ─────────────────────> used at once
    new text lacks something of the last good state ───> waits ──same for STABLE_SECONDS──> used
    last line of the new text has no line end ─────────> waits ──same for STABLE_SECONDS──> used
    file empty or gone, but had content before ────────> waits ──same for STABLE_SECONDS──> used
"""

from collections.abc import Mapping, Sequence
from typing import Any

STABLE_SECONDS = 2.0
"""Seconds for which a state that may be half written must stay the same."""


def is_doubtful(before: Mapping[str, Any], after: Mapping[str, Any], text: str | None) -> bool:
    """Tell whether a changed settings file may still be in the middle of being written.

    `before` are its last good settings, `after` those in its present `text`, which is None if there
    is no file.
    """
    if not before or before == after:
        return False
    # A last line without a line end may contain half a number.
    is_cut = text is not None and bool(text) and not text.endswith(("\n", "\r"))
    return is_cut or lacks(before, after)


def lacks(before: Any, after: Any) -> bool:
    """Tell whether `after` lacks a key, or an item of a list, of `before`."""
    if isinstance(before, Mapping):
        if not isinstance(after, Mapping):
            return True
        return any(key not in after or lacks(each, after[key]) for key, each in before.items())
    if isinstance(before, Sequence) and not isinstance(before, str):
        if not isinstance(after, Sequence) or isinstance(after, str):
            return True
        return any(each not in after for each in before)
    return False


class StabilityTimer:
    """The state in which a file was last seen, and since when it has been the same."""

    def __init__(self) -> None:
        self._seen: tuple[str | None] | None = None
        self._since = 0.0

    def wait(self, text: str | None, now: float, still_for: float = 0.0) -> float:
        """Return the seconds for which a file's `text` still has to stay the same to be used, or 0.

        `still_for` is the number of seconds for which it has been the same already, according to
        the disk; 0 if that is not known.
        """
        if self._seen != (text,) or now < self._since:
            self._seen, self._since = (text,), now
        since = min(self._since, now - still_for)
        return max(0.0, since + STABLE_SECONDS - now)

    def forget(self) -> None:
        """Forget the last state, because it was used or cannot be read."""
        self._seen = None
