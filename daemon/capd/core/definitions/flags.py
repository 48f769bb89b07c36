"""Flags parts of definitions that resemble published attacks, for a person to look at.

Such a scan does not protect: in MCPTox (arXiv 2508.14925, 2025) models obeyed poisoned tools in
36.5 % of cases on average. So no tool is withheld because of a flag. A flag shows what was found,
and which publication describes it.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from capd.core.definitions.hidden_text import KINDS, cleaned
from capd.core.lazy_patterns import lazy_pattern
from capd_protos.codec import MalformedError
from capd_protos.types import ServerName, ToolName

MOST_CHARACTERS = 6000
"""A longer description is flagged. Of 409 tools of 33 ordinary servers, the longest description has
6,993 characters, and the second 3,507."""
_SHOWN = 80
_LEAST_NAME = 6


@dataclass(frozen=True, slots=True)
class Pattern:
    """One published attack: the flag's code, the publication, and the pattern of its text."""

    code: str
    source: str
    pattern: "re.Pattern[str]"


@dataclass(frozen=True, slots=True)
class Flag:
    """A part of one tool's definition that a person should look at."""

    tool: ToolName
    code: str
    seen: str
    """The words that caused the flag, without hidden characters."""


_INVARIANT = "Invariant Labs, tool poisoning attacks, April 2025"
_LINE_JUMPING = "Trail of Bits, line jumping, April 2025"
_FULL_SCHEMA = "CyberArk, full-schema poisoning, May 2025"
_PARAMETERS = "HiddenLayer, exploiting tool parameters, May 2025"
_SMUGGLING = "Rehberger, ASCII smuggling, January 2024; Butler, variation selectors, February 2025"


def _words(pattern: str) -> "re.Pattern[str]":
    return lazy_pattern(pattern, re.IGNORECASE)


PATTERNS: Final = (
    Pattern(
        "overrides_instructions",
        _LINE_JUMPING,
        _words(
            r"\b(?:ignore|disregard|forget|override)\s+(?:all\s+|any\s+)?(?:of\s+)?"
            r"(?:the\s+|your\s+|my\s+)?(?:previous|prior|above|earlier|preceding|system)\s+"
            r"(?:instructions?|prompts?|rules|messages?|directions|guidelines|context)\b"
        ),
    ),
    Pattern(
        "instruction_tag",
        _INVARIANT,
        _words(r"<\s*/?\s*(?:important|critical|hidden|instructions?|system|system-reminder)\s*>"),
    ),
    Pattern(
        "hides_from_user",
        _INVARIANT,
        _words(
            r"\b(?:do\s+not|don['’]t|never|without)\s+"
            r"(?:tell|telling|mention|mentioning|inform|informing|notify|notifying|reveal|revealing"
            r"|alert|alerting)\b[^.\n]{0,40}\b(?:the\s+)?(?:user|human)s?\b"
        ),
    ),
    Pattern(
        "secret_file",
        _INVARIANT,
        _words(
            r"\.ssh/|\bid_(?:rsa|ed25519|ecdsa)\b|\.aws/credentials|/etc/(?:passwd|shadow)\b"
            r"|\.cursor/mcp\.json|\.kube/config|\.gnupg\b|\.git-credentials|\.netrc\b"
            r"|\.docker/config\.json|\bwallet\.dat\b|claude_desktop_config\.json"
        ),
    ),
    Pattern(
        "orders_other_tools",
        _INVARIANT,
        _words(
            r"\b(?:before|prior\s+to|whenever|when|after)\s+(?:using|calling|invoking|running)\s+"
            r"(?:any|every|all|each)\s+(?:other\s+)?(?:tools?|functions?|servers?)\b"
        ),
    ),
    Pattern(
        "sends_elsewhere",
        _INVARIANT,
        _words(
            r"\b(?:also|always|must|secretly|silently|first)\s+"
            r"(?:send|forward|post|upload|transmit|copy|bcc|leak|exfiltrate)\b"
            r"[^.\n]{0,80}\bto\s+(?:https?://|[\w.+-]+@[\w-]+\.)"
        ),
    ),
)
"""Patterns for the texts of a definition."""

_PARAMETER = Pattern(
    "asks_for_conversation",
    _PARAMETERS,
    _words(
        r"(?:full_|entire_|whole_)?(?:conversation(?:_history)?|chat_history|message_history"
        r"|system_prompt|chain_of_thought|tool_call_history|tools_list|previous_messages"
        r"|context_window)|content_from_reading_\w+|sidenote"
    ),
)

