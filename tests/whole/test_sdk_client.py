"""The MCP SDK's client can read everything that capd writes."""

import sys

import trio
from mcp import Client, StdioServerParameters
from mcp_types import TextContent, ToolListChangedNotification

from whole_daemon import OWN_TOOLS, SHIM, Home


def shim_of(home: Home) -> StdioServerParameters:
    return StdioServerParameters(
        command=sys.executable,
        args=["-I", "-S", str(SHIM), home.socket],
        env={**home.env, "CAPD_SESSION": "sdk", "CAPD_CLIENT": "sdk"},
        cwd=str(home.folder),
    )


async def test_the_sdk_client_lists_calls_and_hears_of_changes(home: Home) -> None:
    home.plain("talk")
    home.start()
    changed = trio.Event()

    async def heard(message: object) -> None:
        if isinstance(message, ToolListChangedNotification):
            changed.set()

    async with Client(shim_of(home), message_handler=heard, mode="legacy") as client:
        before = await client.list_tools()
        enabled = await client.call_tool("capability", {"action": "enable", "name": "talk"})
        with trio.fail_after(30):
            await changed.wait()
        after = await client.list_tools(cache_mode="bypass")
        result = await client.call_tool("talk__echo", {"text": "from the SDK"})
        wrong = await client.call_tool("capability", {"action": "dance"})

    assert [tool.name for tool in before.tools] == OWN_TOOLS
    assert not enabled.is_error
    assert [tool.name for tool in after.tools] == [*OWN_TOOLS, "talk__echo", "talk__shout"]
    assert isinstance(result.content[0], TextContent)
    assert result.content[0].text.endswith("from the SDK")
    assert wrong.is_error


async def test_a_stateless_sdk_client_hears_of_changes_on_the_stream_that_it_opened(
    home: Home,
) -> None:
    home.plain("talk")
    home.env["CAPD_SURFACE"] = "dynamic"
    home.start()

    async with Client(shim_of(home), mode="2026-07-28") as client:
        with trio.fail_after(30):
            async with client.listen(tools_list_changed=True) as changes:
                await client.call_tool("capability", {"action": "enable", "name": "talk"})
                change = await anext(aiter(changes))
        after = await client.list_tools(cache_mode="bypass")
        result = await client.call_tool("talk__echo", {"text": "from the SDK"})

    assert type(change).__name__ == "ToolsListChanged"
    assert [tool.name for tool in after.tools] == [*OWN_TOOLS, "talk__echo", "talk__shout"]
    assert isinstance(result.content[0], TextContent)
    assert result.content[0].text.endswith("from the SDK")


async def test_the_list_of_a_stateless_client_is_fixed_and_what_is_on_is_called_all_the_same(
    home: Home,
) -> None:
    home.plain("talk")
    home.start()

    async with Client(shim_of(home), mode="2026-07-28") as client:
        before = await client.list_tools()
        enabled = await client.call_tool("capability", {"action": "enable", "name": "talk"})
        after = await client.list_tools(cache_mode="bypass")
        called = {"name": "talk__echo", "arguments": {"text": "through"}}
        results = [
            await client.call_tool("tool_call", called),
            await client.call_tool("talk__echo", {"text": "through"}),
        ]

    assert [tool.name for tool in before.tools] == OWN_TOOLS
    assert after.tools == before.tools
    assert isinstance(enabled.content[0], TextContent)
    assert enabled.content[0].text.endswith("call them with tool_call, name=...")
    assert results[0].content == results[1].content
