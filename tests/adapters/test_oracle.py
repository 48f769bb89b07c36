"""Everything that capd writes is valid by the SDK's models of the spoken version."""

import json
from typing import Any

import mcp_types as types
import msgspec
import pytest
import trio
from mcp_types import methods
from trio.testing import MockClock, wait_all_tasks_blocked

from capd.adapters.clients.conversation import Request
from capd.adapters.servers.listings import KINDS, list_tools
from capd.adapters.servers.negotiation import negotiate
from capd.core.protocol.generations import HANDSHAKE_VERSIONS, STATELESS_VERSIONS
from capd.core.protocol.outcomes import NotSentError
from capd_protos.types import ClientFacts
from client_stage import Stage, staged
from line_server import EVERYTHING, INFO, Editor, Json, LineServer, serving

STATELESS = STATELESS_VERSIONS[0]
META: Json = {
    "io.modelcontextprotocol/protocolVersion": STATELESS,
    "io.modelcontextprotocol/clientInfo": {"name": "zed", "version": "2"},
    "io.modelcontextprotocol/clientCapabilities": {"roots": {}},
}
ENTRIES = {
    "tools": b'{"name":"t","inputSchema":{"type":"object"}}',
    "prompts": b'{"name":"p"}',
    "resources": b'{"name":"r","uri":"n:1"}',
    "resources/templates": b'{"name":"r","uriTemplate":"n:{x}"}',
}


# What clients are told


class Told:
    """The answers to a client's requests, each line checked."""

    def __init__(self, stage: Stage, version: str) -> None:
        self.kinds: list[str] = []
        """What was checked, in order."""
        self._stage = stage
        self._version = version
        self._methods: dict[int, str] = {}

    async def ask(self, method: str, **params: Any) -> list[Json]:
        number = len(self._methods) + 1
        self._methods[number] = method
        if self._version in STATELESS_VERSIONS:
            params["_meta"] = META
        message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        await self._stage.send(message)
        return await self.check()

    async def check(self) -> list[Json]:
        """Check the received lines, and return them."""
        lines: list[Json] = [json.loads(line) for line in await self._stage.heard()]
        for line in lines:
            if "capd" not in line:
                self.kinds.append(self._checked(line))
        return lines

    def _checked(self, line: Json) -> str:
        if "error" in line:
            types.JSONRPCError.model_validate(line)
            return f"error {self._methods[line['id']]}"
        if "result" in line:
            answered = self._methods[line["id"]]
            methods.validate_server_result(answered, self._version, line["result"])
            return f"result {answered}"
        method: str = line["method"]
        if "id" in line:
            methods.parse_server_request(method, self._version, line["params"])
            return f"request {method}"
        methods.parse_server_notification(method, self._version, line.get("params"))
        return method


async def ask_roots(call: Request) -> bytes:
    return await call.caller.ask("roots/list", b"{}", lambda _: None)


async def lists_and_failures(stage: Stage, told: Told) -> None:
    async def listed(kind: str) -> list[bytes]:
        return [ENTRIES[kind]]

    stage.talk.list_entries = listed  # type: ignore[method-assign]  # the fake's own way to be told
    for kind in KINDS:
        await told.ask(f"{kind}/list")
    await told.ask("tools/list", cursor="x")
    stage.talk.error = NotSentError("no server")
    await told.ask("tools/call", name="t")
    await told.ask("prompts/get", name="p")
    stage.talk.error = None
    await told.ask("tools/call", name="t")
    await told.ask("no/such")


LISTS_AND_FAILURES = [
    *(f"result {kind}/list" for kind in KINDS),
    "error tools/list",
    "result tools/call",
    "error prompts/get",
    "result tools/call",
    "error no/such",
]


@pytest.mark.parametrize("version", HANDSHAKE_VERSIONS)
async def test_what_a_client_of_the_handshake_generation_is_told_is_valid(
    autojump_clock: MockClock, version: str
) -> None:
    async with staged() as stage:
        told = Told(stage, version)
        client = {"clientInfo": {"name": "zed", "version": "2"}, "capabilities": {"roots": {}}}
        await told.ask("initialize", protocolVersion=version, **client)
        await stage.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        await told.ask("ping")
        await told.ask("logging/setLevel", level="info")
        await told.ask("resources/subscribe", uri="n:1")
        for what in ("tools", "prompts", "resources"):
            stage.upstream.list_changed(what)
        stage.upstream.resource_updated("n:1", b'{"uri":"n:1"}')
        await told.check()
        await told.ask("resources/unsubscribe", uri="n:1")
        await lists_and_failures(stage, told)
        stage.talk.run = ask_roots
        number = len(told._methods) + 1
        await told.ask("tools/call", name="t")
        cancel = {"method": "notifications/cancelled", "params": {"requestId": number}}
        await stage.send({"jsonrpc": "2.0", **cancel})
        await told.check()

    assert told.kinds == [
        "result initialize",
        "result ping",
        "result logging/setLevel",
        "result resources/subscribe",
        "notifications/tools/list_changed",
        "notifications/prompts/list_changed",
        "notifications/resources/list_changed",
        "notifications/resources/updated",
        "result resources/unsubscribe",
        *LISTS_AND_FAILURES,
        "request roots/list",
        "notifications/cancelled",
    ]


