"""The files of a project that an agent is to see from the start: which, in what order, how much.

All of them in full make one text. Where only so many characters can be handed over, files come
whole and in their order as far as there is room; the others are named, with how they are read.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta

FILES = ("AGENTS.md", "USER.md", "HEARTBEAT.md", "MEMORY.md", "experiments/README.md")
NOTES = "memory/{date}.md"
"""Of one day; those of today and of yesterday are wanted."""
MOST_CHARACTERS = 160_000
"""More of all files together is a warning: it is told with every session."""
HOOK_CHARACTERS = 9_000
"""What a prompt hook hands over: clients cut it at ten thousand."""
PROMPT = "bootstrap"
DESCRIPTION = "The project's own files that every session is to know, in full."

_HEAD = "Files of this project, to be known from the start:"


@dataclass(frozen=True, slots=True)
class BootstrapRules:
    """What is wanted of a session's project."""

    is_on: bool = False
    files: tuple[str, ...] = FILES
    notes: str = NOTES
    most_characters: int = MOST_CHARACTERS
    hook_characters: int = HOOK_CHARACTERS

    def wanted(self, today: date) -> list[str]:
        """Return the paths that are looked for, in their order, each once."""
        days = [today, today - timedelta(days=1)] if self.notes else []
        notes = [self.notes.replace("{date}", day.isoformat()) for day in days]
        return list(dict.fromkeys([*self.files, *notes]))


@dataclass(frozen=True, slots=True)
class BootstrapFile:
    """One file that is there."""

    path: str
    text: str

    @property
    def part(self) -> str:
        """Return the file as it is told."""
        return f"\n\n# {self.path}\n\n{self.text.strip()}"


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """The files of one project, as they are at one moment."""

    files: tuple[BootstrapFile, ...] = ()
    left_out: dict[str, str] = field(default_factory=dict)
    """Why a file that is there is not among them."""

    @property
    def text(self) -> str:
        """Return all of them, in full."""
        return told(self.files)

    @property
    def characters(self) -> int:
        """Return how many characters they have."""
        return sum(len(each.text) for each in self.files)

    @property
    def digest(self) -> str:
        """Return a digest of all that is told."""
        return hashlib.sha256(self.text.encode("utf-8", "replace")).hexdigest()

    def largest(self) -> list[str]:
        """Return each file with its size, the largest first, for a warning."""
        by_size = sorted(self.files, key=lambda each: -len(each.text))
        return [f"{each.path} ({len(each.text)})" for each in by_size]

    def shown(self, most_characters: int) -> str:
        """Return as many whole files as have room, and the names of the others."""
        if len(self.text) <= most_characters:
            return self.text
        kept: list[BootstrapFile] = []
        others = list(self.files)
        for each in self.files:
            rest = [other for other in others if other is not each]
            if len(told([*kept, each]) + _unshown(rest)) <= most_characters:
                kept.append(each)
                others = rest
        text = told(kept) + _unshown(others)
        return text if len(text) <= most_characters else ""


def told(files: Sequence[BootstrapFile]) -> str:
    """Return the text of files, empty for none."""
    return _HEAD + "".join(each.part for each in files) if files else ""


def _unshown(files: Sequence[BootstrapFile]) -> str:
    if not files:
        return ""
    names = ", ".join(f"{each.path} ({len(each.text)} characters)" for each in files)
    return f"\n\nToo long to be shown here; read them, or use the prompt `{PROMPT}`: {names}."
