r"""Removes from definitions the characters that a person does not see and a model may read.

These are removed, for these reasons:

    terminal sequences    ESC [ ... and ESC ] ... steer a terminal: colours, links, the clipboard
    controls              C0 and C1 except tab and line ends; a lone CR writes over its own line
    directions            embeddings, overrides and isolates make a terminal or browser show text in
                          another order than it is stored in
    tags                  U+E0000-E007F spell ASCII that no font shows ("ASCII smuggling")
    selectors             variation selectors can spell bytes if there is more than one after a
                          character, or if the character has no variants
    invisible             everything else that Unicode says is shown as nothing (its property
                          Default_Ignorable_Code_Point), and U+FFF9-FFFB

These stay, because ordinary text needs them, one at a time and never several in a row: the joiners
and the zero-width space among letters of scripts that have them, the joiner between emoji, a
variation selector after what it varies, direction marks in texts that have right-to-left letters, a
soft hyphen between letters, the fillers and selectors of Hangul and Mongolian, and the three flags
that are spelled with tags. In a `pattern` of a schema nothing is removed: a hidden character is
written as its escape, such as `\u200b`, with which the expression matches the same texts.
"""

import json
import re
import unicodedata
from collections import Counter
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from capd.core.lazy_patterns import lazy_pattern

# The flags of England, Scotland and Wales: the only sequences of tags that fonts have.
_BLACK_FLAG = "\U0001f3f4"
_FLAGS = "|".join(
    _BLACK_FLAG + "".join(chr(0xE0000 + ord(incoming)) for incoming in region) + "\U000e007f"
    for region in ("gbeng", "gbsct", "gbwls")
)
# Only sequences that begin with ESC: U+0090-009F also occur in wrongly decoded text.
_TERMINAL = r"\x1b\[[0-?]*+[ -/]*+[@-~]|\x1b[]PX^_][^\x07\x1b]*+(?:\x07|\x1b\\)|\x1b[ -/]++[0-~]"
_CONTROL = r"\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f"
_DIRECTION = r"\u202a-\u202e\u2066-\u2069"
_TAG = r"\U000e0000-\U000e007f"
_SELECTOR = r"\ufe00-\ufe0f\U000e0100-\U000e01ef\u180b-\u180d\u180f"
_INVISIBLE = (
    r"\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u2060-\u2065\u206a-\u206f"
    r"\u3164\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    r"\U000e0080-\U000e00ff\U000e01f0-\U000e0fff"
)
_HIDDEN = lazy_pattern(
    rf"(?P<flag>{_FLAGS})|(?P<terminal>{_TERMINAL})|(?P<control>[{_CONTROL}]|\r(?!\n))"
    rf"|(?P<direction>[{_DIRECTION}])|(?P<tag>[{_TAG}])|(?P<selector>[{_SELECTOR}])"
    rf"|(?P<invisible>[{_INVISIBLE}])"
)
# In JSON a hidden character is written as it is, or as an escape. If one of these patterns matches
# something else, that only costs a check.
_RAW = lazy_pattern(f"[{_CONTROL}{_DIRECTION}{_TAG}{_SELECTOR}{_INVISIBLE}]")
_ESCAPE = lazy_pattern(
    r"\\(?:[bf]|r(?!\\n)|u(?:00[018]|009|007[fF]|00[aA][dD]|034[fF]|061[cC]|115[fF]|1160"
    r"|17[bB][45]|180[b-fB-F]|200[b-fB-F]|202[a-eA-E]|206|3164|[fF][eE](?:0|[fF][fF])"
    r"|[fF][fF][aA]0|[fF]{3}|[dD]8(?:2[fF]|34)|[dD][bB]4))"
)
_STRING = lazy_pattern(r'("pattern"\s*:\s*)?("[^"\\]*+(?:\\.[^"\\]*+)*+")')

KINDS: Final = {
    "terminal": "terminal sequences",
    "control": "control characters",
    "direction": "direction overrides",
    "tag": "tag characters",
    "selector": "variation selectors",
    "invisible": "invisible characters",
}
"""The kinds of hidden characters, each with its name for a person."""

