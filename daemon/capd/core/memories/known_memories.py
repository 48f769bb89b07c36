"""The memories for one project's sessions, looked up by capability and by tool."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

from capd.core.memories.selection import SEAM_TOKENS, Priced, ordered
from capd.core.memories.subject_matching import is_of_capability, is_of_tool
from capd.core.memories.wording import entry, notes
from capd_protos.types import CapabilityId, MemorySpec, ServerName, ToolName, WireName

Tool = tuple[ServerName, ToolName, WireName]
"""A tool: its server, its name there, and the name under which clients know it."""

MOST_TOOLS = 10_000
"""The most tools whose memories are cached. When the cache is full, it is emptied."""


@dataclass(frozen=True, slots=True)
class PricedMemory:
    """A memory with its cost in tokens, and the key under which its delivery is remembered."""

    priced: Priced
    key: str
    """`tap/name` and a digest of the text: a memory with another text is delivered again."""
    is_priced: bool = True
    """Whether the cost is final. Otherwise it is the number of bytes, an upper bound."""

    @property
    def memory(self) -> MemorySpec:
        """The memory without its cost."""
        return self.priced.memory


@dataclass(frozen=True, slots=True)
class ToolMemories:
    """The memories about one tool, with its note and the memories that refuse calls."""

    memories: tuple[PricedMemory, ...] = ()
    refusing: tuple[MemorySpec, ...] = ()
    """The memories that describe a mistake, and refuse calls that repeat it."""
    note: str = ""
    """The text to add to the tool's description; empty for none."""
    note_tokens: int = 0


@dataclass(slots=True)
class KnownMemories:
    """The memories of one project, by capability and by tool."""

    all: tuple[PricedMemory, ...] = ()
    _counted: Mapping[bytes, int] = field(default_factory=dict)
    _of_tools: dict[Tool, ToolMemories] = field(default_factory=dict)

    def of_tool(self, tool: Tool) -> ToolMemories:
        """Return the memories about a tool."""
        found = self._of_tools.get(tool)
        if found is None:
            if len(self._of_tools) >= MOST_TOOLS:
                self._of_tools.clear()
            found = self._of_tools[tool] = self._found(tool)
        return found

    def of_capabilities(self, capabilities: Iterable[CapabilityId]) -> list[PricedMemory]:
        """Return the memories about these capabilities, without those about their tools."""
        ids = list(capabilities)
        return [k for k in self.all if any(is_of_capability(k.memory, each) for each in ids)]

    def _found(self, tool: Tool) -> ToolMemories:
        bound = [known for known in self.all if is_of_tool(known.memory, *tool)]
        correcting = [
            each.memory
            for each in ordered(k.priced for k in bound if k.memory.kind == "corrective")
        ]
        note_texts = notes(correcting)
        return ToolMemories(
            tuple(bound),
            tuple(each for each in correcting if each.refuses),
            "".join(note_texts),
            sum(tokens_of(each, self._counted) + SEAM_TOKENS for each in note_texts),
        )


def known_memories(
    memories: Sequence[MemorySpec],
    counted: Mapping[bytes, int] | None = None,
    *,
    is_final: bool = True,
) -> KnownMemories:
    """Return `memories` with their costs in tokens, to be looked up by capability and tool.

    `counted` has the tokens of texts, by the texts in UTF-8. A text that is not in it costs as many
    tokens as it has bytes. `is_final` says that no further text will be counted, so that these
    costs are final.
    """
    counts = counted or {}
    known = (
        PricedMemory(
            Priced(each, tokens_of(entry(each), counts)),
            key_of(each),
            is_final or entry(each).encode() in counts,
        )
        for each in memories
    )
    return KnownMemories(tuple(known), counts)


def texts_of(memory: MemorySpec) -> list[bytes]:
    """Return the texts of a memory whose tokens have to be counted.

    They are its entry in a list of memories, and its note in a tool's description.
    """
    note_texts = notes([memory]) if memory.kind == "corrective" else []
    return [text.encode() for text in (entry(memory), *note_texts)]


def tokens_of(text: str, counted: Mapping[bytes, int]) -> int:
    """Return the tokens of a text, or its bytes, an upper bound, if it was not counted."""
    encoded = text.encode()
    return counted.get(encoded, len(encoded))


def key_of(memory: MemorySpec) -> str:
    """Return the key under which a conversation remembers that it got this memory."""
    digest = blake2b(entry(memory).encode(), digest_size=6).hexdigest()
    return f"{memory.tap}/{memory.name}@{digest}"
