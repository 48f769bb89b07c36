"""The index: short texts on what is installed, prepared when the catalog is read.

    new tools ──> entries (texts, a person's changes, uses) ──> published, tokens counted
                     └──> the tools' own tokens, counted ──> published again
    capd index ──> writes changed entries to capability-index.yaml

Sessions of a project have an index of their own. The file contains the index of the user's taps.
"""

import time
from collections import OrderedDict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import structlog
import trio

from capd.actor_clients.finder import FinderClient
from capd.actor_clients.ledger import LedgerClient
from capd.actor_clients.names import INDEX
from capd.actor_clients.registry import RegistryClient
from capd.adapters.index_file import IndexFile
from capd.adapters.index_text import Content, IndexFileError
from capd.adapters.project_files import project_files
from capd.adapters.tokens.piece_counts import PieceCounts
from capd.core.index import document
from capd.core.index.entries import Facts, entry_of, in_order, new_texts
from capd.core.index.extraction import Words, extract_words
from capd.core.index.summaries import Call, call_of, surrounding_texts
from capd.core.index.trigger_map import trigger_map
from capd.core.routing.priors import spoken_for
from capd.core.sessions.own_tools import CAPABILITY
from capd.runtime.boundary import contained, kept_running
from capd.runtime.bus import ActorUnavailableError, Bus
from capd.runtime.mailbox import serve
from capd_protos import finder, ledger
from capd_protos import index as messages
from capd_protos.codec import MsgpackCodec
from capd_protos.types import CapabilityId, CapabilitySpec, WireName

REQUESTS: MsgpackCodec[messages.Request] = MsgpackCodec(messages.Request)
NEWS: MsgpackCodec[finder.ToolsIndexed] = MsgpackCodec(finder.ToolsIndexed)
TOPIC = "index.tools"

ASK_TIMEOUT = 10.0
COUNT_TIMEOUT = 150.0
WAITED = 3.0
"""Seconds for which the first session of a daemon waits for the index."""
MOST_PROJECTS = 32
LEARN_PATIENCE = 1.0
"""Seconds for which an answer waits for token counts, if they decide what fits."""
READ_AGAIN = 5.0
"""Seconds after a failure until the catalog is read again."""
COUNT_AFTER = 30.0
"""Once the catalog has not changed for this many seconds, the tokens of its tools are counted."""
MOST_COUNTED = 2000
"""The tokens of this many entries of a catalog are counted, the most important ones first. For the
others, upper bounds of their tokens decide how short their texts are. Counting ten thousand took a
second of the daemon's start."""
KNOWN_FOR = 2.0
"""Seconds for which the ledger's last answer is used for the status."""

log = structlog.get_logger(actor="index")


@dataclass(frozen=True, slots=True)
class _Read:
    """The index for one project, as last computed, with the catalog from which it was computed."""

    described: list[finder.CapabilityTools] = field(default_factory=list)
    facts: Mapping[str, Facts] = field(default_factory=dict)
    entries: list[messages.IndexEntry] = field(default_factory=list)
    files: Collection[str] = ()
    """The names in the project's root folder."""
    words: Mapping[CapabilityId, "_Known"] = field(default_factory=dict)

    def words_of(self, described: finder.CapabilityTools) -> "_Known":
        """Return the words for a capability's entry, cached if it and its tools are unchanged."""
        spec, tools = described.capability, described.tools
        known = self.words.get(spec.id)
        if known is None or known.capability is not spec or known.tools != tools:
            known = _Known(spec, tools, extract_words(spec, tools or ()))
        return known


@dataclass(frozen=True, slots=True)
class _Known:
    """The words for a capability's entry, and the definition and tools that they are made from."""

    capability: CapabilitySpec
    tools: list[WireName] | None
    words: Words


