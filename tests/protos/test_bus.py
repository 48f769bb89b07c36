"""The bus in msgpack: tags that never change, and encodings that stay readable.

`protos/golden/bus.json` holds the encoding of one example of every message as it was first
written. A field that is added later has a default, so what is there stays readable; only then
may an example's line be written again.
"""

import json
import types
from pathlib import Path
from typing import Any

import msgspec
import pytest

import capd_protos
from capd_protos import (
    curator,
    definitions,
    embedder,
    envelope,
    finder,
    index,
    ledger,
    registry,
    settings,
    socket,
    supervisor,
    tokens,
)
from capd_protos import types as values
from capd_protos.codec import MsgpackCodec
from capd_protos.envelope import Envelope, Failure
from capd_protos.types import (
    ActorName,
    Address,
    CapabilityId,
    CapabilityName,
    CapabilityRestriction,
    CapabilitySpec,
    ClientFacts,
    Decision,
    Finding,
    InstanceId,
    LearntEntry,
    MemorySpec,
    MessageId,
    OAuthClient,
    RoutingLabel,
    Score,
    ServerIdentity,
    ServerName,
    ServerSpec,
    SessionKey,
    SkillSpec,
    TapName,
    ToolDefinition,
    ToolName,
    WireName,
)

GOLDEN: dict[str, str] = json.loads(
    (Path(capd_protos.__file__).resolve().parents[1] / "golden/bus.json").read_text("utf-8")
)
MODULES: tuple[types.ModuleType, ...] = (
    *(embedder, registry, supervisor, finder, curator, settings, definitions, index),
)

ONE, TWO = SessionKey("zed-1"), SessionKey("zed-2")
GIT, IDENTITY, INSTANCE = ServerName("git"), ServerIdentity("9c1e"), InstanceId("git-1")
ID = CapabilityId(TapName("me/mine"), CapabilityName("git"))
TOOL = ToolDefinition(ToolName("log"), b'{"name":"log"}')
INDEXED = finder.ServerIndexed(GIT, IDENTITY, 1, 0.5, "why", 2, 3)
FINDING = Finding("capabilities/git/default.toml", 3, "bad", "warning")
DECISION = Decision("activate", "", ID, (Score(ID, 0.5),), "0123456789abcdef", {"domain": 2})
SERVER = ServerSpec(
    GIT,
    "stdio",
    TapName("me/mine"),
    command="uvx",
    args=("git-mcp", "{{CWD}}"),
    url="http://localhost:1",
    env={"A": "{{ENV:A}}"},
    headers={"B": "b"},
    timeout=2.5,
    tools=("log",),
    scope="session",
    lazy=False,
    description="reads",
    is_scope_fixed=True,
    oauth=OAuthClient("capd", "{{ENV:S}}", 8123),
    project="/src/app",
    sandbox="strict",
)
CAPABILITY = CapabilitySpec(
    ID,
    "uvx",
    title="Git",
    description="history",
    triggers=("show the history",),
    domains=("developer",),
    servers=(SERVER,),
    allowed_tools=("git:log",),
    requires=("org/tool",),
    wanted_keys=("A",),
    files=("pyproject.toml",),
)
HELLO = socket.Hello(
    1,
    "mcp",
    socket.ClientInfo("zed", "1.2", 812),
    cwd="/src/app/sub",
    project="/src/app",
    session="zed-1",
    resume="q1w2",
    parent="zed-2",
    inherit=False,
    dispatched=True,
)

CLIENT = ClientFacts("2025-11-25", b'{"name":"zed","version":"1"}', b'{"roots":{}}')
SKILL = registry.SkillEntry(
    WireName("review"), SkillSpec(TapName("t"), "review", "/t/SKILL.md", "d", ("git",))
)

