"""Messages about what servers say of their tools: what is trusted, and what has changed."""

from typing import Literal

import msgspec

from capd_protos.types import InstanceId, ServerIdentity, ServerName, ServerSpec, ToolName, WireName

Mode = Literal["notify", "quarantine"]


class ListedTool(msgspec.Struct, frozen=True):
    """A tool as its server wrote it."""

    name: ToolName
    written: bytes


class VetTools(msgspec.Struct, frozen=True, tag="definitions.vet"):
    """Compare what a server lists with what is trusted, before anybody sees it."""

    server: ServerSpec
    identity: ServerIdentity
    tools: list[ListedTool]
    instance: InstanceId = InstanceId("")
    """Who lists them."""
    running: list[InstanceId] = []
    """The server's instances that run: each may list by its own project."""


class ToolsVetted(msgspec.Struct, frozen=True, tag="definitions.vetted"):
    """Which tools nobody may see or call."""

    withheld: list[ToolName] = []


class ScreenTools(msgspec.Struct, frozen=True, tag="definitions.screen"):
    """Tell which tools of a kept list may be found while their servers do not run."""

    tools: dict[ServerIdentity, list[ToolName]]


class ToolsScreened(msgspec.Struct, frozen=True, tag="definitions.screened"):
    """What may not be found."""

    withheld: dict[ServerIdentity, list[ToolName]] = {}


class LookUpWithheld(msgspec.Struct, frozen=True, tag="definitions.look_up"):
    """Tell why a tool is withheld that a session calls by its wire name."""

    name: WireName
    identity: ServerIdentity = ServerIdentity("")
    tool: ToolName = ToolName("")
    """What the name stands for, where the session knows it."""


class WithheldLookedUp(msgspec.Struct, frozen=True, tag="definitions.looked_up"):
    """The reason; empty where nothing of this name is withheld."""

    reason: str = ""


class ListDefinitions(msgspec.Struct, frozen=True, tag="definitions.list"):
    """Tell what changed, and what is to be seen in definitions."""

    server: str = ""
    """A server's name; empty for all."""
    with_differences: bool = False
    with_flags: bool = False


class DefinitionChange(msgspec.Struct, frozen=True):
    """A tool that is not as it was trusted."""

    tool: ToolName
    kind: str
    """`added`, `changed` or `removed`. No `Literal`: it is read back from a file that a later
    daemon may have written."""
    digest: str
    """What a person decides on: another one is another decision."""
    is_withheld: bool
    is_rejected: bool
    seen_at: float
    """Seconds since the epoch."""
    difference: str = ""


class DefinitionFlag(msgspec.Struct, frozen=True):
    """Something in a definition that a person should look at."""

    tool: ToolName
    code: str
    seen: str
    source: str


class ServerDefinitions(msgspec.Struct, frozen=True):
    """One server's definitions."""

    name: ServerName
    identity: ServerIdentity
    tools: int
    """How many are trusted."""
    standing: str
    """`project` or `pinned`, where changes are withheld whatever the mode is. No `Literal`, as
    for the kind of a change."""
    is_lost: bool
    changes: list[DefinitionChange]
    flags: list[DefinitionFlag] = []


class DefinitionsListed(msgspec.Struct, frozen=True, tag="definitions.listed"):
    """Every server that was met."""

    mode: Mode
    servers: list[ServerDefinitions]
    problems: list[str] = []


class DecideDefinitions(msgspec.Struct, frozen=True, tag="definitions.decide"):
    """A person's word on what they have seen."""

    identity: ServerIdentity
    digests: dict[ToolName, str]
    is_accepted: bool


class DefinitionsDecided(msgspec.Struct, frozen=True, tag="definitions.decided_on"):
    """What it came to."""

    decided: list[ToolName]
    stale: list[ToolName] = []
    """What is not any more as the person has seen it: nothing is decided on these."""
    problem: str = ""
    """Why it could not be written down."""


class DefinitionsChanged(msgspec.Struct, frozen=True, tag="definitions.changed"):
    """A server lists tools that are not as they were trusted."""

    name: ServerName
    identity: ServerIdentity
    added: list[ToolName] = []
    changed: list[ToolName] = []
    removed: list[ToolName] = []
    withheld: list[ToolName] = []


class DefinitionsSettled(msgspec.Struct, frozen=True, tag="definitions.settled"):
    """A person has decided: what the server lists is to be looked at again."""

    name: ServerName
    identity: ServerIdentity


Request = VetTools | ScreenTools | LookUpWithheld | ListDefinitions | DecideDefinitions
Reply = ToolsVetted | ToolsScreened | WithheldLookedUp | DefinitionsListed | DefinitionsDecided
Event = DefinitionsChanged | DefinitionsSettled