async def test_what_a_client_of_the_stateless_generation_is_told_is_valid(
    autojump_clock: MockClock,
) -> None:
    async with staged() as stage:
        told = Told(stage, STATELESS)
        await told.ask("server/discover")
        await lists_and_failures(stage, told)
        wanted = {f"{what}ListChanged": True for what in ("tools", "prompts", "resources")}
        await told.ask(
            "subscriptions/listen", notifications={**wanted, "resourceSubscriptions": ["n:1"]}
        )
        for what in ("tools", "prompts", "resources"):
            stage.upstream.list_changed(what)
        stage.upstream.resource_updated("n:1", b'{"uri":"n:1"}')
        await told.check()
        stage.talk.run = ask_roots
        asking = [
            (await told.ask("tools/call", name="t"))[-1],
            (await told.ask("prompts/get", name="p"))[-1],
            (await told.ask("resources/read", uri="n:1"))[-1],
        ]
        stage.upstream.close("stopping", reconnect=True)
        await told.check()

    assert {each["result"]["resultType"] for each in asking} == {"input_required"}
    assert told.kinds == [
        "result server/discover",
        *LISTS_AND_FAILURES,
        "notifications/subscriptions/acknowledged",
        "notifications/tools/list_changed",
        "notifications/prompts/list_changed",
        "notifications/resources/list_changed",
        "notifications/resources/updated",
        "result tools/call",
        "result prompts/get",
        "result resources/read",
        "result subscriptions/listen",
    ]


# What servers are told


def checked(server: LineServer, version: str) -> list[str]:
    """Check the messages that a server got; return their methods."""
    kinds = []
    for line in server.told:
        method = line.get("method", "")
        if "error" in line:
            types.JSONRPCError.model_validate(line)
        elif "result" in line:
            methods.validate_client_result("roots/list", version, line["result"])
        elif "id" in line:
            methods.validate_client_request(method, version, line["params"])
        else:
            methods.validate_client_notification(method, version, line.get("params"))
        kinds.append(method or next(iter(line.keys() - {"jsonrpc", "id"})))
    return kinds


async def used(server: LineServer) -> None:
    """Send a server everything that capd sends by itself."""
    await list_tools(server.server_connection)
    server.offer(
        stateless=server.server_connection.is_stateless,
        prompts={},
        resources={"subscribe": True, "listChanged": True},
        logging={},
    )
    for kind in KINDS[1:]:
        await server.instance.listings.entries(kind)
    editor = Editor("s", b"{}")
    editor.log_level = "info"
    server.instance.join(editor)
    await server.instance.subscriptions.subscribe("n:1", editor)
    server.instance.leave(editor.session)
    await wait_all_tasks_blocked()
    with trio.move_on_after(1):
        call = {"name": msgspec.Raw(b'"t"'), "_meta": msgspec.Raw(b'{"progressToken":"p"}')}
        await server.server_connection.relay("tools/call", call, editor)
    if not server.server_connection.is_stateless:
        server.server_connection.tell("notifications/roots/list_changed")
    await wait_all_tasks_blocked()


def answering(server: LineServer) -> None:
    """Play a server that answers everything except calls."""
    for kind, member in zip(
        KINDS, ("tools", "prompts", "resources", "resourceTemplates"), strict=True
    ):
        server.answer(f"{kind}/list", {member: []})
    for method in ("logging/setLevel", "resources/subscribe", "resources/unsubscribe"):
        server.answer(method, {})


HANDSHAKE_TOLD = [
    "initialize",
    "notifications/initialized",
    "result",
    "error",
    "tools/list",
    "prompts/list",
    "resources/list",
    "resources/templates/list",
    "resources/subscribe",
    "logging/setLevel",
    "resources/unsubscribe",
    "tools/call",
    "notifications/cancelled",
    "notifications/roots/list_changed",
]


@pytest.mark.parametrize("version", HANDSHAKE_VERSIONS)
async def test_what_a_server_of_the_handshake_generation_is_told_is_valid(
    autojump_clock: MockClock, version: str
) -> None:
    async with serving("/src") as (server, _):
        answering(server)
        info = {"name": "s", "version": "1"}
        initialized = {"protocolVersion": version, "capabilities": {}, "serverInfo": info}
        server.answer("initialize", initialized)
        client = ClientFacts("2025-11-25", INFO, EVERYTHING)

        await negotiate(server.server_connection, client, wants_stateless=False, timeout=10)
        await server.say(
            {"id": 1, "method": "roots/list"}, {"id": 2, "method": "sampling/createMessage"}
        )
        await used(server)

    assert sorted(checked(server, version)) == sorted(HANDSHAKE_TOLD)


async def test_what_a_server_of_the_stateless_generation_is_told_is_valid(
    autojump_clock: MockClock,
) -> None:
    async with serving() as (server, _):
        answering(server)
        discovered = {"supportedVersions": [STATELESS], "capabilities": {}}
        server.answer("server/discover", discovered)
        client = ClientFacts(STATELESS, INFO, EVERYTHING)

        await negotiate(server.server_connection, client, wants_stateless=True, timeout=10)
        await used(server)

    assert set(checked(server, STATELESS)) == {
        "server/discover",
        "tools/list",
        "prompts/list",
        "resources/list",
        "resources/templates/list",
        "subscriptions/listen",
        "tools/call",
        "notifications/cancelled",
    }