class Index:
    """The index's mailbox: receives requests, returns short texts."""

    def __init__(self, bus: Bus, file: IndexFile, pieces: PieceCounts) -> None:
        self._bus = bus
        self._finder = FinderClient(bus)
        self._ledger = LedgerClient(bus)
        self._registry = RegistryClient(bus)
        self._file = file
        self._pieces = pieces
        self._problem = ""
        self._own: Mapping[str, document.Overrides] = {}
        self._read: OrderedDict[str, _Read] = OrderedDict()
        self._was_read = trio.Event()
        self._changed = trio.Event()
        self._lock = trio.Lock()
        self._reading = trio.Lock()
        self._is_wanted = trio.Event()
        self._made = trio.Event()
        self._written_as: tuple[trio.Event, Mapping[str, Facts]] | None = None
        """The catalog and the uses from which the file was written last."""
        self._counted: dict[str, tuple[list[WireName] | None, int]] = {}
        self._learned = trio.Event()
        self._learned_from: dict[str, _Read] = {}
        """The index of each project at the last count of its texts; empty if that count failed."""
        self._known: Mapping[str, Facts] = {}
        self._known_until = float("-inf")

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled."""
        async with trio.open_nursery() as nursery:
            keep = partial(kept_running, log=log)
            nursery.start_soon(keep, "hints", self._listen)
            nursery.start_soon(keep, "catalog", self._follow)
            nursery.start_soon(keep, "sessions", self._follow_sessions)
            await serve(
                self._bus,
                INDEX,
                REQUESTS,
                self._replied,
                log=log,
                task_status=task_status,
                # These replies grow with the catalog.
                offers=(messages.IndexListed, messages.IndexDescribed),
            )

    async def _replied(self, request: messages.Request) -> messages.Reply:
        match request:
            case messages.ListIndex(project):
                with trio.move_on_after(WAITED):
                    await self._was_read.wait()
                if not self._was_read.is_set():
                    return messages.IndexListed([], is_known=False)
                entries = (await self._of(project)).entries
                # Counting starts a process, so it begins only when a session asks.
                self._is_wanted.set()
                # If everything fits by the estimates, exact counts would change nothing.
                if trigger_map(entries, self._pieces.costs).left_out:
                    with trio.move_on_after(LEARN_PATIENCE):
                        await self._learned.wait()
                return messages.IndexListed(entries)
            case messages.DescribeIndex():
                return await self._describe()
            case messages.WriteIndex():
                return await self._write()
            case messages.ReviseIndex(revisions):
                return await self._revise(revisions)

    # What there is

    async def _listen(self) -> None:
        async with self._bus.subscribe(NEWS, TOPIC) as news:
            # Events before the subscription were missed, so read once now.
            self._changed.set()
            async for indexed in news:
                if not indexed.has_vectors:
                    self._changed.set()

    async def _follow(self) -> None:
        while True:
            await self._changed.wait()
            self._changed = trio.Event()
            await contained("refresh", self._refresh, log=log)

    async def _follow_sessions(self) -> None:
        """Once a session has asked for the index, count the tokens of its texts.

        If the catalog stays the same for `COUNT_AFTER` seconds, count those of the tools, too.
        """
        await self._is_wanted.wait()
        while True:
            made, learned = self._made, self._learned
            await contained("learn", self._learn, log=log)
            learned.set()
            with trio.move_on_after(COUNT_AFTER):
                await made.wait()
            if not made.is_set():
                await contained("count", self._count, log=log)
                await made.wait()

    async def _refresh(self) -> None:
        await self._read_file()
        try:
            async with self._reading:
                users = await self._reload("")
                # Entries stay available until they are read again, because sessions ask meanwhile.
                for project in [name for name in self._read if name]:
                    await self._reload(project)
        except ActorUnavailableError as error:
            log.info("index_not_made", reason=str(error))
            self._written_as = None
            with trio.move_on_after(READ_AGAIN):
                await self._changed.wait()
            self._changed.set()
            return
        if not users.described and not self._was_read.is_set() and not await self._is_known():
            return
        self._learned = trio.Event()
        made, self._made = self._made, trio.Event()
        made.set()
        self._was_read.set()
        self._bus.publish(messages.IndexChanged(len(users.entries)))
        log.info("index_made", capabilities=len(users.entries))

    async def _is_known(self) -> bool:
        return (await self._ask_finder("")).is_known

    async def _count(self) -> None:
        """Count the tokens of tools, add the counts to the entries, and publish the change."""
        for project in list(self._read):
            try:
                found = await self._ask_finder(project, counts=True)
            except ActorUnavailableError as error:
                log.info("index_not_counted", reason=str(error))
                return
            read = self._read.get(project)
            if read is not None and any(each.tokens is not None for each in found.capabilities):
                await self._take(project, found.capabilities, read.facts, read.files)
        await self._learn()
        self._bus.publish(messages.IndexChanged(len(self._read.get("", _Read()).entries)))

    async def _of(self, project: str) -> _Read:
        if project not in self._read:
            # For a large catalog the first answer takes seconds, and sessions ask again meanwhile.
            async with self._reading:
                if project not in self._read:
                    return await self._reload(project)
        self._read.move_to_end(project)
        return self._read[project]

    async def _reload(self, project: str) -> _Read:
        found = await self._ask_finder(project)
        files = await project_files(project)
        return await self._take(project, found.capabilities, await self._facts(), files)

    async def _take(
        self,
        project: str,
        described: list[finder.CapabilityTools],
        facts: Mapping[str, Facts],
        files: Collection[str] = (),
    ) -> _Read:
        # A project has most of its capabilities from the user's taps.
        before = self._read.get(project) or self._read.get("", _Read())
        made = partial(self._made_of, described, facts, self._own, files, before)
        # Ten thousand entries are a second of work.
        read = self._read[project] = await trio.to_thread.run_sync(made)
        while len(self._read) > MOST_PROJECTS:
            oldest = next(name for name in self._read if name)
            del self._read[oldest]
        return read

    def _made_of(
        self,
        described: list[finder.CapabilityTools],
        facts: Mapping[str, Facts],
        own: Mapping[str, document.Overrides],
        files: Collection[str],
        before: _Read,
    ) -> _Read:
        described = [self._with_tokens(each) for each in described]
        words = {each.capability.id: before.words_of(each) for each in described}
        entries = [
            document.with_overrides(
                entry_of(
                    each,
                    facts.get(str(each.capability.id), Facts()),
                    words[each.capability.id].words,
                ),
                own.get(str(each.capability.id), document.Overrides()),
            )
            for each in described
        ]
        fitting = spoken_for((each.capability for each in described), files)
        last_at = {
            each.capability.id: facts[str(each.capability.id)].last_at
            for each in described
            if str(each.capability.id) in facts
        }
        return _Read(described, facts, in_order(entries, fitting, last_at), files, words)

    def _with_tokens(self, described: finder.CapabilityTools) -> finder.CapabilityTools:
        """Return a capability with the last token count of its tools, if the tools are the same.

        Otherwise each change of the catalog would drop the counts of all capabilities, and so
        change their texts, for half a minute.
        """
        name = str(described.capability.id)
        if described.tokens is not None:
            self._counted[name] = (described.tools, described.tokens)
            return described
        tools, tokens = self._counted.get(name, (None, 0))
        if tools is None or tools != described.tools:
            return described
        return finder.CapabilityTools(described.capability, described.tools, tokens)

    async def _ask_finder(
        self, project: str, *, counts: bool = False
    ) -> finder.CapabilitiesDescribed:
        timeout = COUNT_TIMEOUT if counts else ASK_TIMEOUT
        return await self._finder.capabilities(project, waits=True, counts=counts, timeout=timeout)

    async def _facts(self) -> dict[str, Facts]:
        """Return what the ledger knows about each capability, by name; empty without an answer."""
        try:
            reply = await self._ledger.sums(0.0, timeout=ASK_TIMEOUT)
        except ActorUnavailableError:
            return {}
        if not isinstance(reply, ledger.CallsSummed):
            return {}
        return {
            each.name: Facts(each.calls, each.successes, each.mean_ms, each.last_at)
            for each in reply.capabilities
            if each.name
        }

    async def _learn(self) -> None:
        """Count the tokens of the index's texts."""
        reads = dict(self._read)
        texts = await trio.to_thread.run_sync(_texts_of, reads, self._learned_from)
        is_counted = await self._pieces.learn(texts)
        self._learned_from = reads if is_counted else {}

    # The file

    async def _read_file(self) -> None:
        try:
            self._own = await trio.to_thread.run_sync(self._file.overrides)
            self._problem = ""
        except IndexFileError as error:
            # The overrides that were read last stay in force.
            if self._problem != str(error):
                log.warning("index_file_not_read", reason=str(error))
            self._problem = str(error)

    async def _write(self) -> messages.Reply:
        started_at = time.monotonic()
        async with self._lock:
            facts = await self._facts()
            state = (self._made, facts)
            if self._written_as == state and not self._changed.is_set() and self._is_same_file():
                return self._same(started_at)
            await self._read_file()
            if self._problem:
                return messages.IndexRefused(self._problem)
            try:
                found = await self._ask_finder("", counts=True)
                users = await self._take("", found.capabilities, facts)
                content = await self._content(users)
                done = await trio.to_thread.run_sync(self._file.write, content)
            except ActorUnavailableError as error:
                return messages.IndexRefused(f"what is installed is not known: {error}")
            except IndexFileError as error:
                return messages.IndexRefused(str(error))
        self._written_as = state
        await self._learn()
        self._bus.publish(messages.IndexChanged(len(users.entries)))
        return messages.IndexWritten(
            str(self._file.path),
            len(users.entries),
            done.changed,
            done.kept,
            round((time.monotonic() - started_at) * 1000, 1),
            done.is_same,
        )

    def _is_same_file(self) -> bool:
        try:
            return self._file.is_as_it_was
        except IndexFileError:
            return False

    def _same(self, started_at: float) -> messages.IndexWritten:
        count, kept = len(self._read.get("", _Read()).entries), sum(map(len, self._own.values()))
        ms = round((time.monotonic() - started_at) * 1000, 1)
        return messages.IndexWritten(str(self._file.path), count, 0, kept, ms, is_same=True)

    async def _revise(self, revisions: list[messages.Revision]) -> messages.Reply:
        words: dict[str, dict[str, Any]] = {}
        for each in revisions:
            said = {"verb": each.verb, "do": each.do, "use_when": each.use_when}
            words[each.name] = {key: value for key, value in said.items() if value}
        async with self._lock:
            try:
                changed = await trio.to_thread.run_sync(self._file.revise, words)
            except IndexFileError as error:
                return messages.IndexRefused(str(error))
        self._changed.set()
        users = self._read.get("", _Read())
        return messages.IndexWritten(str(self._file.path), len(users.entries), changed, 0, 0.0)

    async def _content(self, users: _Read) -> Content:
        listed = await self._registry.skills(timeout=ASK_TIMEOUT)
        described = await self._registry.describe(timeout=ASK_TIMEOUT)
        skills: dict[str, list[str]] = {}
        for entry in listed:
            for name in entry.skill.capabilities:
                skills.setdefault(name, []).append(entry.prompt)
        # Ten thousand entries are a second of work.
        made = partial(_values, users, skills, call_of(CAPABILITY))
        capabilities = await trio.to_thread.run_sync(made)
        sources = [
            {"tap": each.name, "path": each.path, "revision": each.revision}
            for each in described.taps
        ]
        uses = sum(entry.uses for entry in users.entries)
        counted = [entry.tokens for entry in users.entries if entry.tokens is not None]
        metrics = {"capabilities": len(capabilities), "uses": uses, "token_cost": sum(counted)}
        return Content(sources, capabilities, metrics)

    async def _describe(self) -> messages.IndexDescribed:
        users = self._read.get("", _Read())
        if trio.current_time() >= self._known_until:
            # The figures change with each call, and `capd top` asks every second.
            self._known, self._known_until = await self._facts(), trio.current_time() + KNOWN_FOR
        metrics = await trio.to_thread.run_sync(_metrics, users.described, self._known)
        return messages.IndexDescribed(
            str(self._file.path),
            len(users.entries),
            self._problem,
            metrics,
            sum(map(len, self._own.values())),
        )


