"""How clients treat a changing list of tools, and the other traits of each.

The traits of known clients are in `clients.toml`. capd assumes that any other client lists again
after a change, until it observes the contrary. From the traits, `surface_mode` decides which tools
a client is shown. A wire name is the name under which clients know a tool.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from capd.core.globs import matches
from capd.core.tools.names import LIMIT

Relists = Literal["before_turn", "mid_turn", "lag", "never"]
ModeSetting = Literal["auto", "dynamic", "stable", "pass-through"]

_LONGEST_PREFIX = "mcp__capd__"
"""The longest of the known prefixes: reserved for a client whose prefix is unknown."""
_SHORTEST_NAME = 24
"""A shorter wire name would have room only for the hash of the tool's name."""


@dataclass(frozen=True, slots=True)
class ClientTraits:
    """One entry of `clients.toml`: how a client lists tools, names them, and runs its model."""

    names: tuple[str, ...] = ()
    """The names that it gives itself, in its handshake or to the shim (`capd mcp`), as globs."""
    relists: Relists = "mid_turn"
    """When a changed list reaches its model: from the next turn on (`before_turn`), in the same
    turn (`mid_turn`), one model response late (`lag`), or never."""
    stateless_relists: bool = False
    """Whether the client was also seen to list again in the stateless generation of MCP."""
    appends: bool = False
    """Whether the client appends a tool that is added later to what its model has read already,
    instead of inserting it before that."""
    name_limit: int = LIMIT
    """The longest name of a tool that the client accepts, its own prefix included."""
    tool_limit: int = 128
    """The most tools that the client accepts in one list."""
    prefix: str | None = None
    """The prefix that the client adds to a tool's name; empty if it adds none, None if unknown."""
    reads_instructions: bool = True
    """Whether its model gets a server's `instructions`. If not, a prompt hook delivers them."""
    asks_per_tool: bool = False
    """Whether it asks its user about each tool by name, except about read-only tools."""
    defers_tools: bool = False
    """Whether it keeps the tools of servers from its model until its own search has found them."""
    context: int = 200_000
    """The context of its models in tokens."""
    identity: tuple[str, ...] = ()
    """The environment variables in which the client passes the id of the conversation."""
    mode: ModeSetting = "auto"
    """The mode that the user has set for this client."""
    is_relists_set: bool = False
    """Whether the user has set `relists`. Then it counts, whatever was observed."""
    title: str = ""
    """The client's name for people, such as `Claude Code`."""

    @property
    def wire_limit(self) -> int:
        """The longest wire name that capd may give a tool for this client."""
        # Providers accept 64 characters, the client's prefix included, even if a client accepts
        # more.
        prefix = _LONGEST_PREFIX if self.prefix is None else self.prefix
        return max(_SHORTEST_NAME, min(LIMIT, self.name_limit) - len(prefix))


UNKNOWN = ClientTraits()
"""The traits of clients that no entry matches."""


def traits_of(table: Mapping[str, ClientTraits], names: Iterable[str]) -> tuple[str, ClientTraits]:
    """Return the key and the traits of the first entry of `table` that matches a client.

    `names` are the client's names, of which the first that matches any entry decides. A client
    without an entry has the key `""` and the default traits.
    """
    for name in names:
        folded = name.casefold()
        for key, traits in table.items():
            if folded and any(_is_named(folded, each) for each in (key, *traits.names)):
                return key, traits
    return "", UNKNOWN


def _is_named(folded: str, pattern: str) -> bool:
    return folded == pattern.casefold() or matches(folded, pattern.casefold())
