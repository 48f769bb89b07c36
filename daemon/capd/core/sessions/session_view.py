"""How one session's client sees it: the mode, capd's own tools, and the texts.

It is decided when the session opens, and once more when the client has sent its name. After the
first list it does not change, so that the same state is always listed with the same bytes.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from capd.core.globs import matches
from capd.core.memories.bootstrap import BootstrapRules
from capd.core.results.reading import RESULT_READ
from capd.core.scripts.script_tool import SCRIPT_RUN
from capd.core.sessions.client_traits import ClientTraits, Plan, RelistWatch, plan, traits_of
from capd.core.sessions.habits import Habits
from capd.core.sessions.own_tool_list import (
    OWN_TOOLS,
    SCRIPT_TOOL,
    OwnTool,
    definitions,
    offered,
)
from capd.core.sessions.own_tools import CAPABILITY
from capd.core.sessions.policy import Policy
from capd.core.sessions.search_tools import TOOL_CALL, TOOL_CALL_READONLY, TOOL_SEARCH
from capd.core.sessions.session_record import SavedView
from capd.core.sessions.session_rules import SessionRules
from capd.core.sessions.surface import Surface
from capd.core.sessions.whole_list import WHOLE_BYTES, Catalog, is_listed_whole
from capd.core.tools.tool_filter import is_named
from capd_protos.types import WireName

OWN_SERVER = "capd"
"""What rules of policy call the server of capd's own tools, as in `capd:script_run`."""
MOST_AT_ONCE = 10_500
"""Bytes of a server's tools, about 3,000 tokens, that one activation lists for a client that leaves
in its prompt whatever came once. More are called by their cards (bench/tokens)."""