_ZERO_WIDTH_SPACE, _NON_JOINER, _JOINER = "\u200b", "\u200c", "\u200d"
_MARKS = frozenset("\u200e\u200f\u061c")
_RIGHT_TO_LEFT = frozenset({"R", "AL"})

# Scripts whose letters join, or stack, or are written without spaces.
_JOINING = (
    *((0x0600, 0x08FF), (0x0900, 0x0DFF), (0x0E00, 0x109F), (0x1780, 0x18AF), (0x1900, 0x1CFF)),
    *((0xA800, 0xABFF), (0xFB50, 0xFDFF), (0xFE70, 0xFEFC), (0x10A00, 0x11FFF), (0x1E900, 0x1E95F)),
)
_WITHOUT_SPACES = ((0x0E00, 0x109F), (0x1780, 0x17FF), (0x1900, 0x1AAF), (0xA9E0, 0xAADF))
_HAN = ((0x2E80, 0x2FDF), (0x3400, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x3FFFF))
_JAMO = ((0x1100, 0x11FF), (0x3130, 0x318F), (0xA960, 0xA97F), (0xD7B0, 0xD7FF), (0xFFA0, 0xFFDC))
_MONGOLIAN = ((0x1820, 0x18AA),)
_IDEOGRAPHIC = ((0xE0100, 0xE01EF),)
_FOUR_DIGITS = 0xFFFF


MOST_HIDDEN = 5000
"""The most hidden characters of one document, kept or removed: each takes some microseconds."""


class TooMuchHiddenError(Exception):
    """A document has too many hidden characters to check."""


@dataclass(frozen=True, slots=True)
class Cleaned:
    """The result of `cleaned`: a text without its hidden characters, and what was removed."""

    text: str
    gone: Counter[str] = field(default_factory=Counter)
    """How many characters of each of `KINDS` were removed."""


def cleaned(text: str) -> Cleaned:
    """Return `text` without its hidden characters."""
    return _cleaned(text, is_escaped=False)


def revealed(text: str) -> str:
    r"""Return `text` with the characters that `cleaned` removes as escapes, such as `\u202e`."""
    return _cleaned(text, is_escaped=True).text


def cleaned_json(written: bytes) -> tuple[bytes, Counter[str]]:
    """Return a JSON document with every string cleaned, and how many characters were changed.

    The counts are by the names in `KINDS`. Characters are removed, or escaped in a `pattern`. A
    document without hidden characters is returned unchanged.

    Raises:
        TooMuchHiddenError: there are more than `MOST_HIDDEN` hidden characters.
    """
    text = written.decode("utf-8", "replace")
    gone: Counter[str] = Counter()
    if not _is_suspect(text):
        return written, gone
    raw = _RAW.finditer(text)
    escaped = _ESCAPE.finditer(text)
    if any(next(islice(each, MOST_HIDDEN, None), None) for each in (raw, escaped)):
        raise TooMuchHiddenError

    def rewritten(match: "re.Match[str]") -> str:
        before, string = match[1] or "", match[2]
        if not _is_suspect(string):
            return match[0]
        found = _cleaned(json.loads(string), is_escaped=bool(before))
        if not found.gone:
            return match[0]
        gone.update(found.gone)
        return before + json.dumps(found.text, ensure_ascii=False)

    rest = _STRING.sub(rewritten, text)
    return (rest.encode("utf-8", "replace"), gone) if gone else (written, gone)


def visible(text: str) -> str:
    r"""Return `text` for a person, with hidden characters as escapes, such as `\u{202e}`."""
    return _HIDDEN.sub(lambda match: "".join(map(_spelled, match[0])), text)


def _is_suspect(written: str) -> bool:
    # A search for a backslash is fast, and most definitions have none.
    has_escape = "\\" in written and _ESCAPE.search(written) is not None
    return has_escape or _RAW.search(written) is not None