def _metrics(
    described: list[finder.CapabilityTools], facts: Mapping[str, Facts]
) -> list[messages.CapabilityMetrics]:
    return [
        messages.CapabilityMetrics(
            each.capability.id,
            fact.uses,
            fact.successes,
            fact.mean_ms,
            None if each.tools is None else len(each.tools),
            each.tokens,
        )
        for each in described
        for fact in (facts.get(str(each.capability.id), Facts()),)
    ]


def _texts_of(reads: Mapping[str, _Read], learned: Mapping[str, _Read]) -> list[str]:
    """Return the texts to count: those that differ from the texts that were counted before."""
    texts = [*surrounding_texts(call_of(CAPABILITY))]
    for project, read in reads.items():
        before = learned.get(project, _Read())
        if read is before:
            continue
        entries = read.entries[:MOST_COUNTED]
        texts += new_texts(entries, before.entries[:MOST_COUNTED])
        known = {each.capability.id: each.tools for each in before.described}
        counted = {entry.id for entry in entries}
        for each in read.described:
            is_new = each.tools and known.get(each.capability.id) != each.tools
            if is_new and each.capability.id in counted:
                texts += [f" {name}" for name in each.tools or ()]
    return texts


def _values(users: _Read, skills: Mapping[str, list[str]], call: Call) -> dict[str, Any]:
    """Return the values of each capability for the file, with digests (`document.with_digests`).

    `skills` has the skills of a capability, by its name or its id. `call` returns the text of the
    tool call that switches on the capability with a given name.
    """
    values: dict[str, document.Values] = {}
    for described in sorted(users.described, key=lambda each: str(each.capability.id)):
        spec = described.capability
        fact = users.facts.get(str(spec.id), Facts())
        parts = document.Parts(
            call(str(spec.id.name)),
            described.tools or (),
            [*skills.get(str(spec.id.name), ()), *skills.get(str(spec.id), ())],
            (),
            (*spec.triggers, *spec.extra_triggers),
            fact.successes,
            fact.mean_ms,
        )
        # The generated values, without a person's changes, which are found by comparison.
        entry = entry_of(described, fact)
        values[str(spec.id)] = document.with_digests(document.file_entry(entry, parts))
    return values