class SessionView:
    """How the client of one session sees it."""

    def __init__(
        self,
        rules: SessionRules,
        *,
        client: str,
        project: str,
        habits: Habits | None = None,
        is_bare: bool = False,
        has_results: bool = True,
        domain: str = "",
        version: str = "",
    ) -> None:
        """Create it. `is_bare` is a plain aggregator: every active tool, and none of capd's own.

        `has_results` says whether long results are stored, to be read by handle.
        """
        self._has_results = has_results
        self.domain = domain
        """Which domain's capabilities the session is for; empty for all."""
        self.rules = rules
        self.is_bare = is_bare
        self.traits = ClientTraits()
        self.plan = Plan("dynamic", "")
        self.own: Mapping[WireName, OwnTool] = {}
        """capd's own tools by the names that this client may call them."""
        self.policy = Policy()
        self.own_routing: bool | None = None
        """Whether its messages switch capabilities on; None leaves it to what is configured."""
        self.is_settled = False
        """Whether the client has listed: from then on nothing changes."""
        self.refused_pins = 0
        """Pins for which the client's list has no room."""
        self._client = client
        self._project = project
        self._habits = habits or Habits()
        self._watch = RelistWatch()
        self.line = ""
        """Its client's line in the table; empty where it has none."""
        self._key = client
        self._names: tuple[str, ...] = ()
        self._client_version = self._version = version
        self._known: tuple[int, int, bool] | None = None
        self._is_routed = True
        self._is_stateless = False
        self._catalog: Catalog | None = None
        self._has_deferred = True
        self._kept: SavedView | None = None
        self._has_everything = False
        """Whether all that there is was asked for, and pinned, when the session began."""

    def described(
        self,
        tools: int,
        size_bytes: int,
        *,
        is_all: bool,
        pinned: int = 0,
        catalog: Catalog | None = None,
    ) -> None:
        """Note how many tools there are; `is_all` if every server's tools are known.

        `catalog` is given if all of them were requested, because they are few.
        """
        self._known = (tools, size_bytes, is_all)
        self._catalog = catalog
        self._has_everything = "*" in self.patterns or catalog is not None
        listed = min(pinned, self.traits.tool_limit - len(OWN_TOOLS))
        self._has_deferred = not is_all or tools > listed

    def settle(
        self,
        surface: Surface,
        own_name: str = "",
        own_version: str = "",
        *,
        is_stateless: bool = False,
    ) -> None:
        """Decide how the client sees the session, by what is known about the client so far."""
        names = [own_name, self._client]
        self._names = tuple(name for name in names if name)
        self._is_routed = self.rules.routing.of(names, self._project)
        self.policy = self.rules.policy(self._names, self._project)
        self.line, self.traits = traits_of(self.rules.table, names)
        self._key = self.line or own_name or self._client
        self._version = own_version or self._client_version
        if self.is_bare:
            self.plan = Plan("pass-through", "set for this listener")
            surface.own = ()
            return
        self._is_stateless = is_stateless
        self.plan = self._kept_plan() or plan(
            self.rules.mode,
            self.traits,
            is_stateless=is_stateless,
            was_seen=self._habits.seen(self._key, self._version),
            size_bytes=self._size(),
            known_bytes=self._known[1] if self._known is not None else 0,
            share=self.rules.share,
            is_whole=self._is_whole,
        )
        if self.plan.mode == "pass-through" and not self._has_everything:
            self.plan = Plan("dynamic", "its client said who it is after the session began")
        is_prefixed = self.traits.prefix == ""
        self.own = offered(
            has_deferred=self._has_deferred,
            is_prefixed=is_prefixed,
            has_results=self._has_results,
            has_scripts=self.rules.lists_scripts and not self.scripts_refusal,
            asks_per_tool=self.traits.asks_per_tool,
        )
        if self.plan.mode == "pass-through":
            self.own = {name: own for name, own in self.own.items() if own is SCRIPT_TOOL}
        surface.own = definitions(self.own.items())
        surface.cuts_results = self.reader is not None
        surface.is_fixed = self.plan.mode == "stable"
        surface.most_at_once = MOST_AT_ONCE if self.traits.appends else 0
        surface.limit = self.traits.tool_limit
        surface.name_limit = self.traits.wire_limit

    # What outlives the daemon

    def saved(self) -> SavedView | None:
        """Return the saved part of the view, for the record.

        The user's own settings are not saved.
        """
        if self._is_set or self.plan.mode == "pass-through" or self.is_bare:
            return None
        return SavedView(
            self.plan.mode,
            self.plan.reason,
            self._client,
            is_stateless=self._is_stateless,
            has_deferred=self._has_deferred,
        )

    def keep(self, saved: SavedView | None) -> bool:
        """Restore a saved view; return whether it applies to this client."""
        if saved is None or self._is_set or saved.client != self._client:
            return False
        self._kept, self._has_deferred = saved, saved.has_deferred
        return True

    @property
    def _is_set(self) -> bool:
        return self.rules.mode != "auto" or self.traits.mode != "auto"

    def _kept_plan(self) -> Plan | None:
        kept = self._kept
        if kept is None or self._is_set or (self._is_stateless and not kept.is_stateless):
            return None
        return Plan("stable" if kept.mode == "stable" else "dynamic", kept.reason)

    def follow(self, rules: SessionRules) -> None:
        """Use what new rules permit; how the client sees the session stays until `settle`."""
        self.rules = rules
        self._is_routed = rules.routing.of(self._names, self._project)
        self.policy = rules.policy(self._names, self._project)

    @property
    def names(self) -> tuple[str, ...]:
        """The names by which the client is known, its own first."""
        return self._names

    @property
    def project(self) -> str:
        """The session's project."""
        return self._project

    @property
    def is_routed(self) -> bool:
        """Whether its messages may switch capabilities on."""
        return self._is_routed if self.own_routing is None else self.own_routing

    @property
    def whole_bytes(self) -> int:
        """The size up to which all tools are requested when the session begins; 0 for never."""
        # Who pins tools has said what the list is to hold.
        is_decided = self._is_set or self.rules.pins or self._kept is not None
        return 0 if is_decided or self.is_bare else WHOLE_BYTES

    def late_own(self, *, for_results: bool = False) -> list[tuple[WireName, bytes]]:
        """Offer capd's own tools in a session that was listed everything without them; return them.

        They are useful now: there are more tools than the list shows, or a result was too long.
        """
        if not self.plan.is_whole or not self.lists_at_once(at_border=not for_results):
            return []
        is_prefixed = self.traits.prefix == ""
        useful = offered(
            is_prefixed=is_prefixed,
            has_results=self._has_results,
            asks_per_tool=self.traits.asks_per_tool,
        )
        if for_results:
            useful = {name: own for name, own in useful.items() if own.is_for_results}
        new = {name: own for name, own in useful.items() if name not in self.own}
        self.own = {**self.own, **new}
        return definitions(new.items())

    @property
    def bootstrap(self) -> BootstrapRules:
        """The rules for bootstrap files in this session."""
        is_on = self.rules.bootstrapped.of(self._names, self._project) and not self.is_bare
        return replace(self.rules.bootstrap, is_on=is_on)

    @property
    def patterns(self) -> tuple[str, ...]:
        """The tools to look up before the first list: the pins, or all tools."""
        if self.is_bare:
            return ()
        wanted = self.rules.mode if self.rules.mode != "auto" else self.traits.mode
        takes_all = wanted == "pass-through" or self.rules.curation.passes_all
        return (*self.rules.pins, "*") if takes_all else self.rules.pins

    def is_pinned(self, server: str, tool: str, wire_name: str) -> bool:
        """Tell whether a tool is always listed."""
        takes_all = self.wants_all or self.rules.curation.passes_all
        return takes_all or any(
            is_named(pattern, server, tool, wire_name) for pattern in self.rules.pins
        )

    def keeps_pin(self, server: str, tool: str, wire_name: str) -> bool:
        """Tell whether the project leaves a tool that the user has pinned on the list."""
        kept = self.rules.kept_pins
        if kept is None or self.wants_all or self.rules.curation.passes_all:
            return True
        return any(is_named(pattern, server, tool, wire_name) for pattern in kept)

    def checks(self, server: str) -> bool:
        """Tell whether the arguments of calls of a server are checked before they are sent.

        A plain aggregator does not check them.
        """
        is_plain = self.wants_all and not self.plan.is_whole
        if not self.rules.checks_arguments or self.is_bare or is_plain:
            return False
        return not any(matches(server, pattern) for pattern in self.rules.unchecked)

    @property
    def wants_all(self) -> bool:
        """Whether everything should be listed."""
        return self.plan.mode == "pass-through" and not self.is_bare

    @property
    def reason(self) -> str:
        """Why the client sees the session as it does, for a person."""
        if not self.refused_pins:
            return self.plan.reason
        refused = f"{self.refused_pins} pins are over the {self.traits.tool_limit} tools of a list"
        return f"{self.plan.reason}; {refused}"

    @property
    def caller(self) -> WireName:
        """The tool that calls tools that are not listed, by its name for this client."""
        return next((name for name, own in self.own.items() if own.name == TOOL_CALL), TOOL_CALL)

    @property
    def has_caller(self) -> bool:
        """Whether the client has a tool that calls others; it has none if everything is listed."""
        return any(own.name == TOOL_CALL for own in self.own.values())

    @property
    def scripts_refusal(self) -> str:
        """Why the session may run no scripts; empty if it may."""
        if not self.rules.has_scripts:
            return "scripts are switched off: [scripts] enabled = false"
        if self.is_bare or (self.wants_all and not self.plan.is_whole):
            return "this session has none of capd's own tools"
        restriction = self.policy.restriction(OWN_SERVER, SCRIPT_RUN)
        return restriction.reason if restriction is not None else ""

    @property
    def names_scripts(self) -> bool:
        """Whether the instructions say how scripts are run, because no list does."""
        return self.has_caller and not self.has_script_tool and not self.scripts_refusal

    @property
    def unlisted_own(self) -> Mapping[WireName, OwnTool]:
        """The own tools of capd that are not listed, and are called through `tool_call`."""
        if self.is_bare or self.wants_all or self.has_script_tool:
            return {}
        return {SCRIPT_RUN: SCRIPT_TOOL}

    @property
    def has_script_tool(self) -> bool:
        """Whether the tool that runs scripts is listed."""
        return any(own is SCRIPT_TOOL for own in self.own.values())

    @property
    def read_only_caller(self) -> WireName | None:
        """The tool that calls read-only tools; None if the client has no use for it."""
        found = (name for name, own in self.own.items() if own.name == TOOL_CALL_READONLY)
        return next(found, None)

    @property
    def enabler(self) -> WireName:
        """The tool that switches capabilities on, by its name for this client."""
        found = (name for name, own in self.own.items() if own.name == CAPABILITY)
        return next(found, CAPABILITY)

    @property
    def has_enabler(self) -> bool:
        """Whether there is such a tool; there is none if everything is listed."""
        return any(own.name == CAPABILITY for own in self.own.values())

    @property
    def searcher(self) -> WireName:
        """The tool that searches for others, by its name for this client."""
        found = (name for name, own in self.own.items() if own.name == TOOL_SEARCH)
        return next(found, TOOL_SEARCH)

    def called(self, own: WireName) -> WireName:
        """Return the name of one of capd's own tools for this client."""
        return WireName(f"{self.traits.prefix or ''}{own}")

    @property
    def reader(self) -> WireName | None:
        """The tool that reads stored results, by its name for this client; None if it has none."""
        if self.is_bare or (self.wants_all and not self.plan.is_whole):
            return None
        return next((name for name, own in self.own.items() if own.name == RESULT_READ), None)

    def lists_at_once(self, *, at_border: bool) -> bool:
        """Tell whether a tool that is switched on is on the model's list before its next answer."""
        if self.plan.mode == "pass-through" and not self.plan.is_whole:
            return True
        is_behind = self._watch.was_seen is False and not self.traits.is_relists_set
        if self.plan.mode == "stable" or is_behind:
            return False
        return self.traits.relists == "mid_turn" or (
            at_border and self.traits.relists == "before_turn"
        )

    @property
    def lists_in_turn(self) -> bool:
        """Whether the model's next request lists the tools that are switched on in a turn.

        A client that appends to its list announces new tools after the next tool's result: in
        twelve turns that were measured, no first request had them (docs/design/clients.md).
        """
        return self.lists_at_once(at_border=True) and not self.traits.appends

    @property
    def is_to_be_asked(self) -> bool:
        """Whether to notify the client without a change, to see whether it lists again.

        This is done if only the table says that the client does not. If it does, its next session
        has a changing list.
        """
        is_known = self._habits.seen(self._key, self._version) is not None
        return self.plan.is_hearsay and not is_known and not self._watch.is_behind

    @property
    def is_curated(self) -> bool:
        """Whether a turn may add single tools; not if everything is listed."""
        return self.rules.curation.chooses and not self.is_bare and not self.wants_all

    def names_to_call(
        self, names: Sequence[WireName], listed: Collection[WireName], *, at_border: bool
    ) -> str:
        """Return how to call tools that the client will not list at once; empty if it will."""
        is_listed = all(name in listed for name in names)
        if not names or (is_listed and self.lists_at_once(at_border=at_border)):
            return ""
        return f"They may not be on your list: call them with {self.caller}, name=..."

    # What it does

    def listed(self) -> None:
        """Note that the client listed its tools."""
        self.is_settled = True
        self._watch.listed()
        self._habits.note(self._key, self._version, self._watch.was_seen)

    def changed(self) -> None:
        """Note that the client was notified of a changed list."""
        self._watch.changed()

    def turned(self) -> None:
        """Note that a message of its user has come."""
        self._watch.turned()
        self._habits.note(self._key, self._version, self._watch.was_seen)

    @property
    def _is_whole(self) -> bool:
        catalog, limit = self._catalog, self.traits.tool_limit
        return catalog is not None and is_listed_whole(catalog, limit)

    def _size(self) -> int | None:
        if self._known is None:
            return None
        tools, size_bytes, is_all = self._known
        return size_bytes if is_all and tools <= self.traits.tool_limit else None
