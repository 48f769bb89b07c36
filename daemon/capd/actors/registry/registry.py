"""The registry: what is installed, and which capability a message asks for.

The registry holds the catalog and the vectors of its triggers, and answers routing and search by
the rules of `core.routing`. A message that comes while the vectors are not ready starts loading
them. If the message's words alone are clear, they decide. Otherwise the registry waits for the
vectors as long as the request allows (`waits`), and then abstains with `model_not_ready`. A user's
text is embedded and fingerprinted, and not stored. The vector of a session's last message stays in
memory until the next message.
"""

import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from pathlib import Path

import msgspec
import structlog
import trio

from capd.actor_clients.names import REGISTRY
from capd.actors.registry.catalog_files import TRY_AGAIN, CatalogFiles
from capd.actors.registry.catalog_vectors import CatalogVectors, NotReadyError
from capd.actors.registry.learning import LabelStore, Learning
from capd.actors.registry.programs import Programs
from capd.actors.registry.project_catalogs import ProjectCatalogs
from capd.actors.registry.project_trust import ProjectTrust
from capd.actors.registry.tool_triggers import ToolTriggers
from capd.adapters import parsed_taps
from capd.adapters.ledger.journal import Journal
from capd.adapters.parsing.parser import Parser
from capd.adapters.project_files import project_files
from capd.adapters.routing_files import read_profile
from capd.adapters.tap_files import STARTER
from capd.adapters.trust.trust_file import TrustFile
from capd.core.memories.memory_format import OWN
from capd.core.routing import gates, priors
from capd.core.routing.follow_ups import LastMessages
from capd.core.routing.learning import project_mark
from capd.core.routing.passages import Passages, passages_of
from capd.core.routing.user_limits import apply_user_limits
from capd.core.sessions.domains import is_inside
from capd.core.sessions.own_tools import MODEL_NOT_READY
from capd.core.taps.catalog import Catalog, Tap, Unknown
from capd.core.taps.package_pins import npm_packages, unpinned_packages
from capd.core.trust.project_tap import tap_name
from capd.runtime.boundary import contained, kept_running
from capd.runtime.bus import Bus
from capd.runtime.mailbox import serve
from capd_protos import registry as messages
from capd_protos.codec import MsgpackCodec
from capd_protos.curator import CapabilityUsed
from capd_protos.ledger import DecisionNote
from capd_protos.types import (
    CapabilityId,
    CapabilitySpec,
    Decision,
    MemorySpec,
    Score,
    ServerIdentity,
    ServerSpec,
    TapName,
    ToolDefinition,
)

REQUESTS: MsgpackCodec[messages.Request] = MsgpackCodec(messages.Request)
USED: MsgpackCodec[CapabilityUsed] = MsgpackCodec(CapabilityUsed)

LARGE = (
    messages.CapabilitiesListed,
    messages.SpecsListed,
    messages.RegistryDescribed,
    messages.ToolSnapshotsListed,
)
"""Replies that grow with the catalog. They are passed as objects, without being encoded."""
MOST_COMPARED = 1000
"""A message is compared in a thread, so that calls go on, if the number of its parts times the
number of capabilities exceeds this. A thousand comparisons take 11 ms."""
DECISIONS_KEPT = 100
WHOLE = 100
"""The share of texts with vectors, in percent, when all have one."""
log = structlog.get_logger(actor="registry")


