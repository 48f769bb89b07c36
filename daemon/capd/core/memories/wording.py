"""The texts of a memory for a model: an item of a list, a note in a description, or a refusal."""

from collections.abc import Iterable, Sequence

from capd_protos.types import MemorySpec

HEAD = "Known from before:"
_LABELS = {
    "corrective": "Correction",
    "procedural": "How to",
    "declarative": "Fact",
    "episodic": "What happened",
}
_NOTE = "Known mistake: "
_LONGEST_NOTE = 200
_MOST_NOTES = 2


def entry(memory: MemorySpec) -> str:
    """Return a memory as one item below `HEAD`, with the line break before it."""
    of = memory.tool or memory.capability
    return f"\n- {_LABELS[memory.kind]} ({of}): {memory.content}"


def delivered_text(entries: Iterable[str]) -> str:
    """Return one text with all `entries`; empty if there are none."""
    text = "".join(entries)
    return HEAD + text if text else ""


def notes(memories: Sequence[MemorySpec]) -> list[str]:
    """Return the notes to add to a tool's description: those of the first two `memories`.

    `memories` are the tool's corrective memories (those that describe a mistake), the best first.
    """
    return [f"\n{_NOTE}{_short(each.content)}" for each in memories[:_MOST_NOTES]]


def refusal(memory: MemorySpec) -> str:
    """Return the text for a model whose call repeats a mistake and was refused."""
    return (
        f"Not called: these arguments repeat a known mistake. {memory.content}\n"
        f"Correct the arguments and call again. (capd memory '{memory.name}'; nothing reached the "
        "server)"
    )


def _short(content: str) -> str:
    line = " ".join(content.split())
    return line if len(line) <= _LONGEST_NOTE else line[: _LONGEST_NOTE - 1] + "…"
