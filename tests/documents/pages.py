"""What is in the documents: their commands, as a person would type them, and their links.

A command is a line that begins with `capd` in a block, or such a text in backticks. In synopses a
word in capitals stands for some value, brackets for what may be left out, and a bar within a word
for a choice.
"""

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
DOCS = ROOT / "docs"
GENERATED = ("reference-cli.md", "reference-control.md")
"""Made of the command tree itself."""
NAMES = ("capd socket", "capd to peer", "capd with no daemon", "capd in the configurations")
"""Rows of tables and of a tree that begin with the project's name."""

_BLOCK_LINE = re.compile(r"(?: {4}|\t)(.*)")
_INLINE = re.compile(r"`([^`\n]+)`")
_COMMAND = re.compile(r"(?:\$ )?(capd [a-z-].*)")
_TYPED = re.compile(r"(?:capd|rm|git|make|export) ")
_WITHIN = re.compile(r"\$\((capd [^)]+)\)")
_ENDS = re.compile(r" [|>;#] | && |\s{2,}")
_LINK = re.compile(r"\]\(([^)\s]+)\)")


@dataclass(frozen=True, slots=True)
class Command:
    """A command on a page, with its file and line."""

    page: str
    line: int
    words: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {self.words}"


def pages() -> list[Path]:
    """Return every page that a person reads."""
    return [README, *sorted(DOCS.rglob("*.md"))]


def blocks(page: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of the blocks of a page, with their numbers."""
    is_fenced = is_block = False
    before = ""
    for number, line in enumerate(page.read_text("utf-8").splitlines(), 1):
        if line.startswith("```"):
            is_fenced = not is_fenced
            continue
        indented = _BLOCK_LINE.fullmatch(line)
        # Within a list or a table an indented line goes on with the text above it.
        is_block = indented is not None and (is_block or not before.strip())
        before = line
        if is_fenced:
            yield number, line
        elif indented and is_block:
            yield number, indented[1]


def typed_lines(page: Path) -> list[str]:
    """Return the lines of the blocks of a page that are typed, in order, remarks cut off."""
    lines = [line for _, line in blocks(page) if _TYPED.match(line)]
    return [re.split(r"\s{3,}", line)[0] for line in lines]


def commands() -> list[Command]:
    """Return every `capd` command on the pages that are written by hand."""
    return [
        Command(page.name, number, words)
        for page in pages()
        if page.name not in GENERATED
        for number, text in texts_of(page)
        if not text.startswith(NAMES)
        for words in spelled_out(text)
    ]


def texts_of(page: Path) -> Iterator[tuple[int, str]]:
    """Yield each command or synopsis of a page, with its line."""
    for number, line in _whole_lines(page):
        # Two synopses may share a line.
        for part in re.split(r"\s{3,}", line):
            if found := _COMMAND.fullmatch(part.strip()):
                yield number, found[1]
            for within in _WITHIN.findall(part):
                yield number, within
    for number, line in enumerate(page.read_text("utf-8").splitlines(), 1):
        for text in _INLINE.findall(line.replace(r"\|", "|")):
            if found := _COMMAND.fullmatch(text):
                yield number, found[1]


def _whole_lines(page: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of blocks, those that go on in the next one together with it."""
    first, start = 0, ""
    for number, line in blocks(page):
        if line.endswith("\\"):
            first, start = first or number, f"{start}{line.removesuffix(chr(92)).strip()} "
            continue
        yield first or number, f"{start}{line.strip()}" if start else line
        first, start = 0, ""


def spelled_out(text: str) -> Iterator[str]:
    """Yield each command that a synopsis means."""
    text = _ENDS.split(text)[0]
    words = re.sub(r"[\[\]]|\.\.\.|…", "", text) if "'" not in text else text
    choices = [word.split("|") if '"' not in word else [word] for word in words.split(" ")]
    for each in itertools.product(*choices):
        yield " ".join(filter(None, each))


def links(page: Path) -> Iterator[tuple[str, str]]:
    """Yield the file and the heading that each link within the project leads to."""
    for target in _LINK.findall(page.read_text("utf-8")):
        if "://" not in target:
            file, _, heading = target.partition("#")
            yield file or page.name, heading


def headings(page: Path) -> set[str]:
    """Return the headings of a page as links name them."""
    found = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), re.MULTILINE)
    plain = (re.sub(r"[^\w\s-]", "", each).strip().lower() for each in found)
    return {re.sub(r"[-\s]+", "-", each) for each in plain}
