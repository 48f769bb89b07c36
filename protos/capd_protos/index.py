"""Messages of the capability index: every capability in a few words, and the file of them."""

import msgspec

from capd_protos.types import CapabilityId


class IndexEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One capability in the words of the cascade (docs/design/context.md)."""

    id: CapabilityId
    verb: str
    """What it is for in one word; before the noun on the first level."""
    do: str
    use_when: list[str] = []
    """What a user says that wants it."""
    tools: int | None = None
    """How many it has; None where its servers were never asked."""
    tokens: int | None = None
    """What their definitions take; None where that was not counted."""
    uses: int = 0
    """Calls that went through it, of all that the ledger has."""
    priority: int = 0
    """The user's word on which comes first; the highest does."""
    is_automatic: bool = True
    """Whether a message may switch it on by itself."""
    threshold: float = 0.0
    """What its score has to reach for that, beside the bar for all."""
    domains: list[str] = []


class ListIndex(msgspec.Struct, frozen=True, tag="index.list"):
    """Give the index of a project's sessions; empty for those of no project."""

    project: str = ""


class IndexListed(msgspec.Struct, frozen=True, tag="index.listed"):
    """The entries, the most wanted first."""

    entries: list[IndexEntry]
    is_known: bool = True
    """False before the catalog was read for the first time."""


class WriteIndex(msgspec.Struct, frozen=True, tag="index.write"):
    """Write capability-index.yaml anew, as far as something changed."""


class IndexWritten(msgspec.Struct, frozen=True, tag="index.written"):
    """What the file holds."""

    path: str
    capabilities: int
    changed: int
    """Capabilities that were written anew."""
    kept: int
    """Values in it that a person has set."""
    ms: float
    is_same: bool = False
    """Whether nothing was to be done."""


class IndexRefused(msgspec.Struct, frozen=True, tag="index.refused"):
    """The file stays as it is, and why."""

    message: str


class DescribeIndex(msgspec.Struct, frozen=True, tag="index.describe"):
    """Give what every capability was used for and costs, and how the file is."""


class CapabilityMetrics(msgspec.Struct, frozen=True):
    """What one capability came to."""

    id: CapabilityId
    uses: int
    successes: int
    mean_ms: float
    tools: int | None
    tokens: int | None


class IndexDescribed(msgspec.Struct, frozen=True, tag="index.described"):
    """The index's part of the status."""

    path: str
    capabilities: int
    problem: str
    """Why the file does not count, where it does not."""
    metrics: list[CapabilityMetrics]
    overrides: int = 0
    """Values in the file that a person has set."""


class ReviseIndex(msgspec.Struct, frozen=True, tag="index.revise"):
    """Put other words for capabilities into the file, as somebody has accepted them."""

    revisions: "list[Revision]"


class Revision(msgspec.Struct, frozen=True):
    """Other words for one capability; what is empty stays."""

    name: str
    """`tap/name`."""
    verb: str = ""
    do: str = ""
    use_when: list[str] = []


class IndexChanged(msgspec.Struct, frozen=True, tag="index.changed"):
    """The entries are others than before."""

    capabilities: int


Request = ListIndex | WriteIndex | DescribeIndex | ReviseIndex
Reply = IndexListed | IndexWritten | IndexRefused | IndexDescribed
Event = IndexChanged
