"""How one session appears to its client: the mode of its surface, and which own tools are in it.

The surface is the tools that the client may call; its mode says which of them are on the client's
list (docs/surface.md). Own tools are capd's. A wire name is a tool's name on the list, without the
prefix that some clients add to it.

`decide` decides both when the session opens, and once more when the client has sent its name and
version. After the client's first `tools/list` the view stays the same, so that an equal state
always gives a list of equal bytes. The one exception is `late_own`, which adds own tools at the end
of a list that had every installed tool and none of capd's.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from capd.core.globs import matches
from capd.core.memories.bootstrap import BootstrapRules
from capd.core.results.reading import RESULT_READ
from capd.core.scripts.script_tool import SCRIPT_RUN
from capd.core.sessions.client_traits import UNKNOWN, ModeSetting, traits_of
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
from capd.core.sessions.surface_mode import RelistWatch, SurfacePlan, set_mode, surface_plan
from capd.core.sessions.whole_list import WHOLE_BYTES, ToolTotals, is_listed_whole
from capd.core.tools.tool_filter import is_named
from capd_protos.types import WireName

OWN_SERVER = "capd"
"""The server's name for capd's own tools in rules of policy, as in `capd:script_run`."""
MOST_AT_ONCE = 10_500
"""If one activation adds more bytes of a server's tools (about 3,000 tokens), they are not listed
for a client that keeps every tool in its prompt once it was listed. Models call them by their call
cards (bench/tokens)."""


class SessionView:
    """How one session's tools appear to its client, and the facts that this is based on."""

    # Slots save memory: every idle session has one of these objects.
    __slots__ = (
        *("_catalog", "_client", "_client_version", "_habits", "_has_deferred", "_has_everything"),
        *("_has_results", "_is_routed", "_is_stateless", "_kept", "_key", "_known"),
        *("_names", "_project", "_shares", "_version", "_watch", "domain"),
        *("has_listed", "is_bare", "line", "own", "own_routing", "plan"),
        *("policy", "refused_pins", "rules", "traits"),
    )

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
        shares: "SessionView | None" = None,
    ) -> None:
        """Begin without facts about the client; `decide` takes them.

        With `is_bare` the session is a plain aggregator: it lists every active tool, and none of
        capd's own. `has_results` says that long results are stored, to be read later. `client`
        and `version` come from the hello, the first line of a connection. `habits` are the
        observations of clients so far, `domain` is the session's domain. `shares` is only for the
        session of a sub-agent, whose client is shown the conversation's list of tools: the view of
        that conversation.
        """
        self._shares = shares
        self._has_results = has_results
        self.domain = domain
        """The domain whose capabilities the session may use; empty for all capabilities."""
        self.rules = rules
        self.is_bare = is_bare
        self.traits = UNKNOWN
        self.plan = SurfacePlan("dynamic", "")
        self.own: Mapping[WireName, OwnTool] = {}
        """capd's own tools by their wire names in this session."""
        self.policy = Policy()
        self.own_routing: bool | None = None
        """The session's own setting of whether its messages are routed; None if it has none."""
        self.has_listed = False
        """Whether the client has listed its tools, so that the decisions stay as they are."""
        self.refused_pins = 0
        """How many pins were left out because the client's list has no room for them."""
        self._client = client
        self._project = project
        self._habits = habits or Habits()
        self._watch = RelistWatch()
        self.line = ""
        """The key of the client's entry in `clients.toml`; empty if it has none."""
        self._key = client
        self._names: tuple[str, ...] = ()
        self._client_version = self._version = version
        self._known: tuple[int, int, bool] | None = None
        self._is_routed = True
        self._is_stateless = False
        self._catalog: ToolTotals | None = None
        self._has_deferred = True
        self._kept: SavedView | None = None
        self._has_everything = False
        """Whether every installed tool was looked up and pinned when the session opened."""

    def described(
        self,
        tools: int,
        size_bytes: int,
        *,
        is_all: bool,
        pinned: int = 0,
        catalog: ToolTotals | None = None,
    ) -> None:
        """Note the number of installed tools and the bytes of their definitions.

        `is_all` says that every server's tools are known, `pinned` how many tools are pinned.
        `catalog` is given if all tools were looked up, because they are few.
        """
        self._known = (tools, size_bytes, is_all)
        self._catalog = catalog
        self._has_everything = "*" in self.patterns or catalog is not None
        listed = min(pinned, self.traits.tool_limit - len(OWN_TOOLS))
        self._has_deferred = not is_all or tools > listed

    def decide(
        self,
        surface: Surface,
        own_name: str = "",
        own_version: str = "",
        *,
        is_stateless: bool = False,
    ) -> None:
        """Decide which tools the session lists (its mode), and configure `surface` accordingly.

        `own_name` and `own_version` are those that the client gave in its handshake; empty if it
        has given none yet. The name in the hello is used beside them.
        """
        names = [own_name, self._client]
        self._names = tuple(name for name in names if name)
        self._is_routed = self.rules.routing.of(names, self._project)
        self.policy = self.rules.policy(self._names, self._project)
        self.line, self.traits = traits_of(self.rules.table, names)
        self._key = self.line or own_name or self._client
        self._version = own_version or self._client_version
        surface.takes_any_output = is_stateless
        if self.is_bare:
            self.plan = SurfacePlan("pass-through", "set for this listener")
            surface.own = ()
            return
        self._is_stateless = is_stateless
        self.plan = (
            self._shared_plan()
            or self._kept_plan()
            or surface_plan(
                self.rules.mode,
                self.traits,
                is_stateless=is_stateless,
                was_seen=self._habits.seen(self._key, self._version),
                size_bytes=self._size(),
                known_bytes=self._known[1] if self._known is not None else 0,
                share=self.rules.share,
                is_whole=self._is_whole,
            )
        )
        if self.wants_all and not self._has_everything and self._shares is None:
            self.plan = SurfacePlan("dynamic", "its client said who it is after the session began")
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
        self.follow_shared()
        surface.own = definitions(self.own.items())
        surface.cuts_results = self.reader is not None
        surface.is_fixed = self.plan.mode == "stable"
        surface.most_at_once = MOST_AT_ONCE if self.traits.appends else 0
        surface.limit = self.traits.tool_limit
        surface.name_limit = self.traits.wire_limit

    def _shared_plan(self) -> SurfacePlan | None:
        if self._shares is None:
            return None
        # If the conversation's list has every tool, so has the sub-agent's.
        reason = "a sub-agent's client shows the list of its conversation"
        return self._shares.plan if self._shares.wants_all else SurfacePlan("stable", reason)

    def follow_shared(self) -> None:
        """Copy which of capd's own tools are on the conversation's list at this moment.

        This is for the session of a sub-agent, which is shown that list.
        """
        if self._shares is not None:
            self.own = self._shares.own

    # Saved and restored

    def saved(self) -> SavedView | None:
        """Return what to save of the mode; None if the user's settings decided it.

        A view that lists every tool is not saved either: it is decided again by what is installed.
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
        """Use the saved mode of the list of tools; return False if it does not apply.

        It does not apply if the user has set a mode, or if another client saved it.
        """
        if saved is None or self._is_set or saved.client != self._client:
            return False
        self._kept, self._has_deferred = saved, saved.has_deferred
        return True

    @property
    def _set_mode(self) -> ModeSetting:
        return set_mode(self.rules.mode, self.traits)

    @property
    def _is_set(self) -> bool:
        return self._set_mode != "auto"

    def _kept_plan(self) -> SurfacePlan | None:
        kept = self._kept
        if kept is None or self._is_set or (self._is_stateless and not kept.is_stateless):
            return None
        return SurfacePlan("stable" if kept.mode == "stable" else "dynamic", kept.reason)

    def follow(self, rules: SessionRules) -> None:
        """Take the policy, and whether messages are routed, from new settings.

        The mode of the list of tools stays until `decide` is called.
        """
        self.rules = rules
        self._is_routed = rules.routing.of(self._names, self._project)
        self.policy = rules.policy(self._names, self._project)

    @property
    def names(self) -> tuple[str, ...]:
        """The client's names: first the one of its handshake, then the one of its hello."""
        return self._names

    @property
    def project(self) -> str:
        """The path of the session's project; empty if it has none."""
        return self._project

    @property
    def is_routed(self) -> bool:
        """Whether the session's messages are routed, and so may switch capabilities on."""
        return self._is_routed if self.own_routing is None else self.own_routing

    @property
    def may_compare(self) -> bool:
        """Whether the session's messages may be compared with the embedding model.

        The client may not have given its own name yet, so the settings of all clients count.
        """
        own, rules = self.own_routing, self.rules
        is_routed = rules.routing.is_on_for_any if own is None else own
        return is_routed or (rules.curation.chooses and rules.curation.scorer == "hybrid")

    @property
    def whole_bytes(self) -> int:
        """All tools are looked up if their definitions have at most this many bytes; 0: never."""
        # A user who pins tools has decided what is always listed.
        is_decided = self._is_set or self.rules.pins or self._kept is not None
        return 0 if is_decided or self.is_bare else WHOLE_BYTES

    def late_own(self, *, for_results: bool = False) -> list[tuple[WireName, bytes]]:
        """Add capd's own tools to a list that had every installed tool and none of capd's.

        Return the tools that were added, each with its entry in `tools/list`. Call this when they
        become useful: if there are more tools than the list shows, or, with `for_results`, if a
        result was too long. Nothing is added if the client would not list again.
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
        """The settings for the project's files that a model gets when a conversation begins."""
        is_on = self.rules.bootstrapped.of(self._names, self._project) and not self.is_bare
        return replace(self.rules.bootstrap, is_on=is_on)

    @property
    def patterns(self) -> tuple[str, ...]:
        """The patterns of tools to look up before the first list.

        They are the pins, and `*` if the session is to list every tool or pins every tool.
        """
        if self.is_bare:
            return ()
        takes_all = self._set_mode == "pass-through" or self.rules.curation.passes_all
        return (*self.rules.pins, "*") if takes_all else self.rules.pins

    def is_pinned(self, server: str, tool: str, wire_name: str) -> bool:
        """Tell whether a tool is pinned: by the user, or because every tool is."""
        takes_all = self.wants_all or self.rules.curation.passes_all
        return takes_all or any(
            is_named(pattern, server, tool, wire_name) for pattern in self.rules.pins
        )

    def keeps_pin(self, server: str, tool: str, wire_name: str) -> bool:
        """Tell whether the project's settings keep a tool pinned that the user has pinned."""
        kept = self.rules.kept_pins
        if kept is None or self.wants_all or self.rules.curation.passes_all:
            return True
        return any(is_named(pattern, server, tool, wire_name) for pattern in kept)

    def checks(self, server: str) -> bool:
        """Tell whether capd checks the arguments of calls of `server` before it sends them.

        False if the user's settings say so, and in a session that is a plain aggregator: one with
        `is_bare`, or in the mode `pass-through` that the user has set.
        """
        is_plain = self.wants_all and not self.plan.is_whole
        if not self.rules.checks_arguments or self.is_bare or is_plain:
            return False
        return not any(matches(server, pattern) for pattern in self.rules.unchecked)

    @property
    def wants_all(self) -> bool:
        """Whether the session lists every installed tool."""
        return self.plan.mode == "pass-through" and not self.is_bare

    @property
    def reason(self) -> str:
        """Why the session lists the tools that it does, for a person.

        It also says how many pins were left out.
        """
        if not self.refused_pins:
            return self.plan.reason
        refused = f"{self.refused_pins} pins are over the {self.traits.tool_limit} tools of a list"
        return f"{self.plan.reason}; {refused}"

    @property
    def caller(self) -> WireName:
        """The name under which clients know `tool_call`, which calls tools that are not listed."""
        return next((name for name, own in self.own.items() if own.name == TOOL_CALL), TOOL_CALL)

    @property
    def has_caller(self) -> bool:
        """Whether the client has the tool `tool_call`.

        A client that lists every tool does not have it.
        """
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
        """Whether the instructions say how to run scripts, because the tool is not on the list."""
        return self.has_caller and not self.has_script_tool and not self.scripts_refusal

    @property
    def unlisted_own(self) -> Mapping[WireName, OwnTool]:
        """The tools of capd's own that are not listed, and that models call through `tool_call`."""
        if self.is_bare or self.wants_all or self.has_script_tool:
            return {}
        return {SCRIPT_RUN: SCRIPT_TOOL}

    @property
    def has_script_tool(self) -> bool:
        """Whether `script_run` is on the client's list."""
        return any(own is SCRIPT_TOOL for own in self.own.values())

    @property
    def read_only_caller(self) -> WireName | None:
        """The name under which clients know `tool_call_readonly`; None if the client lacks it."""
        found = (name for name, own in self.own.items() if own.name == TOOL_CALL_READONLY)
        return next(found, None)

    @property
    def enabler(self) -> WireName:
        """The name under which clients know `capability`, which switches capabilities on."""
        found = (name for name, own in self.own.items() if own.name == CAPABILITY)
        return next(found, CAPABILITY)

    @property
    def has_enabler(self) -> bool:
        """Whether the client has the tool `capability`.

        A client that lists every tool does not have it.
        """
        return any(own.name == CAPABILITY for own in self.own.values())

    @property
    def searcher(self) -> WireName:
        """The name under which clients know the tool `tool_search`."""
        found = (name for name, own in self.own.items() if own.name == TOOL_SEARCH)
        return next(found, TOOL_SEARCH)

    def name_for_client(self, own: WireName) -> WireName:
        """Return the name of one of capd's own tools with the prefix that this client adds.

        A model knows the tool by that name: `mcp__capd__tool_search`.
        """
        return WireName(f"{self.traits.prefix or ''}{own}")

    @property
    def reader(self) -> WireName | None:
        """The name under which clients know the tool that reads stored results.

        None if the client does not have it.
        """
        if self.is_bare or (self.wants_all and not self.plan.is_whole):
            return None
        return next((name for name, own in self.own.items() if own.name == RESULT_READ), None)

    def lists_at_once(self, *, at_border: bool) -> bool:
        """Tell whether a tool that is switched on is on the model's list before its next answer.

        `at_border` says that the tool is switched on between two turns, not during one.
        """
        if self.plan.mode == "pass-through" and not self.plan.is_whole:
            return True
        if self._shares is not None:
            return False
        is_behind = self._watch.was_seen is False and not self.traits.is_relists_set
        if self.plan.mode == "stable" or is_behind:
            return False
        return self.traits.relists == "mid_turn" or (
            at_border and self.traits.relists == "before_turn"
        )

    @property
    def lists_in_turn(self) -> bool:
        """Whether a turn's first request to the model surely lists what its hook switched on.

        For a client that appends new tools this is false: it may add them only after the next
        result of a tool, so it gets call cards (docs/design/clients.md, finding 1).
        """
        return self.lists_at_once(at_border=True) and not self.traits.appends

    @property
    def is_probe_due(self) -> bool:
        """Whether to send `list_changed` without a change, to see if the client lists again.

        It is sent if capd's table of clients is the only sign that this client does not list again.
        If the client then lists again, its next session gets a list that changes.
        """
        is_known = self._habits.seen(self._key, self._version) is not None
        return self.plan.is_from_table_alone and not is_known and not self._watch.is_behind

    @property
    def is_curated(self) -> bool:
        """Whether the messages of the user may switch on single tools.

        They may not if every tool is listed.
        """
        return self.rules.curation.chooses and not self.is_bare and not self.wants_all

    def names_to_call(
        self, names: Sequence[WireName], listed: Collection[WireName], *, at_border: bool
    ) -> str:
        """Return a sentence on how to call the tools `names`, which were just switched on.

        `listed` are the tools on the list; for `at_border` see `lists_at_once`. The text is empty
        if the model will see all of `names` on its list.
        """
        is_listed = all(name in listed for name in names)
        if not names or (is_listed and self.lists_at_once(at_border=at_border)):
            return ""
        return f"They may not be on your list: call them with {self.caller}, name=..."

    # Observations

    def listed(self) -> None:
        """Note that the client has sent `tools/list`."""
        self.has_listed = True
        self._watch.listed()
        self._habits.note(self._key, self._version, self._watch.was_seen)

    def changed(self) -> None:
        """Note that the client was sent `notifications/tools/list_changed`."""
        self._watch.changed()

    def turned(self) -> None:
        """Note that a message of the user has arrived."""
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
