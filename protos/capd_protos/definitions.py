"""Messages about tool definitions: which are trusted, and which differ from the trusted ones.

A tool is withheld if no client may see or call it because of its definition. A wire name is the
name under which clients know a tool.
"""

from typing import Literal

import msgspec

from capd_protos.types import InstanceId, ServerIdentity, ServerName, ServerSpec, ToolName, WireName

Mode = Literal["notify", "quarantine"]


class ListedTool(msgspec.Struct, frozen=True):
    """A tool in the list of a server, as the server wrote it."""

    name: ToolName
    written: bytes


class VetTools(msgspec.Struct, frozen=True, tag="definitions.vet"):
    """Compare the tools that a server lists with the trusted ones, before a client sees them."""

    server: ServerSpec
    identity: ServerIdentity
    tools: list[ListedTool]
    instance: InstanceId = InstanceId("")
    """The instance that listed them."""
    running: list[InstanceId] = []
    """The server's running instances. Each may list different tools, depending on its project."""


class ToolsVetted(msgspec.Struct, frozen=True, tag="definitions.vetted"):
    """Reply to `VetTools`: which tools are withheld, so that no client may see or call them."""

    withheld: list[ToolName] = []


class ScreenTools(msgspec.Struct, frozen=True, tag="definitions.screen"):
    """Report which tools of saved lists are withheld, so that no search returns them.

    Saved lists are used for servers that do not run.
    """

    tools: dict[ServerIdentity, list[ToolName]]


class ToolsScreened(msgspec.Struct, frozen=True, tag="definitions.screened"):
    """Reply to `ScreenTools`: the withheld tools, by server. No search may return them."""

    withheld: dict[ServerIdentity, list[ToolName]] = {}


class LookUpWithheld(msgspec.Struct, frozen=True, tag="definitions.look_up"):
    """Find out why a tool that a session called by its wire name is withheld."""

    name: WireName
    identity: ServerIdentity = ServerIdentity("")
    tool: ToolName = ToolName("")
    """The tool that the wire name means, if the session knows it."""


class WithheldLookedUp(msgspec.Struct, frozen=True, tag="definitions.looked_up"):
    """Reply to `LookUpWithheld`: why the tool is withheld; empty if none of this name is."""

    reason: str = ""


class ListDefinitions(msgspec.Struct, frozen=True, tag="definitions.list"):
    """Report what changed in tool definitions, and what in them a person should look at."""

    server: str = ""
    """A server's name; empty for all."""
    with_differences: bool = False
    with_flags: bool = False


class DefinitionChange(msgspec.Struct, frozen=True):
    """A tool that was added or removed, or whose definition differs from the trusted one."""

    tool: ToolName
    kind: str
    """`added`, `changed` or `removed`. No `Literal`: it is read back from a file that a later
    daemon may have written."""
    digest: str
    """Identifies this version of the definition: a person's decision is about this version only."""
    is_withheld: bool
    """Whether clients can neither see nor call the tool."""
    is_rejected: bool
    """Whether a person has decided against this version."""
    seen_at: float
    """When it was first seen, in seconds since the epoch."""
    difference: str = ""
    """The changed lines, as a unified diff; empty if not requested, or if the reply has no room."""


class DefinitionFlag(msgspec.Struct, frozen=True):
    """Something in a definition that a person should look at."""

    tool: ToolName
    code: str
    """The kind of the flag, such as `hidden_text`."""
    seen: str
    """The words that caused the flag, without hidden characters."""
    source: str
    """The publication that describes this kind of attack."""


class ServerDefinitions(msgspec.Struct, frozen=True):
    """One server: how many tools are trusted, and what has changed or was flagged."""

    name: ServerName
    identity: ServerIdentity
    tools: int
    """The number of its trusted tools."""
    standing: str
    """Why changed tools are withheld whatever mode the user has set: `project` (a project's files
    define the server, and added tools are withheld too) or `pinned` (it runs a package in an exact
    version). Empty if the mode decides. No `Literal`, for the reason given at
    `DefinitionChange.kind`."""
    is_lost: bool
    """Whether the record of its trusted tools was lost, and no person has checked it since."""
    changes: list[DefinitionChange]
    flags: list[DefinitionFlag] = []


class DefinitionsListed(msgspec.Struct, frozen=True, tag="definitions.listed"):
    """Reply to `ListDefinitions`: the requested servers, as far as they have listed tools."""

    mode: Mode
    servers: list[ServerDefinitions]
    problems: list[str] = []


class DecideDefinitions(msgspec.Struct, frozen=True, tag="definitions.decide"):
    """Record a person's decision on the definitions that they were shown."""

    identity: ServerIdentity
    digests: dict[ToolName, str]
    is_accepted: bool


class DefinitionsDecided(msgspec.Struct, frozen=True, tag="definitions.decided_on"):
    """Reply to `DecideDefinitions`: which definitions were decided on, and which were not."""

    decided: list[ToolName]
    stale: list[ToolName] = []
    """Tools whose definition changed after it was shown: nothing is decided on these."""
    problem: str = ""
    """Why the decision could not be saved."""


class DefinitionsChanged(msgspec.Struct, frozen=True, tag="definitions.changed"):
    """Event: a server lists tools that differ from the trusted ones."""

    name: ServerName
    identity: ServerIdentity
    added: list[ToolName] = []
    changed: list[ToolName] = []
    removed: list[ToolName] = []
    withheld: list[ToolName] = []


class DefinitionsReviewed(msgspec.Struct, frozen=True, tag="definitions.settled"):
    """Event: a person has decided on a server's definitions. Its tools are checked again."""

    name: ServerName
    identity: ServerIdentity


Request = VetTools | ScreenTools | LookUpWithheld | ListDefinitions | DecideDefinitions
Reply = ToolsVetted | ToolsScreened | WithheldLookedUp | DefinitionsListed | DefinitionsDecided
Event = DefinitionsChanged | DefinitionsReviewed
