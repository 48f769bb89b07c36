"""Words that this project coined and gave up stay out of it: names and prose use the field's words.

CHANGELOG.md may name them, as it says what was renamed.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROSE = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "docs")
CODE = ("daemon", "clients", "protos", "tests", "bench", "docs")

# Each with what stands in its place. A word counts in prose, and as a part of a name:
# A name counts by its parts, in snake case and in camel case.
WORDS = {
    "era": "protocol generation",
    "desk": "catalog, cache, store or saver",
    "desks": "catalog, cache, store or saver",
    "shelf": "catalog or store",
    "shelves": "catalogs or stores",
    "hearing": "turn context",
    "hearings": "turn contexts",
    "heirloom": "inherited tool",
    "heirlooms": "inherited tools",
    "lane": "server connection",
    "lanes": "server connections",
    "rooms": "folders",
    "keeper": "saver or store",
    "keepers": "savers or stores",
    "postbox": "endpoint",
    "postboxes": "endpoints",
    "wish": "request or options",
    "wishes": "requests or options",
}

# Names of modules, classes and functions; a part of one is an ordinary word.
NAMES = {
    "curator_host",
    "era_memory",
    "followed_settings",
    "hook_turns",
    "is_heard",
    "open_sessions",
    "session_keeper",
    "session_openings",
    "tool_way",
    "EraMemory",
    "Handover",
    "Letter",
    "Postbox",
    "SessionKeeper",
    "SETTLE",
    "SETTLED_NS",
    "HANDOVER_TIMEOUT",
    "ToolWay",
}

# Pages that were merged: a link to one, or a citation, leads nowhere.
PAGES = {
    "claude-code.md",
    "clients-editors.md",
    "conformance.md",
    "index-and-memories.md",
    "servers-http.md",
    "starter-tap.md",
    "tokens-bench.md",
}

# Documents of no repository, such as a number and a row of it.
FOREIGN = re.compile(r"\(?\b(?:80|85|45), [A-Z]\d+\b|\b(?:80|85|45)-[a-z]+\b")

_PARTS = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+")


def files(roots: tuple[str, ...], suffix: str) -> Iterator[Path]:
    for name in roots:
        root = ROOT / name
        found = root.rglob(f"*{suffix}") if root.is_dir() else [root]
        yield from (each for each in found if each.suffix == suffix and each != Path(__file__))


def parts(text: str) -> set[str]:
    """Return the words of a text in lower case, including the words within names."""
    return {part.lower() for part in _PARTS.findall(text)}


def given_up(text: str) -> set[str]:
    """Return the words and names in `text` that were given up."""
    return {*(parts(text) & WORDS.keys()), *(NAMES & set(re.findall(r"\w+", text)))}


def words_of_code(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the names, comments and docstrings of a file with their lines: other texts are data."""
    text = path.read_text("utf-8")
    # The tokenizer needs most of a minute for all files, and this only a second.
    if not given_up(text):
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in {tokenize.NAME, tokenize.COMMENT}:
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(text)):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            yield node.lineno, node.value.value


def test_no_name_comment_or_docstring_has_a_word_that_was_given_up() -> None:
    found = []

    for path in files(CODE, ".py"):
        for line, text in words_of_code(path):
            found += [f"{path.relative_to(ROOT)}:{line}: {word}" for word in sorted(given_up(text))]

    assert found == []


def test_no_page_has_a_word_that_was_given_up() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {word}, say {WORDS[word]}"
        for path in files(PROSE, ".md")
        for word in sorted(parts(path.read_text("utf-8")) & WORDS.keys())
    ]

    assert found == []


def test_nothing_cites_a_page_that_is_not_in_the_repository() -> None:
    found = []

    for path in [*files(CODE, ".py"), *files(PROSE, ".md")]:
        text = path.read_text("utf-8")
        cited = {page for page in PAGES if page in text} | set(FOREIGN.findall(text))
        found += [f"{path.relative_to(ROOT)}: {each}" for each in sorted(cited)]

    assert found == []
