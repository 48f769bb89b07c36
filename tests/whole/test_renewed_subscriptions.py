"""Subscriptions survive a restart of their server and of the daemon."""

import os
import signal
import sys
from collections.abc import Callable

import mcp_types as types
import pytest
import trio

from whole_daemon import Home, wait_for

from .test_matrix import GENERATION_SERVER, Talk, talking

URI = "note://mine"

# The SDK warns of what the newer revision drops, and that is what the older one is tested for.
pytestmark = [
    pytest.mark.reliability,
    pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning"),
]


def kill_the_server(home: Home) -> None:
    (server,) = home.servers()
    assert server["pid"] > 0
    os.kill(server["pid"], signal.SIGKILL)
    # A call that meets its death would have an unknown outcome.
    gone = {0, server["pid"]}
    wait_for(lambda: any(each["pid"] not in gone for each in home.servers()))


def wait_until_saved(home: Home, text: str) -> None:
    """Wait until the record of a session has `text`: a killed daemon saves nothing more."""
    records = home.folder / "state" / "sessions"
    wait_for(lambda: any(text.encode() in each.read_bytes() for each in records.glob("*.session")))


def replace_the_daemon(home: Home) -> None:
    wait_until_saved(home, "notes")
    home.processes[-1].kill()
    home.processes[-1].wait()
    home.start()


LOSSES: list[Callable[[Home], None]] = [kill_the_server, replace_the_daemon]


def with_server(home: Home, generation: str) -> str:
    """Start a daemon whose capability is a server of a generation; return its name."""
    argv = [sys.executable, "-W", "ignore", str(GENERATION_SERVER), "stdio", generation, home.tag]
    home.capability("notes", argv)
    home.start()
    return "notes"


@pytest.mark.parametrize("lose", LOSSES)
@pytest.mark.parametrize("generation", ["handshake", "stateless"])
async def test_a_handshake_client_hears_of_its_resource_after_a_loss(
    home: Home, generation: str, lose: Callable[[Home], None]
) -> None:
    async with talking(home, "handshake", with_server(home, generation)) as talk:
        await talk.client.subscribe_resource(URI)
        await trio.to_thread.run_sync(wait_until_saved, home, URI)
        await trio.to_thread.run_sync(lose, home)
        await talk.until_heard(types.ResourceUpdatedNotification)
        talk.heard.clear()

        await talk.call("touch", URI)
        await talk.until_heard(types.ResourceUpdatedNotification)

    assert uris(talk) == [URI]


async def keep_touching(talk: Talk) -> None:
    # Nothing tells such a client when its stream is open again.
    while True:
        await talk.call("touch", URI)


def uris(talk: Talk) -> list[str]:
    return [
        str(each.params.uri)
        for each in talk.heard
        if isinstance(each, types.ResourceUpdatedNotification)
    ]


@pytest.mark.parametrize("generation", ["handshake", "stateless"])
@pytest.mark.parametrize("lose", LOSSES)
async def test_a_stateless_clients_stream_goes_on_after_a_loss(
    home: Home, generation: str, lose: Callable[[Home], None]
) -> None:
    async with (
        talking(home, "stateless", with_server(home, generation)) as talk,
        talk.client.listen(resource_subscriptions=[URI]) as changes,
    ):
        await trio.to_thread.run_sync(lose, home)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(keep_touching, talk)

            change = await anext(aiter(changes))

            nursery.cancel_scope.cancel()

    assert str(getattr(change, "uri", change)) == URI
