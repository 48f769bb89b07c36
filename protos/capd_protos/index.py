"""Messages of the capability index and of its file.

The index describes each capability in a few words, in three levels (docs/memories.md).
"""

import msgspec

from capd_protos.types import CapabilityId


class IndexEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One capability in the words of the index (docs/design/context.md)."""

    id: CapabilityId
    verb: str
    """One verb for what the capability does; the first level of the index groups by it."""
    do: str
    """A sentence on what the capability does."""
    use_when: list[str] = []
    """Phrases of users who need the capability."""
    tools: int | None = None
    """The number of its tools; None if its servers have never listed them."""
    tokens: int | None = None
    """The tokens of the tools' definitions; None if they were not counted."""
    uses: int = 0
    """The number of calls of its tools that the ledger has."""
    priority: int = 0
    """Set by the user: a higher value is listed first."""
    is_automatic: bool = True
    """Whether a message may switch it on automatically."""
    threshold: float = 0.0
    """A score that it must reach to be switched on automatically, besides the threshold for all
    capabilities."""
    domains: list[str] = []


class ListIndex(msgspec.Struct, frozen=True, tag="index.list"):
    """Return the index of capabilities for a project's sessions.

    An empty project stands for sessions without one.
    """

    project: str = ""


class IndexListed(msgspec.Struct, frozen=True, tag="index.listed"):
    """Reply to `ListIndex`: the entries, by priority and then by use, the highest first."""

    entries: list[IndexEntry]
    is_known: bool = True
    """False before the catalog was read for the first time."""


class WriteIndex(msgspec.Struct, frozen=True, tag="index.write"):
    """Write capability-index.yaml again if something has changed."""


class IndexWritten(msgspec.Struct, frozen=True, tag="index.written"):
    """Reply to `WriteIndex` and `ReviseIndex`: the path of the file, and what changed in it."""

    path: str
    capabilities: int
    changed: int
    """Capabilities whose entry was rewritten."""
    kept: int
    """Values that a person has set, which were not changed."""
    ms: float
    is_same: bool = False
    """Whether the file was up to date already."""


class IndexRefused(msgspec.Struct, frozen=True, tag="index.refused"):
    """Reply to `WriteIndex` or `ReviseIndex`: the file was not changed; `message` says why."""

    message: str


class DescribeIndex(msgspec.Struct, frozen=True, tag="index.describe"):
    """Report the use and the cost of every capability, and the state of the file."""


class CapabilityMetrics(msgspec.Struct, frozen=True):
    """The use and the cost of one capability."""

    id: CapabilityId
    uses: int
    """The number of calls of its tools that the ledger has."""
    successes: int
    mean_ms: float
    """The mean duration of the calls, in milliseconds."""
    tools: int | None
    """None if its servers have never listed their tools."""
    tokens: int | None
    """None if the tokens of its tools' definitions were not counted."""


class IndexDescribed(msgspec.Struct, frozen=True, tag="index.described"):
    """Reply to `DescribeIndex`: the part of `capd status` that is about the index."""

    path: str
    capabilities: int
    problem: str
    """Why the file is ignored; empty if it is used."""
    metrics: list[CapabilityMetrics]
    overrides: int = 0
    """Values in the file that a person has set."""


class ReviseIndex(msgspec.Struct, frozen=True, tag="index.revise"):
    """Write new wordings of capabilities into capability-index.yaml; a person has accepted them."""

    revisions: "list[Revision]"


class Revision(msgspec.Struct, frozen=True):
    """The new wording of one capability. An empty field keeps the old wording."""

    name: str
    """`tap/name`."""
    verb: str = ""
    do: str = ""
    use_when: list[str] = []


class IndexChanged(msgspec.Struct, frozen=True, tag="index.changed"):
    """Event: the entries of the capability index have changed."""

    capabilities: int


Request = ListIndex | WriteIndex | DescribeIndex | ReviseIndex
Reply = IndexListed | IndexWritten | IndexRefused | IndexDescribed
Event = IndexChanged