class Registry:
    """The registry's mailbox: receives users' messages, returns routing decisions."""

    def __init__(
        self,
        bus: Bus,
        tap_list: Path,
        cache_file: Path,
        switched_on: Callable[[str], Collection[str]] = lambda _: priors.ON,
        *,
        is_watching: bool = False,
        trust: TrustFile | None = None,
        journal: Journal | None = None,
        memories: Path | None = None,
        parser: Parser | None = None,
        scorer: str = "evidence",
        labels: LabelStore | None = None,
        learns: Callable[[str], bool] = lambda _: True,
        has_program: Callable[[str], bool] | None = None,
        tool_triggers: ToolTriggers | None = None,
        profile: gates.RoutingProfile | None = None,
    ) -> None:
        """Create it.

        A prior is a rule that makes some capabilities more likely, such as those used before.
        `switched_on` returns the names of the priors that a project's settings switch on.

        With `is_watching` the catalog is loaded again whenever one of its files changes. `memories`
        is the user's own folder of memories. `parser` reads the files of taps and projects.
        `scorer` names the routing rule: `evidence`, or the published rule `trigger_mean`.
        `labels` saves what routing learns, and `learns(project)` says whether routing learns from
        sessions of a project. `has_program` looks for a command on the PATH, and blocks; without it
        every program counts as installed. `tool_triggers` adds triggers from the tools of servers.
        `profile` is the routing profile for `evidence`; None stands for the one that comes with
        capd.
        """
        self._bus = bus
        self._tool_triggers = tool_triggers
        self._files = CatalogFiles(
            tap_list,
            self._loaded,
            memories,
            parser,
            reads=cache_file.with_name(parsed_taps.FILE),
            add_triggers=tool_triggers.added_to if tool_triggers is not None else None,
        )
        self._memories: tuple[MemorySpec, ...] = ()
        self._is_watching = is_watching
        self._journal = Journal() if journal is None else journal
        self._is_serving = False
        self._skills: list[messages.SkillEntry] = []
        is_published = scorer == gates.PUBLISHED.scorer
        self._profile = gates.PUBLISHED if is_published else profile or read_profile()
        self._vectors = CatalogVectors(bus, cache_file, self._profile, preferred=self._preferred)
        self._names_priors = switched_on
        self._projects = ProjectCatalogs(
            trust or TrustFile(tap_list.with_name("trust.json")),
            lambda: self._catalog,
            lambda name: CatalogVectors(
                bus, cache_file.with_name(f"vectors.{name}.bin"), self._profile, self._vectors
            ),
            self._project_changed,
            parser=parser,
        )
        self._project_trust = ProjectTrust(self._projects, self._own_servers)
        self._use = priors.Use()
        self._last_messages = LastMessages()
        self._learning = Learning(bus, labels, learns)
        self._programs = Programs(lambda: [*self._catalog.taps, *self._projects.taps], has_program)
        self._decisions: deque[messages.DecisionEntry] = deque(maxlen=DECISIONS_KEPT)
        self._entries = _Entries()
        self._last_eligible: tuple[
            Catalog | None,
            Mapping[CapabilityId, tuple[str, ...]],
            tuple[str, frozenset[str], frozenset[CapabilityId]],
            gates.Eligible,
        ] = (None, {}, ("", frozenset(), frozenset()), gates.Eligible((), {}))
        self._partly: deque[messages.PartlyDecided] = deque(maxlen=DECISIONS_KEPT)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Answer requests until cancelled."""
        if self._tool_triggers is not None:
            await self._tool_triggers.load()
        await self._files.load()
        await self._learning.load()
        self._is_serving = True
        async with trio.open_nursery() as nursery:
            keep = partial(kept_running, log=log)
            nursery.start_soon(keep, "vectors", self._vectors.follow)
            nursery.start_soon(keep, "uses", self._follow_use)
            nursery.start_soon(keep, "labels", self._learning.follow)
            nursery.start_soon(keep, "programs", self._programs.follow)
            nursery.start_soon(keep, "learning", self._learning.run)
            if self._tool_triggers is not None:
                triggers = partial(self._tool_triggers.follow, self._files.load)
                nursery.start_soon(keep, "tool triggers", triggers)
            projects = partial(self._projects.run, is_watching=self._is_watching)
            nursery.start_soon(keep, "projects", projects)
            if self._is_watching:
                nursery.start_soon(self._follow_files)
            await serve(
                self._bus,
                REGISTRY,
                REQUESTS,
                self._replied,
                log=log,
                task_status=task_status,
                offers=LARGE,
            )

    async def _replied(self, request: messages.Request) -> messages.Reply:
        match request:
            case messages.RouteMessage():
                decision = await self._route(request)
                return messages.MessageRouted(decision, self._wanted(decision, request.project))
            case messages.ResolveCapability(name, project):
                return self._resolve(name, self._catalog_of(project))
            case (
                messages.ListCapabilities()
                | messages.ListSkills()
                | messages.ListToolSnapshots()
                | messages.ListSpecs()
                | messages.DescribeProgress()
            ):
                return await self._listed(request)
            case messages.DiscoverCapabilities():
                return await self._discover(request)
            case messages.ReloadCatalog():
                if not await self._files.load():
                    self._tell()
                await self._projects.reload()
                return await self._described(messages.DescribeRegistry())
            case messages.ReadSkill(name):
                return await self._read_skill(name)
            case messages.ListMemories(project):
                return self._listed_memories(project)
            case messages.DescribeRegistry():
                return await self._described(request)
            case messages.DescribeLearning() | messages.ForgetLearning():
                return self._learning.reply(request)
            case _:
                return await self._project_trust.reply(request)

    # The catalog

    async def _listed(
        self,
        request: messages.ListCapabilities
        | messages.ListSkills
        | messages.ListToolSnapshots
        | messages.ListSpecs
        | messages.DescribeProgress,
    ) -> messages.Reply:
        if isinstance(request, messages.DescribeProgress):
            return messages.ProgressDescribed(self._vectors.percent, list(self._partly))
        if isinstance(request, messages.ListSpecs):
            return messages.SpecsListed(self._specs())
        if isinstance(request, messages.ListSkills):
            return messages.SkillsListed(self._skills)
        if isinstance(request, messages.ListToolSnapshots):
            return messages.ToolSnapshotsListed(
                await trio.to_thread.run_sync(_tool_lists, self._catalog)
            )
        catalog = self._catalog_of(request.project)
        more = list(self._projects.taps) if request.all_projects else []
        entries = await trio.to_thread.run_sync(self._entries.of, [*catalog.taps, *more])
        return messages.CapabilitiesListed(entries)

    def _specs(self) -> list[CapabilitySpec]:
        taps = [*self._catalog.taps, *self._projects.taps]
        return [capability for tap in taps for capability in tap.capabilities]

    def _own_servers(self) -> list[ServerSpec]:
        found = [each for tap in self._catalog.taps for each in tap.capabilities]
        return [server for each in found for server in each.servers]

    @property
    def _catalog(self) -> Catalog:
        return self._files.catalog

    def _loaded(self, catalog: Catalog) -> None:
        skills = [messages.SkillEntry(name, each) for name, each in catalog.skills.items()]
        has_other_skills, self._skills = skills != self._skills, skills
        has_other_memories = catalog.memories != self._memories
        self._memories = catalog.memories
        self._vectors.catalog_changed(catalog)
        self._programs.look()
        self._projects.users_changed()
        if self._is_serving:
            self._tell(has_other_skills=has_other_skills, has_other_memories=has_other_memories)

    def _tell(self, *, has_other_skills: bool = False, has_other_memories: bool = False) -> None:
        keys = list(self._catalog.wanted_keys)
        changed = messages.CatalogChanged(
            keys, has_other_skills, has_other_memories=has_other_memories
        )
        self._bus.publish(changed)

    def _project_changed(self, project: str, catalog: Catalog) -> None:
        keys = list(catalog.wanted_keys)
        self._bus.publish(messages.CatalogChanged(keys, project=project, has_other_memories=True))

    def _catalog_of(self, project: str) -> Catalog:
        return self._catalog_and_vectors(project)[0]

    def _catalog_and_vectors(self, project: str) -> tuple[Catalog, CatalogVectors]:
        """Return the catalog for sessions of a project, and the vectors that belong to it."""
        catalog, vectors = self._projects.find(project) or (self._catalog, None)
        return catalog, vectors or self._vectors

    async def _follow_use(self) -> None:
        """Note which capabilities sessions switch on and use, until cancelled."""
        async with self._bus.subscribe(USED, "session.capability_used") as news:
            async for used in news:
                self._use.note(f"session {used.session}", used.capability)
                self._use.note(f"project {used.project}", used.capability)

    def _preferred(self) -> frozenset[str]:
        """Return the capabilities that sessions used before, or that routing has learnt about."""
        return frozenset(map(str, self._use.everywhere())) | self._learning.capabilities

    async def _follow_files(self) -> None:
        while True:
            await contained("follow files", self._files.follow, log=log)
            await trio.sleep(TRY_AGAIN)

    async def _read_skill(self, name: str) -> messages.Reply:
        found = self._catalog.find_skill(name)
        if isinstance(found, Unknown):
            return messages.SkillUnknown(name, found.reason, list(found.near))
        prompt, skill = found
        text = await self._files.text_of(skill)
        if text is None:
            reason = f"{skill.tap} has a skill {skill.name!r}, and {skill.file} cannot be read"
            return messages.SkillUnknown(name, reason, is_there=True)
        return messages.SkillText(messages.SkillEntry(prompt, skill), text)

    def _wanted(self, decision: Decision, project: str) -> messages.CapabilityResolved | None:
        """Return the capability that a decision switches on; None if it switches none on.

        The curator gets the capability with the decision, and need not ask for it. The result is
        also None if the catalog no longer has the capability.
        """
        if decision.id is None or decision.outcome != "activate":
            return None
        resolved = self._resolve(str(decision.id), self._catalog_of(project))
        return resolved if isinstance(resolved, messages.CapabilityResolved) else None

    def _resolve(
        self, name: str, catalog: Catalog
    ) -> messages.CapabilityResolved | messages.CapabilityUnknown:
        found = catalog.find(name)
        if isinstance(found, Unknown):
            return messages.CapabilityUnknown(name, found.reason, list(found.near))
        tap = catalog.tap_of(found.id)
        scripts = {r: tap.scripts[r] for r in found.requires if r in tap.scripts} if tap else {}
        return messages.CapabilityResolved(found, scripts)

    def _listed_memories(self, project: str) -> messages.MemoriesListed:
        # A session does not wait for its project's files; `CatalogChanged` announces them later.
        catalog = self._catalog_of(project)
        own = (tap for tap in self._catalog.taps if tap.name == OWN)
        findings = [finding for tap in own for finding in tap.findings]
        return messages.MemoriesListed(list(catalog.memories), findings)

    # Routing

    async def _route(self, request: messages.RouteMessage) -> Decision:
        started_at = trio.current_time()
        message = gates.before_model(request.text, is_enabled=request.is_enabled)
        if isinstance(message, Decision):
            decision = message
        else:
            decision = await self._decide(request, message)
        entry = messages.DecisionEntry(
            request.session,
            time.time(),
            decision,
            (trio.current_time() - started_at) * 1000,
        )
        if decision.top and self._vectors.percent < WHOLE:
            self._partly.append(
                messages.PartlyDecided(entry.session, entry.at, self._vectors.percent)
            )
        self._decisions.append(entry)
        self._journal.note(self._noted(entry))
        name = str(decision.id.name) if decision.id else ""
        log.info(
            "message_routed",
            session=request.session,
            fingerprint=decision.fingerprint,
            outcome=decision.outcome,
            reason=decision.reason,
            capability=name,
        )
        self._bus.publish(
            messages.MessageDecided(request.session, decision.outcome, decision.reason, name)
        )
        return decision

    def _noted(self, entry: messages.DecisionEntry) -> DecisionNote:
        decision, profile = entry.decision, self._profile
        return DecisionNote(
            entry.at,
            entry.session,
            decision.fingerprint,
            decision.outcome,
            decision.reason,
            str(decision.id) if decision.id else "",
            [(str(score.id), round(score.score, 4)) for score in decision.top],
            round(entry.ms, 3),
            [str(id_) for id_ in decision.suggested],
            decision.left_out,
            profile.threshold if decision.top else 0.0,
            profile.margin if decision.top else 0.0,
        )

    async def _decide(self, request: messages.RouteMessage, message: Passages) -> Decision:
        fingerprint = gates.fingerprint(request.text)
        # The catalog that belongs to `vectors`: a reload may change it while the embedder works.
        catalog, vectors = self._catalog_and_vectors(request.project)
        patient_until = trio.current_time() + request.waits
        while True:
            try:
                left = patient_until - trio.current_time()
                found, compared = await vectors.compared(message.each, waits=left)
                break
            except NotReadyError:
                decision = self._by_words(request, message.ends, catalog)
                # A caller that does not wait is answered without a checkpoint.
                is_waiting = decision is None and request.waits > 0
                if is_waiting and await vectors.until_ready(patient_until):
                    continue
                decision = decision or Decision("abstain", "model_not_ready")
                return msgspec.structs.replace(decision, fingerprint=fingerprint)
        kept = self._eligible(request, catalog)
        found[0] = self._last_messages.compared(request.session, message.ends, found[0])
        favoured = await self._favoured(request, catalog.with_files)
        # The deciding code is imported with the first message, and so is `words_alone` below.
        from capd.core.routing import deciding  # noqa: PLC0415 - 10 ms of a daemon without turns

        circumstances = deciding.Circumstances(
            kept,
            request.active,
            favoured,
            self._learning.known(request.project),
            project_mark(request.project),
        )
        decided = partial(deciding.decided, message, found, compared, self._profile, circumstances)
        # A short message and a small catalog take two milliseconds, too little for a thread.
        is_much = len(kept.capabilities) * len(found) > MOST_COMPARED
        decision = await trio.to_thread.run_sync(decided) if is_much else decided()
        decision = apply_user_limits(decision, request.restrictions)
        return msgspec.structs.replace(decision, fingerprint=fingerprint, left_out=kept.left_out)

    def _eligible(self, request: messages.RouteMessage, catalog: Catalog) -> gates.Eligible:
        missing = self._programs.missing
        facts = (request.domain, frozenset(request.keys), frozenset(request.denied))
        # Cached, because it rarely changes and takes 10 ms with 10,000 capabilities.
        last_catalog, last_missing, last_facts, found = self._last_eligible
        if last_catalog is not catalog or last_missing is not missing or last_facts != facts:
            domain, keys, denied = facts
            found = gates.eligible(catalog.winners, domain, keys, denied, missing)
            self._last_eligible = catalog, missing, facts, found
        return found

    def _by_words(
        self, request: messages.RouteMessage, text: str, catalog: Catalog
    ) -> Decision | None:
        """Decide by a message's words alone, without the model; None if they do not suffice."""
        kept = self._eligible(request, catalog)
        from capd.core.routing import words_alone  # noqa: PLC0415 - as above

        meant = words_alone.sure(text, kept.capabilities)
        if meant is None:
            return None
        top = (Score(meant, 1.0),)
        if meant in request.active:
            return Decision("abstain", "already_active", id=meant, top=top)
        decision = Decision("activate", id=meant, top=top, left_out=kept.left_out)
        return apply_user_limits(decision, request.restrictions)

    async def _favoured(
        self, request: messages.RouteMessage, capabilities: Collection[CapabilitySpec]
    ) -> dict[str, Collection[CapabilityId]]:
        """Return, for each active prior, the capabilities that it makes more likely.

        A prior is a rule that makes some capabilities more likely, such as those used before.
        `capabilities` are those with patterns for a project's files.
        """
        favoured: dict[str, Collection[CapabilityId]] = {}
        names = self._names_priors(request.project)
        switched_on = {name for name in names if self._profile.priors.get(name)}
        if "files" in switched_on:
            listing = await project_files(request.project)
            favoured["files"] = priors.spoken_for(capabilities, listing)
        if "session" in switched_on:
            favoured["session"] = self._use.of(f"session {request.session}")
        if "project" in switched_on and request.project:
            favoured["project"] = self._use.of(f"project {request.project}")
        return favoured

    async def _discover(self, request: messages.DiscoverCapabilities) -> messages.Reply:
        intent = request.intent.strip()
        if not intent:
            return messages.RegistryRefused("no_intent", "the intent is empty")
        catalog, vectors = self._catalog_and_vectors(request.project)
        text = passages_of(intent).ends
        specs = {
            c.id: c
            for c in catalog.winners
            if is_inside(request.domain, c.domains) and c.id not in request.denied
        }
        try:
            (vector,), compared = await vectors.compared([text])
        except NotReadyError:
            from capd.core.routing import words_alone  # noqa: PLC0415 - as above

            offered = list(specs.values())
            hits = await trio.to_thread.run_sync(words_alone.fitting, text, offered)
            if not hits:
                return messages.RegistryRefused("model_not_ready", MODEL_NOT_READY)
        else:
            ranked = compared.scorer.ranked(text, vector, frozenset(specs))
            hits = [score for score in ranked if score.score > self._profile.lowest_hit]
        return messages.CapabilitiesFound(
            [
                messages.CapabilityHit(
                    hit.id,
                    hit.score,
                    list(specs[hit.id].triggers),
                    list(specs[hit.id].wanted_keys),
                )
                for hit in hits[: max(1, request.limit)]
            ]
        )

    async def _described(self, request: messages.DescribeRegistry) -> messages.RegistryDescribed:
        own = self._projects.catalog(await self._projects.load(request.project))
        taps = [_tap_entry(tap) for tap in (*self._catalog.taps, *self._projects.taps)]
        taps += [
            messages.TapEntry(tap_name(project), project, "", 0, {}, [], error)
            for project, error in self._projects.errors.items()
        ]
        wanted = set(own.wanted_keys)
        if request.all_projects:
            wanted.update(*(Catalog([tap]).wanted_keys for tap in self._projects.taps))
        if self._files.list_error:
            taps.insert(
                0,
                messages.TapEntry(
                    TapName("taps.toml"),
                    str(self._files.tap_list),
                    "",
                    0,
                    {},
                    [],
                    self._files.list_error,
                ),
            )
        profile = self._profile
        return messages.RegistryDescribed(
            taps=taps,
            decisions=list(self._decisions),
            wanted_keys=sorted(wanted),
            embedder_state=self._vectors.state,
            embedder_reason=self._vectors.reason,
            profile={
                "scorer": profile.scorer,
                "threshold": profile.threshold,
                "margin": profile.margin,
                "top_k": profile.top_k,
            },
            watch=self._files.watch_error if self._is_watching else "it is switched off",
            trust_problem=self._projects.trust.read().problem,
        )


