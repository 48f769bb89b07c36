"""A tool's result over its limit, made short: a valid result of the same shape, with a handle.

    summary | content, cut block by block | structuredContent, cut by its schema | all other members

Every other member, and every block that fits, stays the bytes that it came in. The same result,
limit and handle give the same bytes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from capd.core.protocol.eras import joined, members_or_none, raw
from capd.core.results import schema_fit
from capd.core.results.blocks import Block, Parts, parts_of
from capd.core.results.handles import link_to
from capd.core.results.json_cut import (
    SHORT,
    CutJson,
    cut_json,
    encoded_width,
    is_container,
    water_level,
    width,
)
from capd.core.results.limits import MEDIA_LIMIT
from capd.core.results.path_hints import hints, unseen
from capd.core.results.schema_fit import Objections, fitted, note_of
from capd.core.results.summary import (
    Told,
    described,
    described_text,
    missing_lines,
    next_read,
    summary,
)
from capd.core.results.text_cut import cut_text
from capd.core.results.truncated import closed
from capd_protos.codec import MalformedError

_META = "capd/compacted"
_FAIR_BLOCKS = 8
_SMALL = 200
_TOLD = 1500
"""What the sentences of a summary take at most, nearly always."""
_SCALES = (1.0, 0.75, 0.5, 0.25, 0.1)


@dataclass(frozen=True, slots=True)
class Wanted:
    """How one result is to be made short."""

    tool: str
    limit: int
    handle: str
    reader: str = "result_read"
    media_limit: int = MEDIA_LIMIT
    objections: Objections | None = None
    """Of the tool's output schema, where it has one."""
    is_promised: bool = True
    """Whether the client was told of that schema."""
    knows_links: bool = True
    """Whether the client knows blocks that are links."""
    beyond_bytes: int = 0
    """How much more of the result there is than was given."""

    @property
    def room(self) -> int:
        """How long the short one may be: what a model asks for next has to fit in as well."""
        return self.limit * 3 // 4


@dataclass(frozen=True, slots=True)
class Compacted:
    """The short result."""

    result: bytes
    characters_in: int
    characters_out: int


def is_over(parts: Parts, limit: int, media_limit: int) -> bool:
    """Tell whether a result has to be made short."""
    return parts.characters > limit or parts.media_characters > media_limit


def compacted(parts: Parts, wanted: Wanted) -> Compacted | None:
    """Return the short result, None where it cannot be had."""
    found = hints(_main_text(parts))
    for scale in _SCALES:
        attempt = _Attempt(parts, wanted, int(wanted.room * scale), found)
        out = attempt.result()
        passed = sum(block.media_characters for block in attempt.passed)
        if (characters := width(out) - passed) <= wanted.room or attempt.is_short:
            return Compacted(out, parts.characters, characters)
    return None


def compacted_beginning(beginning: bytes, wanted: Wanted, *, is_error: bool) -> Compacted | None:
    """Return the short result of one of which only the beginning is at hand."""
    try:
        parts = parts_of(closed(beginning))
    except MalformedError:
        return None
    if is_error:
        parts.members["isError"] = raw(True)
    return compacted(parts, wanted)


@dataclass(slots=True)
class _Part:
    """What became of a part, and what is said of it."""

    data: bytes
    missing: list[str] = field(default_factory=list)
    example: str = ""


