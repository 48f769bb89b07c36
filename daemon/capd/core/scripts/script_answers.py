"""Makes what a script gets for a tool's result, and what a model gets when its script has ended.

The parts of each, in order:

    a tool's result   ──> its structured content; else its text, parsed if it is a JSON object
                          or list; with `isError`, a ToolError with its text
    a script's end    ──> the value as JSON, then what was printed, then the table of its calls
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import msgspec

from capd.core.protocol.outcomes import (
    CallFailedError,
    NotSentError,
    OutcomeUnknownError,
    ServerError,
)
from capd.core.scripts.run import Answer, AnswerKind, PastCall
from capd_protos.codec import JsonCodec, MalformedError
from capd_protos.types import WireName

MOST_VALUE_BYTES = 4 << 20
"""The most bytes of one result that a script gets."""
MOST_PRINTED = 8_000
MOST_LINES = 40
MOST_MESSAGE = 2_000

OUTCOMES: Mapping[AnswerKind, str] = {
    "value": "result",
    "ToolError": "error",
    "NotSent": "not_sent",
    "Refused": "refused",
    "OutcomeUnknown": "outcome_unknown",
}


class _Result(msgspec.Struct):
    content: list[dict[str, Any]] = []
    structuredContent: msgspec.Raw = msgspec.Raw(b"")  # noqa: N815 - the protocol's name
    isError: bool = False  # noqa: N815 - the protocol's name


_RESULT: JsonCodec[_Result] = JsonCodec(_Result)


def answer_of(result: bytes) -> Answer:
    """Return what a script gets for a tool's result, which is JSON: a value or an exception."""
    size = len(result)
    if size > MOST_VALUE_BYTES:
        text = f"The result has {size:,} bytes, more than a script may hold: ask for less."
        return _raised("ToolError", text, size)
    try:
        read = _RESULT.decode(result)
    except MalformedError as error:
        return _raised("ToolError", f"The result cannot be read: {error}", size)
    text = "\n".join(_text(block) for block in read.content)
    if read.isError:
        return _raised("ToolError", text, size)
    if bytes(read.structuredContent).startswith(b"{"):
        return Answer("value", bytes(read.structuredContent), size)
    return Answer("value", _value(text), size)


def failed_answer(error: CallFailedError | ServerError) -> Answer:
    """Return the exception for a script's call that ended without a result."""
    if isinstance(error, ServerError):
        return _raised("ToolError", error.error.decode(errors="replace"))
    kind: AnswerKind = "Refused"
    if isinstance(error, NotSentError):
        kind = "NotSent"
    elif isinstance(error, OutcomeUnknownError):
        kind = "OutcomeUnknown"
    return _raised(kind, str(error))


def refused_answer(text: str) -> Answer:
    """Return the exception that a script gets for a call that was not sent."""
    return _raised("Refused", text)


def _raised(kind: AnswerKind, text: str, size_bytes: int = 0) -> Answer:
    return Answer(kind, text[:MOST_MESSAGE].encode(), size_bytes)


def _value(text: str) -> bytes:
    stripped = text.strip()
    if stripped[:1] in {"{", "["}:
        try:
            msgspec.json.decode(stripped, type=dict[str, Any] | list[Any])
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return msgspec.json.encode(text)
        return stripped.encode()
    return msgspec.json.encode(text)


def _text(block: Mapping[str, Any]) -> str:
    match block.get("type"):
        case "text":
            return str(block.get("text", ""))
        case "resource":
            inner = block.get("resource")
            text = inner.get("text") if isinstance(inner, dict) else None
            return text if isinstance(text, str) else "[a resource without text]"
        case kind:
            return f"[{kind}]"


@dataclass(frozen=True, slots=True)
class ScriptEnd:
    """How a script ended: its value or its error, its output, and its time."""

    value: bytes = b""
    """The value as JSON; empty if the script ended with an error, or without a value."""
    error: str = ""
    """The exception with its line; empty if the script ended without one."""
    printed: str = ""
    seconds: float = 0.0


def report(
    end: ScriptEnd, calls: Sequence[PastCall], names: Mapping[WireName, str], shown_bytes: int
) -> str:
    """Return the text that a model gets besides a script's value: error, output, and calls.

    A tool is shown by the name under which clients know it, unless `names` has another name for it.
    `shown_bytes` is the size of the value.
    """
    parts: list[str] = []
    if end.error:
        parts.append(end.error)
    if end.printed:
        parts.append(f"Printed:\n{cut_printed(end.printed)}")
    if end.error:
        parts.append(_every_call(calls, names))
    elif calls:
        kept = max(0, sum(each.size_bytes for each in calls) - shown_bytes)
        parts.append(_by_tool(calls, names, kept))
    return "\n".join(parts)


def cut_printed(printed: str) -> str:
    """Return the printed text, shortened with a note if it is too long."""
    if len(printed) <= MOST_PRINTED:
        return printed.rstrip("\n")
    return f"{printed[:MOST_PRINTED]}\n[{len(printed) - MOST_PRINTED:,} more characters left out]"


def summed(calls: Sequence[PastCall]) -> list[tuple[str, str, int, float]]:
    """Return (tool, outcome, number of calls, mean milliseconds) for each tool and outcome."""
    ordered = sorted(calls, key=lambda each: (each.tool, each.kind))
    found: list[tuple[str, str, int, float]] = []
    for (tool, kind), grouped in groupby(ordered, key=lambda each: (each.tool, each.kind)):
        took = [each.milliseconds for each in grouped]
        found.append((tool, OUTCOMES[kind], len(took), round(sum(took) / len(took), 1)))
    return found


def _by_tool(calls: Sequence[PastCall], names: Mapping[WireName, str], kept: int) -> str:
    lines = []
    ordered = sorted(calls, key=lambda each: (each.tool, each.kind))
    for (tool, kind), grouped in groupby(ordered, key=lambda each: (each.tool, each.kind)):
        group = list(grouped)
        many = f" x{len(group)}" if len(group) > 1 else ""
        took = f"{sum(each.milliseconds for each in group) / len(group):.0f} ms"
        size = sum(each.size_bytes for each in group)
        name = names.get(tool, tool)
        lines.append(f"- {name}{many}: {OUTCOMES[kind]}, {took} each, {size:,} bytes")
    head = f"{len(calls)} calls; {kept:,} bytes of their results are not shown:"
    return "\n".join([head, *lines[:MOST_LINES]])


def _every_call(calls: Sequence[PastCall], names: Mapping[WireName, str]) -> str:
    if not calls:
        return "No call was made."
    lines = [
        f"{at}. {names.get(each.tool, each.tool)}: {OUTCOMES[each.kind]}, "
        f"{each.milliseconds:.0f} ms, {each.size_bytes:,} bytes"
        for at, each in enumerate(calls, 1)
    ]
    more = len(lines) - MOST_LINES
    if more > 0:
        lines = [*lines[:MOST_LINES], f"and {more} more"]
    return "\n".join(["Its calls, in order:", *lines])
