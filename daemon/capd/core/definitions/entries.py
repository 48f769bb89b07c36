"""Entries of the lists beside the tools: prompts, resources and templates, cleaned and bounded.

What an entry is asked for by stays as it is, so one that has something hidden there is left out.
Of a list with more entries than capd lists the first ones are listed.
"""

import msgspec

from capd.core.definitions.hidden_text import TooMuchHiddenError, cleaned_json
from capd_protos.codec import JsonCodec, MalformedError

MOST_ENTRIES = {"prompts": 1000, "resources": 10_000, "resources/templates": 1000}
"""Of one server. Real ones list tens of prompts and templates, and some thousands of resources."""
MOST_BYTES = 16 * 1024 * 1024
"""Of one list of one server."""
MOST_ENTRY_BYTES = 256 * 1024


class _Asked(msgspec.Struct, rename="camel"):
    """What `prompts/get` or `resources/read` names."""

    name: object = ""
    uri: object = ""
    uri_template: object = ""


_ASKED: JsonCodec[_Asked] = JsonCodec(_Asked)


class EntryIntake:
    """The entries of one list, one by one: `take` costs steps in proportion to its bytes."""

    def __init__(self, kind: str) -> None:
        """`kind` is `prompts`, `resources` or `resources/templates`."""
        self._kind = kind
        self._bytes = 0
        self._left_out = 0
        self.is_full = False
        """Whether no further entry is taken."""
        self.entries: dict[str, bytes] = {}
        """The entries in their order, each by what it is asked for by."""

    @property
    def finding(self) -> str:
        """What of the list is not listed and why, for a person; empty where all of it is."""
        if self.is_full:
            most = MOST_ENTRIES[self._kind]
            bound = f"a server may have {most} in {MOST_BYTES >> 20} MiB"
            return f"the first {len(self.entries)} of its {self._kind} are listed: {bound}"
        if self._left_out:
            return f"{self._left_out} of its {self._kind} are not listed: they cannot be read"
        return ""

    def take(self, entry: bytes) -> None:
        """Take the next entry, unless it is one too many or cannot be asked for."""
        has_room = self._bytes + len(entry) <= MOST_BYTES
        if not has_room or len(self.entries) == MOST_ENTRIES[self._kind]:
            self.is_full = True
            return
        try:
            key = _asked(self._kind, entry) if len(entry) <= MOST_ENTRY_BYTES else None
            clean, gone = cleaned_json(entry) if key is not None else (b"", None)
        except TooMuchHiddenError:
            key, clean, gone = None, b"", None
        if key is None or (gone and _asked(self._kind, clean) != key):
            self._left_out += 1
        elif key not in self.entries:
            self._bytes += len(entry)
            self.entries[key] = clean


def _asked(kind: str, entry: bytes) -> str | None:
    """Return what an entry is asked for by, None where it cannot be asked for."""
    try:
        read = _ASKED.decode(entry)
    except MalformedError:
        return None
    # The name of a resource is for people.
    key = read.name if kind == "prompts" else read.uri or read.uri_template
    return key if isinstance(key, str) and key else None
