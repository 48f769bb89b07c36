"""Each method of an actor client sends one request and returns only a reply to it."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, get_args

import msgspec
import pytest
import trio
from trio.testing import MockClock

from capd.actor_clients import names
from capd.actor_clients.client import ActorClient
from capd.actor_clients.curator import CuratorClient
from capd.actor_clients.definitions import DefinitionsClient
from capd.actor_clients.embedder import EmbedderClient
from capd.actor_clients.finder import FinderClient
from capd.actor_clients.index import IndexClient
from capd.actor_clients.ledger import LedgerClient
from capd.actor_clients.registry import RegistryClient
from capd.actor_clients.settings import SettingsClient
from capd.actor_clients.supervisor import SupervisorClient
from capd.children import addresses
from capd.runtime.bus import (
    ActorUnavailableError,
    AskFailedError,
    AskTimeoutError,
    Bus,
)
from capd_protos import (
    curator,
    definitions,
    embedder,
    finder,
    index,
    ledger,
    registry,
    settings,
    supervisor,
)
from capd_protos.codec import MsgpackCodec
from capd_protos.socket import ClientInfo, Hello
from capd_protos.types import (
    ActorName,
    Address,
    CapabilityId,
    CapabilityName,
    Decision,
    InstanceId,
    ServerIdentity,
    ServerName,
    ServerSpec,
    SessionKey,
    TapName,
    ToolDefinition,
    ToolName,
    WireName,
)

S, LATEST = SessionKey("s"), 20.0
INSTANCE, IDENTITY = InstanceId("i1"), ServerIdentity("sha256:1")
GIT = CapabilityId(TapName("mine"), CapabilityName("git"))
SERVER = ServerSpec(ServerName("git"), "stdio", TapName("mine"))
TOOL = ToolDefinition(ToolName("log"), b"{}")
RULES = [finder.PolicyTable("capd.toml", deny=["git:*"])]
HIT = finder.ToolHit(WireName("git__log"), ToolName("log"), ServerName("git"), IDENTITY, b"{}")
NO_SESSION = curator.CuratorRefused("session_unknown", "no session 's'")
NO_LEDGER = ledger.LedgerRefused("nothing is kept")
ANSWERED = curator.CapabilityAnswered(S, is_ok=True, text="on")
TURN = curator.TurnTaken(S, Decision("abstain"), [], [], 1.0)
SETTINGS = settings.SettingsDescribed([])
REGISTRY = registry.RegistryDescribed([], [], [], "ready", "", {})
STARTABLES = registry.StartablesListed("/p", [])
EMBEDDER = embedder.EmbedderDescribed("ready", "m", "r", "q", "p", 384, 1, 1)
WRITTEN = index.IndexWritten("/f", 1, 1, 0, 1.0)
LEDGER = ledger.LedgerDescribed("/l", 1, {}, 0, 0, "")
HELLO = Hello(1, "mcp", ClientInfo("editor"))

OPEN = curator.OpenSession(1, HELLO, 7)
TURN_OF_SESSION = curator.TakeTurn(S, "words", 5)
TURN_OF_HOOK = curator.TakeHookTurn("words", "claude", "c1", "/p", 7)
CALL = curator.CallTool(S, "git__log", b"{}")
APPROVE = curator.AnswerApproval(1, "once")
SAMPLE = curator.SampleText(S, "words", "be short", 9)
FIND = finder.FindTools("query", 3)
LOOK_UP = finder.LookUpTool("git__log")
CURATE = finder.CurateTools("words", 3)
RANK = finder.RankTools("words", [])
DESCRIBE = finder.DescribeTools(["git:*"])
GRANTED = finder.ListGranted([GIT])
VET = definitions.VetTools(SERVER, IDENTITY, [])
WITHHELD = definitions.LookUpWithheld(WireName("git__log"))
LIST = definitions.ListDefinitions("git")
DECIDE = definitions.DecideDefinitions(IDENTITY, {}, is_accepted=True)
ROUTE = registry.RouteMessage(S, "words")
DISCOVER = registry.DiscoverCapabilities("intent")
ACQUIRE = supervisor.AcquireServer(S, SERVER, "/p")
INSTALL = supervisor.InstallDependencies({"org/tool": "/s"})
LOG_IN = supervisor.LogIn(ServerName("git"), "work")
LOG_OUT = supervisor.LogOut(ServerName("git"), "work")

Ask = Callable[[Any], Awaitable[object]]
Row = tuple[type[ActorClient], Ask, msgspec.Struct, msgspec.Struct, object]
"""A client, what is asked of it, the request on the bus, the actor's reply, what is returned."""


