"""A machine that starts no process, and a bus that keeps what went over it.

`Machine.spawn` stands where `processes.running` does; test_fakes holds the two together.
"""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any, TypeVar, cast

import msgspec
import trio
from trio.testing import memory_stream_one_way_pair

from capd.actors.supervisor.starts import Spawn
from capd.adapters.definition_files import LoadedDefinitions
from capd.adapters.servers.processes import (
    CommandNotFoundError,
    ExitStatus,
    ProcessSpec,
    SpawnFailedError,
)
from capd.core.definitions.baseline import Baseline
from capd.core.sessions.session_record import SessionRecord, has_anything
from capd.runtime.bus import Bus
from capd_protos.codec import MsgpackCodec
from capd_protos.types import (
    ActorName,
    Address,
    ServerIdentity,
    ServerName,
    ServerSpec,
    SessionKey,
    TapName,
)

R = TypeVar("R")
Json = dict[str, Any]

ACTORS = (
    *("definitions", "finder", "registry", "supervisor", "curator", "embedder"),
    *("ledger", "settings", "index"),
)


def tool(name: str, description: str = "") -> Json:
    return {"name": name, "description": description, "inputSchema": {"type": "object"}}


def text(said: str) -> Json:
    return {"content": [{"type": "text", "text": said}]}


@dataclass(eq=False)
class Script:
    """How a server behaves; a test may change it while the server runs."""

    tools: list[Json] = field(default_factory=lambda: [tool("echo"), tool("die")])
    instructions: str = ""
    start_delay: float = 0.0
    probe_delay: float = 0.0
    """Seconds for the answer to `server/discover`."""
    is_ready: bool = True
    exits_at_start: int | None = None
    stderr: list[str] = field(default_factory=list)
    stop_delay: float = 0.0
    call: "Callable[[FakeProcess, Json], Awaitable[None]] | None" = None
    list_says: Json = field(default_factory=dict)
    """Members of the list of tools beside the tools."""
    generations: tuple[str, ...] = ("handshake",)
    offers: Json = field(default_factory=lambda: {"tools": {"listChanged": True}})
    answers: "Callable[[str, Json], Json] | None" = None
    """What it says to every other request: the members of its response."""


class FakeProcess:
    """Replaces `processes.ServerProcess` for its users."""

    is_parked = False
    sandbox = "guard"
    cwd = "/project"
    cwd_reason = ""
    membership = "sweep"

    def __init__(self, pid: int, script: Script, journal: list[str]) -> None:
        self.pid = pid
        self.asked: list[Json] = []
        self.stdin, self._inbox = memory_stream_one_way_pair()
        self._outbox, self.stdout = memory_stream_one_way_pair()
        self._script = script
        self._journal = journal
        self._stderr = list(script.stderr)
        self._status: ExitStatus | None = None
        self._exited = trio.Event()
        self._speaking = trio.Lock()

    @property
    def is_alive(self) -> bool:
        return self._status is None

    def asked_for(self, method: str) -> list[Json]:
        return [each for each in self.asked if each.get("method") == method]

    def stderr_tail(self) -> list[str]:
        return self._stderr

    async def wait(self) -> ExitStatus:
        await self._exited.wait()
        assert self._status is not None
        return self._status

    async def stop(self, grace: float = 2.0) -> None:
        del grace
        with trio.CancelScope(shield=True):
            self.stdin.close()
            if self.is_alive:
                await trio.sleep(self._script.stop_delay)
            self.exit(0)
            await trio.lowlevel.checkpoint()

    async def kill(self) -> None:
        self.exit(signal=9)
        with trio.CancelScope(shield=True):
            await trio.lowlevel.checkpoint()

    def exit(self, code: int | None = None, *, signal: int | None = None) -> None:
        if self._status is not None:
            return
        self._status = ExitStatus(code=code, signal=signal)
        self._journal.append(f"gone {self.pid}")
        self._outbox.close()
        self._inbox.close()
        self._exited.set()

    async def say(self, message: Json | bytes) -> None:
        line = message if isinstance(message, bytes) else json.dumps(message).encode()
        async with self._speaking:
            if self.is_alive:
                await self._outbox.send_all(line + b"\n")

    async def reply(self, request: Json, result: Json) -> None:
        await self.say({"jsonrpc": "2.0", "id": request["id"], "result": result})

    async def serve(self) -> None:
        if self._script.exits_at_start is not None:
            self.exit(self._script.exits_at_start)
        received = b""
        async with trio.open_nursery() as nursery:
            while self.is_alive:
                try:
                    chunk = await self._inbox.receive_some()
                except trio.ClosedResourceError:
                    break
                if not chunk:
                    self.exit(0)
                    break
                *lines, received = (received + bytes(chunk)).split(b"\n")
                for line in lines:
                    message = json.loads(line)
                    self.asked.append(message)
                    nursery.start_soon(self._answer, message)
            nursery.cancel_scope.cancel()

    async def _answer(self, message: Json) -> None:
        match message.get("method"):
            case "initialize" if "handshake" not in self._script.generations:
                error = {"code": -32601, "message": "Method not found"}
                await self.say({"jsonrpc": "2.0", "id": message["id"], "error": error})
            case "server/discover" if "stateless" in self._script.generations:
                await trio.sleep(self._script.probe_delay)
                found = {"supportedVersions": ["2026-07-28"], "capabilities": self._script.offers}
                await self.reply(message, found)
            case "initialize":
                await trio.sleep(self._script.start_delay)
                if self._script.is_ready:
                    version = message["params"]["protocolVersion"]
                    info = {"name": "fake", "version": "0"}
                    result = {"protocolVersion": version, "serverInfo": info}
                    if self._script.instructions:
                        result["instructions"] = self._script.instructions
                    await self.reply(message, {**result, "capabilities": self._script.offers})
            case "tools/list":
                await self.reply(message, {"tools": self._script.tools, **self._script.list_says})
            case "tools/call":
                if self._script.call is not None:
                    await self._script.call(self, message)
                elif message["params"]["name"] == "die":
                    self.exit(9)
                else:
                    said = json.dumps(message["params"].get("arguments"))
                    await self.reply(message, text(said))
            case str() as method if "id" in message and self._script.answers is not None:
                outcome = self._script.answers(method, message["params"])
                await self.say({"jsonrpc": "2.0", "id": message["id"], **outcome})


