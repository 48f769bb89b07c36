"""Shortens a tool's result that is over its limit. The short result has the same shape.

    summary | content, cut block by block | structuredContent, cut by its schema | all other members

The summary has the handle by which a model reads the rest. Every other member of the result, and
every block that fits, keeps its bytes. The same result, limit and handle always give the same
bytes.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from capd.core.lazy_patterns import lazy_pattern
from capd.core.protocol.generations import joined, members_or_none, raw
from capd.core.results import schema_fit
from capd.core.results.blocks import Block, ResultParts, parts_of
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
from capd.core.results.schema_fit import Objections, fitted, note_of
from capd.core.results.summary import (
    SummaryFacts,
    described,
    described_text,
    missing_lines,
    next_read,
    summary,
)
from capd_protos.codec import MalformedError

_TOKEN = lazy_pattern(
    rb'[ \t\r\n]*(?:([{\[])|([}\]])|([,:])|"((?:[^"\\]+|\\.)*)(")?|([^ \t\r\n",:{}\[\]]+))',
    re.DOTALL,
)


# A surrogate pair is two escapes and one character.
_COMPLETE = lazy_pattern(
    rb"(?:[^\\]+|\\u[dD][89abAB]..\\u[dD][c-fC-F]..|\\u(?![dD][89abAB])[0-9a-fA-F]{4}|\\[^u])*",
    re.DOTALL,
)

_DEEPEST = 200


# {"content":[{"type":"text","text":"abc\u00   ->   {"content":[{"type":"text","text":"abc"}]}
#
# A string that was cut keeps its beginning. Any other value that was cut is dropped.
def close_json(beginning: bytes) -> bytes:
    """Return valid JSON made of `beginning`, the first bytes of a JSON value."""
    at, depth = 0, bytearray()
    safe, closers = 0, b""
    is_key = False
    while (token := _TOKEN.match(beginning, at)) is not None and len(depth) < _DEEPEST:
        opening, closing, between, text, quote, scalar = token.groups()
        at = token.end()
        if opening:
            depth += b"}" if opening == b"{" else b"]"
            is_key = opening == b"{"
            safe, closers = at, bytes(reversed(depth))
        elif closing:
            del depth[-1:]
            safe, closers = at, bytes(reversed(depth))
            is_key = False
        elif between:
            is_key = between == b"," and depth.endswith(b"}")
        elif text is not None and not quote:
            if is_key:
                break
            return (
                beginning[: token.end() - len(text)] + _whole(text) + b'"' + bytes(reversed(depth))
            )
        elif not is_key and (text is not None or at < len(beginning)):
            safe, closers = at, bytes(reversed(depth))
        elif scalar:
            break
        if not depth:
            break
    return beginning[:safe] + closers


def _whole(text: bytes) -> bytes:
    """Return `text`, the inside of a JSON string, without a cut escape or character at the end."""
    complete = _COMPLETE.match(text)
    return text[: complete.end() if complete is not None else 0].decode(errors="ignore").encode()


_HEAD_SHARE = 0.7
"""The share of the room for the beginning of a cut text; its end gets the rest. Tables and source
code begin with what explains the rest, and logs end with what matters."""

_WHOLE_LINES = 0.8
"""A cut is moved to the end of a line if the beginning, or the end, of the text then fills at least
this share of its room."""

_TRIES = 12


@dataclass(frozen=True, slots=True)
class CutText:
    """A text without its characters from `start` to `end`, with a note in their place."""

    text: str
    start: int
    end: int
    lines: int
    """The number of line ends in the part that is left out."""


def cut_text(text: str, room: int, *, has_end: bool = True) -> CutText | None:
    """Return `text` cut to `room` characters of JSON; None if not even the note fits.

    `has_end` is False if `text` is only the beginning of a longer text; then no end is kept.
    """
    inner = float(room)
    for _ in range(_TRIES):
        cut = _cut(text, int(inner), has_end=has_end)
        if (over := encoded_width(cut.text) / max(room, 1)) <= 1:
            return cut
        inner *= min(0.97 / over, 0.95)
        if inner < 1:
            return None
    return None


def _cut(text: str, room: int, *, has_end: bool) -> CutText:
    # The note takes about a hundred characters.
    inner = max(room - 120, 0)
    head = int(inner * _HEAD_SHARE) if has_end else inner
    border = text.rfind("\n", 0, head) + 1
    start = border if border >= head * _WHOLE_LINES else head
    tail = inner - head
    end = max(len(text) - tail, start)
    border = text.find("\n", end - 1) + 1 if end else 0
    if border and len(text) - border >= tail * _WHOLE_LINES:
        end = max(border, start)
    lines = text.count("\n", start, end)
    note = _note(start, end, lines)
    before = "" if start == 0 or text[start - 1] == "\n" else "\n"
    return CutText(f"{text[:start]}{before}{note}\n{text[end:]}", start, end, lines)


def _note(start: int, end: int, lines: int) -> str:
    counted = f"{lines:,} lines, " if lines else ""
    return f"[… capd left out {counted}{end - start:,} characters: offset {start} to {end} …]"


LONGEST = 300
"""The most characters of a path or URL. A longer one is data, and would be useless if cut."""


# Matched backwards: from the front, the search would start at every character.
_BEFORE = lazy_pattern(r"[^\s\"'`<>()\[\]{}|,;=\\\x00-\x1f\x7f]*")

_AFTER = lazy_pattern(r"[^\s\"'`<>()\[\]{}|,;\\\x00-\x1f\x7f]*")

_NAMED = lazy_pattern(r"[^\W\d_]{2}")

_MOST_LOOKS = 10_000
"""How many slashes are examined: a text of nothing but slashes would take seconds."""

_MOST_FOUND = 1_000

_TRAILING = ".:!?*"


# A hand-written scan from slash to slash: a regular expression for whole paths looks at each
# character of a long word once for every one before it, and took nine seconds for 19 MB.
def hints(text: str) -> list[str]:
    """Return the first 1,000 paths and URLs in a text, each once."""
    found: dict[str, None] = {}
    for hint in _candidates(text):
        found[hint] = None
        if len(found) == _MOST_FOUND:
            break
    return list(found)


def unseen(found: Sequence[str], shown: str, room: int) -> list[str]:
    """Return those of `found` that the text `shown` lacks, as many as `room` characters hold."""
    seen = set(hints(shown))
    kept: list[str] = []
    for hint in found:
        if hint in seen:
            continue
        room -= len(hint) + 3
        if room < 0:
            break
        kept.append(hint)
    return kept


def _candidates(text: str) -> Iterator[str]:
    at = 0
    for _ in range(_MOST_LOOKS):
        at = text.find("/", at)
        if at < 0:
            return
        start = at - _length(_BEFORE, text[max(at - LONGEST, 0) : at][::-1], 0)
        if text[start - 1 : start] == "\\" and text[start : start + 1] in "nrt":
            # In JSON this is the letter of an escaped line end before the path.
            start += 1
        end = at + _length(_AFTER, text, at)
        word = text[start : min(end, start + LONGEST + 1)].rstrip(_TRAILING)
        if _is_hint(word):
            yield word
        at = max(end, at + 1)


def _length(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return found.end() - at if found is not None else 0


def _is_hint(word: str) -> bool:
    """Tell whether a word with a slash is a path or URL, and not, say, a date or a tag."""
    if len(word) > LONGEST or not _NAMED.search(word):
        return False
    if "://" in word:
        return not word.startswith(":")
    if word.startswith("//") or word.endswith("/>"):
        return False
    is_rooted = word.startswith(("/", "~/", "./", "../"))
    # In prose a slash separates two words. A path has more slashes, or ends in a file name.
    name = word.rstrip("/").rpartition("/")[2]
    return is_rooted or word.count("/") > 1 or "." in name[1:]


_META = "capd/compacted"

_FAIR_BLOCKS = 8

_SMALL = 200

_TOLD = 1500
"""The characters reserved for the sentences of a summary; nearly all take fewer."""

_SCALES = (1.0, 0.75, 0.5, 0.25, 0.1)


@dataclass(frozen=True, slots=True)
class CompactionOptions:
    """The limits and facts by which one result is shortened."""

    tool: str
    limit: int
    handle: str
    reader: str = "result_read"
    media_limit: int = MEDIA_LIMIT
    objections: Objections | None = None
    """Checks structured content against the tool's output schema; None if the tool has none."""
    is_promised: bool = True
    """Whether the client was shown the output schema."""
    knows_links: bool = True
    """Whether the client accepts `resource_link` blocks."""
    beyond_bytes: int = 0
    """How many bytes of the result are missing here, if only its beginning is shortened."""

    @property
    def room(self) -> int:
        """The most characters of the short result: three quarters of the limit."""
        return self.limit * 3 // 4


