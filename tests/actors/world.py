"""All actors of a daemon in one process, with fake servers, a fake embedder and a real socket."""

import json
import os
import zlib
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import trio

from capd.actors.control.connection import Control
from capd.actors.definitions import Definitions
from capd.actors.finder.finder import ToolFinder
from capd.actors.gateway.gateway import Gateway
from capd.actors.index.index import Index
from capd.actors.ledger import Ledger
from capd.actors.registry.learning import LabelStore
from capd.actors.registry.registry import Registry
from capd.actors.session.client_habits import HabitStore
from capd.actors.session.host import SessionHost
from capd.actors.session.index import IndexCache
from capd.actors.session.services import session_services
from capd.actors.session.token_accounting import TokenAccounting
from capd.actors.settings import SettingsWatcher
from capd.actors.supervisor.starts import Starts, SupervisorSettings
from capd.actors.supervisor.supervisor import Instances, Supervisor
from capd.adapters.clients.connection import Connection
from capd.adapters.clients.session_environment import SessionEnvironments
from capd.adapters.clients.unix_listener import listening
from capd.adapters.index_file import IndexFile
from capd.adapters.index_text import NAME as INDEX_FILE
from capd.adapters.ledger.journal import Journal
from capd.adapters.live_settings import LiveSettings
from capd.adapters.model.minilm import ADAPTER_SHA256, MODEL
from capd.adapters.routing_files import read_profile
from capd.adapters.servers.http.logins import Logins
from capd.adapters.tokens.counted_texts import Counts
from capd.adapters.tokens.piece_counts import PieceCounts
from capd.adapters.tool_lists import ToolLists
from capd.core.sessions.session_rules import SessionRules
from capd.runtime.handle_table import HandleTable
from capd_protos import curator, embedder, registry, supervisor
from capd_protos.codec import MsgpackCodec
from capd_protos.definitions import Mode
from capd_protos.socket import StopParams
from capd_protos.types import ActorName, SessionKey

from .fakes import Json, KeptDefinitions, KeptSessions, Machine, RecordingBus, Script, tool

LINGER = 30.0
OWN = ["capability", "tool_search", "tool_call"]
REGISTRY = ActorName("registry")
SUPERVISOR = ActorName("supervisor")
CURATOR = ActorName("curator")
EMBEDDER = ActorName("embedder")
REGISTRY_REPLIES: MsgpackCodec[registry.Reply] = MsgpackCodec(registry.Reply)
SUPERVISOR_REPLIES: MsgpackCodec[supervisor.Reply] = MsgpackCodec(supervisor.Reply)
CURATOR_REPLIES: MsgpackCodec[curator.Reply] = MsgpackCodec(curator.Reply)
EMBEDDER_REQUESTS: MsgpackCodec[embedder.Request] = MsgpackCodec(embedder.Request)


# The evidence of made-up words and vectors is weaker than that of real ones, by how much depends on
# the profile that ships.
PROFILE = replace(read_profile(), threshold=0.35, activate_at=0.35, suggest_at=0.1)


def vector(words: str) -> "np.ndarray[Any, np.dtype[np.float32]]":
    """Texts are alike if and only if their first words are the same."""
    row = np.zeros(MODEL.dimensions, dtype=np.float32)
    row[zlib.crc32(words.split(maxsplit=1)[0].encode()) % MODEL.dimensions] = 1.0
    return row


class FakeEmbedder:
    """A fake embedder whose behaviour the test sets."""

    def __init__(self, bus: RecordingBus) -> None:
        self.texts: list[str] = []
        self.spaces: set[embedder.VectorSpace] = set()
        """In which texts were asked for."""
        self.reason = ""
        self.is_cut = False
        """Its vectors lack their last number."""
        self.is_loading = False
        self.is_silent = False
        self.most_texts: int | None = None
        """How many it embeds before it is loading."""
        self.hold: trio.Event | None = None
        """Texts are answered when it is set."""
        self.hold_new: trio.Event | None = None
        """The same for those that are asked for together, as a catalog's are."""
        self._bus = bus

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        async with (
            self._bus.mailbox(EMBEDDER, EMBEDDER_REQUESTS) as mailbox,
            # Inside: who still answers is cancelled before the mailbox answers for them.
            trio.open_nursery() as nursery,
        ):
            task_status.started()
            async for incoming in mailbox:

                async def answer(incoming: Any = incoming) -> None:
                    async with incoming:
                        if self.is_silent:
                            await trio.sleep_forever()
                        await incoming.reply(await self._answer(incoming.request))

                nursery.start_soon(answer)

    async def _answer(self, request: embedder.Request) -> embedder.Reply:
        if isinstance(request, embedder.EmbedTexts):
            if self.hold is not None:
                await self.hold.wait()
            if self.hold_new is not None and len(request.texts) > 1:
                await self.hold_new.wait()
            if self.is_loading or (self.most_texts or 1 << 30) <= len(self.texts):
                return embedder.EmbedderRefused("loading", "the model is loading")
            self.texts += request.texts
            self.spaces.add(request.space)
            rows = np.stack([vector(each) for each in request.texts])
            cut = -4 if self.is_cut else None
            return embedder.TextsEmbedded(rows.tobytes()[:cut], MODEL.dimensions)
        return embedder.EmbedderDescribed(
            "unusable" if self.reason else "ready",
            MODEL.id,
            MODEL.revision,
            MODEL.quantisation,
            MODEL.pooling,
            MODEL.dimensions,
            os.getpid(),
            1,
            self.reason,
            ADAPTER_SHA256,
        )