def whole(client: type[ActorClient], ask: Ask, sent: msgspec.Struct, *replies: Any) -> list[Row]:
    """Return a row for each reply that the client returns unchanged."""
    return [(client, ask, sent, reply, reply) for reply in replies]


ROWS: list[Row] = [
    *whole(
        RegistryClient,
        lambda c: c.route(ROUTE, timeout=LATEST),
        ROUTE,
        registry.MessageRouted(Decision("abstain")),
    ),
    *whole(
        RegistryClient,
        lambda c: c.resolve("git", "/p"),
        registry.ResolveCapability("git", "/p"),
        registry.CapabilityUnknown("git", "none has this name"),
    ),
    (
        *(RegistryClient, lambda c: c.capabilities("/p", all_projects=True)),
        *(registry.ListCapabilities("/p", all_projects=True), registry.CapabilitiesListed([]), []),
    ),
    (RegistryClient, lambda c: c.specs(), registry.ListSpecs(), registry.SpecsListed([]), []),
    *whole(
        *(RegistryClient, lambda c: c.progress(), registry.DescribeProgress()),
        registry.ProgressDescribed(40),
    ),
    *whole(
        *(RegistryClient, lambda c: c.discover(DISCOVER), DISCOVER),
        *(registry.CapabilitiesFound([]), registry.RegistryRefused("no_intent", "empty")),
    ),
    *whole(RegistryClient, lambda c: c.reload(timeout=LATEST), registry.ReloadCatalog(), REGISTRY),
    *whole(
        RegistryClient,
        lambda c: c.describe("/p", all_projects=True),
        registry.DescribeRegistry("/p", all_projects=True),
        REGISTRY,
    ),
    *whole(
        *(RegistryClient, lambda c: c.learning("/p"), registry.DescribeLearning("/p")),
        registry.LearningDescribed([]),
    ),
    *whole(
        RegistryClient,
        lambda c: c.forget_learning(registry.ForgetLearning("git")),
        registry.ForgetLearning("git"),
        registry.LearningForgotten(1),
    ),
    (RegistryClient, lambda c: c.skills(), registry.ListSkills(), registry.SkillsListed([]), []),
    (
        RegistryClient,
        lambda c: c.tool_snapshots(),
        registry.ListToolSnapshots(),
        registry.ToolSnapshotsListed({}),
        {},
    ),
    *whole(
        RegistryClient,
        lambda c: c.read_skill("mine/x"),
        registry.ReadSkill("mine/x"),
        registry.SkillUnknown("mine/x", "none"),
    ),
    *whole(
        *(RegistryClient, lambda c: c.startables("/p"), registry.ListStartables("/p")),
        STARTABLES,
    ),
    *whole(
        *(RegistryClient, lambda c: c.grant_trust("/p", ["d"]), registry.GrantTrust("/p", ["d"])),
        *(STARTABLES, registry.RegistryRefused("changed", "look again")),
    ),
    *whole(
        RegistryClient,
        lambda c: c.revoke_trust("/p"),
        registry.RevokeTrust("/p"),
        registry.TrustedListed([], revoked="/p"),
    ),
    *whole(
        RegistryClient,
        lambda c: c.trusted(),
        registry.ListTrusted(),
        registry.TrustedListed([]),
    ),
    *whole(
        RegistryClient,
        lambda c: c.memories("/p"),
        registry.ListMemories("/p"),
        registry.MemoriesListed([]),
    ),
    *whole(
        *(SupervisorClient, lambda c: c.acquire(ACQUIRE, timeout=LATEST), ACQUIRE),
        supervisor.ServerReady(INSTANCE, IDENTITY, ServerName("git"), 7, [TOOL]),
        supervisor.ServerRefused(ServerName("git"), "parked", "it failed five times"),
    ),
    (
        *(SupervisorClient, lambda c: c.release(S, INSTANCE, at_once=True)),
        supervisor.ReleaseServer(S, INSTANCE, at_once=True),
        *(supervisor.LeasesReleased([S]), [S]),
    ),
    (
        *(SupervisorClient, lambda c: c.release_session(S), supervisor.ReleaseSession(S)),
        *(supervisor.LeasesReleased(), None),
    ),
    (
        *(SupervisorClient, lambda c: c.servers(), supervisor.ListServers()),
        *(supervisor.ServersListed([]), []),
    ),
    (
        *(SupervisorClient, lambda c: c.tools(INSTANCE), supervisor.ListServerTools(INSTANCE)),
        *(supervisor.ServerTools([TOOL]), [TOOL]),
    ),
    *whole(
        *(SupervisorClient, lambda c: c.install(INSTALL, timeout=LATEST), INSTALL),
        supervisor.DependenciesReady([], ["org/tool"]),
        supervisor.DependenciesFailed("org/tool", "exit code 1"),
    ),
    (
        *(SupervisorClient, lambda c: c.leave_install(S, "7", timeout=LATEST)),
        *(supervisor.LeaveInstall(S, "7"),),
        *(supervisor.LeasesReleased(), None),
    ),
    *whole(
        SupervisorClient,
        lambda c: c.log_in(LOG_IN, timeout=LATEST),
        LOG_IN,
        supervisor.LoginOpened(1, "https://x"),
        supervisor.LoginFailed("none"),
    ),
    *whole(
        SupervisorClient,
        lambda c: c.paste_login(1, "http://localhost/?code=x"),
        supervisor.PasteLogin(1, "http://localhost/?code=x"),
        supervisor.LoginPasted(),
        supervisor.LoginFailed("cancelled"),
    ),
    *whole(
        *(SupervisorClient, lambda c: c.log_out(LOG_OUT, timeout=LATEST), LOG_OUT),
        *(supervisor.LoggedOut(was_logged_in=True), supervisor.LoginFailed("none")),
    ),
    *whole(
        *(SupervisorClient, lambda c: c.await_login(1, timeout=LATEST), supervisor.AwaitLogin(1)),
        *(supervisor.LoggedIn(), supervisor.LoginFailed("cancelled")),
    ),
    (
        *(SupervisorClient, lambda c: c.trust_changed("/p"), supervisor.TrustChanged("/p")),
        *(supervisor.ServersRestarted([ServerName("git")]), ["git"]),
    ),
    (
        *(SupervisorClient, lambda c: c.end_project("/p"), supervisor.EndProject("/p")),
        *(supervisor.ProjectEnded([ServerName("git")]), ["git"]),
    ),
    *whole(
        *(CuratorClient, lambda c: c.open_session(OPEN), OPEN),
        *(curator.SessionOpened(S, "token", resumed=False), NO_SESSION),
    ),
    *whole(
        *(CuratorClient, lambda c: c.end_bridge("box"), curator.EndBridge("box")),
        curator.BridgeEnded(2),
    ),
    *whole(
        *(CuratorClient, lambda c: c.take_turn(TURN_OF_SESSION, timeout=LATEST), TURN_OF_SESSION),
        *(TURN, NO_SESSION),
    ),
    *whole(
        *(CuratorClient, lambda c: c.take_hook_turn(TURN_OF_HOOK, timeout=LATEST), TURN_OF_HOOK),
        *(TURN, NO_SESSION),
    ),
    *whole(
        CuratorClient,
        lambda c: c.enable(S, "git", timeout=LATEST),
        curator.EnableCapability(S, "git"),
        *(ANSWERED, NO_SESSION),
    ),
    *whole(
        *(CuratorClient, lambda c: c.disable(S, "git"), curator.DisableCapability(S, "git")),
        *(ANSWERED, NO_SESSION),
    ),
    *whole(
        CuratorClient,
        lambda c: c.switch(S, "git", is_on=True, timeout=LATEST),
        curator.SwitchCapability(S, "git", is_on=True),
        *(ANSWERED, NO_SESSION),
    ),
    *whole(
        CuratorClient,
        lambda c: c.switch_routing(S, is_on=False),
        curator.SwitchRouting(S, is_on=False),
        *(ANSWERED, NO_SESSION),
    ),
    *whole(
        *(CuratorClient, lambda c: c.call_tool(CALL, timeout=LATEST), CALL),
        *(curator.ToolCalled(S, "result"), NO_SESSION),
    ),
    *whole(
        *(CuratorClient, lambda c: c.tools(S), curator.ListTools(S)),
        *(curator.ToolsListed(S, []), NO_SESSION),
    ),
    *whole(
        *(CuratorClient, lambda c: c.sessions(), curator.ListSessions()),
        curator.SessionsListed([]),
    ),
    *whole(
        *(CuratorClient, lambda c: c.reach(S), curator.DescribeReach(S)),
        *(curator.ReachDescribed(S, RULES, []), NO_SESSION),
    ),
    (
        *(CuratorClient, lambda c: c.drain(3.0, is_for_good=True, timeout=LATEST)),
        *(curator.DrainSessions(3.0, is_for_good=True), curator.SessionsDrained(2), 2),
    ),
    *whole(
        *(CuratorClient, lambda c: c.tokens(2.0, timeout=LATEST), curator.DescribeTokens(2.0)),
        curator.TokensDescribed("o200k", []),
    ),
    *whole(
        *(CuratorClient, lambda c: c.memories("/p"), curator.DescribeMemories("/p")),
        curator.MemoriesDescribed([]),
    ),
    (
        *(CuratorClient, lambda c: c.leave_project("/p"), curator.LeaveProject("/p")),
        *(curator.ProjectLeft(), None),
    ),
    *whole(
        *(CuratorClient, lambda c: c.profiles(), curator.ListProfiles()),
        curator.ProfilesListed([], []),
    ),
    *whole(
        *(CuratorClient, lambda c: c.use_profile(S, "work"), curator.UseProfile(S, "work")),
        *(ANSWERED, NO_SESSION),
    ),
    *whole(
        *(CuratorClient, lambda c: c.approvals(), curator.ListApprovals()),
        curator.ApprovalsListed([], [], ""),
    ),
    *whole(
        *(CuratorClient, lambda c: c.approve(APPROVE), APPROVE),
        *(curator.ApprovalAnswered([1]), NO_SESSION),
    ),
    *whole(
        *(CuratorClient, lambda c: c.forget_approvals("git"), curator.ForgetApprovals("git")),
        curator.ApprovalsForgotten(["git:push"]),
    ),
    *whole(
        *(CuratorClient, lambda c: c.sample(SAMPLE, timeout=LATEST), SAMPLE),
        *(curator.TextSampled(S, "text"), NO_SESSION),
    ),
    *whole(
        *(FinderClient, lambda c: c.find_tools(FIND), FIND),
        *(finder.ToolsFound([HIT], "", 1, "fused"), finder.FinderRefused("an empty query")),
    ),
    (
        *(FinderClient, lambda c: c.find_skills("query", 2), finder.FindSkills("query", 2)),
        *(finder.SkillsFound([]), []),
    ),
    (
        *(FinderClient, lambda c: c.index_servers(S, "/p", timeout=LATEST)),
        *(finder.IndexServers(S, "/p"), finder.ServersIndexed([]), []),
    ),
    *whole(FinderClient, lambda c: c.look_up(LOOK_UP), LOOK_UP, finder.ToolLookedUp(HIT)),
    (FinderClient, lambda c: c.curate(CURATE), CURATE, finder.ToolsCurated([]), []),
    (FinderClient, lambda c: c.rank(RANK), RANK, finder.ToolsRanked([]), finder.ToolsRanked([])),
    *whole(
        *(FinderClient, lambda c: c.describe(DESCRIBE), DESCRIBE),
        finder.ToolsDescribed(is_known=True),
    ),
    *whole(
        *(FinderClient, lambda c: c.denied(RULES, "/p"), finder.ListDenied(RULES, "/p")),
        finder.DeniedListed(is_known=True),
    ),
    *whole(
        FinderClient,
        lambda c: c.count(RULES, "/p", timeout=LATEST),
        finder.CountTools(RULES, "/p"),
        finder.ToolsCounted(is_known=True),
    ),
    (FinderClient, lambda c: c.granted(GRANTED), GRANTED, finder.GrantedListed([]), []),
    *whole(
        FinderClient,
        lambda c: c.capabilities("/p", waits=True, counts=True),
        finder.DescribeCapabilities("/p", waits=True, counts=True),
        finder.CapabilitiesDescribed(is_known=True),
    ),
    (
        *(DefinitionsClient, lambda c: c.vet(VET), VET),
        *(definitions.ToolsVetted([ToolName("log")]), ["log"]),
    ),
    (
        *(DefinitionsClient, lambda c: c.screen({IDENTITY: [ToolName("log")]})),
        definitions.ScreenTools({IDENTITY: [ToolName("log")]}),
        *(definitions.ToolsScreened(), {}),
    ),
    (
        *(DefinitionsClient, lambda c: c.look_up(WITHHELD), WITHHELD),
        *(definitions.WithheldLookedUp("it changed"), "it changed"),
    ),
    *whole(
        *(DefinitionsClient, lambda c: c.describe(LIST), LIST),
        definitions.DefinitionsListed("notify", []),
    ),
    *whole(
        *(DefinitionsClient, lambda c: c.decide(DECIDE), DECIDE),
        definitions.DefinitionsDecided([ToolName("log")]),
    ),
    *whole(EmbedderClient, lambda c: c.warm_up(timeout=LATEST), embedder.WarmUp(), EMBEDDER),
    *whole(
        *(EmbedderClient, lambda c: c.embed(["words"], timeout=LATEST)),
        *(embedder.EmbedTexts(["words"]), embedder.TextsEmbedded(b"\0\0\0\0", 1)),
        embedder.EmbedderRefused("loading", "the model is loading"),
    ),
    *whole(EmbedderClient, lambda c: c.describe(), embedder.DescribeEmbedder(), EMBEDDER),
    *whole(EmbedderClient, lambda c: c.keep(), embedder.KeepModel(), EMBEDDER),
    *whole(
        *(IndexClient, lambda c: c.entries("/p"), index.ListIndex("/p")),
        index.IndexListed([]),
    ),
    *whole(
        *(IndexClient, lambda c: c.write(), index.WriteIndex()),
        *(WRITTEN, index.IndexRefused("the disk is full")),
    ),
    *whole(
        *(IndexClient, lambda c: c.describe(), index.DescribeIndex()),
        index.IndexDescribed("/f", 0, "", []),
    ),
    *whole(
        *(IndexClient, lambda c: c.revise([index.Revision("mine/git")])),
        index.ReviseIndex([index.Revision("mine/git")]),
        *(WRITTEN, index.IndexRefused("a person edits it")),
    ),
    *whole(
        *(LedgerClient, lambda c: c.uses(1.0), ledger.CountUses(1.0)),
        *(ledger.UsesCounted([]), NO_LEDGER),
    ),
    *whole(
        *(LedgerClient, lambda c: c.sums(1.0), ledger.SumCalls(1.0)),
        *(ledger.CallsSummed([]), NO_LEDGER),
    ),
    *whole(
        *(LedgerClient, lambda c: c.decisions(5, S), ledger.ListDecisions(5, S)),
        *(ledger.DecisionsListed([]), NO_LEDGER),
    ),
    *whole(
        *(LedgerClient, lambda c: c.activations(5, S), ledger.ListActivations(5, S)),
        *(ledger.ActivationsListed([]), NO_LEDGER),
    ),
    *whole(
        *(LedgerClient, lambda c: c.scripts(5, S), ledger.ListScripts(5, S)),
        *(ledger.ScriptsListed([]), NO_LEDGER),
    ),
    *whole(LedgerClient, lambda c: c.describe(), ledger.DescribeLedger(), LEDGER),
    *whole(
        *(SettingsClient, lambda c: c.reload(timeout=LATEST)),
        *(settings.ReloadSettings(), SETTINGS),
    ),
    *whole(
        *(SettingsClient, lambda c: c.describe("/p"), settings.DescribeSettings("/p")),
        SETTINGS,
    ),
]
REQUESTS = {
    module.__name__.rpartition(".")[2]: module.Request
    for module in (
        *(curator, definitions, embedder, finder, index, ledger, registry, settings, supervisor),
    )
}


