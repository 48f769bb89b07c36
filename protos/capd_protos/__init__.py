"""Every message of capd: the socket's frames, the actors' requests, replies and events.

`PROTOCOL` is the version of the bus between actors, `SOCKET_PROTOCOL` that of the public
Unix socket (docs/protocol.md). Within one version fields may be added, with defaults; nothing
is renamed or removed. docs/architecture.md has a glossary of the words that the messages use.
"""

PROTOCOL = 1
SOCKET_PROTOCOL = 1