def _cleaned(text: str, *, is_escaped: bool) -> Cleaned:
    parts: list[str] = []
    gone: Counter[str] = Counter()
    kept_to, before = 0, ""
    is_right_to_left: bool | None = None
    for match in _HIDDEN.finditer(text):
        start, end = match.span()
        # The two kept characters before this one.
        before = (before + text[max(kept_to, start - 2) : start])[-2:]
        kind = str(match.lastgroup)
        hidden = match[0]
        if hidden in _MARKS and is_right_to_left is None:
            is_right_to_left = _has_right_to_left(text)
        if kind == "flag" or _belongs(
            hidden, before, text[end : end + 1], is_right_to_left=bool(is_right_to_left)
        ):
            parts.append(text[kept_to:end])
            before = (before + hidden)[-2:]
        else:
            parts.append(text[kept_to:start])
            if is_escaped:
                parts.append("".join(map(_escaped, hidden)))
            gone[kind] += 1
        kept_to = end
    if not gone:
        return Cleaned(text)
    return Cleaned("".join([*parts, text[kept_to:]]), gone)


def _belongs(hidden: str, before: str, after: str, *, is_right_to_left: bool) -> bool:
    """Tell whether ordinary text has the character `hidden` at this place.

    `before` are the two characters before it, `after` is the one after it. `is_right_to_left` says
    that the text has right-to-left letters.
    """
    last = before[-1:]
    if not last and hidden not in _MARKS:
        return False
    if hidden in {_JOINER, _NON_JOINER}:
        joins = _in(last, _JOINING) and not _is_hidden(last)
        return joins or (hidden == _JOINER and _is_emoji(before) and _is_symbol(after))
    if hidden == _ZERO_WIDTH_SPACE:
        return _in(last, _WITHOUT_SPACES) and not _is_hidden(last)
    if hidden in _MARKS:
        return is_right_to_left and not (last and _is_hidden(last))
    if hidden == "\xad":
        return last.isalpha() and after.isalpha()
    if hidden == "\u034f":
        return unicodedata.category(last) == "Mn" and not _is_hidden(last)
    if hidden in {"\u115f", "\u1160", "\u3164", "\uffa0"}:
        is_run = _is_hidden(last)
        return not is_run and (_in(last, _JAMO) or _in(after, _JAMO))
    if hidden in {"\u180b", "\u180c", "\u180d", "\u180e", "\u180f"}:
        return _in(last, _MONGOLIAN)
    if _in(hidden, _IDEOGRAPHIC):
        return _in(last, _HAN)
    if "\ufe00" <= hidden <= "\ufe0f":
        return _has_variants(last)
    return False


def _has_variants(base: str) -> bool:
    """Tell whether a variation selector after `base` has a meaning."""
    if _is_hidden(base):
        return False
    category = unicodedata.category(base)
    is_written_so = _in(base, _HAN) or _in(base, ((0x1000, 0x109F), (0xA840, 0xA87F)))
    return category[0] in "SPN" or base == "\u2139" or is_written_so


def _is_emoji(before: str) -> bool:
    """Tell whether `before` ends with an emoji, its selector or skin tone included."""
    last = before[-1:]
    return _is_symbol(last) or (last == "\ufe0f" and _is_symbol(before[:-1]))


def _is_symbol(char: str) -> bool:
    return bool(char) and unicodedata.category(char) in {"So", "Sk", "Sm"} and not char.isascii()


def _is_hidden(char: str) -> bool:
    return bool(_HIDDEN.match(char))


def _in(char: str, ranges: tuple[tuple[int, int], ...]) -> bool:
    return len(char) == 1 and any(first <= ord(char) <= last for first, last in ranges)


def _has_right_to_left(text: str) -> bool:
    return any(
        unicodedata.bidirectional(char) in _RIGHT_TO_LEFT for char in text if char not in _MARKS
    )


def _escaped(char: str) -> str:
    """Return the escape of a character in regular expressions of ECMA-262."""
    if ord(char) <= _FOUR_DIGITS:
        return f"\\u{ord(char):04x}"
    return f"\\u{{{ord(char):x}}}"


def _spelled(char: str) -> str:
    return char if " " <= char <= "~" or char == _BLACK_FLAG else f"\\u{{{ord(char):x}}}"
