"""The text of capability-index.yaml: reads what a person set in it, and updates the rest.

The text is divided into parts: one for each top-level key, and one for each capability below
`capabilities`. A capability whose digest shows that nothing has changed keeps its bytes. The part
of a changed capability is parsed and rewritten by a library that keeps comments, order and quotes.
The library is slow, so it gets the whole text only if the layout is not capd's. A text that is not
YAML is never overwritten.
"""

import io
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec

from capd.core.errors import CapdError
from capd.core.index import document
from capd.core.lazy_patterns import lazy_pattern

if TYPE_CHECKING:
    from ruamel.yaml import YAML

NAME = "capability-index.yaml"
DEEPEST = 100
"""The most levels of nesting in a text. A text that capd writes has five."""
_HEAD = """\
# What is installed, in a few words: capd writes this file with `capd index`, and reads it.
# Change verb, do, use_when and activation as you like: what is not capd's own word any more stays
# as it is. The other values are facts and are written anew. Your own keys and comments stay.
"""
_TOP = lazy_pattern(r"^([A-Za-z_][\w-]*):", re.MULTILINE)
_KEY = lazy_pattern(
    r"^  (?! |#|-)(\"(?:[^\"\\]|\\.)*\"|'(?:[^']|'')*'|[^\s:][^\n]*?):[ \t]*$", re.MULTILINE
)
_DIGEST = lazy_pattern(rf"^    {document.DIGEST}: [\"']?([0-9a-f]+)[\"']?[ \t]*$", re.MULTILINE)
_PLAIN = lazy_pattern(r"[A-Za-z][A-Za-z0-9_./-]*")
_NO_TEXT = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})


class IndexFileError(CapdError):
    """The file capability-index.yaml cannot be read or written; it stays as it is."""


@dataclass(frozen=True, slots=True)
class Content:
    """The content of the index file: its sources, entries and metrics."""

    sources: list[dict[str, Any]]
    capabilities: Mapping[str, document.Values]
    """By `tap/name`, as `document.with_digests` returns them."""
    metrics: dict[str, Any]


def loaded(text: str) -> Mapping[str, Any]:
    """Return the data in `text`, the content of capability-index.yaml.

    Raises:
        IndexFileError: the text is not YAML, or not a mapping.
    """
    import yaml  # noqa: PLC0415 - only for users with such a file

    try:
        read = yaml.load(text, _loader())  # noqa: S506 - a safe one
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        what = " ".join(str(error).split())
        raise IndexFileError(f"{NAME} is not YAML ({what}): correct it, or move it away") from error
    if read is None:
        return {}
    if not isinstance(read, Mapping):
        raise IndexFileError(f"{NAME} is not a mapping: correct it, or move it away")
    return read


@cache
def _loader() -> Any:
    """Return a class that loads YAML safely, and limits how deep a text is nested.

    The class is in C (libyaml) if that is available. 50,000 levels overflow libyaml's stack and end
    the process. libyaml itself limits only brackets: to 1,000 levels, since 0.2.6. Both kinds of
    PyYAML's loaders call the two methods below around each node.
    """
    import yaml  # noqa: PLC0415 - as above

    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    class Loader(base):  # type: ignore[misc]
        depth = 0

        def descend_resolver(self, current_node: Any, current_index: Any) -> None:
            super().descend_resolver(current_node, current_index)
            self.depth += 1
            if self.depth > DEEPEST:
                raise yaml.YAMLError(f"it is nested more than {DEEPEST} levels deep")

        def ascend_resolver(self) -> None:
            super().ascend_resolver()
            self.depth -= 1

    return Loader


def own_values(read: Mapping[str, Any]) -> dict[str, document.Overrides]:
    """Return the values that a person has set in the file, by capability.

    `read` is the file's data. Capabilities without such values are left out.
    """
    capabilities = read.get("capabilities")
    if not isinstance(capabilities, Mapping):
        return {}
    found = {
        str(name): document.overrides(each)
        for name, each in capabilities.items()
        if isinstance(each, Mapping)
    }
    return {name: own for name, own in found.items() if own}


