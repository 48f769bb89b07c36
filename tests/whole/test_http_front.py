"""The HTTP front is off by default, and serves the same sessions when it is on."""

import contextlib
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import TextContent

from whole_daemon import OWN_TOOLS, PATIENCE, Home

# The SDK's client leaves the stream that it cancels at its end to the garbage collector.
unclosed_streams = pytest.mark.filterwarnings(
    "ignore:Async generator 'http(x|core)2[.]:ResourceWarning"
)
pytestmark = unclosed_streams


def switched_on(home: Home, *lines: str) -> int:
    """Configure the front on a free port."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
    table = ["[listen_http]", "enabled = true", f"port = {port}", *lines]
    (home.folder / "config" / "config.toml").write_text("\n".join(table))
    return port


@asynccontextmanager
async def client_of(home: Home, port: int, mode: str) -> AsyncIterator[Client]:
    token = (home.folder / "state" / "http.token").read_text().strip()
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx2.AsyncClient(headers=headers, timeout=PATIENCE) as http:
        transport = streamable_http_client(f"http://127.0.0.1:{port}/mcp", http_client=http)
        async with Client(transport, mode=mode) as client:
            yield client


def tcp_listeners(pid: int) -> list[str]:
    """Return the local addresses on which a process listens."""
    sockets: set[str] = set()
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        # One may be closed while they are looked through.
        with contextlib.suppress(FileNotFoundError):
            match = re.fullmatch(r"socket:\[(\d+)\]", str(fd.readlink()))
            if match is not None:
                sockets.add(match[1])
    found = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            _, local, _, state, *rest = line.split()
            if state == "0A" and rest[5] in sockets:
                found.append(local)
    return found


def test_by_default_the_daemon_listens_on_no_tcp_port(home: Home) -> None:
    home.plain("talk")

    process = home.start()

    assert tcp_listeners(process.pid) == []
    assert not (home.folder / "state" / "http.token").exists()


def test_switched_on_it_listens_on_loopback_alone(home: Home) -> None:
    home.plain("talk")
    port = switched_on(home)

    process = home.start()

    assert tcp_listeners(process.pid) == [f"0100007F:{port:04X}"]
    assert (home.folder / "state" / "http.token").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_bare_names_show_a_server_as_it_is(home: Home, mode: str) -> None:
    home.plain("talk")
    port = switched_on(home, 'names = "bare"', 'capabilities = ["mine/talk"]')
    home.start()

    async with client_of(home, port, mode) as client:
        listed = await client.list_tools()
        result = await client.call_tool("echo", {"text": "over HTTP"})

    assert [tool.name for tool in listed.tools] == ["echo", "shout"]
    assert isinstance(result.content[0], TextContent)
    assert result.content[0].text.endswith("over HTTP")


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_prefixed_names_come_with_the_tool_that_switches_more_on(
    home: Home, mode: str
) -> None:
    home.plain("talk")
    home.env["CAPD_SURFACE"] = "dynamic"
    port = switched_on(home)
    home.start()

    async with client_of(home, port, mode) as client:
        await client.call_tool("capability", {"action": "enable", "name": "talk"})
        listed = await client.list_tools(cache_mode="bypass")

    assert [tool.name for tool in listed.tools] == [*OWN_TOOLS, "talk__echo", "talk__shout"]


async def test_a_stateless_client_finds_its_session_after_a_restart_of_the_daemon(
    home: Home,
) -> None:
    home.plain("talk")
    home.env["CAPD_SURFACE"] = "dynamic"
    port = switched_on(home)
    process = home.start()
    async with client_of(home, port, "2026-07-28") as client:
        await client.call_tool("capability", {"action": "enable", "name": "talk"})
    process.terminate()
    process.wait()
    home.start()

    async with client_of(home, port, "2026-07-28") as client:
        listed = await client.list_tools()

    assert [tool.name for tool in listed.tools] == [*OWN_TOOLS, "talk__echo", "talk__shout"]


def test_a_port_that_is_taken_costs_the_front_alone(home: Home) -> None:
    home.plain("talk")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = switched_on(home)
        config = home.folder / "config" / "config.toml"
        config.write_text(config.read_text().replace(str(port), str(taken.getsockname()[1])))

        home.start()

        (problem,) = home.ask("status")["daemon"]["degraded"]
        assert problem.startswith("[listen_http] is not served on port ")