@dataclass(frozen=True, slots=True)
class Compacted:
    """The short result as JSON, with the number of characters before and after."""

    result: bytes
    characters_in: int
    characters_out: int


def is_over(parts: ResultParts, limit: int, media_limit: int) -> bool:
    """Tell whether a result has more characters, or more base64, than the limits allow."""
    return parts.characters > limit or parts.media_characters > media_limit


def compacted(parts: ResultParts, wanted: CompactionOptions) -> Compacted | None:
    """Return the short result; None if nothing within the limit is possible."""
    found = hints(_main_text(parts))
    for scale in _SCALES:
        attempt = _Attempt(parts, wanted, int(wanted.room * scale), found)
        out = attempt.result()
        passed = sum(block.media_characters for block in attempt.passed)
        if (characters := width(out) - passed) <= wanted.room or attempt.is_short:
            return Compacted(out, parts.characters, characters)
    return None


def compacted_beginning(
    beginning: bytes, wanted: CompactionOptions, *, is_error: bool
) -> Compacted | None:
    """Return the short result made of the first bytes of a result that is too large for memory.

    `is_error` says that the result has `isError: true`, which may come after these bytes. The
    result is None if they cannot be parsed, or if nothing within the limit is possible.
    """
    try:
        parts = parts_of(close_json(beginning))
    except MalformedError:
        return None
    if is_error:
        parts.members["isError"] = raw(True)
    return compacted(parts, wanted)


