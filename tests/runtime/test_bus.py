"""A bus opens and closes cleanly."""

from pathlib import Path

import msgspec
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from capd.core.errors import CapdError
from capd.runtime.bus import AskFailedError, Bus
from capd.runtime.zmq_socket import Context
from capd_protos.codec import MsgpackCodec
from capd_protos.types import ActorName, Address

WHO = ActorName("who")


class WhoAreYou(msgspec.Struct, frozen=True, tag="test.who"):
    pass


class Me(msgspec.Struct, frozen=True, tag="test.me"):
    pid: int


REQUESTS: MsgpackCodec[WhoAreYou] = MsgpackCodec(WhoAreYou)
REPLIES: MsgpackCodec[Me] = MsgpackCodec(Me)


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
