"""Bootstrap files: files of a project that its sessions get as one text when they begin.

The prompt `bootstrap` has all of them. A prompt hook's output is limited, so it includes whole
files in order as far as they fit, and names the others with how to read them.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta

FILES = ("AGENTS.md", "USER.md", "HEARTBEAT.md", "MEMORY.md", "experiments/README.md")
NOTES = "memory/{date}.md"
"""The path of the note of one day; the notes of today and yesterday are used."""
MOST_CHARACTERS = 160_000
"""If the files together have more characters, the user is warned: every session gets them."""
HOOK_CHARACTERS = 9_000
"""The most characters in a prompt hook's output, which clients cut at ten thousand."""
PROMPT = "bootstrap"
DESCRIPTION = "The project's own files that every session is to know, in full."

_HEAD = "Files of this project, to be known from the start:"


@dataclass(frozen=True, slots=True)
class BootstrapRules:
    """The user's settings for bootstrap files, which a model gets when a conversation begins."""

    is_on: bool = False
    files: tuple[str, ...] = FILES
    notes: str = NOTES
    most_characters: int = MOST_CHARACTERS
    hook_characters: int = HOOK_CHARACTERS

    def wanted(self, today: date) -> list[str]:
        """Return the paths of bootstrap files to look for in the project, each once.

        The files come first, then the notes of today and yesterday.
        """
        days = [today, today - timedelta(days=1)] if self.notes else []
        notes = [self.notes.replace("{date}", day.isoformat()) for day in days]
        return list(dict.fromkeys([*self.files, *notes]))


@dataclass(frozen=True, slots=True)
class BootstrapFile:
    """One of a project's files that a model gets when a conversation begins: its path and text."""

    path: str
    text: str

    @property
    def part(self) -> str:
        """The file's text below a heading with its path."""
        return f"\n\n# {self.path}\n\n{self.text.strip()}"


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """The files of one project that a model gets when a conversation begins, as they were read."""

    files: tuple[BootstrapFile, ...] = ()
    left_out: dict[str, str] = field(default_factory=dict)
    """The reason for each existing file that is not included, by its path."""

    @property
    def text(self) -> str:
        """The text of all files, each below a heading with its path."""
        return text_of(self.files)

    @property
    def characters(self) -> int:
        """The number of characters of all files."""
        return sum(len(each.text) for each in self.files)

    @property
    def digest(self) -> str:
        """The SHA-256 of the text of all files."""
        return hashlib.sha256(self.text.encode("utf-8", "replace")).hexdigest()

    def largest(self) -> list[str]:
        """Return the path and size of each file, the largest first, for a warning."""
        by_size = sorted(self.files, key=lambda each: -len(each.text))
        return [f"{each.path} ({len(each.text)})" for each in by_size]

    def shown(self, most_characters: int) -> str:
        """Return a text of at most `most_characters`: whole files, then the paths of the others.

        The text is empty if not even the paths fit.
        """
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
    """Return one text with all `files`, each below its path; empty without files."""
    return _HEAD + "".join(each.part for each in files) if files else ""


def _unshown(files: Sequence[BootstrapFile]) -> str:
    if not files:
        return ""
    names = ", ".join(f"{each.path} ({len(each.text)} characters)" for each in files)
    return f"\n\nToo long to be shown here; read them, or use the prompt `{PROMPT}`: {names}."
