"""Checks each entry of a server's `tools/list`, and leaves out what clients could not read.

A client that cannot read one tool may lose the whole list. So each entry is checked by itself.
Entries that are accepted keep their bytes, apart from hidden characters in texts, which are
removed.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from capd.core.definitions.hidden_text import (
    KINDS,
    MOST_HIDDEN,
    TooMuchHiddenError,
    cleaned_json,
)
from capd.core.lazy_patterns import lazy_pattern
from capd.core.tools.schema_bounds import examined
from capd_protos.codec import JsonCodec, MalformedError
from capd_protos.types import ToolDefinition, ToolName

MOST_TOOLS = 1000
MOST_PAGES = 50
MOST_TOOL_BYTES = 256 * 1024
"""The most bytes of one tool: six times the largest of 757 tools of 23 servers from npm and
PyPI."""
MOST_BYTES = 8 * 1024 * 1024
_MOST_BEYOND = 100
"""How many entries beyond the limits are still examined; after them the listing ends."""
_LONGEST_REASON = 300

# The MCP specification's own character set for tool names.
_NAME = lazy_pattern(r"[A-Za-z0-9_.-]{1,128}")
# In JavaScript, assigning this key to an object replaces its prototype.
_NO_NAME = "__proto__"


class _Entry(msgspec.Struct):
    """The members of a tool's definition that are checked before it is accepted."""

    name: str
    inputSchema: object = None  # noqa: N815 - the protocol's name
    outputSchema: object = None  # noqa: N815 - the protocol's name


_ENTRY: JsonCodec[_Entry] = JsonCodec(_Entry)
_WHOLE: JsonCodec[object] = JsonCodec(object)


@dataclass(frozen=True, slots=True)
class AcceptedTool:
    """A tool that passed the checks: as clients get it, and as its server wrote it."""

    definition: ToolDefinition
    """The definition for clients."""
    written: bytes
    """The definition as its server wrote it, which is saved and compared."""


class ToolIntake:
    """Checks the tools of one server, which `take` gets one by one.

    The cost of `take` is linear in the bytes of the entry.
    """

    def __init__(self) -> None:
        self.left_out: list[str] = []
        """One line for each entry that is left out."""
        self.cleaned: list[str] = []
        """One line for each entry that had hidden characters in its texts."""
        self._taken: dict[ToolName, AcceptedTool] = {}
        self._bytes = 0
        self._beyond = 0

    @property
    def taken(self) -> list[AcceptedTool]:
        """The accepted tools in order, each name once."""
        return list(self._taken.values())

    @property
    def is_full(self) -> bool:
        """Whether so many tools have been given that the caller can stop."""
        return self._beyond > _MOST_BEYOND

    @property
    def finding(self) -> str:
        """Why some tools are left out, for a person; empty if all were accepted."""
        if self._beyond:
            bound = f"a server may have {MOST_TOOLS} in {MOST_BYTES >> 20} MiB"
            return f"the first {len(self._taken)} of its tools are listed: {bound}"
        if self.left_out:
            others = f", and {len(self.left_out) - 1} others" if len(self.left_out) > 1 else ""
            return f"not all of its tools are listed: {self.left_out[0][:_LONGEST_REASON]}{others}"
        return ""

    def take(self, entry: bytes) -> None:
        """Accept the next entry, which is JSON, or note why it is left out."""
        if len(entry) > MOST_TOOL_BYTES:
            self.left_out.append(
                f"an entry of {len(entry)} bytes is over the {MOST_TOOL_BYTES} that a tool may have"
            )
            return
        try:
            read = _ENTRY.decode(entry)
        except MalformedError as error:
            self.left_out.append(f"an entry is not a tool: {error}")
            return
        reason = self._no_room(read.name, entry) or _wrong_with(read) or _unreadable(entry)
        if reason:
            self.left_out.append(f"{read.name[:64]!a} {reason}")
            return
        name = ToolName(read.name)
        try:
            clean, gone = cleaned_json(entry)
        except TooMuchHiddenError:
            self.left_out.append(f"{name} has more than {MOST_HIDDEN} hidden characters")
            return
        self._bytes += len(entry)
        if gone:
            self.cleaned.append(f"{name} had {_counted(gone)} in its texts")
        self._taken[name] = AcceptedTool(ToolDefinition(name, clean), entry)

    def _no_room(self, name: str, entry: bytes) -> str:
        if name in self._taken:
            return "is listed twice; the first one counts"
        if len(self._taken) == MOST_TOOLS:
            self._beyond += 1
            return f"is beyond the first {MOST_TOOLS} tools"
        if self._bytes + len(entry) > MOST_BYTES:
            self._beyond += 1
            return f"is beyond the {MOST_BYTES} bytes that a server's tools may have"
        return ""


def accepted(entries: Iterable[bytes]) -> tuple[list[ToolDefinition], list[str]]:
    """Return the tools that pass the checks, and one line for each entry that is left out.

    `entries` are those of a server's `tools/list`, as JSON.
    """
    intake = ToolIntake()
    for entry in entries:
        intake.take(entry)
    return [taken.definition for taken in intake.taken], intake.left_out


def _counted(gone: Counter[str]) -> str:
    return ", ".join(f"{count} {KINDS[kind]}" for kind, count in gone.items())


def _unreadable(entry: bytes) -> str:
    # So far the members that `_Entry` lacks were skipped, not decoded.
    try:
        _WHOLE.decode(entry)
    except MalformedError as error:
        return f"is left out: its definition cannot be read: {error}"
    return ""


def _wrong_with(entry: _Entry) -> str:
    if not _NAME.fullmatch(entry.name) or entry.name == _NO_NAME:
        return "is not a tool name that clients accept"
    # Some clients require an object here and otherwise refuse the whole list.
    if not isinstance(entry.inputSchema, dict):
        return "has no inputSchema that is an object"
    for member, schema in (
        ("inputSchema", entry.inputSchema),
        ("outputSchema", entry.outputSchema),
    ):
        if isinstance(schema, dict):
            reason = examined(schema).reason
            if reason:
                return f"is left out: its {member} {reason}"
    return ""
