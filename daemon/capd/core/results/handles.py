"""Handles of stored results: how they are made, how long they last, and who may read them.

A handle is derived from a secret, the session and the digest of the bytes. So nobody can guess
another session's, and one result gives one session the same handle each time, which keeps the bytes
that a model reads the same.
"""

import base64
import hashlib
import hmac
from dataclasses import dataclass, field

from capd_protos.types import SessionKey

RETENTION = 24 * 3600.0
"""Seconds for which a result is kept after it was last given."""
SCHEME = "capd://result/"
_PREFIX = "r"
_BYTES = 16
_SHOWN = 26


def handle_of(secret: bytes, session: SessionKey, sha256: str) -> str:
    """Return the handle of a result in a session."""
    digest = hmac.digest(secret, f"{session}\n{sha256}".encode(), hashlib.sha256)[:_BYTES]
    return _PREFIX + base64.b32encode(digest).decode().rstrip("=").lower()


def is_handle(text: str) -> bool:
    """Tell whether a text has the form of a handle, so that it may be part of a file's name."""
    body = text.removeprefix(_PREFIX)
    return len(body) == _SHOWN and text != body and body.isascii() and body.isalnum()


def link_to(handle: str, index: int) -> str:
    """Return the URI of the media of one block of a result."""
    return f"{SCHEME}{handle}/{index}"


def linked(uri: str) -> tuple[str, int] | None:
    """Return the handle and block that a URI names; None for any other URI."""
    if not uri.startswith(SCHEME):
        return None
    handle, _, index = uri.removeprefix(SCHEME).partition("/")
    return (handle, int(index)) if index.isdecimal() and len(index) < _BYTES else (handle, -1)


@dataclass(slots=True)
class Readers:
    """Who may read a session's results: the session, those that it started, and theirs."""

    _parents: dict[SessionKey, SessionKey] = field(default_factory=dict)

    def started(self, child: SessionKey, parent: SessionKey) -> None:
        """Note that `parent` started `child`. The first parent counts."""
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