class _Entries:
    """Caches the entries of each tap for the list of capabilities.

    The entries of a tap are made again when the tap has been read again.
    """

    def __init__(self) -> None:
        self._made: dict[TapName, tuple[Tap, list[messages.CapabilityEntry]]] = {}

    def of(self, taps: Iterable[Tap]) -> list[messages.CapabilityEntry]:
        """Return the entries of all `taps`. Blocks: ten thousand entries take 0.1 s."""
        found: list[messages.CapabilityEntry] = []
        for tap in taps:
            made = self._made.get(tap.name)
            if made is None or made[0] is not tap:
                made = self._made[tap.name] = (tap, _entries([tap]))
            found += made[1]
        return found


def _entries(taps: Iterable[Tap]) -> list[messages.CapabilityEntry]:
    entries: list[messages.CapabilityEntry] = []
    for tap in taps:
        for read in tap.reads:
            capability = read.capability
            if capability is None:
                entries.append(
                    messages.CapabilityEntry(tap.name, read.name, "", False, read.reason)
                )
                continue
            is_builtin = any(s.transport == "builtin" for s in capability.servers)
            entries.append(
                messages.CapabilityEntry(
                    tap.name,
                    read.name,
                    capability.provider,
                    True,
                    "builtin_unsupported" if is_builtin else "",
                    capability.description,
                    list(capability.domains),
                    list(capability.triggers),
                    [server.name for server in capability.servers],
                    list(capability.wanted_keys),
                    sorted({server.program for server in capability.servers if server.program}),
                    unpinned_packages(capability.servers),
                    npm_packages(capability.servers),
                )
            )
    return entries


def _tool_lists(catalog: Catalog) -> dict[ServerIdentity, list[ToolDefinition]]:
    return {identity: list(tools) for identity, tools in catalog.tool_lists(STARTER).items()}


def _tap_entry(tap: Tap) -> messages.TapEntry:
    return messages.TapEntry(
        tap.name,
        tap.path,
        tap.revision,
        len(tap.capabilities),
        tap.unroutable,
        list(tap.findings),
        tap.error,
        len(tap.skills),
        len(tap.memories),
    )
