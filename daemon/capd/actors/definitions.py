"""The definitions actor: compares the tools that servers list with their trusted definitions.

    the supervisor lists tools ──> compared ──> the daemon uses those that are not withheld
    a person decides ──> an event ──> the supervisor has the tools compared again

A baseline is the record of one server's trusted definitions. `core.definitions` decides. This actor
loads and saves baselines, one server at a time.
"""

import time
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Protocol

import msgspec
import structlog
import trio

from capd.actor_clients.names import DEFINITIONS
from capd.adapters.definition_files import LoadedDefinitions
from capd.core.definitions import baseline as rules
from capd.core.definitions.baseline import Baseline, Instances, Rule, ToolChange
from capd.core.definitions.canonical import canonical, difference, digest
from capd.core.tools.names import wire_name
from capd.runtime.boundary import contained, kept_running
from capd.runtime.bus import Bus
from capd.runtime.mailbox import serve
from capd.runtime.saver import Saver
from capd_protos import definitions as messages
from capd_protos.codec import MalformedError, MsgpackCodec
from capd_protos.types import ServerIdentity, ServerName, ServerSpec, ToolName

if TYPE_CHECKING:
    from capd.core.definitions.flags import Flag

REQUESTS: MsgpackCodec[messages.Request] = MsgpackCodec(messages.Request)

QUARANTINE = "quarantine"
MOST_SHOWN = 8 << 20
"""The most characters of all differences in one answer. A client reads lines of at most 32 MiB."""
_NAMES_LOGGED = 20
TRY_AGAIN = 2.0
"""Seconds after which a failed save, as on a full disk, is tried again."""

log = structlog.get_logger(actor="definitions")


class DefinitionStore(Protocol):
    """Saves and loads, for each server, the record of its trusted tool definitions."""

    async def load(self, identity: ServerIdentity) -> LoadedDefinitions:
        """Return the record of a server's trusted definitions."""
        ...

    async def load_all(self) -> list[LoadedDefinitions]:
        """Return the record of trusted definitions of every server."""
        ...

    async def save(self, baseline: Baseline) -> str:
        """Save the record of a server's trusted definitions; return why that failed, or ""."""
        ...


