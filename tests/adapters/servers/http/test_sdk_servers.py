"""SDK servers over each HTTP transport: lines in, the matching lines out."""

from pathlib import Path

import pytest
import structlog
import trio

from capd.adapters.servers.http.remote_server import connected
from capd.adapters.servers.http.remote_spec import RemoteSpec
from capd.adapters.servers.instance import Instance
from capd.adapters.servers.server_run import ServerRun, StartFailedError
from capd_protos.types import ClientFacts, ServerName

from .conftest import Start
from .rig import LEGACY, MODERN, Json, closed_port, logins_in, modern, talking

LEGACY_SITES = [("streamable", "/mcp"), ("json", "/mcp"), ("sse", "/sse")]
STREAMING_SITES = [("streamable", "/mcp"), ("sse", "/sse")]


def text_of(reply: Json) -> str:
    text: str = reply["result"]["content"][0]["text"]
    return text


@pytest.mark.parametrize(("mode", "path"), LEGACY_SITES)
async def test_a_handshake_and_a_call_go_through_every_transport(
    mode: str, path: str, sdk_site: Start, tmp_path: Path
) -> None:
    async with talking(RemoteSpec("plain", sdk_site(mode) + path), logins_in(tmp_path)) as talk:
        hello = await talk.shake_hands()

        reply = await talk.call("echo", text="grüße 🙂")

        assert hello["result"]["protocolVersion"] == LEGACY
        assert reply == {
            "jsonrpc": "2.0",
            "id": 2,
            "result": {
                "content": [{"type": "text", "text": "grüße 🙂"}],
                "structuredContent": {"result": "grüße 🙂"},
                "isError": False,
            },
        }


@pytest.mark.parametrize(("mode", "path"), STREAMING_SITES)
async def test_progress_arrives_before_the_result(
    mode: str, path: str, sdk_site: Start, tmp_path: Path
) -> None:
    async with talking(RemoteSpec("plain", sdk_site(mode) + path), logins_in(tmp_path)) as talk:
        await talk.shake_hands()
        params = {"name": "work", "arguments": {"steps": 2}, "_meta": {"progressToken": 7}}

        reply = await talk.ask("tools/call", params)

        said = [m["params"] for m in talk.heard if m.get("method") == "notifications/progress"]
        assert said == [
            {"progressToken": 7, "progress": 1, "total": 2, "message": "step 1"},
            {"progressToken": 7, "progress": 2, "total": 2, "message": "step 2"},
        ]
        assert text_of(reply) == "worked"


@pytest.mark.parametrize(("mode", "path"), STREAMING_SITES)
async def test_a_servers_own_request_is_answered_on_its_session(
    mode: str, path: str, sdk_site: Start, tmp_path: Path
) -> None:
    async with talking(RemoteSpec("plain", sdk_site(mode) + path), logins_in(tmp_path)) as talk:
        await talk.shake_hands(sampling={})
        call = await talk.request("tools/call", {"name": "ask_model", "arguments": {}})
        asked = await talk.until(lambda m: m.get("method") == "sampling/createMessage")
        answer = {"role": "assistant", "model": "m", "content": {"type": "text", "text": "hi"}}

        await talk.send({"jsonrpc": "2.0", "id": asked["id"], "result": answer})

        assert text_of(await talk.reply(call)) == "hi"


@pytest.mark.parametrize(("mode", "path"), STREAMING_SITES)
async def test_a_cancelled_call_is_cancelled_at_a_handshake_generation_server(
    mode: str, path: str, sdk_site: Start, tmp_path: Path
) -> None:
    async with talking(RemoteSpec("plain", sdk_site(mode) + path), logins_in(tmp_path)) as talk:
        await talk.shake_hands()
        params = {"name": "hang", "arguments": {}, "_meta": {"progressToken": 1}}
        call = await talk.request("tools/call", params)
        await talk.until(lambda m: m.get("method") == "notifications/progress")

        await talk.send(cancelled(call))

        ends = await talk.call("ends")
        assert ends["result"]["structuredContent"]["result"][-1] == "cancelled"


@pytest.mark.parametrize(("mode", "path"), STREAMING_SITES)
async def test_a_changed_tool_list_is_told(
    mode: str, path: str, sdk_site: Start, tmp_path: Path
) -> None:
    async with talking(RemoteSpec("plain", sdk_site(mode) + path), logins_in(tmp_path)) as talk:
        await talk.shake_hands()
        await talk.request("tools/call", {"name": "grow", "arguments": {}})

        changed = await talk.until(lambda m: m.get("method") == "notifications/tools/list_changed")

        assert changed == {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}