def rewritten(old: str, content: Content) -> tuple[str, int]:
    """Return the text `old` of the file, updated to `content`, and how many capabilities changed.

    Raises:
        IndexFileError: the old text is not YAML.
    """
    segments = _segments(old)
    blocks = None if segments is None else _blocks(segments.get("capabilities", ""))
    if segments is None or blocks is None:
        return _rewritten_whole(old, content)
    changed = 0
    written: list[str] = []
    for name, values in content.capabilities.items():
        block = blocks.pop(name, None)
        if block is not None and _digest_of(block) == values[document.DIGEST]:
            written.append(block)
            continue
        changed += 1
        written.append(_block(name, values) if block is None else _merged(name, block, values))
    # Entries of capabilities that are not installed now stay if a person has changed them.
    written += [block for name, block in blocks.items() if _is_touched(name, block)]
    head = "capabilities:" + ("" if written else " {}") + "\n"
    parts = {
        "schema": f"schema: {document.SCHEMA}\n",
        "sources": _emitted({"sources": content.sources}),
        "capabilities": _leading(segments.get("capabilities", "")) + head + "".join(written),
        "memories": segments.get("memories") or "memories: []\n",
        "metrics": _emitted({"metrics": content.metrics}),
    }
    for name in ("schema", "sources", "metrics"):
        parts[name] = _leading(segments.get(name, "")) + parts[name]
    before = segments.pop("", _HEAD if not old.strip() else "")
    others = [segment for name, segment in segments.items() if name not in parts]
    text = before + "".join(_ended(part) for part in [*parts.values(), *others])
    return (old, 0) if text == old else (text, changed)


def _segments(text: str) -> dict[str, str] | None:
    """Return the parts of the file's text by top-level key, each with the comments before it.

    Return None if the text has another layout than capd writes.
    """
    starts = [(_comment_start(text, found.start()), found[1]) for found in _TOP.finditer(text)]
    names = [name for _, name in starts]
    if len(set(names)) != len(names) or "---" in text.split("\n") or "\t" in text:
        return None
    if text.strip() and "capabilities" not in names:
        return None
    found = {"": text[: starts[0][0]]} if starts and starts[0][0] > 0 else {}
    ends = [*(start for start, _ in starts[1:]), len(text)]
    for (start, name), end in zip(starts, ends, strict=False):
        found[name] = text[start:end]
    return found


def _blocks(segment: str) -> dict[str, str] | None:
    """Return the text of each capability in `segment`, the part below the key `capabilities`.

    Return None if the capabilities are not listed one below another.
    """
    if not segment:
        return {}
    body = segment[len(_leading(segment)) :].partition("\n")
    if body[0].strip() not in {"capabilities:", "capabilities: {}"}:
        return None
    rest = body[2]
    starts = [(_comment_start(rest, each.start()), each[1]) for each in _KEY.finditer(rest)]
    if rest.strip() and (not starts or rest[: starts[0][0]].strip()):
        return None
    ends = [*(start for start, _ in starts[1:]), len(rest)]
    found: dict[str, str] = {}
    for (start, key), end in zip(starts, ends, strict=False):
        block = rest[start:end]
        name = str(next(iter(loaded(key + ":")), key)) if key[0] in "\"'" else key
        lines = [line for line in block.split("\n") if line.strip() and not _is_comment(line)]
        if name in found or not all(line.startswith("    ") for line in lines[1:]):
            return None
        found[name] = _ended(block)
    return found


def _comment_start(text: str, at: int) -> int:
    """Return the offset of the comments directly before a key whose line starts at `at`."""
    while at > 0:
        before = text.rfind("\n", 0, at - 1) + 1
        line = text[before : at - 1]
        if not _is_comment(line) or line.startswith("    "):
            break
        at = before
    return at


def _is_comment(line: str) -> bool:
    return line.lstrip().startswith("#")


def _leading(segment: str) -> str:
    lines = segment.split("\n")
    count = next((at for at, line in enumerate(lines) if not _is_comment(line)), 0)
    return "".join(f"{line}\n" for line in lines[:count])


def _ended(text: str) -> str:
    return text if not text or text.endswith("\n") else text + "\n"


def _digest_of(block: str) -> str:
    found = _DIGEST.search(block)
    return found[1] if found is not None else ""


def _merged(name: str, block: str, values: document.Values) -> str:
    yaml, read = _round_trip(_outdented(block))
    entry = read.get(name)
    if not isinstance(entry, dict):
        read[name] = values
    else:
        document.merge(entry, values)
    return _dumped_below(yaml, read)


def _is_touched(name: str, block: str) -> bool:
    entry = _round_trip(_outdented(block))[1].get(name)
    return not isinstance(entry, dict) or document.has_edits(entry) or "#" in block


def revised(old: str, words: Mapping[str, Mapping[str, Any]]) -> tuple[str, int]:
    """Return the text `old` with new words for capabilities, and how many capabilities changed.

    `words` has the new values of each capability's keys, by `tap/name`.

    Raises:
        IndexFileError: the text is not YAML.
    """
    segments = _segments(old)
    blocks = None if segments is None else _blocks(segments.get("capabilities", ""))
    if segments is None or blocks is None:
        yaml, read = _round_trip(old)
        entries: Any = read.get("capabilities")
        changed = _set_words(entries, words) if isinstance(entries, dict) else 0
        return _dumped(yaml, read), changed
    changed = 0
    for name in words.keys() & blocks.keys():
        yaml, read = _round_trip(_outdented(blocks[name]))
        changed += _set_words(read, {name: words[name]})
        blocks[name] = _dumped_below(yaml, read)
    segment = segments["capabilities"]
    segments["capabilities"] = f"{_leading(segment)}capabilities:\n{''.join(blocks.values())}"
    return "".join(segments.values()), changed