MEMORY = MemorySpec(
    TapName("t"),
    "labels",
    "corrective",
    "use b",
    0.5,
    2.0,
    "git",
    "git:log",
    b'{"required":["a"]}',
    refuses=True,
    learned_from="two calls",
    file="/t/memories/labels.toml",
)
TOOL_HIT = finder.ToolHit(
    WireName("git__log"), TOOL.name, GIT, IDENTITY, TOOL.json, 0.5, SERVER, ID
)
INDEX_ENTRY = index.IndexEntry(
    *(ID, "read", "Reads it", ["show it"], 4, 90, 3, 1),
    is_automatic=False,
    threshold=0.5,
    domains=["developer"],
)
RULES = finder.PolicyTable("[policy]", ["git:*"], ["git:push"])
SESSION_TOKENS = tokens.SessionTokens(
    ONE,
    "zed",
    "dynamic",
    is_counting=True,
    tools=5,
    list_tokens=700,
    own_tokens=600,
    instructions=200,
    surface=900,
    everything=tokens.AllTools(40, 9000, [GIT]),
    saved=8100,
    turns=tokens.TextsSent(1, 20),
    searches=tokens.TextsSent(2, 900, 1),
    answers=tokens.TextsSent(1, None),
    changes=tokens.TextsSent(1, 80),
    added=None,
    net=None,
    last_changes=[tokens.ListSent(2.5, 1, 0, 80)],
)
EXAMPLES: tuple[msgspec.Struct, ...] = (
    Envelope(MessageId(7), ActorName("curator"), 2.5, Address("inproc://curator"), 1),
    Failure("no_answer", "nothing came"),
    embedder.WarmUp(),
    embedder.EmbedTexts(["a", "é"], "routing"),
    embedder.DescribeEmbedder(),
    embedder.KeepModel(),
    embedder.TextsEmbedded(b"\x00\x00\x80\x3f", 1),
    embedder.EmbedderDescribed("ready", "m", "r", "q", "p", 384, 42, 1_000_000, "why", "a1"),
    embedder.EmbedderRefused("loading", "soon"),
    embedder.EmbedderNeeded(),
    embedder.EmbedderStuck(),
    embedder.EmbedderExited(-9, expected=True),
    registry.RouteMessage(
        *(ONE, "show it", [ID], ["A"], "developer"),
        is_enabled=False,
        project="/src/app",
        denied=[ID],
        restrictions=[CapabilityRestriction(ID, 0.5, is_automatic=False)],
        waits=1.5,
    ),
    registry.ResolveCapability("me/mine/git", "/src/app"),
    registry.ListCapabilities("/src/app", all_projects=True),
    registry.DiscoverCapabilities("history", 3, "developer", "/src/app", [ID]),
    registry.ReloadCatalog(),
    registry.DescribeRegistry("/src/app", all_projects=True),
    registry.MessageRouted(
        DECISION, registry.CapabilityResolved(CAPABILITY, {"org/tool": "/deps/org/tool.sh"})
    ),
    registry.CapabilityResolved(CAPABILITY, {"org/tool": "/deps/org/tool.sh"}),
    registry.CapabilityUnknown("gti", "no tap has it", ["git"]),
    registry.CapabilitiesListed(
        [
            registry.CapabilityEntry(
                TapName("me/mine"),
                CapabilityName("git"),
                "uvx",
                is_routable=True,
                reason="r",
                description="d",
                domains=["developer"],
                triggers=["t"],
                servers=["git"],
                wanted_keys=["A"],
                commands=["uvx"],
                unpinned=["mcp-server-git"],
                npm_packages=["@playwright/mcp"],
            )
        ]
    ),
    registry.CapabilitiesFound([registry.CapabilityHit(ID, 0.5, ["t"], ["A"])]),
    registry.RegistryRefused("no_intent", "say what"),
    registry.RegistryDescribed(
        [
            registry.TapEntry(
                TapName("t"), "/t", "0" * 12, 1, {"x": "no config.toml"}, [FINDING], "e", 2, 3
            )
        ],
        [registry.DecisionEntry(ONE, 1.5, DECISION, 11.0)],
        ["A"],
        "ready",
        "why",
        {"model": "m", "threshold": 0.45, "top_k": 3},
        "it is switched off",
        "damaged",
    ),
    registry.ListSkills(),
    registry.ListToolSnapshots(),
    registry.ToolSnapshotsListed({IDENTITY: [TOOL]}),
    registry.ReadSkill("review"),
    registry.SkillsListed([SKILL]),
    registry.SkillText(SKILL, "Do it."),
    registry.SkillUnknown("reviw", "no tap has it", ["review"], is_there=True),
    registry.CatalogChanged(
        ["A"], has_other_skills=True, project="/src/app", has_other_memories=True
    ),
    registry.ListMemories("/src/app"),
    registry.MemoriesListed([MEMORY], [FINDING]),
    registry.DescribeLearning("/src/app"),
    registry.LearningDescribed(
        [LearntEntry("me/mine/git", 0.3, 0.15, 1, 0, 2, 12.5, 20.5)],
        0.05,
        3,
        is_on=False,
        problem="why",
    ),
    registry.ForgetLearning("git", is_last=True),
    registry.LearningForgotten(2, "me/mine/git"),
    registry.DescribeProgress(),
    registry.ProgressDescribed(40, [registry.PartlyDecided(ONE, 12.5, 20)]),
    registry.ListSpecs(),
    registry.SpecsListed([CAPABILITY]),
    registry.MessageDecided(ONE, "abstain", "too_short", ""),
    supervisor.AcquireServer(ONE, SERVER, "/src/app", CLIENT, "box", "/far"),
    supervisor.ReleaseServer(ONE, INSTANCE, at_once=True),
    supervisor.ReleaseSession(ONE),
    supervisor.ListServers(),
    supervisor.ListServerTools(INSTANCE),
    supervisor.InstallDependencies(
        {"org/tool": "/deps/org/tool.sh"}, ONE, ["org/lacking"], ["uvx"], "1"
    ),
    supervisor.LeaveInstall(ONE, "1"),
    supervisor.InstallStarted("org/tool"),
    supervisor.InstallOutput("org/tool", "fetching", 1.5),
    supervisor.InstallEnded("org/tool", "failed", 2.5, "exit 1"),
    supervisor.LogIn(ServerName("git"), "work", "device", SERVER),
    supervisor.AwaitLogin(3),
    supervisor.LoginOpened(3, "https://login.example/authorize", "WDJB-MJHT"),
    supervisor.PasteLogin(3, "http://127.0.0.1:8123/callback?code=c&state=s"),
    supervisor.LoginPasted(),
    supervisor.LogOut(ServerName("git"), "work", SERVER),
    supervisor.LoggedOut(True, True, "why"),
    supervisor.LoggedIn(),
    supervisor.LoginFailed("nobody logged in"),
    supervisor.EndProject("/src/app"),
    supervisor.TrustChanged("/src/app"),
    supervisor.ServersRestarted([ServerName("git")]),
    supervisor.ProjectEnded([ServerName("git")]),
    supervisor.ServerReady(INSTANCE, IDENTITY, GIT, 42, [TOOL]),
    supervisor.ServerRefused(GIT, "cannot_start", "it ended", ["boom"]),
    supervisor.LeasesReleased([TWO]),
    supervisor.ServersListed(
        [
            supervisor.ServerEntry(
                GIT,
                IDENTITY,
                INSTANCE,
                "project",
                "/src/app",
                "ready",
                42,
                [ONE],
                1,
                2,
                3.5,
                "e",
                {"junk_lines": 3},
                "strict",
            )
        ]
    ),
    supervisor.ServerTools([TOOL]),
    supervisor.DependenciesReady(["org/tool"], ["org/other"]),
    supervisor.DependenciesFailed("org/tool", "exit 1"),
    supervisor.ServerStarted(GIT, IDENTITY, INSTANCE, 42),
    supervisor.ServerExited(GIT, IDENTITY, INSTANCE, "unused"),
    supervisor.ServerToolsChanged(GIT, INSTANCE),
    supervisor.ToolListKept(GIT, IDENTITY),
    finder.FindTools(
        "show it", 3, 9, [RULES], ["TOKEN"], "/src/app", "developer", "git*", "versioning"
    ),
    finder.LookUpTool("log", IDENTITY, [RULES], ["TOKEN"], "/src/app", "developer"),
    finder.ToolLookedUp(
        TOOL_HIT, finder.ToolRestriction("denied", "no"), [WireName("git__diff")], 7, 2
    ),
    finder.DescribeTools(
        *(["git:*"], [RULES]),
        waits=True,
        project="/src/app",
        domain="developer",
        whole_bytes=8000,
    ),
    finder.ToolsDescribed(
        *(True, 7, 900, 2, [TOOL_HIT], [finder.EagerServer(SERVER, ID)]),
        model_bytes=800,
        skills=1,
        everything=[TOOL_HIT],
    ),
    finder.ListDenied([RULES], "/src/app"),
    finder.DeniedListed(True, [finder.DeniedCapability(ID, "denied")]),
    finder.IndexServers(ONE, "/src/app"),
    finder.ToolsFound(
        [TOOL_HIT],
        "that is all",
        7,
        "fused",
        [finder.SkillHit(SKILL.prompt, SKILL.skill, 0.5)],
    ),
    finder.FindSkills("review", 2),
    finder.SkillsFound([finder.SkillHit(SKILL.prompt, SKILL.skill, 0.5)]),
    finder.FinderRefused("the query is empty"),
    finder.ServersIndexed([INDEXED]),
    finder.IndexStarted(3),
    INDEXED,
    finder.ToolsIndexed(7, 2, has_vectors=True),
    finder.CurateTools(
        "show it",
        9,
        "keyword",
        [ID],
        "dev",
        ["git:*"],
        [ledger.Use(IDENTITY, "log", 3, 2.5)],
        [RULES],
        ["TOKEN"],
        "/src/app",
        asks_model=False,
    ),
    finder.ToolsCurated([finder.CuratedTool(TOOL_HIT, is_clear=True, is_pinned=True)]),
    finder.RankTools(
        "who wrote this line",
        [ID],
        most=2,
        uses=[ledger.Use(IDENTITY, "log", 3, 2.5)],
        rules=[RULES],
        keys=["TOKEN"],
        project="/src/app",
        domain="developer",
        asks_model=False,
    ),
    finder.ToolsRanked(
        [TOOL_HIT],
        total=9,
        is_known=False,
        skills=[finder.SkillHit(SKILL.prompt, SKILL.skill, 0.5)],
        is_spoken_of=True,
    ),
    finder.ListGranted([ID], [RULES], ["TOKEN"], "/src/app", "developer"),
    finder.GrantedListed([finder.Granted(ID, [TOOL_HIT], is_known=True)]),
    curator.OpenSession(
        3, HELLO, 812, is_bare=True, bridge="box", far_project="/far", far_folder="/far"
    ),
    curator.TakeTurn(ONE, "show it", 2000, True, 0.2, 4.0, True),
    curator.ListProfiles(),
    curator.ProfilesListed(
        [curator.ProfileEntry("work", ["/w"], ["h/*"], ["main"], ["zed*"], ["git"], "work")],
        [curator.SessionProfile(ONE, "work", "folder /w", "why")],
    ),
    curator.UseProfile(ONE, "work"),
    curator.ListApprovals(),
    curator.ApprovalsListed(
        [
            curator.ApprovalEntry(
                3,
                ONE,
                "zed",
                "/src/app",
                GIT,
                TOOL.name,
                "git__log",
                '{"n":1}',
                "destructive",
                "*:destructive",
                "[policy]",
                90.5,
            )
        ],
        ["git:log"],
        "why",
    ),
    curator.AnswerApproval(3, "session"),
    curator.ApprovalAnswered([3, 4]),
    curator.ForgetApprovals("git:log"),
    curator.ApprovalsForgotten(["git:log"]),
    curator.ApprovalAsked(ONE, 3, "git__log"),
    curator.ApprovalEnded(ONE, 3, "git__log", "once"),
    curator.DescribeMemories("/src/app"),
    curator.MemoriesDescribed(
        [curator.MemoryEntry(MEMORY, 20, 3, 2, 1)],
        [curator.LessonEntry(GIT, TOOL.name, "use b", b'{"required":["a"]}', 4)],
    ),
    curator.TakeHookTurn("show it", "claude", "c-1", "/src/app", 815, "t-1", True, 0.2, 4.0, True),
    curator.EnableCapability(ONE, "git"),
    curator.SwitchCapability(ONE, "git", is_on=True),
    curator.DisableCapability(ONE, "git"),
    curator.CallTool(ONE, "git__log", b'{"n":1}'),
    curator.ListTools(ONE),
    curator.ListSessions(),
    curator.SessionOpened(ONE, "q1w2", resumed=True),
    curator.TurnTaken(
        ONE,
        DECISION,
        ["git__log"],
        ["db__query"],
        11.5,
        "why",
        "words",
        "told",
        ["a"],
        "known",
        "files",
        [curator.LeftOut("memory", "m", 20, "no room")],
        1980,
        index="read: git",
        notice="capd switches git on",
        is_held=True,
    ),
    curator.CapabilityAnswered(ONE, is_ok=True, text="on", added=["a"], removed=["b"]),
    curator.ToolCalled(ONE, "not_sent", b'{"content":[]}', "why"),
    curator.ToolsListed(ONE, [b'{"name":"a"}']),
    curator.SessionsListed(
        [
            curator.SessionEntry(
                ONE,
                "zed",
                812,
                "/src/app",
                "dynamic",
                is_connected=True,
                age=1.5,
                active=[curator.ActiveEntry("capability", ID, 2.5, ["git__log"])],
                cap=4,
                surface=2,
                available=9,
                surface_chars=300,
                client_sessions=["c-1"],
                linked_by="session id",
                compacted=2,
                characters_in=90_000,
                characters_out=30_000,
                not_kept=1,
                tool_cap=24,
                mode_reason="the client lists again",
                unlisted=3,
                parent="two",
                tokens=900,
                tokens_saved=-20,
                tokens_state="counted",
                memories=3,
                memories_left_out=2,
                memory_tokens=900,
                memory_budget=2000,
                calls=4,
                client_title="Zed",
                client_line="zed",
                index_listed=24,
                index_left_out=3,
                index_tokens=148,
                suggestions_left_out=1,
            )
        ],
        [curator.HookCount("claude-code", 3, 1, "ambiguous")],
        "what sessions have cannot be written down at present: zed-1",
    ),
    curator.CuratorRefused("session_unknown", "no such session"),
    curator.SessionStarted(ONE, "zed", may_compare=False),
    curator.SessionEnded(ONE),
    curator.SurfaceChanged(ONE, ["a"], ["b"]),
    curator.CapabilityUsed(ONE, "/src/app", ID),
    curator.RoutingTaught(
        ONE,
        RoutingLabel(12.5, "me/mine/git", "called", 0.5, "0123456789abcdef", "0011223344556677"),
    ),
    curator.ResultCompacted(ONE, "git__log", 90_000, 24_000),
    curator.DaemonStopping(),
    curator.DrainSessions(8.0, is_for_good=True),
    curator.SessionsDrained(1),
    registry.ListStartables("/src/app"),
    registry.StartablesListed(
        "/src/app",
        [
            registry.StartableEntry(
                SERVER,
                "aa",
                "changed",
                {"db.sh": "bb"},
                ["file db.sh"],
                ["A"],
                ["no version"],
                "large",
                [ID.name],
            )
        ],
        [FINDING],
        "gone",
    ),
    registry.GrantTrust("/src/app", ["aa"]),
    registry.RevokeTrust("/src/app"),
    registry.ListTrusted(),
    registry.TrustedListed([registry.TrustedProject("/src/app", ["git"])], "damaged", "/src/app"),
    settings.ReloadSettings(),
    settings.DescribeSettings("/src/app"),
    settings.SettingsDescribed(
        ["config.toml is not used"],
        [settings.ProjectProblems("/src/app", ["line 1"])],
        ["embedder.placement"],
        "no",
        [settings.SettingValue("servers.linger", b"30.0", "CAPD_LINGER")],
    ),
    settings.SettingsChanged(),
    curator.DescribeReach(ONE),
    curator.ReachDescribed(ONE, [RULES], ["TOKEN"], "developer"),
    curator.SwitchRouting(ONE, is_on=False),
    curator.LeaveProject("/src/app"),
    curator.EndBridge("box"),
    curator.BridgeEnded(2),
    curator.ProjectLeft(),
    curator.DescribeTokens(2.0),
    curator.TokensDescribed("o200k_base", [SESSION_TOKENS], "why"),
    finder.CountTools([RULES], "/src/app"),
    finder.DescribeCapabilities("/src/app", waits=True, counts=True),
    finder.CapabilitiesDescribed(
        True, [finder.CapabilityTools(CAPABILITY, [WireName("git__log")], 90)]
    ),
    curator.SampleText(ONE, "what is git?", "be short", 100),
    curator.TextSampled(ONE, "git is"),
    index.ListIndex("/src/app"),
    index.IndexListed([INDEX_ENTRY], is_known=False),
    index.WriteIndex(),
    index.IndexWritten("/data/capability-index.yaml", 7, 2, 1, 11.5, is_same=True),
    index.IndexRefused("it is no YAML"),
    index.DescribeIndex(),
    index.IndexDescribed(
        "/data/capability-index.yaml",
        7,
        "why",
        [index.CapabilityMetrics(ID, 3, 2, 11.5, 4, 90)],
        1,
    ),
    index.ReviseIndex([index.Revision("me/mine/git", "read", "Reads it", ["show it"])]),
    index.IndexChanged(7),
    finder.ToolsCounted(is_known=True, tools=7, tokens=900, unlisted=[GIT]),
    definitions.VetTools(
        SERVER,
        IDENTITY,
        [definitions.ListedTool(TOOL.name, TOOL.json)],
        InstanceId("git-1"),
        [InstanceId("git-1"), InstanceId("git-2")],
    ),
    definitions.ToolsVetted([TOOL.name]),
    definitions.ScreenTools({IDENTITY: [TOOL.name]}),
    definitions.ToolsScreened({IDENTITY: [TOOL.name]}),
    definitions.LookUpWithheld(WireName("git__log"), IDENTITY, TOOL.name),
    definitions.WithheldLookedUp("it changed"),
    definitions.ListDefinitions("git", with_differences=True, with_flags=True),
    definitions.DefinitionsListed(
        "quarantine",
        [
            definitions.ServerDefinitions(
                GIT,
                IDENTITY,
                1,
                "pinned",
                is_lost=True,
                changes=[
                    definitions.DefinitionChange(
                        TOOL.name,
                        "changed",
                        "0" * 64,
                        is_withheld=True,
                        is_rejected=True,
                        seen_at=2.5,
                        difference="-a",
                    )
                ],
                flags=[definitions.DefinitionFlag(TOOL.name, "shadows", "git", "a paper")],
            )
        ],
        ["a file was damaged"],
    ),
    definitions.DecideDefinitions(IDENTITY, {TOOL.name: "0" * 64}, is_accepted=True),
    definitions.DefinitionsDecided([TOOL.name], [ToolName("diff")], "the disk is full"),
    definitions.DefinitionsChanged(
        GIT, IDENTITY, [TOOL.name], [TOOL.name], [TOOL.name], [TOOL.name]
    ),
    definitions.DefinitionsReviewed(GIT, IDENTITY),
)


