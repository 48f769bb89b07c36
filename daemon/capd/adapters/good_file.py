"""A file of settings with its last good state: a bad one is said, and changes nothing.

    read ──good──> in use, and kept for the next start
      └──bad───> the last good one stays in use; where there was none, none

The copy is kept beside the daemon's state, since a daemon that started without the user's policy
because of a typo would be worse than one with an old setting.
"""

import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from capd.adapters.regular_files import opened_regular, read_up_to
from capd.core.settings.layers import Layer, UnusableError

MOST_BYTES = 1 << 20


class GoodFile:
    """One file, as it was good last."""

    def __init__(
        self, file: Path, read: Callable[[str], Layer], *, kept: Path | None = None
    ) -> None:
        """`read` takes a text; `kept` is where the last good text is written down."""
        self.file = file
        self.layer: Layer | None = None
        self.problem = ""
        self._read = read
        self._kept = kept

    def load(self) -> None:
        """Read the file."""
        try:
            with opened_regular(self.file) as (descriptor, _):
                text = read_up_to(descriptor, MOST_BYTES).decode()
        except FileNotFoundError:
            self.layer, self.problem = None, ""
            self._keep(None)
            return
        except (OSError, ValueError) as error:
            self._refuse(getattr(error, "strerror", None) or str(error))
            return
        try:
            self.layer, self.problem = self._read(text), ""
        except UnusableError as error:
            self._refuse(str(error))
        else:
            self._keep(text)

    def _refuse(self, reason: str) -> None:
        if self.layer is None and self._kept is not None:
            with suppress(OSError, ValueError, UnusableError):
                self.layer = self._read(self._kept.read_text(encoding="utf-8"))
        used = "its last good state stays in use" if self.layer is not None else "the defaults are"
        self.problem = f"{self.file} is not used: {reason} ({used})"

    def _keep(self, text: str | None) -> None:
        if self._kept is None:
            return
        # What cannot be kept costs the next start at worst.
        with suppress(OSError):
            if text is None:
                self._kept.unlink(missing_ok=True)
                return
            self._kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor, temporary = tempfile.mkstemp(dir=self._kept.parent)
            try:
                # mkstemp makes it 0600.
                with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                    file.write(text)
                Path(temporary).replace(self._kept)
            except OSError:
                Path(temporary).unlink()
