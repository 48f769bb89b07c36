"""Reads the TOML files of one folder, and collects findings.

Each part that is left out gives a finding with the file, the line if it is known, and the reason
(docs/design/catalog.md).
"""

import tomllib
from collections.abc import Mapping
from itertools import islice
from typing import Any

from capd.core.settings.toml_lines import line_of_error
from capd_protos.types import Finding, Severity

LARGEST_BYTES = 128 << 10
"""The most bytes of one file; ordinary files have two kilobytes."""
MOST_FINDINGS = 20
"""The most findings of one folder. The others are reported once these are repaired."""
MOST_TRIGGERS = 100
"""The most triggers of one file: each has to be embedded, and compared with every message."""
MOST_TEXTS = 256
"""The most items of any other list."""
_LONGEST_PHRASE = 500
_LONGEST_REASON = 400


class TomlFolder:
    """The texts of a folder's files by name, and the findings so far."""

    def __init__(self, path: str, texts: Mapping[str, str]) -> None:
        """Keep the files in `texts`. `path` is the folder's path for a person, used in findings."""
        self.path = path
        self.texts = texts
        self.findings: list[Finding] = []

    def add(
        self, file: str, reason: str, *, near: str = "", severity: Severity = "error", line: int = 0
    ) -> None:
        """Add a finding: `reason`, at the first line of `file` with `near` in it, else at line 0.

        Without `near`, the finding is at `line`.
        """
        if len(self.findings) > MOST_FINDINGS:
            return
        if len(self.findings) == MOST_FINDINGS:
            reason, near, line, severity = "more is wrong here than is told", "", 0, "warning"
        line = _line_of(self.texts.get(file, ""), near) if near else line
        if len(reason) > _LONGEST_REASON:
            reason = f"{reason[:_LONGEST_REASON]}…"
        self.findings.append(Finding(f"{self.path}/{file}", line, reason, severity))

    def parsed(self, file: str) -> dict[str, Any] | None:
        """Return the parsed `file`; if it is not valid TOML, add a finding and return None."""
        if len(self.texts[file].encode()) > LARGEST_BYTES:
            self.add(file, f"{file}: it is larger than {LARGEST_BYTES >> 10} KiB")
            return None
        try:
            return tomllib.loads(self.texts[file])
        # tomllib lets out more than its own error: a plain ValueError for an integer of 5000
        # digits, and a RecursionError for 5000 brackets.
        except (ValueError, RecursionError) as error:
            what = "nested too deeply" if isinstance(error, RecursionError) else str(error)
            line = line_of_error(error)
            if "at end of document" in what:
                line = max(1, len(self.texts[file].splitlines()))
            self.add(file, f"{file}: {what}", line=line)
            return None

    def phrases(self, body: Mapping[str, Any], file: str) -> tuple[str, ...]:
        """Return the valid phrases in the list `triggers` of `body`, each once; report others."""
        raw = body.get("triggers", [])
        if not isinstance(raw, list):
            self.add(file, "`triggers` is not a list", near="triggers")
            return ()
        kept: dict[str, None] = {}
        for entry in raw:
            if not isinstance(entry, str) or not entry.strip():
                reason = f"trigger {entry!r} is blank or not text: left out"
                self.add(file, reason, near=f"{entry!r}".replace("'", '"'))
            elif len(entry) > _LONGEST_PHRASE:
                reason = f"a trigger has more than {_LONGEST_PHRASE} characters: left out"
                self.add(file, reason, near=entry[:_LONGEST_PHRASE])
            else:
                kept.setdefault(entry.strip())
        if len(kept) > MOST_TRIGGERS:
            reason = f"{len(kept)} triggers: those after the first {MOST_TRIGGERS} are left out"
            self.add(file, reason, near="triggers")
        return tuple(islice(kept, MOST_TRIGGERS))

    def strings(self, value: Any, file: str, key: str) -> tuple[str, ...]:
        """Return the texts in the list `value`, which is that of `key`; report any other item."""
        if not isinstance(value, list):
            self.add(file, f"`{key}` is not a list of texts", near=key)
            return ()
        if not all(isinstance(entry, str) for entry in value):
            self.add(file, f"`{key}` holds what is not text: that is left out", near=key)
        kept = [entry for entry in value if isinstance(entry, str)]
        if len(kept) > MOST_TEXTS:
            reason = (
                f"`{key}` has {len(kept)} texts: those after the first {MOST_TEXTS} are left out"
            )
            self.add(file, reason, near=key)
        return tuple(kept[:MOST_TEXTS])


def _line_of(text: str, needle: str) -> int:
    return next((n for n, line in enumerate(text.splitlines(), 1) if needle in line), 0)
