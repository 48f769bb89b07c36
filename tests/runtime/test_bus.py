"""A bus comes and goes cleanly, and finds other processes again that were killed."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from capd.core.errors import CapdError
from capd.runtime.bus import Bus
from capd.runtime.peer import AskFailedError, AskLostError
from capd.runtime.zmq_socket import Context
from capd_protos.codec import MsgpackCodec
from capd_protos.types import ActorName, Address

WHO = ActorName("who")

SERVER = """
import os, sys
import msgspec, trio
from capd.runtime.bus import Bus
from capd_protos.codec import MsgpackCodec


class WhoAreYou(msgspec.Struct, tag="test.who"):
    pass


class Me(msgspec.Struct, tag="test.me"):
    pid: int


async def main():
    async with Bus({"who": sys.argv[1]}, "who") as bus:
        async with bus.mailbox("who", MsgpackCodec(WhoAreYou)) as mailbox:
            async for letter in mailbox:
                async with letter:
                    await letter.reply(Me(os.getpid()))


trio.run(main)
"""


class WhoAreYou(msgspec.Struct, frozen=True, tag="test.who"):
    pass


class Me(msgspec.Struct, frozen=True, tag="test.me"):
    pid: int


REQUESTS: MsgpackCodec[WhoAreYou] = MsgpackCodec(WhoAreYou)
REPLIES: MsgpackCodec[Me] = MsgpackCodec(Me)


async def test_a_process_that_was_killed_is_asked_again_once_it_is_back(tmp_path: Path) -> None:
    address = Address(f"ipc://{tmp_path}/who")
    command = [sys.executable, "-c", SERVER, address]
    async with Bus({WHO: address}, ActorName("asker")) as bus:
        with subprocess.Popen(command) as first:
            before = await bus.ask(WHO, WhoAreYou(), REPLIES, 60)
            first.kill()
        with subprocess.Popen(command) as second:
            after = await asked_until_answered(bus)
            second.kill()

    assert (before, after) == (Me(first.pid), Me(second.pid))


async def asked_until_answered(bus: Bus) -> Me:
    while True:
        try:
            return await bus.ask(WHO, WhoAreYou(), REPLIES, 60)
        except AskLostError:
            # It went out to the dead process, before its end was known here.
            continue


async def test_an_error_in_the_block_of_a_bus_comes_out_as_it_is() -> None:
    with pytest.raises(ZeroDivisionError):
        async with Bus({}, ActorName("tester")):
            raise ZeroDivisionError


async def test_a_bus_that_cannot_bind_its_events_leaves_nothing_open(tmp_path: Path) -> None:
    missing = Address(f"ipc://{tmp_path}/no/such/place")

    with pytest.raises(CapdError, match="no/such/place"):
        async with Bus({}, ActorName("tester"), events=missing, bind_events=True):
            pass


async def test_a_mailbox_that_cannot_be_bound_leaves_the_bus_usable(tmp_path: Path) -> None:
    missing = Address(f"ipc://{tmp_path}/no/such/place")
    async with Bus({WHO: missing}, ActorName("tester")) as bus:
        with pytest.raises(CapdError, match="no/such/place"):
            async with bus.mailbox(WHO, REQUESTS):
                pass


async def test_what_waits_for_an_actor_is_answered_when_its_bus_ends(context: Context) -> None:
    addresses = {WHO: Address("inproc://who")}
    async with (
        Bus(addresses, ActorName("asker"), context=context) as asker,
        trio.open_nursery() as nursery,
        Bus(addresses, ActorName("other"), context=context) as other,
    ):
        async with other.mailbox(WHO, REQUESTS):
            pass
        nursery.start_soon(ask_a_stopping_actor, asker)
        await wait_all_tasks_blocked()


async def ask_a_stopping_actor(bus: Bus) -> None:
    with pytest.raises(AskFailedError, match="stopping"):
        await bus.ask(WHO, WhoAreYou(), REPLIES, 60)