class Machine:
    """Starts fake processes by the first word of their command line."""

    def __init__(self, **scripts: Script) -> None:
        self.scripts = scripts
        self.journal: list[str] = []
        self.specs: list[ProcessSpec] = []
        self.processes: list[FakeProcess] = []
        self._pids = count(100_001)

    @property
    def alive(self) -> list[int]:
        return [process.pid for process in self.processes if process.is_alive]

    @property
    def spawn(self) -> Spawn:
        return cast("Spawn", self.running)

    @asynccontextmanager
    async def running(self, spec: ProcessSpec) -> AsyncIterator[FakeProcess]:
        await trio.lowlevel.checkpoint()
        script = self.scripts.get(spec.argv[0])
        if script is None:
            raise CommandNotFoundError(f"{spec.argv[0]} was not found in PATH")
        if not spec.cwd.is_dir():
            raise SpawnFailedError(f"{spec.cwd}: there is no such directory")
        self.specs.append(spec)
        process = FakeProcess(next(self._pids), script, self.journal)
        self.processes.append(process)
        self.journal.append(f"start {spec.argv[0]} {process.pid}")
        manager = trio.open_nursery()
        nursery = await manager.__aenter__()
        nursery.start_soon(process.serve)
        try:
            yield process
        finally:
            await process.kill()
            nursery.cancel_scope.cancel()
            nursery.cancel_scope.shield = True
            await manager.__aexit__(None, None, None)


class RecordingBus(Bus):
    """A bus that keeps the bytes of every question, answer and event of its process."""

    def __init__(self) -> None:
        addresses = {ActorName(name): Address(f"inproc://{name}") for name in ACTORS}
        events = Address("inproc://events")
        super().__init__(addresses, ActorName("tester"), events=events, bind_events=True)
        self.bytes_seen: list[bytes] = []
        self.events: list[msgspec.Struct] = []

    async def ask(
        self,
        actor: ActorName,
        request: msgspec.Struct,
        reply_codec: MsgpackCodec[R],
        timeout: float,
    ) -> R:
        self.bytes_seen.append(msgspec.msgpack.encode(request))
        reply = await super().ask(actor, request, reply_codec, timeout)
        self.bytes_seen.append(msgspec.msgpack.encode(reply))
        return reply

    def publish(self, event: msgspec.Struct) -> None:
        self.bytes_seen.append(msgspec.msgpack.encode(event))
        self.events.append(event)
        super().publish(event)


def server(name: str = "alpha", **settings: Any) -> ServerSpec:
    base = ServerSpec(
        name=ServerName(name), transport="stdio", tap=TapName("test"), command=name, args=("run",)
    )
    return msgspec.structs.replace(base, **settings)


class KeptDefinitions:
    """What is trusted of servers, in memory; a test may lose it, or have the disk be full."""

    def __init__(self) -> None:
        self.baselines: dict[ServerIdentity, Baseline] = {}
        self.problems: dict[ServerIdentity, str] = {}
        self.is_full = False

    async def load(self, identity: ServerIdentity) -> LoadedDefinitions:
        await trio.lowlevel.checkpoint()
        problem = self.problems.get(identity, "")
        return LoadedDefinitions(self.baselines.get(identity), problem)

    async def load_all(self) -> list[LoadedDefinitions]:
        return [await self.load(identity) for identity in self.baselines]

    async def save(self, baseline: Baseline) -> str:
        await trio.lowlevel.checkpoint()
        if self.is_full:
            return "No space left on device"
        self.baselines[baseline.identity] = baseline
        return ""


class KeptSessions:
    """Session records in memory, with a journal of the saves."""

    def __init__(self) -> None:
        self.records: dict[SessionKey, SessionRecord] = {}
        self.hold: trio.Event | None = None
        """Who asks is answered when it is set."""
        self.is_asked = trio.Event()
        self.error: OSError | None = None
        """Why no record can be read."""

    async def load(self, key: SessionKey) -> SessionRecord | None:
        self.is_asked.set()
        await trio.lowlevel.checkpoint()
        if self.error is not None:
            raise self.error
        if self.hold is not None:
            await self.hold.wait()
        return self.records.get(key)

    async def save(self, record: SessionRecord) -> bool:
        await trio.lowlevel.checkpoint()
        self.records.pop(record.key, None)
        if has_anything(record):
            self.records[record.key] = record
        return True

    async def forget(self, prefix: str) -> None:
        for key in [each for each in self.records if each.startswith(prefix)]:
            del self.records[key]

    async def sweep(self) -> None:
        await trio.lowlevel.checkpoint()