@dataclass(slots=True)
class _Part:
    """The new JSON of one part of the result, with lines for the summary about it."""

    data: bytes
    missing: list[str] = field(default_factory=list)
    example: str = ""


class _Attempt:
    """One attempt to shorten a result to a given number of characters."""

    def __init__(
        self, parts: ResultParts, wanted: CompactionOptions, room: int, found: Sequence[str]
    ) -> None:
        self.passed: list[Block] = []
        """The blocks whose media stay in the result."""
        self._parts, self._wanted, self._room = parts, wanted, room
        self._hints = found
        self._links = _links(parts.blocks, wanted.media_limit)
        self.is_short = parts.characters <= wanted.limit and not wanted.beyond_bytes
        """Whether only the media are over their limit, and the texts are not."""
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
        """Return how many characters of `room` the paths and URLs take."""
        return min(sum(len(each) + 3 for each in self._hints), room)

    def _structured(self, room: int) -> _Part | None:
        data, wanted = self._parts.structured, self._wanted
        # Structured content always gets some room: leaving it out would change the result's shape.
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
        line = f"part {index}: {block.kind} {block.mime} of {size:,} characters, read as {uri}"
        name = f"{block.kind} {index}"
        if self._wanted.knows_links:
            return _Part(block.as_link(uri, name), [line])
        return _Part(joined({"type": raw("text"), "text": raw(f"[{name}: {uri}]")}), [line])

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
        line = f"{where}{counted}{short.end - short.start:,} characters from offset {short.start}"
        chosen = f',"part":"{part}"' if part else ""
        return short.text, [line], f'{{"handle":"{handle}","offset":{short.start}{chosen}}}'

    def _json_text(self, text: str, room: int) -> CutJson | None:
        data = text.encode()
        if not is_container(data):
            return None
        if self._wanted.beyond_bytes:
            data = close_json(data)
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
        """Tell whether reading the stored result, without naming a part, returns block `index`."""
        texts = [i for i, block in enumerate(self._parts.blocks) if block.text is not None]
        return not self._parts.structured and texts == [index]

    def _joined(self, content: Sequence[_Part], structured: _Part | None) -> bytes:
        parts, wanted = self._parts, self._wanted
        members = dict(parts.members)
        if structured is not None and structured.data:
            members["structuredContent"] = msgspec.Raw(structured.data)
        else:
            members.pop("structuredContent", None)
        if self._forbids and wanted.is_promised:
            # Clients accept a missing structured content only in a result that is an error.
            members["isError"] = raw(True)
        meta = members_or_none(members.get("_meta", b""))
        facts = {"handle": wanted.handle, "characters": parts.characters}
        meta[_META] = raw(
            facts | ({"beyondBytes": wanted.beyond_bytes} if wanted.beyond_bytes else {})
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

    def _summary(self, cut_parts: Sequence[_Part], room: int, shown: Sequence[bytes]) -> str:
        parts, wanted = self._parts, self._wanted
        missing = list(dict.fromkeys(line for part in cut_parts for line in part.missing))
        examples = [part.example for part in cut_parts if part.example]
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
            and cut_parts
            and cut_parts[0].missing
            and schema_fit.NOTE.encode() not in cut_parts[0].data
        ):
            remark = "The structured content is cut as well; its schema has no place to say so."
        visible = b"".join(shown).decode(errors="replace") + "".join(missing)
        found = [] if self.is_short else unseen(self._hints, visible, max(room, 0))
        return summary(
            SummaryFacts(
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


def _main_text(parts: ResultParts) -> str:
    texts = [block.text for block in parts.blocks if block.text is not None]
    if width(parts.structured) > sum(map(len, texts)):
        return parts.structured.decode(errors="replace")
    return "\n".join(texts)


def _links(blocks: Sequence[Block], media_limit: int) -> list[Block]:
    """Return the blocks that become links, because their media do not fit into `media_limit`."""
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