class Client:
    """A program at the far end of the socket."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self.welcome: Json = {}
        self.heard: list[Json] = []
        """Everything but the answers that were waited for, in order."""
        self.is_closed = trio.Event()
        self._ids = count(1)
        self._waiting: dict[int, trio.MemorySendChannel[Json]] = {}
        self._unread = b""
        self._sending = trio.Lock()

    async def send(self, *messages: Json | bytes) -> None:
        lines = [m if isinstance(m, bytes) else json.dumps(m).encode() for m in messages]
        async with self._sending:
            await self.stream.send_all(b"".join(line + b"\n" for line in lines))

    async def line(self) -> Json:
        while b"\n" not in self._unread:
            chunk = await self.stream.receive_some()
            if not chunk:
                raise EOFError
            self._unread += bytes(chunk)
        line, _, self._unread = self._unread.partition(b"\n")
        message: Json = json.loads(line)
        return message

    async def hello(self, **members: Any) -> Json:
        """Send a hello and return the answer."""
        base = {"capd": "hello", "protocol": 1, "role": "mcp", "client": {"name": "editor"}}
        await self.send({**base, **members})
        self.welcome = await self.line()
        return self.welcome

    async def listen(self) -> None:
        """Pass each answer to the task that waits for it."""
        while True:
            try:
                message = await self.line()
            except (EOFError, trio.BrokenResourceError, trio.ClosedResourceError):
                self.is_closed.set()
                return
            waiting = self._waiting.pop(message.get("id", 0), None)
            if waiting is None or "method" in message or "capd" in message:
                self.heard.append(message)
            else:
                waiting.send_nowait(message)

    async def ask(self, method: str, **params: Any) -> Json:
        """Return the whole answer to a request."""
        request_id = next(self._ids)
        send, receive = trio.open_memory_channel[Json](1)
        self._waiting[request_id] = send
        request = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}
        await self.send(request)
        return await receive.receive()

    async def result(self, method: str, **params: Any) -> Json:
        answer = await self.ask(method, **params)
        assert "result" in answer, answer
        result: Json = answer["result"]
        return result

    async def initialize(self) -> None:
        await self.result("initialize", protocolVersion="2025-11-25")
        await self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    async def call(self, tool_name: str, /, **arguments: Any) -> tuple[str, bool]:
        """Return the text of a call's result, and whether it is an error."""
        result = await self.result("tools/call", name=tool_name, arguments=arguments)
        return result["content"][0]["text"], result.get("isError", False)

    async def capability(self, action: str, name: str = "", **more: str) -> tuple[str, bool]:
        return await self.call("capability", action=action, name=name, **more)

    async def tools(self) -> list[str]:
        return [each["name"] for each in (await self.result("tools/list"))["tools"]]

    @property
    def list_changes(self) -> int:
        method = "notifications/tools/list_changed"
        return sum(each.get("method") == method for each in self.heard)


