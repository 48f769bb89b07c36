"""The tools a session is shown, in order, and the exact bytes of that list.

Own tools come first, then granted ones in the order of first activation. What is unchanged is
listed with identical bytes, so that a client's prompt cache holds (30-activation, "Surface").
A definition is passed on as its server wrote it; only the name is capd's.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec

from capd.core.protocol.eras import text_of
from capd.core.sessions.active_set import Grant
from capd.core.tools.names import bare_name, wire_name
from capd_protos.types import ServerIdentity, ServerName, ToolDefinition, ToolName, WireName

PROMPT = "prompt "
"""Before a prompt's name where it stands for a tool's: no tool's name has a space."""

_definition = msgspec.json.Decoder(dict[str, msgspec.Raw])


@dataclass(frozen=True, slots=True)
class Shown:
    """One tool of the surface."""

    name: WireName
    grant: Grant
    json: bytes
    """The definition as the client gets it."""


class Surface:
    """The surface of one session."""

    def __init__(self, own: Iterable[tuple[WireName, bytes]], *, is_bare: bool = False) -> None:
        """`is_bare` shows tools under their servers' own names, as long as those are unique."""
        self._choose = bare_name if is_bare else wire_name
        self._own = dict(own)
        self._shown: dict[Grant, Shown] = {}
        self._by_name: dict[WireName, Shown] = {}
        # A name once given stays its tool's: a model that has it in mind must not reach another.
        self._names: dict[Grant, WireName] = {}

    def __len__(self) -> int:
        """Return how many tools are shown, own ones included."""
        return len(self._own) + len(self._shown)

    @property
    def shown(self) -> tuple[Shown, ...]:
        """The granted tools, in their order."""
        return tuple(self._shown.values())

    @property
    def names(self) -> dict[Grant, WireName]:
        """Every name that was ever given, by its tool."""
        return dict(self._names)

    def restore(self, names: Mapping[Grant, WireName]) -> None:
        """Take over the names that tools had in the session before it was written down."""
        self._names = {grant: name for grant, name in names.items() if name not in self._own}

    def find(self, name: str) -> Shown | None:
        """Return the granted tool of this name."""
        return self._by_name.get(WireName(name))

    def add(
        self,
        grants: Iterable[Grant],
        names: Mapping[ServerIdentity, ServerName],
        definitions: Mapping[Grant, ToolDefinition],
    ) -> list[WireName]:
        """Append `grants`, skipping those shown already; return the new names in order."""
        added: list[WireName] = []
        for grant in grants:
            if grant in self._shown:
                continue
            name = self.name(grant, names[grant.server], grant.tool)
            shown = Shown(name, grant, renamed(definitions[grant].json, name))
            self._shown[grant] = self._by_name[name] = shown
            added.append(name)
        return added

    def name(self, grant: Grant, server: ServerName, own_name: str) -> WireName:
        """Return the wire name of what `server` calls `own_name`, the same one each time."""
        known = self._names.get(grant)
        if known is not None:
            return known
        is_prompt = grant.tool.startswith(PROMPT)
        # Prompts and tools are two namespaces to a client: one of each may have one name.
        alike = (n for g, n in self._names.items() if g.tool.startswith(PROMPT) == is_prompt)
        taken = {*self._own, *alike}
        name = self._choose(server, grant.server, ToolName(own_name), taken)
        self._names[grant] = name
        return name

    def remove(self, grants: Iterable[Grant]) -> list[WireName]:
        """Take `grants` off; return the names that went, in order."""
        removed: list[WireName] = []
        for grant in grants:
            shown = self._shown.pop(grant, None)
            if shown is not None:
                del self._by_name[shown.name]
                removed.append(shown.name)
        return removed

    def redefine(self, definitions: Mapping[Grant, ToolDefinition]) -> list[WireName]:
        """Take over changed definitions of tools that are shown; return the names concerned."""
        changed: list[WireName] = []
        for grant, definition in definitions.items():
            old = self._shown.get(grant)
            if old is None:
                continue
            json = renamed(definition.json, old.name)
            if json != old.json:
                self._shown[grant] = self._by_name[old.name] = Shown(old.name, grant, json)
                changed.append(old.name)
        return changed

    def definitions(self) -> list[bytes]:
        """Return every tool's JSON in order."""
        return [*self._own.values(), *(shown.json for shown in self._shown.values())]

    def listing(self) -> bytes:
        """Return the result of `tools/list`, the same bytes while nothing changes."""
        return b'{"tools":[' + b",".join(self.definitions()) + b"]}"


def renamed(definition: bytes, name: WireName) -> bytes:
    """Return a tool's JSON under another name, every other member as it was written."""
    members = _definition.decode(definition)
    if text_of(members.get("name")) == name:
        return definition
    encoded = {"name": msgspec.Raw(msgspec.json.encode(name))}
    encoded.update((key, value) for key, value in members.items() if key != "name")
    return msgspec.json.encode(encoded)
