"""Missing programs are looked up in the background, and looked up again on request."""

import trio

from capd.actors.registry.programs import Programs
from capd.core.taps.catalog import Tap
from capd.core.taps.tap_format import CapabilityRead
from capd_protos.types import (
    CapabilityId,
    CapabilityName,
    CapabilitySpec,
    ServerName,
    ServerSpec,
    TapName,
)

T, X = TapName("t"), CapabilityName("x")
ID = CapabilityId(T, X)


def tap(command: str) -> Tap:
    server = ServerSpec(ServerName("s"), "stdio", T, command=command)
    read = CapabilityRead(X, CapabilitySpec(ID, "", servers=(server,)), "", ())
    return Tap(T, "/t", "0" * 12, (read,), {})


async def test_what_is_not_installed_is_found_without_anybody_waiting() -> None:
    programs = Programs(lambda: [tap("npx")], lambda command: command != "npx")
    assert programs.missing == {}

    async with trio.open_nursery() as nursery:
        nursery.start_soon(programs.follow)
        with trio.fail_after(60):
            while not programs.missing:
                await trio.sleep(0.01)
        nursery.cancel_scope.cancel()

    assert programs.missing == {ID: ("npx",)}


async def test_without_a_way_to_look_every_program_counts_as_installed() -> None:
    programs = Programs(lambda: [tap("npx")], None)

    await programs.follow()

    assert programs.missing == {}
