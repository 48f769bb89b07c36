"""The tools that a session's client may call, and the exact bytes of the list that it is shown.

A tool is *granted* if a capability or pin that is on has it, or if it is on by itself. Its *wire
name* is its name on the list. *Own* tools are capd's.

Own tools come first, then granted tools in the order of first activation. An unchanged tool always
has the same bytes, so that a client's prompt cache stays valid (docs/design/surface.md). A
definition is passed on as its server wrote it, with three changes: the name is the wire name, a
note may be added to the description, and an output schema is left out if a shortened result could
not satisfy it or if the client's generation forbids it.

Not every granted tool is listed:

- A client accepts a limited number of tools. Own tools have precedence, then pinned ones, then the
  others in order.
- A fixed list has only own and pinned tools (`surface_mode` decides who gets one).
- Some clients never remove an added tool from the prompt. For these, tools of one server that come
  together and are large are not listed (`most_at_once`).

A granted tool that is not listed can still be called by its name.
"""

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

import msgspec

from capd.core.protocol.apps import page_of
from capd.core.protocol.generations import text_of
from capd.core.results.any_value import promises_any_value
from capd.core.results.cut_schemas import promises_too_much
from capd.core.sessions.active_set import Grant
from capd.core.tools.names import LIMIT, bare_name, wire_name
from capd_protos.types import (
    ServerIdentity,
    ServerName,
    ToolDefinition,
    ToolEdit,
    ToolName,
    WireName,
)

PROMPT = "prompt "
"""Prompts are in the table of names as tools with this prefix; no tool's name has a space."""

DEFAULT_LIMIT = 128
"""The most tools in one list: what a model's provider accepts (docs/design/clients.md)."""

_FEW_NAMES = 100
"""Up to this many taken names are collected again for each new name. Most sessions have fewer, and
so need no memory for a cache."""

MOST_NAMES = 20_000
"""The most names for clients that a session remembers. A list has at most a thousand tools, so only
a server that replaces its tools again and again brings so many names."""

_definition = msgspec.json.Decoder(dict[str, msgspec.Raw])


@dataclass(frozen=True, slots=True)
class ShownTool:
    """A tool that may be called, with its name for clients and the JSON that they get."""

    name: WireName
    grant: Grant
    json: bytes
    """The entry in `tools/list` as the client gets it."""
    whole: bytes = b""
    """The same entry with its output schema, if that was removed from `json`; otherwise empty."""
    edit: ToolEdit | None = None
    """How an overlay of the user changes the tool; None if none does."""
    page: str = ""
    """The page of the MCP app that shows its results; empty if none does."""
    may_give_any_value: bool = False
    """Whether its output schema is not one of an object, which only the stateless generation
    permits."""

    @property
    def shown_name(self) -> ToolName:
        """The part of the wire name after the server's name: the overlay's name or the server's."""
        return ToolName(self.edit.name) if self.edit and self.edit.name else self.grant.tool

    @property
    def definition(self) -> bytes:
        """The tool's entry in `tools/list`, with its output schema."""
        return self.whole or self.json


@lru_cache(maxsize=64)
def _by_wire_name(own: tuple[tuple[WireName, bytes], ...]) -> Mapping[WireName, bytes]:
    """Return capd's own tools by name. Sessions with the same tools share one mapping."""
    return dict(own)


