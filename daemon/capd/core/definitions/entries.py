"""Checks the entries of a server's lists of prompts, resources and templates.

Hidden characters are removed from the texts of an entry. Its name or URI cannot be changed, because
clients request the entry by it, so an entry with hidden characters there is left out. If a list has
too many entries, only the first ones are listed.
"""

import msgspec

from capd.core.definitions.hidden_text import TooMuchHiddenError, cleaned_json
from capd_protos.codec import JsonCodec, MalformedError

MOST_ENTRIES = {"prompts": 1000, "resources": 10_000, "resources/templates": 1000}
"""The most entries of one list of a server. Real servers list tens of prompts and templates, and
some thousands of resources."""
MOST_BYTES = 16 * 1024 * 1024
"""The most bytes of one list of one server."""
MOST_ENTRY_BYTES = 256 * 1024


class _Asked(msgspec.Struct, rename="camel"):
    """The members of an entry by which `prompts/get` or `resources/read` requests it."""

    name: object = ""
    uri: object = ""
    uri_template: object = ""


_ASKED: JsonCodec[_Asked] = JsonCodec(_Asked)


class EntryIntake:
    """Checks the entries of one list (prompts, resources or templates) of a server.

    `take` gets them one by one.
    """

    def __init__(self, kind: str) -> None:
        """Prepare for a list of this kind: `prompts`, `resources` or `resources/templates`."""
        self._kind = kind
        self._bytes = 0
        self._left_out = 0
        self.is_full = False
        """Whether an entry was left out because the list has reached a limit."""
        self.entries: dict[str, bytes] = {}
        """The accepted entries in order, by their names or URIs."""

    @property
    def finding(self) -> str:
        """Why some entries are left out, for a person; empty if all were accepted."""
        if self.is_full:
            most = MOST_ENTRIES[self._kind]
            bound = f"a server may have {most} in {MOST_BYTES >> 20} MiB"
            return f"the first {len(self.entries)} of its {self._kind} are listed: {bound}"
        if self._left_out:
            return f"{self._left_out} of its {self._kind} are not listed: they cannot be read"
        return ""

    def take(self, entry: bytes) -> None:
        """Accept the next entry, which is JSON.

        The entry is left out if it is not valid, or if a limit is reached.
        """
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
    """Return the name or URI by which an entry is requested; None if it has none."""
    try:
        read = _ASKED.decode(entry)
    except MalformedError:
        return None
    # Only the URI requests a resource; its name is for people.
    key = read.name if kind == "prompts" else read.uri or read.uri_template
    return key if isinstance(key, str) and key else None