class _Attempt:
    """One result, in one room."""

    def __init__(self, parts: Parts, wanted: Wanted, room: int, found: Sequence[str]) -> None:
        self.passed: list[Block] = []
        """Blocks whose media are passed on."""
        self._parts, self._wanted, self._room = parts, wanted, room
        self._hints = found
        self._links = _links(parts.blocks, wanted.media_limit)
        self.is_short = parts.characters <= wanted.limit and not wanted.beyond_bytes
        """Whether only its media are too much."""
        self._forbids = False

    def result(self) -> bytes:
        parts, wanted = self._parts, self._wanted
        if self.is_short:
            content = self._content(parts.text_characters * 6 + self._room)
            return self._joined(content, _Part(parts.structured))
        others = {
            k: v for k, v in parts.members.items() if k not in {"content", "structuredContent"}
        }
        reserve = _TOLD + self._hints_width(self._room // 4)
        reserve += min(width(joined(others)), self._room // 4)
        room = max(self._room - reserve, 0)
        content_width = sum(self._encoded(block) for block in parts.blocks)
        structured_width = width(parts.structured)
        level = water_level([content_width, structured_width], room)
        structured = self._structured(min(structured_width, level)) if parts.structured else None
        self._forbids = wanted.objections is not None and structured is None and not parts.is_error
        used = width(structured.data) if structured is not None else 0
        return self._joined(self._content(room - used), structured)

    def _hints_width(self, room: int) -> int:
        """Return how much of `room` is of use to paths and URLs."""
        return min(sum(len(each) + 3 for each in self._hints), room)

    # The parts

    def _structured(self, room: int) -> _Part | None:
        data, wanted = self._parts.structured, self._wanted
        # Whatever else there is: without it the result is of another shape.
        room = max(room, SHORT)
        if width(data) <= room:
            return _Part(data)
        note = note_of(wanted.handle, wanted.reader)
        objections = wanted.objections
        if objections is None or self._parts.is_error:
            objections = _no_objections
        cut = fitted(data, room, objections, note)
        if cut is None:
            return None
        example = next_read(wanted.handle, cut.omissions, "")
        return _Part(cut.data, missing_lines(cut.omissions), example)

    def _content(self, room: int) -> list[_Part]:
        blocks = self._parts.blocks
        widths = [self._encoded(block) for block in blocks]
        fair = max(room // _FAIR_BLOCKS, _SMALL)
        shown, used = 0, 0
        for block, each in zip(blocks, widths, strict=True):
            used += (min(each, fair) if block.text is not None else each) + 1
            if used > room:
                break
            shown += 1
        level = water_level(widths[:shown], room - shown)
        found: list[_Part] = []
        for index, block in enumerate(blocks[:shown]):
            found.append(self._block(index, block, min(widths[index], level)))
        if shown < len(blocks):
            left = sum(widths[shown:])
            text = f"parts {shown} to {len(blocks) - 1} of {len(blocks):,}, {left:,} characters"
            part = msgspec.json.encode(str(shown)).decode()
            example = f'{{"handle":"{self._wanted.handle}","part":{part}}}'
            found.append(_Part(b"", [text], example))
        return found

    def _encoded(self, block: Block) -> int:
        if block.media:
            return _SMALL if block in self._links else block.width
        return width(joined(block.members))

    def _block(self, index: int, block: Block, room: int) -> _Part:
        if block.media:
            return self._media(index, block)
        data = joined(block.members)
        if block.text is None or width(data) <= room:
            return _Part(data)
        around = width(block.with_text(""))
        part = "" if self._is_main(index) else str(index)
        text, missing, example = self._text(block.text, room - around, part)
        return _Part(block.with_text(text), missing, example)

    def _media(self, index: int, block: Block) -> _Part:
        if block not in self._links:
            self.passed.append(block)
            return _Part(joined(block.members))
        uri = link_to(self._wanted.handle, index)
        size = block.media_characters
        said = f"part {index}: {block.kind} {block.mime} of {size:,} characters, read as {uri}"
        name = f"{block.kind} {index}"
        if self._wanted.knows_links:
            return _Part(block.as_link(uri, name), [said])
        return _Part(joined({"type": raw("text"), "text": raw(f"[{name}: {uri}]")}), [said])

    def _text(self, text: str, room: int, part: str) -> tuple[str, list[str], str]:
        handle = self._wanted.handle
        where = f"part {part}, " if part else ""
        cut = self._json_text(text, room)
        if cut is not None:
            lines = missing_lines(cut.omissions, where)
            return cut.data.decode(), lines, next_read(handle, cut.omissions, part)
        is_beginning = bool(self._wanted.beyond_bytes)
        short = cut_text(text, room, has_end=not is_beginning)
        if short is None:
            return "", [f"{where}{len(text):,} characters"], ""
        counted = f"{short.lines:,} lines, " if short.lines else ""
        said = f"{where}{counted}{short.end - short.start:,} characters from offset {short.start}"
        chosen = f',"part":"{part}"' if part else ""
        return short.text, [said], f'{{"handle":"{handle}","offset":{short.start}{chosen}}}'

    def _json_text(self, text: str, room: int) -> CutJson | None:
        data = text.encode()
        if not is_container(data):
            return None
        if self._wanted.beyond_bytes:
            data = closed(data)
        inner = room * len(text) // max(encoded_width(text), 1)
        try:
            for _ in _SCALES:
                cut = cut_json(data, inner)
                if cut is None or encoded_width(cut.data.decode()) <= room:
                    return cut
                inner = inner * 9 // 10
        except MalformedError:
            pass
        return None

    def _is_main(self, index: int) -> bool:
        """Tell whether a handle without a part means this block."""
        texts = [i for i, block in enumerate(self._parts.blocks) if block.text is not None]
        return not self._parts.structured and texts == [index]

    # The whole

    def _joined(self, content: Sequence[_Part], structured: _Part | None) -> bytes:
        parts, wanted = self._parts, self._wanted
        members = dict(parts.members)
        if structured is not None and structured.data:
            members["structuredContent"] = msgspec.Raw(structured.data)
        else:
            members.pop("structuredContent", None)
        if self._forbids and wanted.is_promised:
            # Without it clients refuse a result that has no structured content.
            members["isError"] = raw(True)
        meta = members_or_none(members.get("_meta", b""))
        said = {"handle": wanted.handle, "characters": parts.characters}
        meta[_META] = raw(
            said | ({"beyondBytes": wanted.beyond_bytes} if wanted.beyond_bytes else {})
        )
        members["_meta"] = msgspec.Raw(joined(meta))
        data = [each.data for each in content if each.data]
        members["content"] = msgspec.Raw(b"[" + b",".join(data) + b"]")
        media = sum(block.media_characters for block in self.passed)
        left = max(wanted.room if self.is_short else self._room, 1200)
        left -= 0 if self.is_short else width(joined(members)) - media
        text = self._summary([*([structured] if structured else []), *content], left - 60, data)
        block = joined({"type": raw("text"), "text": raw(text)})
        members["content"] = msgspec.Raw(b"[" + b",".join([block, *data]) + b"]")
        return joined(members)

    def _summary(self, told: Sequence[_Part], room: int, shown: Sequence[bytes]) -> str:
        parts, wanted = self._parts, self._wanted
        missing = list(dict.fromkeys(line for part in told for line in part.missing))
        examples = [part.example for part in told if part.example]
        remark = ""
        if self._forbids:
            remark = (
                "The call succeeded. The tool's output schema allows no shorter structured "
                "content, so this preview stands in its place"
            )
            marked = ", and is marked as an error for that reason alone."
            remark += marked if wanted.is_promised else "."
        elif (
            parts.structured
            and told
            and told[0].missing
            and schema_fit.NOTE.encode() not in told[0].data
        ):
            remark = "The structured content is cut as well; its schema has no place to say so."
        visible = b"".join(shown).decode(errors="replace") + "".join(missing)
        found = [] if self.is_short else unseen(self._hints, visible, max(room, 0))
        return summary(
            Told(
                tool=wanted.tool,
                handle=wanted.handle,
                reader=wanted.reader,
                characters=parts.characters,
                whole=self._described(),
                beyond_bytes=wanted.beyond_bytes,
                missing=missing,
                example=examples[0] if examples else "",
                remark=remark,
                hints=found,
            ),
            room,
        )

    def _described(self) -> str:
        parts = self._parts
        if parts.structured and width(parts.structured) >= parts.text_characters:
            return described(parts.structured)
        texts = [block for block in parts.blocks if block.text is not None]
        if len(parts.blocks) != 1 or not texts:
            kinds: dict[str, int] = {}
            for block in parts.blocks:
                kinds[block.kind] = kinds.get(block.kind, 0) + 1
            counted = ", ".join(f"{count:,} {kind}" for kind, count in kinds.items())
            return f"{len(parts.blocks):,} parts: {counted}"
        text = texts[0].text or ""
        whole = described(text.strip().encode()) if is_container(text[:100].encode()) else ""
        return whole if whole and whole != "a JSON value" else described_text(text)


def _main_text(parts: Parts) -> str:
    texts = [block.text for block in parts.blocks if block.text is not None]
    if width(parts.structured) > sum(map(len, texts)):
        return parts.structured.decode(errors="replace")
    return "\n".join(texts)


def _links(blocks: Sequence[Block], media_limit: int) -> list[Block]:
    """Return the blocks whose media have to become links."""
    links: list[Block] = []
    left = media_limit
    for block in blocks:
        if block.media_characters > left:
            links.append(block)
        else:
            left -= block.media_characters
    return links


def _no_objections(_: bytes) -> Sequence[tuple[str | int, ...]]:
    return ()