class Elsewhere(msgspec.Struct, frozen=True, tag="test.elsewhere"):
    """A reply to no request of any actor."""


@asynccontextmanager
async def open_actor(
    actor: ActorName, reply: msgspec.Struct | None
) -> AsyncIterator[tuple[Bus, list[object]]]:
    """Answer every request to `actor` with `reply`; with None, answer none."""
    received: list[object] = []
    codec: MsgpackCodec[Any] = MsgpackCodec(REQUESTS[actor])
    async with (
        Bus({actor: Address("inproc://actor")}, ActorName("tester")) as bus,
        bus.mailbox(actor, codec) as mailbox,
        trio.open_nursery() as nursery,
    ):

        async def answer() -> None:
            async for incoming in mailbox:
                async with incoming:
                    received.append(incoming.request)
                    if reply is None:
                        await trio.sleep_forever()
                    else:
                        await incoming.reply(reply)

        nursery.start_soon(answer)
        yield bus, received
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("kind", "ask", "request_", "reply", "returned"),
    ROWS,
    ids=[f"{row[0].__name__}-{type(row[2]).__name__}-{type(row[3]).__name__}" for row in ROWS],
)
async def test_a_method_sends_its_request_and_returns_the_reply(
    kind: type[ActorClient],
    ask: Ask,
    request_: msgspec.Struct,
    reply: msgspec.Struct,
    returned: object,
) -> None:
    async with open_actor(kind.actor, reply) as (bus, received):
        got = await ask(kind(bus))

    assert received == [request_]
    assert got == returned


def test_every_request_of_every_actor_has_a_method() -> None:
    asked = {type(row[2]) for row in ROWS}

    assert asked == {each for union in REQUESTS.values() for each in _members(union)}


def test_every_actor_on_the_bus_has_a_client() -> None:
    assert set(addresses()) == {row[0].actor for row in ROWS}


async def test_a_reply_to_another_request_is_an_actor_that_cannot_be_used() -> None:
    async with open_actor(names.REGISTRY, Elsewhere()) as (bus, _):
        with pytest.raises(ActorUnavailableError, match="registry did not answer") as raised:
            await RegistryClient(bus).skills()

    assert isinstance(raised.value, AskFailedError)


async def test_an_actor_that_does_not_reply_is_waited_for_as_long_as_the_caller_says(
    autojump_clock: MockClock,
) -> None:
    async with open_actor(names.CURATOR, None) as (bus, _):
        with pytest.raises(ActorUnavailableError, match="in 130 s") as raised:
            await CuratorClient(bus).enable(S, "git", timeout=130.0)

    assert isinstance(raised.value, AskTimeoutError)


def _members(union: Any) -> tuple[type, ...]:
    return get_args(union) or (union,)