def tag_of(message: type[msgspec.Struct]) -> str:
    return str(message.__struct_config__.tag or message.__name__)


def unions_of(module: types.ModuleType) -> list[tuple[type[msgspec.Struct], ...]]:
    unions = (module.Request, module.Reply, module.Event)
    # Of one member alone there is no union.
    return [getattr(union, "__args__", (union,)) for union in unions]


def messages_of(module: types.ModuleType) -> list[type[msgspec.Struct]]:
    return [message for union in unions_of(module) for message in union]


MESSAGES = [message for module in MODULES for message in messages_of(module)]
BY_TAG: dict[str, msgspec.Struct] = {tag_of(type(example)): example for example in EXAMPLES}


def encoded(example: msgspec.Struct) -> str:
    return msgspec.msgpack.encode(example).hex()


@pytest.mark.parametrize("tag", BY_TAG)
def test_an_example_is_written_as_it_was_first_written(tag: str) -> None:
    got = encoded(BY_TAG[tag])

    assert got == GOLDEN[tag]


@pytest.mark.parametrize("tag", GOLDEN)
def test_what_was_first_written_is_read_by_its_actors_codec(tag: str) -> None:
    message = type(BY_TAG[tag])
    unions = [u for module in MODULES for u in unions_of(module) if message in u] or [(message,)]
    (union,) = unions
    codec: MsgpackCodec[Any] = MsgpackCodec(_union(union))

    got = codec.decode(bytes.fromhex(GOLDEN[tag]))

    assert got == BY_TAG[tag]


