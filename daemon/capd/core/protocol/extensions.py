"""Extensions of the protocol (SEP-2133): which ones capd announces to a client.

A client's own extensions reach the servers with its capabilities, unchanged. To the client, capd
announces the extensions that it relays itself, and those of the session's running servers.
"""

from collections.abc import Iterable

import msgspec

from capd.core.lazy_patterns import lazy_pattern
from capd.core.protocol.apps import EXTENSION as APPS
from capd.core.protocol.generations import Members, members_or_none
from capd.core.protocol.tasks import EXTENSION as TASKS

RELAYED: tuple[str, ...] = (APPS, TASKS)
"""The extensions of which capd passes each message to the server that it is for."""
MOST_EXTENSIONS = 32
MOST_SETTINGS_BYTES = 4096
"""An extension with more bytes of settings is left out."""
_IDENTIFIER = lazy_pattern(r"[A-Za-z0-9][A-Za-z0-9.-]{0,127}/[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def session_extensions(of_servers: Iterable[bytes]) -> dict[str, msgspec.Raw]:
    """Return the member `extensions` of capd's capabilities, by identifier.

    `of_servers` are the members `extensions` of the capabilities of the session's servers, as JSON.
    If two servers have the same extension, the settings of the first are used.
    """
    found: Members = {name: msgspec.Raw(b"{}") for name in RELAYED}
    for written in of_servers:
        for name, settings in members_or_none(written).items():
            is_bounded = len(settings) <= MOST_SETTINGS_BYTES and len(found) < MOST_EXTENSIONS
            is_object = bytes(settings).lstrip()[:1] == b"{"
            if name not in found and is_bounded and is_object and _IDENTIFIER.fullmatch(name):
                found[name] = settings
    return found
