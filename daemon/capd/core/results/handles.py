"""Handles of stored results: how they are made, how long they last, and who may read them.

A handle is the name by which a model reads a result that was too long to be passed on whole. It is
derived from a secret, the session and the digest of the result. So nobody can guess the handle of
another session. The same result has the same handle in a session each time, so that the
model reads the same bytes.
"""

import base64
import hashlib
import hmac
from dataclasses import dataclass, field

from capd_protos.types import SessionKey

RETENTION = 24 * 3600.0
"""Seconds for which a result is kept after a tool last returned it."""
SCHEME = "capd://result/"
_PREFIX = "r"
_BYTES = 16
_SHOWN = 26


def handle_of(secret: bytes, session: SessionKey, sha256: str) -> str:
    """Return the handle, 27 characters, of the result with this SHA-256 in a session."""
    digest = hmac.digest(secret, f"{session}\n{sha256}".encode(), hashlib.sha256)[:_BYTES]
    return _PREFIX + base64.b32encode(digest).decode().rstrip("=").lower()


def is_handle(text: str) -> bool:
    """Tell whether a text has the form of a handle, and so is safe as the name of a file."""
    body = text.removeprefix(_PREFIX)
    return len(body) == _SHOWN and text != body and body.isascii() and body.isalnum()


def link_to(handle: str, index: int) -> str:
    """Return the URI of the media in the block `index` of a stored result."""
    return f"{SCHEME}{handle}/{index}"


def linked(uri: str) -> tuple[str, int] | None:
    """Return the handle and the index of the block that a URI names; None if it is no such URI.

    The index is -1 if the URI names no block.
    """
    if not uri.startswith(SCHEME):
        return None
    handle, _, index = uri.removeprefix(SCHEME).partition("/")
    return (handle, int(index)) if index.isdecimal() and len(index) < _BYTES else (handle, -1)


@dataclass(slots=True)
class Readers:
    """Who may read a session's results: the session itself, and its descendants.

    One session may start another: the session of an agent starts those of its sub-agents.
    """

    _parents: dict[SessionKey, SessionKey] = field(default_factory=dict)

    def started(self, child: SessionKey, parent: SessionKey) -> None:
        """Note that `parent` started `child`. Only the first parent of a session counts."""
        if child != parent and child not in self._ancestors(parent):
            self._parents.setdefault(child, parent)

    def ended(self, session: SessionKey) -> None:
        """Remove a session that has ended."""
        self._parents.pop(session, None)

    def may_read(self, reader: SessionKey, owner: SessionKey) -> bool:
        """Tell whether `reader` may read the results of `owner`."""
        return owner in self._ancestors(reader)

    def _ancestors(self, session: SessionKey) -> list[SessionKey]:
        found = [session]
        while (parent := self._parents.get(found[-1])) is not None and parent not in found:
            found.append(parent)
        return found