class Definitions:
    """The definitions actor's mailbox: receives a server's tools, returns the withheld ones."""

    def __init__(
        self, bus: Bus, files: DefinitionStore, mode: messages.Mode, own_tools: tuple[str, ...] = ()
    ) -> None:
        """Create it. `own_tools` are the names of capd's own tools.

        `mode` is the user's setting: with `quarantine`, every changed or added tool is withheld
        until a person accepts it; with `notify`, only in the cases of `Rule.withholds`.
        """
        self._bus = bus
        self._files = files
        self._mode: messages.Mode = mode
        self._own_tools = own_tools
        self._rule = Rule(is_quarantine=mode == QUARANTINE)
        # Baselines without the definitions' texts, which are loaded again when they are needed.
        self._known: dict[ServerIdentity, Baseline] = {}
        self._problems: dict[ServerIdentity, str] = {}
        # Baselines with texts, whose save failed and is tried again.
        self._unsaved: dict[ServerIdentity, Baseline] = {}
        self._reasons: dict[ServerIdentity, str] = {}
        self._saver = Saver(self._save_again, pause=TRY_AGAIN)
        self._unreadable: dict[ServerIdentity, ServerName] = {}
        self._locks: defaultdict[ServerIdentity, trio.Lock] = defaultdict(trio.Lock)
        self._instances: defaultdict[ServerIdentity, Instances] = defaultdict(Instances)
        self._was_read = trio.Event()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Answer requests until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(contained, log=log), "definitions", self._read_all)
            nursery.start_soon(partial(kept_running, log=log), "saves", self._saver.run)
            await serve(
                self._bus, DEFINITIONS, REQUESTS, self._replied, log=log, task_status=task_status
            )

    async def _read_all(self) -> None:
        for loaded in await self._files.load_all():
            found = loaded.baseline
            if found is not None and found.identity not in self._known:
                self._known[found.identity] = _without_texts(found)
                if loaded.problem:
                    self._problems[found.identity] = loaded.problem
        self._was_read.set()

    async def _replied(self, request: messages.Request) -> messages.Reply:
        match request:
            case messages.VetTools():
                return await self._vet(request)
            case messages.ScreenTools():
                await self._was_read.wait()
                return messages.ToolsScreened(self._screen(request))
            case messages.LookUpWithheld():
                await self._was_read.wait()
                return messages.WithheldLookedUp(self._look_up(request))
            case messages.ListDefinitions():
                await self._was_read.wait()
                return await self._list(request)
            case messages.DecideDefinitions():
                return await self._decide(request)

    # What a server lists

    async def _vet(self, request: messages.VetTools) -> messages.ToolsVetted:
        server = request.server
        texts: dict[ToolName, bytes] = {}
        unreadable: list[ToolName] = []
        for tool in request.tools:
            try:
                texts[tool.name] = canonical(tool.written)
            except MalformedError as error:
                # An unreadable definition cannot be compared, so this tool alone is withheld.
                log.warning(
                    "definition_unreadable", server=server.name, tool=tool.name, reason=str(error)
                )
                unreadable.append(tool.name)
            # A checkpoint for each tool: a list may have 8 MB.
            await trio.lowlevel.checkpoint()
        async with self._loaded(request.identity, server) as before:
            if before is None:
                return messages.ToolsVetted(self._unread(request, list(texts)) + unreadable)
            self._unreadable.pop(request.identity, None)
            if before.is_lost and self._rule.trusts_first(before):
                log.error("definitions_trusted_anew", server=server.name)
            instances = self._instances[request.identity]
            digests = {name: digest(text) for name, text in texts.items()}
            elsewhere = instances.elsewhere(request.instance, request.running)
            compared = rules.compared(before, texts, self._rule, time.time(), elsewhere)
            after = compared.baseline
            instances.lists(request.instance, texts, after.changes)
            withheld = rules.withheld_of(digests, after, self._rule)
            if after != before and (after.known or after.changes):
                await self._keep(after)
        news = instances.unreported(compared.news)
        if news:
            self._publish_changes(after, news, withheld)
        return messages.ToolsVetted([*withheld, *unreadable])

    def _unread(self, request: messages.VetTools, tools: list[ToolName]) -> list[ToolName]:
        """Return the tools to withhold while their server's trusted definitions cannot be read."""
        if not (self._rule.is_quarantine or rules.standing_of(request.server)):
            return []
        self._unreadable[request.identity] = request.server.name
        return tools

    def _publish_changes(
        self,
        after: Baseline,
        news: dict[ToolName, ToolChange],
        withheld: dict[ToolName, ToolChange],
    ) -> None:
        def of(kind: str) -> list[ToolName]:
            return [name for name, change in news.items() if change.kind == kind]

        event = messages.DefinitionsChanged(
            after.name,
            after.identity,
            of(rules.ADDED),
            of(rules.CHANGED),
            of(rules.REMOVED),
            [name for name in news if name in withheld],
        )
        log.warning(
            "definitions_changed",
            server=after.name,
            added=event.added[:_NAMES_LOGGED],
            changed=event.changed[:_NAMES_LOGGED],
            removed=event.removed[:_NAMES_LOGGED],
            withheld=event.withheld[:_NAMES_LOGGED],
        )
        self._bus.publish(event)

    # Withheld tools

    def _screen(self, request: messages.ScreenTools) -> dict[ServerIdentity, list[ToolName]]:
        found: dict[ServerIdentity, list[ToolName]] = {}
        for identity, tools in request.tools.items():
            known = self._known.get(identity)
            if known is None:
                withheld = list(tools) if self._rule.is_quarantine else []
            else:
                barred = rules.withheld(known, self._rule)
                is_strict = self._rule.is_quarantine
                withheld = [
                    name
                    for name in tools
                    if name in barred or (is_strict and name not in known.known)
                ]
            if withheld:
                found[identity] = withheld
        return found

    def _look_up(self, request: messages.LookUpWithheld) -> str:
        if request.identity in self._unreadable:
            name, why = self._unreadable[request.identity], self._problems[request.identity]
            return f"{request.tool} of {name} is withheld: what is trusted is not known ({why})."
        for identity, known in self._known.items():
            if request.identity not in {"", identity}:
                continue
            for tool, change in rules.withheld(known, self._rule).items():
                is_meant = tool == request.tool and identity == request.identity
                if is_meant or wire_name(known.name, identity, tool) == request.name:
                    return rules.reason(known, tool, change, command=_command(known.name))
        return ""

    # A person's view and decisions

    async def _list(self, request: messages.ListDefinitions) -> messages.DefinitionsListed:
        chosen = [k for k in self._known.values() if request.server in {"", k.name, k.identity}]
        wants_texts = request.with_differences or request.with_flags
        # Imported only when a person asks, because compiling its patterns takes 2 ms.
        from capd.core.definitions.flags import SOURCES  # noqa: PLC0415

        entries: list[messages.ServerDefinitions] = []
        room = MOST_SHOWN if request.with_differences else 0
        others = {k.name: list(k.known) for k in self._known.values()} if wants_texts else {}
        for known in sorted(chosen, key=lambda k: (k.name, k.identity)):
            whole = known
            if wants_texts:
                whole = (await self._files.load(known.identity)).baseline or known
            found: list[Flag] = []
            if request.with_flags:
                # In a thread: it takes half a second for a thousand tools.
                found = await trio.to_thread.run_sync(self._flags, whole, others)
            changes: list[messages.DefinitionChange] = []
            for tool, change in whole.changes.items():
                changes.append(self._change(whole, tool, change, room))
                room -= len(changes[-1].difference)
                await trio.lowlevel.checkpoint()
            entries.append(
                messages.ServerDefinitions(
                    known.name,
                    known.identity,
                    len(known.known),
                    known.standing,
                    known.is_lost,
                    changes,
                    [
                        messages.DefinitionFlag(f.tool, f.code, f.seen, SOURCES[f.code])
                        for f in found
                    ],
                )
            )
        return messages.DefinitionsListed(
            self._mode, entries, [*self._problems.values(), *self._reasons.values()]
        )

    def _change(
        self, of: Baseline, tool: ToolName, change: ToolChange, room: int
    ) -> messages.DefinitionChange:
        """Return a changed tool definition as a message.

        The message shows the difference from the trusted definition, unless that has more than
        `room` characters.
        """
        trusted = of.known.get(tool)
        before = trusted.text if trusted is not None else b""
        shown = difference(before, change.text, named=f"{of.name}:{tool}") if room > 0 else ""
        return messages.DefinitionChange(
            tool,
            change.kind,
            change.digest,
            self._rule.withholds(change, of),
            change.is_rejected,
            change.seen_at,
            shown if len(shown) <= room else "",
        )

    def _flags(self, of: Baseline, others: dict[ServerName, list[ToolName]]) -> "list[Flag]":
        texts = {name: known.text for name, known in of.known.items() if known.text}
        texts |= {name: change.text for name, change in of.changes.items() if change.text}
        from capd.core.definitions.flags import flags, flags_among  # noqa: PLC0415 - as above

        found: list[Flag] = []
        for name, text in texts.items():
            found += flags(name, text)
        return found + flags_among(of.name, texts, others, self._own_tools)

    async def _decide(self, request: messages.DecideDefinitions) -> messages.DefinitionsDecided:
        async with self._locks[request.identity]:
            before = (await self._files.load(request.identity)).baseline
            before = self._unsaved.get(request.identity, before)
            if before is None:
                return messages.DefinitionsDecided([], list(request.digests))
            decided = rules.decided_on(before, request.digests)
            decide = rules.accepted if request.is_accepted else rules.rejected
            after = decide(before, request.digests)
            problem = await self._keep(after) if decided else ""
        if decided and not after.is_lost:
            self._problems.pop(request.identity, None)
        log.info(
            "definitions_decided",
            server=after.name,
            tools=decided[:_NAMES_LOGGED],
            is_accepted=request.is_accepted,
        )
        if decided:
            self._instances[request.identity].decided(decided)
            self._bus.publish(messages.DefinitionsReviewed(after.name, after.identity))
        stale = [name for name in request.digests if name not in decided]
        return messages.DefinitionsDecided(decided, stale, problem)

    # Baselines

    @asynccontextmanager
    async def _loaded(
        self, identity: ServerIdentity, server: ServerSpec
    ) -> AsyncIterator[Baseline | None]:
        """Yield the record of a server's trusted definitions; None if it cannot be read.

        The record is locked while the block runs.
        """
        async with self._locks[identity]:
            loaded = await self._files.load(identity)
            if loaded.problem:
                self._problems[identity] = loaded.problem
            elif loaded.baseline is None or not loaded.baseline.is_lost:
                self._problems.pop(identity, None)
            if loaded.problem and loaded.baseline is None:
                yield None
                return
            # A baseline whose save failed is newer than the one on disk.
            found = self._unsaved.get(identity, loaded.baseline) or Baseline(identity, server.name)
            standing = rules.standing_of(server)
            yield msgspec.structs.replace(found, name=server.name, standing=standing)

    async def _keep(self, baseline: Baseline) -> str:
        self._known[baseline.identity] = _without_texts(baseline)
        problem = await self._files.save(baseline)
        self._unsaved.pop(baseline.identity, None)
        self._reasons.pop(baseline.identity, None)
        if problem:
            text = f"the trusted definitions of {baseline.name} are not saved: {problem}"
            self._reasons[baseline.identity] = text
            self._unsaved[baseline.identity] = baseline
            self._saver.changed(baseline.identity)
        return problem

    async def _save_again(self, identity: ServerIdentity) -> bool:
        """Try again to save a server's record of trusted definitions; return whether it worked."""
        async with self._locks[identity]:
            if identity not in self._unsaved:
                return True
            return not await self._keep(self._unsaved[identity])


def _command(server: ServerName) -> str:
    return f"capd trust definitions {server}"


def _without_texts(baseline: Baseline) -> Baseline:
    return msgspec.structs.replace(
        baseline,
        known={n: msgspec.structs.replace(k, text=b"") for n, k in baseline.known.items()},
        changes={n: msgspec.structs.replace(c, text=b"") for n, c in baseline.changes.items()},
    )
