"""Reads a settings file and keeps its last good state: a bad file is reported and changes nothing.

    read ──good─────────────────> in use, and saved for the next start
      ├────may be half written──> the last good one stays, until the file is stable
      └────bad──────────────────> the last good one stays; without one, none is in use

The saved copy is in the daemon's state folder. A daemon that started without the user's policy
because of a typing error would be worse than one with an old setting.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from capd.adapters.private_files import write_whole
from capd.adapters.regular_files import settings_text
from capd.core.settings.layers import Layer, UnusableError
from capd.core.settings.partial_writes import STABLE_SECONDS, StabilityTimer, is_doubtful


def age_of(path: Path) -> float:
    """Return the seconds since a file was last changed or removed; 0 if that is unknown."""
    for place in (path, *path.parents):
        with suppress(OSError):
            status = place.stat()
            # A file's ctime, because programs can set its mtime. A folder's mtime changes with its
            # entries.
            changed_at = status.st_ctime if place == path else status.st_mtime
            return max(0.0, time.time() - changed_at)
    return 0.0


class LastGoodFile:
    """One settings file, in its last good state."""

    def __init__(
        self,
        file: Path,
        read: Callable[[str], Layer],
        *,
        kept: Path | None = None,
        clock: Callable[[], float] = time.monotonic,
        age: Callable[[Path], float] = age_of,
    ) -> None:
        """Note the settings file `file`, which `load` reads; `read` parses its text.

        The last good text is saved in the file `kept`, if that is given. `age` returns the seconds
        since a file's last change, and `clock` the time in seconds.
        """
        self.file = file
        self.layer: Layer | None = None
        """The settings in use; None if there are none."""
        self.problem = ""
        """Why the file is not used in its present state; empty if it is used."""
        self.wait = 0.0
        """Seconds after which a file that may be half written has to be read again; 0 for never."""
        self._read = read
        self._kept = kept
        self._clock = clock
        self._age = age
        self._stability = StabilityTimer()
        self._is_begun = False
        self._text: str | None = None
        """The text in the file `kept`; None if none was saved."""

    def load(self) -> None:
        """Read the settings file again. If it cannot be used, the last good state stays in use."""
        if not self._is_begun:
            self._is_begun = True
            self._recall()
        self.wait = 0.0
        text: str | None = None
        try:
            text = settings_text(self.file)
            layer: Layer | None = self._read(text)
        except FileNotFoundError:
            layer = None
        except UnusableError as error:
            self._refuse(str(error))
            return
        except (OSError, ValueError) as error:
            self._refuse(getattr(error, "strerror", None) or str(error))
            return
        before = self.layer.tables if self.layer is not None else {}
        if is_doubtful(before, layer.tables if layer is not None else {}, text):
            self.wait = self._stability.wait(text, self._clock(), self._age(self.file))
        if self.wait:
            what = "is gone" if text is None else "lacks what was in it"
            self.problem = (
                f"{self.file} is not used yet: it {what}, as while it is being saved (its last "
                f"good state stays in use until it has stayed so for {STABLE_SECONDS:g} s)"
            )
            return
        self._stability.forget()
        self.layer, self.problem = layer, ""
        self._keep(text)

    def _recall(self) -> None:
        """Start with the last good state of an earlier daemon."""
        if self._kept is None:
            return
        with suppress(OSError, ValueError, UnusableError):
            text = self._kept.read_text(encoding="utf-8")
            self.layer, self._text = self._read(text), text

    def _refuse(self, reason: str) -> None:
        self._stability.forget()
        used = "its last good state stays in use" if self.layer is not None else "the defaults are"
        self.problem = f"{self.file} is not used: {reason} ({used})"

    def _keep(self, text: str | None) -> None:
        if self._kept is None or (text == self._text and (text is None or self._kept.exists())):
            return
        # A failed copy matters only if the file is bad when the next daemon starts.
        with suppress(OSError):
            if text is None:
                self._kept.unlink(missing_ok=True)
                self._text = None
                return
            write_whole(self._kept, text.encode(), has_other_writers=True)
            self._text = text