def _set_words(entries: dict[str, Any], words: Mapping[str, Mapping[str, Any]]) -> int:
    changed = 0
    for name, said in words.items():
        entry = entries.get(name)
        if not isinstance(entry, dict):
            continue
        others = {key: value for key, value in said.items() if entry.get(key) != value}
        entry.update(others)
        changed += bool(others)
    return changed


def _rewritten_whole(old: str, content: Content) -> tuple[str, int]:
    yaml, read = _round_trip(old)
    entries: Any = read.get("capabilities")
    if not isinstance(entries, dict):
        entries = read["capabilities"] = {}
    changed = 0
    for name, values in content.capabilities.items():
        entry = entries.get(name)
        if not isinstance(entry, dict):
            entries[name] = values
        elif entry.get(document.DIGEST) == values[document.DIGEST]:
            continue
        else:
            document.merge(entry, values)
        changed += 1
    gone = [name for name in entries if name not in content.capabilities]
    for name in gone:
        if isinstance(entries[name], dict) and not document.has_edits(entries[name]):
            del entries[name]
    facts = {"schema": document.SCHEMA, "sources": content.sources, "metrics": content.metrics}
    for key, fact in facts.items():
        if document.short_digest(read.get(key)) != document.short_digest(fact):
            read[key] = fact
    read.setdefault("memories", [])
    text = _dumped(yaml, read)
    return (old, 0) if not changed and not gone and text == old else (text, changed)


def _round_trip(text: str) -> tuple["YAML", dict[str, Any]]:
    from ruamel.yaml import YAML  # noqa: PLC0415 - 60 ms that only a changed file costs
    from ruamel.yaml.error import YAMLError  # noqa: PLC0415

    yaml = YAML(typ="rt")
    yaml.preserve_quotes = True
    yaml.width = 100_000
    yaml.indent(mapping=2, sequence=4, offset=2)
    try:
        read = yaml.load(text)
    except (YAMLError, ValueError, RecursionError) as error:
        what = " ".join(str(error).split())
        raise IndexFileError(f"{NAME} is not YAML ({what}): correct it, or move it away") from error
    if read is None:
        read = yaml.load("{}")
        read.fa.set_block_style()
    if not isinstance(read, dict):
        raise IndexFileError(f"{NAME} is not a mapping: correct it, or move it away")
    return yaml, read


def _dumped(yaml: "YAML", read: dict[str, Any]) -> str:
    stream = io.StringIO()
    yaml.dump(read, stream)
    return stream.getvalue()


def _outdented(block: str) -> str:
    # The library stores the column of a comment, so the block is parsed without its indentation.
    return "\n".join(line.removeprefix("  ") for line in block.split("\n"))


def _dumped_below(yaml: "YAML", read: dict[str, Any]) -> str:
    """Return `read` as YAML text indented by two spaces, as below `capabilities` in the file."""
    lines = _dumped(yaml, read).split("\n")
    return "\n".join(f"  {line}" if line.strip() else line for line in lines)


# New entries, sources and metrics are written without the library. Their values are JSON, which is
# valid YAML.


def _block(name: str, values: document.Values) -> str:
    lines = _emitted({name: values}).split("\n")
    return "\n".join(f"  {line}" if line else line for line in lines)


def _emitted(values: Mapping[str, Any]) -> str:
    return "".join(_lines(values, ""))


def _lines(values: Mapping[str, Any], indent: str) -> Iterator[str]:
    for key, value in values.items():
        name = key if _PLAIN.fullmatch(key) and key.lower() not in _NO_TEXT else _scalar(key)
        if isinstance(value, Mapping) and value and key != document.WRITTEN:
            yield f"{indent}{name}:\n"
            yield from _lines(value, f"{indent}  ")
        elif isinstance(value, list) and value:
            yield f"{indent}{name}:\n"
            for each in value:
                yield f"{indent}  - {_scalar(each)}\n"
        else:
            yield f"{indent}{name}: {_scalar(value)}\n"


def _scalar(value: object) -> str:
    # JSON escapes characters below U+0020. YAML takes these others as line ends, or refuses them.
    text = msgspec.json.encode(value).decode()
    return "".join(f"\\u{ord(c):04x}" if c in "\x7f\x85\u2028\u2029\ufeff" else c for c in text)