class World:
    """Everything, and the hands to change it."""

    def __init__(
        self,
        folder: Path,
        bus: RecordingBus,
        nursery: trio.Nursery,
        stack: ExitStack,
        rules: SessionRules,
        *,
        counts: Counts | None = None,
        pieces: Counts | None = None,
        is_live: bool = False,
        habits: HabitStore | None = None,
        labels: LabelStore | None = None,
        mode: Mode = "notify",
    ) -> None:
        """`mode` says how changed definitions are treated."""
        self.folder = folder
        self.live = LiveSettings(folder / "config", {}, None)
        self.live.load()
        self.settings = SettingsWatcher(bus, self.live, is_watching=False)
        self.bus = bus
        self.machine = Machine()
        self.embedder = FakeEmbedder(bus)
        self.instances: Instances = HandleTable()
        self.connections: HandleTable[int, Connection] = HandleTable()
        self.environments = SessionEnvironments()
        self.tap_list = folder / "taps.toml"
        # Without what is shipped: it decides no test, and each boot reads it.
        self.tap_list.write_text(
            "starter = false\nshipped_overlays = false\n"
            f'[[taps]]\nname = "mine"\npath = "{folder}/tap"\n'
        )
        (folder / "tap" / "capabilities").mkdir(parents=True, exist_ok=True)
        self.project = folder / "project"
        self.project.mkdir(exist_ok=True)
        self.tool_lists = ToolLists(folder / "tools")
        settings = SupervisorSettings(
            LINGER,
            folder,
            {"PATH": os.defpath},
            "",
            "0",
            tool_lists=self.tool_lists,
            is_vetting=True,
        )
        self.supervisor = Supervisor(
            bus,
            self.instances,
            self.environments,
            settings,
            Starts(settings, Logins(folder / "logins"), self.machine.spawn),
        )
        self.journal = Journal()
        # No file: SQLite works in threads, which no virtual clock waits for. Notes stay here.
        self.ledger = Ledger(bus, self.journal, None)
        self.registry = Registry(
            bus,
            self.tap_list,
            folder / "vectors.bin",
            lambda project: self.live.of(project).configuration.routing.priors,
            journal=self.journal,
            labels=labels,
            profile=PROFILE,
        )
        self.finder = ToolFinder(
            bus,
            self.tool_lists,
            self.environments,
            folder / "tool_vectors.bin",
            counts,
            is_screened=True,
        )
        self.kept = KeptSessions()
        self.pieces = PieceCounts(pieces)
        self.kept_definitions = KeptDefinitions()
        self.definitions = Definitions(bus, self.kept_definitions, mode)
        self.host = SessionHost(
            session_services(
                bus,
                self.instances,
                self.environments,
                rules=rules,
                tokens=TokenAccounting(bus, counts),
                live=self.live if is_live else None,
                journal=self.journal,
                habits=habits,
                index=IndexCache(bus, self.pieces),
            ),
            self.connections,
            self.kept,
            version="0",
        )
        self.index = Index(bus, IndexFile(folder / INDEX_FILE), self.pieces)
        self.socket = folder / "s"
        self.stops: list[StopParams] = []
        self.control = Control(
            bus,
            self.environments,
            daemon=lambda: {
                "version": "0",
                "pid": os.getpid(),
                "uptime_s": 1.0,
                "rss_bytes": 1,
                "socket": str(self.socket),
                "degraded": [],
            },
            stop=self.stops.append,
            tally=self.journal.tally,
        )
        self.scopes: dict[str, trio.CancelScope] = {}
        self.stopping = trio.Event()
        self.nursery = nursery
        self.stack = stack

    def capability(self, name: str, *servers: str, keys: str = "", provider: str = "") -> None:
        """Write a capability whose servers are fake processes of the same names."""
        folder = self.folder / "tap" / "capabilities" / name
        folder.mkdir(exist_ok=True)
        triggers = json.dumps([f"{name} {word}" for word in ("one", "two", "three")])
        folder.joinpath("config.toml").write_text(f"triggers = {triggers}\n")
        blocks = [
            f'[[mcp.servers]]\nname = "{each}"\ntype = "stdio"\ncommand = "{each}"\n{keys}\n'
            for each in servers
        ]
        folder.joinpath("default.toml").write_text(provider + "\n".join(blocks))
        for each in servers:
            self.machine.scripts.setdefault(each, Script(tools=[tool("echo"), tool("die")]))

    async def start(self) -> None:
        await self.nursery.start(self._kept, "embedder", self.embedder)
        await self.nursery.start(self._kept, "settings", self.settings)
        await self.nursery.start(self._kept, "registry", self.registry)
        await self.nursery.start(self._kept, "ledger", self.ledger)
        await self.nursery.start(self._kept, "definitions", self.definitions)
        await self.nursery.start(self._kept, "supervisor", self.supervisor)
        await self.nursery.start(self._kept, "finder", self.finder)
        await self.nursery.start(self._kept, "index", self.index)
        await self.nursery.start(self._kept, "curator", self.host)
        server = self.stack.enter_context(listening(self.socket, {}))
        self.stack.callback(server.socket.close)
        gateway = Gateway(
            self.bus,
            server,
            self.connections,
            lambda: self.control,
            "0",
            stopping=self.stopping,
            # The daemon is in the process that starts a test's clients.
            may_connect=("*",),
        )
        await self.nursery.start(self._kept, "gateway", gateway)

    async def _kept(self, name: str, actor: Any, *, task_status: trio.TaskStatus[None]) -> None:
        self.scopes[name] = trio.CancelScope()
        with self.scopes[name]:
            await actor.run(task_status=task_status)

    async def described(self) -> registry.RegistryDescribed:
        reply = await self.bus.ask(REGISTRY, registry.DescribeRegistry(), REGISTRY_REPLIES, 1000.0)
        assert isinstance(reply, registry.RegistryDescribed)
        return reply

    async def reload(self) -> registry.RegistryDescribed:
        # A folder is read in a thread, which no virtual clock waits for.
        reply = await self.bus.ask(
            REGISTRY, registry.ReloadCatalog(), REGISTRY_REPLIES, float("inf")
        )
        assert isinstance(reply, registry.RegistryDescribed)
        return reply

    async def until_routing(self, state: str = "ready") -> None:
        while (await self.described()).embedder_state != state:
            await trio.sleep(0.001)

    async def servers(self) -> list[supervisor.ServerEntry]:
        reply = await self.bus.ask(SUPERVISOR, supervisor.ListServers(), SUPERVISOR_REPLIES, 1000.0)
        assert isinstance(reply, supervisor.ServersListed)
        return reply.servers

    async def leases(self) -> dict[str, list[SessionKey]]:
        """Return the holders of each leased server."""
        return {entry.name: entry.leases for entry in await self.servers() if entry.leases}

    async def sessions(self) -> list[curator.SessionEntry]:
        reply = await self.bus.ask(CURATOR, curator.ListSessions(), CURATOR_REPLIES, 1000.0)
        assert isinstance(reply, curator.SessionsListed)
        return reply.sessions

    async def connected(self) -> Client:
        client = Client(await trio.open_unix_socket(self.socket))
        self.stack.callback(client.stream.socket.close)
        return client

    async def session(self, key: str = "", **members: Any) -> Client:
        """Return a client whose session is open and whose MCP handshake is done."""
        client = await self.connected()
        hello = {"session": key, "cwd": str(self.project), **members}
        await client.hello(**hello)
        assert client.welcome["capd"] == "welcome", client.welcome
        self.nursery.start_soon(client.listen)
        if members.get("role") != "control":
            await client.initialize()
        return client

    async def controller(self) -> Client:
        return await self.session(role="control")