def _union(messages: tuple[type[msgspec.Struct], ...]) -> Any:
    union: Any = messages[0]
    for message in messages[1:]:
        union |= message
    return union


def test_every_message_has_one_example_and_every_example_is_golden() -> None:
    expected = [tag_of(message) for message in MESSAGES] + ["Envelope", "failure"]

    assert sorted(BY_TAG) == sorted(expected)
    assert len(EXAMPLES) == len(expected)
    assert sorted(GOLDEN) == sorted(expected)


def test_an_example_shows_every_field_with_a_value_other_than_its_default() -> None:
    plain = [
        f"{tag}.{field.name}"
        for tag, example in BY_TAG.items()
        for field in msgspec.structs.fields(example)
        if field.default is not msgspec.NODEFAULT
        and getattr(example, field.name) == field.default
        and tag != "Envelope"
    ]

    assert plain == []


def test_tags_are_unique_and_name_their_topic() -> None:
    tags = [tag_of(message) for message in MESSAGES]

    assert len(set(tags)) == len(tags)
    assert [tag for tag in tags if tag.count(".") != 1] == []
    assert tag_of(Failure) == "failure"


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_a_message_is_one_of_request_reply_and_event(module: types.ModuleType) -> None:
    messages = messages_of(module)
    tagged = {
        member
        for member in vars(module).values()
        if isinstance(member, type)
        and issubclass(member, msgspec.Struct)
        and member.__module__ == module.__name__
        and member.__struct_config__.tag is not None
    }

    assert len(set(messages)) == len(messages)
    assert set(messages) == tagged