SOURCES: Final[Mapping[str, str]] = {
    **{each.code: each.source for each in (*PATTERNS, _PARAMETER)},
    "hidden_text": _SMUGGLING,
    "long_description": _FULL_SCHEMA,
    "capd_name": _INVARIANT,
    "shadows": _INVARIANT,
    "names_other_tool": _INVARIANT,
}
"""The publication that each kind of flag is from, by the flag's code."""


def flags(tool: ToolName, definition: bytes) -> list[Flag]:
    """Return the flags of one tool's definition: parts that resemble published attacks.

    Raises:
        MalformedError: the definition is not JSON.
    """
    read = _read(definition)
    found: dict[str, str] = {}
    for text in _texts(read):
        clean = cleaned(text)
        for kind in clean.gone:
            found.setdefault("hidden_text", KINDS[kind])
        for each in PATTERNS:
            seen = each.pattern.search(clean.text)
            if seen:
                found.setdefault(each.code, " ".join(seen[0].split())[:_SHOWN])
    for name in _parameters(read):
        if _PARAMETER.pattern.fullmatch(name):
            found.setdefault(_PARAMETER.code, name)
    description = read.get("description")
    if isinstance(description, str) and len(description) > MOST_CHARACTERS:
        found["long_description"] = f"{len(description)} characters"
    return [Flag(tool, code, seen) for code, seen in found.items()]


def flags_among(
    server: ServerName,
    definitions: Mapping[ToolName, bytes],
    others: Mapping[ServerName, Iterable[ToolName]],
    own: Iterable[str],
) -> list[Flag]:
    """Return flags for tools of `server` that have, or mention, the names of other tools.

    A flag marks a part that resembles a published attack. `others` are the tools of all servers,
    `own` the names of capd's own tools.

    Raises:
        MalformedError: a definition is not JSON.
    """
    servers = {str(name) for name in others if name != server}
    own_names = set(own)
    theirs: dict[str, ServerName] = {}
    for name, tools in others.items():
        if name != server:
            own_way = {f"{name}__{tool}": name for tool in tools}
            theirs.update({str(tool): name for tool in tools if tool not in definitions})
            theirs.update(own_way)
    distinct = {
        name: of for name, of in theirs.items() if len(name) >= _LEAST_NAME and _is_compound(name)
    }
    found: list[Flag] = []
    for tool, definition in definitions.items():
        prefix = tool.partition("__")[0]
        if tool in own_names or tool.startswith("capd_"):
            found.append(Flag(tool, "capd_name", "it has the name of a tool of capd's own"))
        elif "__" in tool and (prefix in servers or prefix == "capd"):
            found.append(Flag(tool, "shadows", f"it is named like a tool of {prefix}"))
        text = _description(definition)
        # `fill_form` may be the name of many tools. A mention counts only if the tool's name
        # contains its server's name, as `git_commit` does, or if the text mentions the server too.
        words = set(re.findall(r"[A-Za-z0-9-]+", text.lower()))
        spoken_of = next(
            (
                name
                for name in _words_of(text)
                if name in distinct
                and (distinct[name].lower() in words or distinct[name].lower() in name.lower())
            ),
            None,
        )
        if spoken_of is not None:
            seen = f"{spoken_of}, which is a tool of {distinct[spoken_of]}"
            found.append(Flag(tool, "names_other_tool", seen))
    return found


def _read(definition: bytes) -> Mapping[str, Any]:
    try:
        read = msgspec.json.decode(definition)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise MalformedError(str(error)) from None
    return read if isinstance(read, dict) else {}


def _description(definition: bytes) -> str:
    text = _read(definition).get("description")
    return text if isinstance(text, str) else ""


def _texts(read: Any) -> Iterator[str]:
    """Yield every text of a definition, names of members included."""
    todo = [read]
    while todo:
        each = todo.pop()
        if isinstance(each, str):
            yield each
        elif isinstance(each, dict):
            yield from (key for key in each if isinstance(key, str))
            todo.extend(each.values())
        elif isinstance(each, list):
            todo.extend(each)


def _parameters(read: Mapping[str, Any]) -> Iterator[str]:
    schema = read.get("inputSchema")
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if isinstance(properties, dict):
        yield from (key for key in properties if isinstance(key, str))


def _is_compound(name: str) -> bool:
    """Tell whether a name is unlikely to appear in an ordinary sentence."""
    return "_" in name or "-" in name


def _words_of(text: str) -> Iterator[str]:
    yield from (match[0] for match in re.finditer(r"[A-Za-z0-9]+(?:[_-]+[A-Za-z0-9]+)+", text))
