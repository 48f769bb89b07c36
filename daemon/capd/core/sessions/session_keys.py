"""The format of a session's key (docs/protocol.md)."""

from capd.core.lazy_patterns import lazy_pattern
from capd_protos.types import SessionKey

_KEY = lazy_pattern(r"[A-Za-z0-9._:-]{1,128}")
_NOT_IN_KEY = lazy_pattern(r"[^A-Za-z0-9._-]+")
_NAME_CHARACTERS = 40


def is_key(text: str) -> bool:
    """Tell whether `text` is a valid session key: 1 to 128 of A-Z a-z 0-9 . _ : -."""
    return _KEY.fullmatch(text) is not None


def fresh_key(client: str, digits: str) -> SessionKey:
    """Return a key `NAME-DIGITS` for a session of `client`; random `digits` make it unique."""
    name = _NOT_IN_KEY.sub("-", client)[:_NAME_CHARACTERS].strip("-") or "client"
    return SessionKey(f"{name}-{digits}")
