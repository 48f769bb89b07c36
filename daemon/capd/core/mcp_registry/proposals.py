"""Proposes triggers and a name for a server that is about to be added.

A trigger is a phrase. A message that resembles one may switch the server on. Triggers are made of
the server's title, its description and its tools. A person sees them before they are used.
"""

import re
from collections.abc import Iterable, Mapping, Sequence

from capd.core.index.extraction import LONGEST_PHRASE
from capd.core.lazy_patterns import lazy_pattern
from capd.core.lexical import words
from capd.core.routing.words_alone import FEWEST_WORDS

MOST_TRIGGERS = 10
LONGEST_NAME = 40
_SAME = 0.75
"""Two phrases collide if at least this share of their words is the same."""
_MARKUP = lazy_pattern(r"[\"`{}<>\[\]\\]")
"""Characters that no phrase may have: models get phrases in quotation marks, and a phrase must not
end these or look like markup."""
_LAUNCHERS = frozenset({"npx", "bunx", "uvx"})
_VERSION = lazy_pattern(r"(?<=.)(?:@|==)[^@/]*$")
_NOISE = lazy_pattern(r"(?i)\b(?:an?|the)?\s*(?:mcp|model context protocol)(?:[ -]server)?\b")
_SENTENCE = lazy_pattern(r"(?<=[.!?])\s|\s[-–—]\s|[;:(]")
_LEAD = lazy_pattern(
    r"(?i)^(?:(?:an?|the|official|simple|lightweight|server|tools?|integration|for|to|that|which"
    r"|with|provid\w+|enabl\w+|allow\w+|lets? you)\s+)+"
)


def short_name(name: str, taken: Iterable[str]) -> str:
    """Return a name, not in `taken`, for a server: `github` for `io.github.x/github-mcp`."""
    last = name.partition("/")[2].lower()
    short = re.sub(r"(?:^|[-_.])(?:mcp|server)(?=$|[-_.])", "", last).strip("-_.") or last
    short = re.sub(r"[^a-z0-9.-]+", "-", short).strip("-.")[:LONGEST_NAME] or "server"
    used = set(taken)
    tries = [short, *(f"{short}-{number}" for number in range(2, 1000))]
    return next(each for each in tries if each not in used)


def proposed_triggers(
    name: str, title: str, description: str, tools: Sequence[tuple[str, str]]
) -> list[str]:
    """Return at most ten phrases by which messages may switch a new server on.

    They are made of its title and description, and of `tools`, pairs of name and description.
    """
    spoken = re.sub(r"[-_.]+", " ", name).strip()
    found = [f"use {spoken}", *map(_phrase, (title, *_SENTENCE.split(description)[:2]))]
    for tool, text in tools:
        first = _SENTENCE.split(text.strip(), maxsplit=1)[0]
        found.append(_phrase(first) or _phrase(re.sub(r"[-_.]+", " ", tool)))
    kept: dict[tuple[str, ...], str] = {}
    for phrase in found:
        key = tuple(words(phrase))
        if len(key) >= FEWEST_WORDS or (phrase == found[0] and key):
            kept.setdefault(key, phrase)
    return list(kept.values())[:MOST_TRIGGERS]


def package_of(command: str, args: Sequence[str]) -> str:
    """Return the package that a launcher's command line runs, without its version.

    The result is empty if `command` is no launcher.

    `npx -y @playwright/mcp@latest` and `npx @playwright/mcp@0.0.41` run the same package.
    """
    if command.rpartition("/")[2] not in _LAUNCHERS:
        return ""
    named = next((word for word in args if not word.startswith("-")), "")
    return _VERSION.sub("", named)


def collisions(
    triggers: Sequence[str], catalog: Mapping[str, Sequence[str]]
) -> list[tuple[str, str, str]]:
    """Return those of `triggers` that resemble a trigger of another capability.

    `catalog` has the triggers of each capability by its name. Each result is (trigger, other
    trigger, capability), with the nearest trigger of that capability.
    """
    theirs = [
        (name, phrase, frozenset(words(phrase)))
        for name, phrases in catalog.items()
        for phrase in phrases
    ]
    found = []
    for trigger in triggers:
        own = frozenset(words(trigger))
        nearest: dict[str, tuple[float, str]] = {}
        for name, phrase, other in theirs:
            share = len(own & other) / len(own | other) if own | other else 0.0
            if share >= _SAME and share > nearest.get(name, (0.0, ""))[0]:
                nearest[name] = (share, phrase)
        found += [(trigger, phrase, name) for name, (_, phrase) in nearest.items()]
    return found


def _phrase(text: str) -> str:
    plain = " ".join(_NOISE.sub(" ", text).split())
    plain = _LEAD.sub("", plain).strip(" .,:;-\"'`").lower()
    while len(plain) > LONGEST_PHRASE:
        plain = plain.rpartition(" ")[0]
    return plain if is_plain(plain) else ""


def is_plain(phrase: str) -> bool:
    """Tell whether `phrase` is plain text, so that it may be shown to a model."""
    return phrase.isprintable() and not _MARKUP.search(phrase)
