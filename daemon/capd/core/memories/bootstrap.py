"""A project's files that an agent gets at the start: which, in what order, how much.

Without a limit, all files form one text. With a limit, whole files are included in order as far as
they fit; the others are only named, with how to read them.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta

FILES = ("AGENTS.md", "USER.md", "HEARTBEAT.md", "MEMORY.md", "experiments/README.md")
NOTES = "memory/{date}.md"
"""The note of one day; those of today and yesterday are used."""
MOST_CHARACTERS = 160_000
"""More characters of all files together cause a warning: every session gets them."""
HOOK_CHARACTERS = 9_000
"""The limit in a prompt hook: clients cut its output at ten thousand."""
PROMPT = "bootstrap"
DESCRIPTION = "The project's own files that every session is to know, in full."

_HEAD = "Files of this project, to be known from the start:"


@dataclass(frozen=True, slots=True)
class BootstrapRules:
    """Which files a session's project gives."""

    is_on: bool = False
    files: tuple[str, ...] = FILES
    notes: str = NOTES
    most_characters: int = MOST_CHARACTERS
    hook_characters: int = HOOK_CHARACTERS

    def wanted(self, today: date) -> list[str]:
        """Return the paths to look for, in order, each once."""
        days = [today, today - timedelta(days=1)] if self.notes else []
        notes = [self.notes.replace("{date}", day.isoformat()) for day in days]
        return list(dict.fromkeys([*self.files, *notes]))


@dataclass(frozen=True, slots=True)
class BootstrapFile:
    """One existing file."""

    path: str
    text: str

    @property
    def part(self) -> str:
        """Return the file as a part of the text."""
        return f"\n\n# {self.path}\n\n{self.text.strip()}"


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """The files of one project at one moment."""

    files: tuple[BootstrapFile, ...] = ()
    left_out: dict[str, str] = field(default_factory=dict)
    """Why an existing file is not included."""

    @property
    def text(self) -> str:
        """Return all files in full."""
        return text_of(self.files)

    @property
    def characters(self) -> int:
        """Return the number of characters of all files."""
        return sum(len(each.text) for each in self.files)

    @property
    def digest(self) -> str:
        """Return a digest of the full text."""
        return hashlib.sha256(self.text.encode("utf-8", "replace")).hexdigest()

    def largest(self) -> list[str]:
        """Return each file with its size, the largest first, for a warning."""
        by_size = sorted(self.files, key=lambda each: -len(each.text))
        return [f"{each.path} ({len(each.text)})" for each in by_size]

    def shown(self, most_characters: int) -> str:
        """Return as many whole files as fit, and the names of the others."""
        if len(self.text) <= most_characters:
            return self.text
        kept: list[BootstrapFile] = []
        others = list(self.files)
        for each in self.files:
            rest = [other for other in others if other is not each]
            if len(text_of([*kept, each]) + _unshown(rest)) <= most_characters:
                kept.append(each)
                others = rest
        text = text_of(kept) + _unshown(others)
        return text if len(text) <= most_characters else ""


def text_of(files: Sequence[BootstrapFile]) -> str:
    """Return the text of files, empty for none."""
    return _HEAD + "".join(each.part for each in files) if files else ""


def _unshown(files: Sequence[BootstrapFile]) -> str:
    if not files:
        return ""
    names = ", ".join(f"{each.path} ({len(each.text)} characters)" for each in files)
    return f"\n\nToo long to be shown here; read them, or use the prompt `{PROMPT}`: {names}."