class Surface:
    """The tools of one session: which may be called, which are listed, and their names."""

    # Slots save memory: every idle session has one of these objects.
    __slots__ = (
        *("_by_name", "_former", "_is_bare", "_late_own", "_names", "_own"),
        *("_own_names", "_pinned", "_shown", "_taken", "_unlisted", "cuts_results"),
        *("is_fixed", "limit", "most_at_once", "name_limit", "note", "takes_any_output"),
    )

    def __init__(
        self,
        own: Iterable[tuple[WireName, bytes]],
        *,
        is_bare: bool = False,
        limit: int = DEFAULT_LIMIT,
        name_limit: int = LIMIT,
        is_fixed: bool = False,
    ) -> None:
        """Begin with capd's `own` tools, pairs of wire name and JSON.

        `is_bare` gives tools the names that their servers use, as long as these are unique.
        `limit` is the most tools on the list, `name_limit` the most characters of a wire name.
        `is_fixed` lists only own and pinned tools, whatever is granted.
        """
        self.limit = limit
        self.name_limit = name_limit
        self.is_fixed = is_fixed
        self.most_at_once = 0
        """Tools of one server that are added together are listed only if their definitions have at
        most this many bytes; 0 lists them always."""
        self._unlisted: dict[Grant, None] = {}
        """The tools that are not listed because they had more bytes than `most_at_once`."""
        self.cuts_results = False
        """Whether long results are shortened. Then a definition is listed without its output schema
        if a shortened result would not satisfy that schema."""
        self.takes_any_output = True
        """Whether the client accepts output schemas that are not of an object. Clients of the
        handshake generation refuse the whole list because of one, with every server's tools."""
        self.note: Callable[[Grant, WireName], str] = lambda *_: ""
        """Returns the text to add to a tool's description when it is shown; empty for none."""
        self._is_bare = is_bare
        self._own = _by_wire_name(tuple(own))
        self._late_own: dict[WireName, bytes] = {}
        """Own tools that were added after the first list. They are at the end of the list."""
        self._pinned: dict[Grant, None] = {}
        self._shown: dict[Grant, ShownTool] = {}
        self._by_name: dict[WireName, ShownTool] = {}
        # A wire name is not given to another tool: a model may remember it and call it. Only
        # `forget_old_names` ends that.
        self._names: dict[Grant, WireName] = {}
        # For tools that an overlay renames: the overlay's name that the wire name was made of, and
        # the wire names that tools had before.
        self._own_names: dict[Grant, str] = {}
        self._former: dict[WireName, Grant] = {}
        # A cache of the values of `_names`, built once there are many.
        self._taken: dict[bool, set[WireName]] = {}

    def __len__(self) -> int:
        """Return the number of listed tools, own ones included."""
        return len(self._listed_own()) + len(self.listed) + len(self._late_own)

    @property
    def room(self) -> int:
        """How many more tools the client's list can take; 0 if the list never changes."""
        return 0 if self.is_fixed else max(0, self.limit - len(self))

    @property
    def own(self) -> tuple[WireName, ...]:
        """The names under which clients know capd's own tools."""
        return (*self._own, *self._late_own)

    @own.setter
    def own(self, own: Iterable[tuple[WireName, bytes]]) -> None:
        """Replace capd's own tools. After the client's first list, use `append_own` instead."""
        self._own = _by_wire_name(tuple(own))
        self._taken = {}

    def append_own(self, own: Iterable[tuple[WireName, bytes]]) -> None:
        """Add own tools at the end of the list, so that what is listed already keeps its place."""
        self._late_own.update(own)
        self._taken = {}

    @property
    def shown(self) -> tuple[ShownTool, ...]:
        """Every tool that may be called, in the order in which they came on."""
        return tuple(self._shown.values())

    @property
    def listed(self) -> tuple[ShownTool, ...]:
        """The tools that may be called and are on the client's list, in order."""
        room = self.limit - len(self._listed_own()) - len(self._late_own)
        pinned = [self._shown[grant] for grant in self._pinned if grant in self._shown]
        hidden = {*self._pinned, *self._unlisted}
        others = [shown for grant, shown in self._shown.items() if grant not in hidden]
        ranked = pinned if self.is_fixed else pinned + others
        if len(ranked) == len(self._shown) <= room:
            return tuple(self._shown.values())
        chosen = {shown.grant for shown in ranked[:room]}
        return tuple(shown for shown in self._shown.values() if shown.grant in chosen)

    def pin(self, grants: Iterable[Grant]) -> None:
        """Give these tools precedence on the list over tools that are not pinned."""
        self._pinned.update(dict.fromkeys(grants))

    def unpin(self, grants: Iterable[Grant]) -> None:
        """Take the precedence on the list from these tools."""
        for grant in grants:
            self._pinned.pop(grant, None)

    def known(self, name: str) -> Grant | None:
        """Return the tool that has, or had, this name for clients; None if none ever had it."""
        # No reverse index: it would cost every session memory, for one lookup per search.
        for grant, given in self._names.items():
            if given == name and not grant.tool.startswith(PROMPT):
                return grant
        return self._former.get(WireName(name))

    @property
    def names(self) -> dict[Grant, WireName]:
        """The name for clients of every tool and prompt that was on in this session."""
        return dict(self._names)

    def restore(self, names: Mapping[Grant, WireName]) -> None:
        """Restore the names for clients that tools had when the session was saved."""
        # Pinned tools have their names already, and keep them.
        taken = {*self.own, *self._names.values()}
        self._taken = {}
        for grant, name in names.items():
            if grant not in self._names and name not in taken:
                self._names[grant] = name

    def find(self, name: str) -> ShownTool | None:
        """Return the tool that clients know as `name` and may call; None if there is none."""
        return self._by_name.get(WireName(name))

    def add(
        self,
        grants: Iterable[Grant],
        names: Mapping[ServerIdentity, ServerName],
        definitions: Mapping[Grant, ToolDefinition],
    ) -> list[WireName]:
        """Append the tools in `grants` that are not shown yet; return their names for clients.

        `names` are the names of their servers, `definitions` the tools' definitions.
        """
        added: list[WireName] = []
        new = [grant for grant in dict.fromkeys(grants) if grant not in self._shown]
        self._unlisted.update(dict.fromkeys(self._too_many(new, definitions)))
        for grant in new:
            name = self.name(grant, names[grant.server], definitions[grant].shown_name)
            shown = self._made(name, grant, definitions[grant])
            self._shown[grant] = self._by_name[name] = shown
            added.append(name)
        return added

    @property
    def has_too_many_names(self) -> bool:
        """Whether more than `MOST_NAMES` names are remembered."""
        return len(self._names) > MOST_NAMES

    def forget_old_names(self, kept: Container[Grant]) -> None:
        """Forget the older half of the names of one server.

        It is the server with the most names of tools and prompts that are neither shown nor in
        `kept`.
        """
        by_server: dict[ServerIdentity, list[Grant]] = {}
        for grant in self._names:
            if grant not in self._shown and grant not in kept:
                by_server.setdefault(grant.server, []).append(grant)
        old = max(by_server.values(), key=len, default=[])
        for grant in old[: (len(old) + 1) // 2]:
            del self._names[grant]
            self._own_names.pop(grant, None)
        self._taken = {}

    def _too_many(
        self, grants: Iterable[Grant], definitions: Mapping[Grant, ToolDefinition]
    ) -> Iterable[Grant]:
        if not self.most_at_once:
            return ()
        by_server: dict[ServerIdentity, list[Grant]] = {}
        for grant in grants:
            by_server.setdefault(grant.server, []).append(grant)
        return [
            grant
            for together in by_server.values()
            if sum(len(definitions[each].json) for each in together) > self.most_at_once
            for grant in together
        ]

    def name(self, grant: Grant, server: ServerName, own_name: str) -> WireName:
        """Return the name under which clients know a tool or prompt; choose one if it has none.

        `own_name` is its name at `server`, or the one that an overlay of the user gives it. A tool
        keeps its name for clients, unless an overlay has renamed it while it was off.
        """
        known = self._names.get(grant)
        if known is not None and (grant in self._shown or not self._is_renamed(grant, own_name)):
            return known
        taken = self._taken_beside(is_prompt=grant.tool.startswith(PROMPT))
        if known is not None:
            # A restored session has wire names, but not the names that they were made of.
            own = {known, *(name for name, of in self._former.items() if of == grant)}
            taken = taken - own
            self._taken = {}
        if self._is_bare:
            name = bare_name(server, grant.server, ToolName(own_name), taken)
        else:
            name = wire_name(server, grant.server, ToolName(own_name), taken, self.name_limit)
        if known is not None and known != name:
            self._former[known] = grant
            self._former.pop(name, None)
        if known is not None or own_name != grant.tool.removeprefix(PROMPT):
            self._own_names[grant] = own_name
        self._names[grant] = name
        taken.add(name)
        return name

    def _is_renamed(self, grant: Grant, own_name: str) -> bool:
        return own_name != self._own_names.get(grant, grant.tool.removeprefix(PROMPT))

    def replace_server(self, old: ServerIdentity, new: ServerIdentity) -> None:
        """Give the tools of `new` the names under which clients know the same tools of `old`.

        A server whose definition was edited has a new identity. For a model it is the same server,
        so the names that the model remembers should stay valid. A tool of `old` that is still on
        keeps its name.
        """
        for grant in [each for each in self._names if each.server == old]:
            renewed = Grant(new, grant.tool)
            if grant not in self._shown and renewed not in self._names:
                self._names[renewed] = self._names.pop(grant)

    def _taken_beside(self, *, is_prompt: bool) -> set[WireName]:
        # For a client, prompts and tools are two namespaces: a prompt and a tool may have one name.
        kept = self._taken.get(is_prompt)
        if kept is not None:
            return kept
        named = self._names.items()
        alike = {*self.own, *self._former}
        alike.update(n for g, n in named if g.tool.startswith(PROMPT) == is_prompt)
        if len(alike) > _FEW_NAMES:
            self._taken[is_prompt] = alike
        return alike

    def remove(self, grants: Iterable[Grant]) -> list[WireName]:
        """Remove tools; return the names for clients of those that were shown, in order."""
        removed: list[WireName] = []
        for grant in grants:
            shown = self._shown.pop(grant, None)
            self._unlisted.pop(grant, None)
            if shown is not None:
                del self._by_name[shown.name]
                removed.append(shown.name)
        return removed

    def redefine(self, definitions: Mapping[Grant, ToolDefinition]) -> list[WireName]:
        """Update the definitions of shown tools.

        Return the names for clients of those whose entry in the list has changed.
        """
        changed: list[WireName] = []
        for grant, definition in definitions.items():
            old = self._shown.get(grant)
            if old is None:
                continue
            new = self._made(old.name, grant, definition)
            if new != old:
                self._shown[grant] = self._by_name[old.name] = new
            if new.json != old.json:
                changed.append(old.name)
        return changed

    def definitions(self) -> list[bytes]:
        """Return the entries of `tools/list` in order."""
        listed = (shown.json for shown in self.listed)
        return [*self._listed_own(), *listed, *self._late_own.values()]

    def listing(self) -> bytes:
        """Return the result of `tools/list` as JSON."""
        return b'{"tools":[' + b",".join(self.definitions()) + b"]}"

    def _made(self, name: WireName, grant: Grant, definition: ToolDefinition) -> ShownTool:
        whole = renamed(definition.json, name)
        note = self.note(grant, name)
        if note:
            whole = described(whole, note)
        may_give_any_value = promises_any_value(whole)
        is_refused = may_give_any_value and not self.takes_any_output
        is_cut = is_refused or (self.cuts_results and promises_too_much(whole))
        return ShownTool(
            name,
            grant,
            without_output_schema(whole) if is_cut else whole,
            whole if is_cut else b"",
            definition.edit,
            page_of(whole),
            may_give_any_value,
        )

    def _listed_own(self) -> list[bytes]:
        return list(self._own.values())[: self.limit]


def without_output_schema(definition: bytes) -> bytes:
    """Return a tool's JSON without `outputSchema`, every other member with the same bytes."""
    members = _definition.decode(definition)
    members.pop("outputSchema", None)
    return msgspec.json.encode(members)


def described(definition: bytes, note: str) -> bytes:
    """Return a tool's JSON with `note` after its description, the rest with the same bytes."""
    members = _definition.decode(definition)
    text = text_of(members.get("description")) + note
    return msgspec.json.encode({**members, "description": text.lstrip("\n")})


def renamed(definition: bytes, name: WireName) -> bytes:
    """Return a tool's JSON with another name, every other member with the same bytes."""
    members = _definition.decode(definition)
    if text_of(members.get("name")) == name:
        return definition
    encoded = {"name": msgspec.Raw(msgspec.json.encode(name))}
    encoded.update((key, value) for key, value in members.items() if key != "name")
    return msgspec.json.encode(encoded)
