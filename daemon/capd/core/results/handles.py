"""Handles of results that are kept whole: what they are, how long they last, and for whom.

A handle is made of a secret, the session and the digest of the bytes: nobody can guess another
session's, and one result gives one session the same handle each time, so that what a model reads
stays the same bytes as well.
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
    """Tell whether a text can be a handle, so that it may be part of a file's name."""
    body = text.removeprefix(_PREFIX)
    return len(body) == _SHOWN and text != body and body.isascii() and body.isalnum()


def link_to(handle: str, index: int) -> str:
    """Return the URI of the media of one block of a result."""
    return f"{SCHEME}{handle}/{index}"


def linked(uri: str) -> tuple[str, int] | None:
    """Return which handle and block a URI means, None where it is another's."""
    if not uri.startswith(SCHEME):
        return None
    handle, _, index = uri.removeprefix(SCHEME).partition("/")
    return (handle, int(index)) if index.isdecimal() and len(index) < _BYTES else (handle, -1)


@dataclass(slots=True)
class Readers:
    """Who may read what a session got: itself, and the sessions that it started, and theirs."""

    _parents: dict[SessionKey, SessionKey] = field(default_factory=dict)

    def started(self, child: SessionKey, parent: SessionKey) -> None:
        """Note that `parent` started `child`; the first word counts."""
        if child != parent and child not in self._ancestors(parent):
            self._parents.setdefault(child, parent)

    def ended(self, session: SessionKey) -> None:
        """Forget who started a session that is over."""
        self._parents.pop(session, None)

    def may_read(self, reader: SessionKey, owner: SessionKey) -> bool:
        """Tell whether `reader` may read what `owner` got."""
        return owner in self._ancestors(reader)

    def _ancestors(self, session: SessionKey) -> list[SessionKey]:
        found = [session]
        while (parent := self._parents.get(found[-1])) is not None and parent not in found:
            found.append(parent)
        return found
