"""Entries of the lists beside the tools: prompts, resources and templates, cleaned.

What an entry is asked for by stays as it is, so one that has something hidden there is left out.
"""

from collections.abc import Iterable, Iterator

import msgspec

from capd.core.definitions.hidden_text import cleaned_json
from capd_protos.codec import JsonCodec, MalformedError


class _Asked(msgspec.Struct, rename="camel"):
    """What `prompts/get` or `resources/read` names."""

    name: object = ""
    uri: object = ""
    uri_template: object = ""


_ASKED: JsonCodec[_Asked] = JsonCodec(_Asked)


def cleaned_entries(kind: str, entries: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the entries of a list; `kind` is `prompts`, `resources` or `resources/templates`."""
    for entry in entries:
        clean, gone = cleaned_json(entry)
        if not gone or _asked(kind, clean) == _asked(kind, entry):
            yield clean


def _asked(kind: str, entry: bytes) -> tuple[object, ...]:
    try:
        read = _ASKED.decode(entry)
    except MalformedError:
        return ()
    # The name of a resource is for people.
    return (read.name,) if kind == "prompts" else (read.uri, read.uri_template)
