"""A scripted server behind a real instance, and a client for it."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import structlog
import trio
from trio.testing import memory_stream_one_way_pair, wait_all_tasks_blocked

from capd.adapters.servers.callers import OnProgress
from capd.adapters.servers.instance import Instance
from capd_protos.types import ClientFacts, ServerName, SessionKey

Json = dict[str, Any]
Reply = Callable[[Json], Json | None]

EVERYTHING = b'{"sampling":{},"roots":{},"elicitation":{"form":{},"url":{}}}'
INFO = b'{"name":"editor","version":"1"}'


class LineServer(trio.abc.SendStream):
    """The far end of an instance: what it was told, and what it says."""

    def __init__(self, project: str = "") -> None:
        self.told: list[Json] = []
        self.replies: dict[str, Reply] = {}
        """What it answers to a request; to the others nothing."""
        self.tools_changed = 0
        self._stdout, receive = memory_stream_one_way_pair()
        self.instance = Instance(
            ServerName("alpha"),
            self,
            receive,
            on_tools_changed=self._note_tools,
            log=structlog.get_logger(),
            project=project,
        )
        self.server_connection = self.instance.server_connection

    def _note_tools(self) -> None:
        self.tools_changed += 1

    def offer(self, *, stateless: bool = False, **capabilities: Json) -> None:
        """Be a server whose handshake is over."""
        self.server_connection.is_stateless = stateless
        offered = json.loads(json.dumps(capabilities))
        self.server_connection.capabilities = {k: raw_json(v) for k, v in offered.items()}

    def answer(self, method: str, *results: object) -> None:
        """Answer requests of `method` with `results`, the last one from then on."""
        left = list(results)

        def reply(_: Json) -> Json | None:
            result = left.pop(0) if len(left) > 1 else left[0]
            if result is None or (isinstance(result, dict) and "error" in result):
                return result
            return {"result": result}

        self.replies[method] = reply

    async def say(self, *messages: Json) -> None:
        for message in messages:
            line = json.dumps({"jsonrpc": "2.0", **message}).encode()
            await self._stdout.send_all(line + b"\n")
        await wait_all_tasks_blocked()

    def asked(self, method: str) -> list[Json]:
        """Return the messages of `method` that the server has received."""
        return [message for message in self.told if message.get("method") == method]

    def answered(self) -> list[Json]:
        """Return the answers to its own requests."""
        return [message for message in self.told if "method" not in message]

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await trio.lowlevel.checkpoint()
        for line in bytes(data).splitlines():
            message: Json = json.loads(line)
            self.told.append(message)
            reply = self.replies.get(message.get("method", ""))
            answer = reply(message) if reply is not None and "id" in message else None
            if answer is not None:
                told = json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}).encode()
                await self._stdout.send_all(told + b"\n")

    async def wait_send_all_might_not_block(self) -> None:
        await trio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


def raw_json(value: object) -> Any:
    """Return a value as a server connection keeps it."""
    return msgspec.Raw(json.dumps(value).encode())


class Editor:
    """A session's client, and the caller of its calls, with a journal."""

    def __init__(
        self, session: str = "s", capabilities: bytes = EVERYTHING, version: str = "2025-11-25"
    ) -> None:
        self.session = SessionKey(session)
        self.client = ClientFacts(version, INFO, capabilities)
        self.log_level = ""
        self.told: list[tuple[str, bytes]] = []
        self.asked: list[tuple[str, bytes]] = []
        self.steps: list[bytes] = []
        self.result: bytes | Exception = b'{"action":"accept"}'
        self.hold: trio.Event | None = None
        self.on_progress: OnProgress = lambda _: None
        self.withdrawn = 0

    async def dispatched(self) -> None:
        await trio.lowlevel.checkpoint()

    def progress(self, params: bytes) -> None:
        self.steps.append(params)

    async def ask(self, method: str, params: bytes, on_progress: OnProgress) -> bytes:
        self.asked.append((method, params))
        self.on_progress = on_progress
        try:
            if self.hold is not None:
                await self.hold.wait()
            await trio.lowlevel.checkpoint()
        except trio.Cancelled:
            self.withdrawn += 1
            raise
        if isinstance(self.result, Exception):
            raise self.result
        return self.result

    def tell(self, method: str, params: bytes) -> None:
        self.told.append((method, params))


@asynccontextmanager
async def serving(project: str = "") -> AsyncIterator[tuple[LineServer, trio.Nursery]]:
    """A server whose server connection runs, and a nursery for what is done to it."""
    server = LineServer(project)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.server_connection.run)
        nursery.start_soon(server.instance.follow)
        try:
            yield server, nursery
        finally:
            nursery.cancel_scope.cancel()
