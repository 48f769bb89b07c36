"""Write protos/socket.schema.json from the structs of capd_protos.socket.

Run `python protos/regenerate.py` after a change there; a test compares.
"""

import pathlib
import typing

import msgspec

from capd_protos import SOCKET_PROTOCOL, socket

SCHEMA = pathlib.Path(__file__).with_name("socket.schema.json")


def schema_text() -> str:
    """Return the JSON Schema of the socket's frames and of the control methods' params, as text."""
    frames = [*typing.get_args(socket.FromClient), *typing.get_args(socket.FromDaemon)]
    frames.remove(socket.Hello)
    roots = [socket.Hello, *frames, socket.RpcResponse, *dict.fromkeys(socket.METHODS.values())]
    refs, components = msgspec.json.schema_components(roots, ref_template="#/$defs/{name}")
    by_name = {root.__name__: ref for root, ref in zip(roots, refs, strict=True)}
    document = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "capd socket",
        "version": SOCKET_PROTOCOL,
        "description": "Lines of the capd socket; docs/protocol.md says who sends which when.",
        "$defs": components,
        "fromClient": {"anyOf": [by_name[t.__name__] for t in typing.get_args(socket.FromClient)]},
        "fromDaemon": {"anyOf": [by_name[t.__name__] for t in typing.get_args(socket.FromDaemon)]},
        "methods": {name: by_name[t.__name__] for name, t in socket.METHODS.items()},
    }
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"


if __name__ == "__main__":
    SCHEMA.write_text(schema_text(), encoding="utf-8")