def test_every_struct_is_frozen_and_none_forbids_what_it_does_not_know() -> None:
    structs = [
        member
        for module in (*MODULES, socket, values, envelope)
        for member in vars(module).values()
        if isinstance(member, type)
        and issubclass(member, msgspec.Struct)
        and member is not msgspec.Struct
    ]

    odd = [
        struct.__name__
        for struct in structs
        if struct.__struct_config__.forbid_unknown_fields or not struct.__struct_config__.frozen
    ]

    assert (odd, len(structs) > len(MESSAGES)) == ([], True)


@pytest.mark.parametrize("tag", [tag for tag in BY_TAG if tag != "Envelope"])
def test_a_field_from_the_future_is_read_over(tag: str) -> None:
    message = msgspec.msgpack.decode(bytes.fromhex(GOLDEN[tag]))
    newer = msgspec.msgpack.encode({**message, "from_the_future": [1]})

    got = msgspec.msgpack.decode(newer, type=type(BY_TAG[tag]))

    assert got == BY_TAG[tag]


def test_an_envelope_from_the_future_is_read_over() -> None:
    members = msgspec.msgpack.decode(bytes.fromhex(GOLDEN["Envelope"]))

    got = msgspec.msgpack.decode(msgspec.msgpack.encode([*members, "new"]), type=Envelope)

    assert got == BY_TAG["Envelope"]
