"""Cuts structured content so that it still satisfies its tool's output schema.

After each cut a validator checks the value. Where it objects, the value is restored: a list or an
object gets all its items back and, if the validator still objects, its original bytes. So every
keyword is respected. If the restored value is too long, the schema forbids a cut.
"""

from collections.abc import Callable, Sequence

import msgspec

from capd.core.results.json_cut import CutJson, KeptPlaces, Omission, Path, Split, cut_json

Objections = Callable[[bytes], Sequence[Path]]
"""A function that returns the places at which a JSON value violates a schema, if any."""

_ROUNDS = 24
NOTE = "capd_compacted"
"""The member of structured content which says that the content is cut."""


def fitted(data: bytes, room: int, objections: Objections, note: bytes = b"") -> CutJson | None:
    """Return `data` cut to `room` characters so that it satisfies its schema; None if impossible.

    `objections` checks a value against the schema. `note` is the JSON value of a member `NOTE`,
    which is added as the first one unless the schema forbids it.
    """
    noted = _noted(data, room, objections, note) if note else None
    return noted or _fitted(data, room, objections, b"")


def _noted(data: bytes, room: int, objections: Objections, note: bytes) -> CutJson | None:
    if not data.startswith(b"{"):
        return None
    name = NOTE.encode()
    while b'"%s"' % name in data:
        name = b"_" + name
    return _fitted(data, room, objections, b'"%s":%s' % (name, note))


def _fitted(data: bytes, room: int, objections: Objections, member: bytes) -> CutJson | None:
    kept, split = KeptPlaces(), Split()
    for _ in range(_ROUNDS):
        cut = cut_json(data, room - len(member) - bool(member), kept, split)
        if cut is None:
            return None
        out = _with_first(cut.data, member)
        objected = objections(out)
        if not objected:
            return CutJson(out, cut.omissions)
        if member and not cut.omissions:
            return None
        before = len(kept.whole), len(kept.full)
        for path in objected:
            _protect(kept, path, cut.omissions)
        if before == (len(kept.whole), len(kept.full)):
            return None
    return None


def _with_first(data: bytes, member: bytes) -> bytes:
    if not member:
        return data
    rest = data[1:].lstrip()
    return b"{" + member + (b"" if rest.startswith(b"}") else b",") + rest


def _protect(kept: KeptPlaces, path: Path, omissions: Sequence[Omission]) -> None:
    """Add to `kept` the places that must not be cut, because the validator objects at `path`."""
    before = len(kept.whole), len(kept.full)
    at = [each for each in omissions if each.path == path]
    below = [each for each in omissions if each.path[: len(path)] == path]
    for each in at or below:
        if each.what in {"items", "members"} and each.path not in kept.full:
            kept.full.add(each.path)
        else:
            kept.whole.add(each.path)
    if before == (len(kept.whole), len(kept.full)) and (at or below):
        kept.whole.add(path)


def note_of(handle: str, tool: str) -> bytes:
    """Return the value of the member that says that structured content is cut.

    `tool` is the name of the tool that reads the whole result by `handle`.
    """
    text = f"This is cut to its first parts. The tool {tool} reads all of it by the handle."
    return msgspec.json.encode({"handle": handle, "note": text})
