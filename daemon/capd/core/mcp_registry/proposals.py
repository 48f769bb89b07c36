"""Proposes triggers and a name for a server that is about to be added.

Triggers are made only from its publisher's words: its title, its description and its tools. A
person sees them before they are used.
"""

import re
from collections.abc import Iterable, Mapping, Sequence

from capd.core.index.extraction import LONGEST_PHRASE
from capd.core.lexical import words
from capd.core.routing.words_alone import FEWEST_WORDS

MOST_TRIGGERS = 10
LONGEST_NAME = 40
_SAME = 0.75
"""The share of words from which two phrases are one to a router that looks at words."""
_NOISE = re.compile(r"(?i)\b(?:an?|the)?\s*(?:mcp|model context protocol)(?:[ -]server)?\b")
_SENTENCE = re.compile(r"(?<=[.!?])\s|\s[-–—]\s|[;:(]")
_LEAD = re.compile(
    r"(?i)^(?:(?:an?|the|official|simple|lightweight|server|tools?|integration|for|to|that|which"
    r"|with|provid\w+|enabl\w+|allow\w+|lets? you)\s+)+"
)


def short_name(name: str, taken: Iterable[str]) -> str:
    """Return a free name for a server of the registry: `github` for `io.github.x/github-mcp`."""
    last = name.partition("/")[2].lower()
    short = re.sub(r"(?:^|[-_.])(?:mcp|server)(?=$|[-_.])", "", last).strip("-_.") or last
    short = re.sub(r"[^a-z0-9.-]+", "-", short).strip("-.")[:LONGEST_NAME] or "server"
    used = set(taken)
    tries = [short, *(f"{short}-{number}" for number in range(2, 1000))]
    return next(each for each in tries if each not in used)


def proposed_triggers(
    name: str, title: str, description: str, tools: Sequence[tuple[str, str]]
) -> list[str]:
    """Return phrases in a user's words; `tools` are names with descriptions."""
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


def collisions(
    triggers: Sequence[str], catalog: Mapping[str, Sequence[str]]
) -> list[tuple[str, str, str]]:
    """Return phrases that resemble another capability's: (phrase, its phrase, its name).

    Two phrases collide if most words of both are the same; of each capability the nearest counts.
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
    return plain if plain.isprintable() else ""