async def test_a_stateless_generation_server_is_discovered_and_called(
    sdk_site: Start, tmp_path: Path
) -> None:
    spec = RemoteSpec("plain", sdk_site("streamable") + "/mcp")
    async with talking(spec, logins_in(tmp_path)) as talk:
        found = await talk.modern("server/discover")

        reply = await talk.modern("tools/call", name="echo", arguments={"text": "hi"})

        assert MODERN in found["result"]["supportedVersions"]
        assert text_of(reply) == "hi"


async def test_a_result_that_wants_input_is_passed_on_and_resumed(
    sdk_site: Start, tmp_path: Path
) -> None:
    spec = RemoteSpec("plain", sdk_site("streamable") + "/mcp")
    async with talking(spec, logins_in(tmp_path)) as talk:
        wanting = (await talk.modern("tools/call", name="ask_person", arguments={}))["result"]
        answers = {"who": {"action": "decline"}}

        reply = await talk.modern(
            "tools/call",
            name="ask_person",
            arguments={},
            inputResponses=answers,
            requestState=wanting["requestState"],
        )

        assert wanting["resultType"] == "input_required"
        assert text_of(reply) == "decline half-way"


async def test_a_cancelled_stateless_call_ends_with_its_stream(
    sdk_site: Start, tmp_path: Path
) -> None:
    spec = RemoteSpec("plain", sdk_site("streamable") + "/mcp")
    async with talking(spec, logins_in(tmp_path)) as talk:
        meta = {"progressToken": 1}
        call = await talk.request("tools/call", modern(name="hang", arguments={}, _meta=meta))
        await talk.until(lambda m: m.get("method") == "notifications/progress")

        await talk.send(cancelled(call))

        ends = await talk.modern("tools/call", name="ends", arguments={})
        assert ends["result"]["structuredContent"]["result"][-1] == "cancelled"


async def test_an_unknown_method_of_the_stateless_generation_is_the_servers_own_error(
    sdk_site: Start, tmp_path: Path
) -> None:
    spec = RemoteSpec("plain", sdk_site("streamable") + "/mcp")
    async with talking(spec, logins_in(tmp_path)) as talk:
        reply = await talk.modern("nothing/like/it")

        assert reply["error"]["code"] == -32601


async def test_stopping_ends_the_connection_and_says_so(sdk_site: Start, tmp_path: Path) -> None:
    spec = RemoteSpec("plain", sdk_site("streamable") + "/mcp")
    async with talking(spec, logins_in(tmp_path)) as talk:
        await talk.shake_hands()

        await talk.server.stop()

        assert (str(await talk.server.wait()), talk.server.is_parked) == ("was stopped", False)


def cancelled(message_id: int) -> Json:
    params = {"requestId": message_id}
    return {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}


@pytest.mark.parametrize("wants_stateless", [False, True])
async def test_a_run_over_http_is_as_one_of_a_process(
    wants_stateless: bool, sdk_site: Start, tmp_path: Path
) -> None:
    run = ServerRun(
        ServerName("plain"), ClientFacts(), structlog.get_logger(), wants_stateless=wants_stateless
    )
    spec = RemoteSpec("plain", sdk_site("streamable") + "/mcp")
    ready: list[Instance] = []

    async with trio.open_nursery() as nursery:

        def on_ready(instance: Instance) -> None:
            ready.append(instance)
            nursery.cancel_scope.cancel()

        opened = connected(spec, logins_in(tmp_path))
        await run.serve(opened, on_ready=on_ready, on_tools=lambda: None)

    names = [tool.name for tool in run.tools]
    assert (ready[0].server_connection.is_stateless, names[:2]) == (
        wants_stateless,
        ["echo", "weigh"],
    )


async def test_a_server_that_is_down_says_so_when_it_is_started(tmp_path: Path) -> None:
    run = ServerRun(ServerName("plain"), ClientFacts(), structlog.get_logger())
    with closed_port() as port:
        spec = RemoteSpec("plain", f"http://127.0.0.1:{port}/mcp")
        opened = connected(spec, logins_in(tmp_path))
        with pytest.raises(StartFailedError) as failed:
            await run.serve(opened, on_ready=lambda _: None, on_tools=lambda: None)

    assert str(failed.value) == "plain: cannot be reached (Connection refused)"