@asynccontextmanager
async def world(
    folder: Path,
    *,
    cap: int = 4,
    rules: SessionRules | None = None,
    habits: HabitStore | None = None,
    labels: LabelStore | None = None,
    counts: Counts | None = None,
    pieces: Counts | None = None,
    is_live: bool = False,
    mode: Mode = "notify",
) -> AsyncIterator[World]:
    """A world with the capabilities alpha, beta and both, not yet started.

    Without `counts` nothing is counted in tokens, and without `pieces` no word of the index.
    """
    with ExitStack() as stack:
        async with RecordingBus() as bus, trio.open_nursery() as nursery:
            made = World(
                folder,
                bus,
                nursery,
                stack,
                rules or SessionRules(cap),
                habits=habits,
                labels=labels,
                counts=counts,
                pieces=pieces,
                is_live=is_live,
                mode=mode,
            )
            made.capability("alpha", "alpha")
            made.capability("beta", "beta")
            made.capability("both", "alpha", "beta")
            yield made
            nursery.cancel_scope.cancel()
    assert made.machine.alive == []


@asynccontextmanager
async def running_world(
    folder: Path,
    *,
    cap: int = 4,
    rules: SessionRules | None = None,
    habits: HabitStore | None = None,
    labels: LabelStore | None = None,
    counts: Counts | None = None,
    pieces: Counts | None = None,
    is_live: bool = False,
    mode: Mode = "notify",
) -> AsyncIterator[World]:
    """Run a world; yield it when routing is ready."""
    async with world(
        folder,
        cap=cap,
        rules=rules,
        habits=habits,
        labels=labels,
        counts=counts,
        pieces=pieces,
        is_live=is_live,
        mode=mode,
    ) as made:
        await made.start()
        made.registry._vectors._need.set()
        await made.until_routing()
        yield made
