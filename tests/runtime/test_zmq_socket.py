"""No wake-up and no message is lost, whichever tasks share the socket or are cancelled."""

import select
from collections.abc import Awaitable, Callable

import pytest
import trio
import zmq
from trio.testing import MockClock, wait_all_tasks_blocked

from capd.runtime.zmq_socket import Context, NoSuchPeerError, SocketFullError, TrioSocket
from capd_protos.types import Address

HERE = Address("inproc://here")
PLENTY = 1_000_000


Open = Callable[..., TrioSocket]
Frames = list[bytes]


class BlogSocket:
    """The recipe as blogs have it: try, and sleep on the FD when there is nothing."""

    def __init__(self, context: Context) -> None:
        self.socket = context.socket(zmq.DEALER)
        self.socket.set(zmq.SNDHWM, PLENTY)

    def bind(self, address: Address) -> None:
        self.socket.bind(address)

    async def recv(self) -> Frames:
        while True:
            try:
                return self.socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                await trio.lowlevel.wait_readable(self.socket.fileno())

    def send_nowait(self, frames: Frames) -> None:
        self.socket.send_multipart(frames, zmq.NOBLOCK)


async def recv_into(got: list[Frames], socket: TrioSocket | BlogSocket) -> None:
    got.append(await socket.recv())


async def receive_once_while_another_task_sends(
    socket: TrioSocket | BlogSocket, fd: int, peer: TrioSocket
) -> list[Frames]:
    """Return what a sleeping receiver got, when sends consumed the edge of its message."""
    got: list[Frames] = []
    socket.bind(HERE)
    peer.connect(HERE)
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(recv_into, got, socket)
        await wait_all_tasks_blocked()
        peer.send_nowait([b"for the receiver"])
        # A send looks at the FD at most once a millisecond of CPU clock: until it has.
        while poll.poll(0):
            socket.send_nowait([b"from the sender"])
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    return got


async def test_the_recipe_from_blogs_sleeps_through_a_message_whose_edge_a_send_consumed(
    context: Context, open_socket: Open
) -> None:
    blog = BlogSocket(context)
    peer = open_socket(zmq.DEALER, high_water=PLENTY)

    got = await receive_once_while_another_task_sends(blog, blog.socket.fileno(), peer)

    missed = blog.socket.recv_multipart(zmq.NOBLOCK)
    blog.socket.close()
    assert (got, missed) == ([], [b"for the receiver"])


async def test_a_receiver_wakes_for_a_message_whose_edge_a_send_consumed(open_socket: Open) -> None:
    ours = open_socket(zmq.DEALER, high_water=PLENTY)
    peer = open_socket(zmq.DEALER, high_water=PLENTY)

    got = await receive_once_while_another_task_sends(ours, ours._fd, peer)

    assert got == [[b"for the receiver"]]


def pair(open_socket: Open, high_water: int = 1000) -> tuple[TrioSocket, TrioSocket]:
    ours = open_socket(zmq.DEALER, high_water=high_water)
    peer = open_socket(zmq.DEALER, high_water=high_water)
    ours.bind(HERE)
    peer.connect(HERE)
    return ours, peer


async def test_a_receiver_wakes_for_a_message_whose_edge_another_receive_consumed(
    open_socket: Open,
) -> None:
    ours, peer = pair(open_socket)
    sleeper: list[Frames] = []

    async with trio.open_nursery() as nursery:
        nursery.start_soon(recv_into, sleeper, ours)
        await wait_all_tasks_blocked()
        peer.send_nowait([b"first"])
        peer.send_nowait([b"second"])
        first = await ours.recv()
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()

    assert (first, sleeper) == ([b"first"], [[b"second"]])


async def test_a_message_that_came_before_the_wait_is_received_without_one(
    open_socket: Open,
) -> None:
    ours, peer = pair(open_socket)
    peer.send_nowait([b"a", b"b"])

    got = await ours.recv()

    assert got == [b"a", b"b"]


async def test_many_messages_behind_one_edge_are_all_received(open_socket: Open) -> None:
    ours, peer = pair(open_socket)
    got: list[Frames] = []

    async with trio.open_nursery() as nursery:
        for _ in range(10):
            nursery.start_soon(recv_into, got, ours)
        await wait_all_tasks_blocked()
        for number in range(10):
            peer.send_nowait([b"%d" % number])

    assert sorted(got) == [[b"%d" % number] for number in range(10)]


async def test_when_the_leader_is_cancelled_another_task_waits_in_its_place(
    open_socket: Open,
) -> None:
    ours, peer = pair(open_socket)
    got: list[Frames] = []
    nothing: list[Frames] = []

    async with trio.open_nursery() as nursery:
        leader = trio.CancelScope()

        async def lead() -> None:
            with leader:
                await recv_into(nothing, ours)

        nursery.start_soon(lead)
        await wait_all_tasks_blocked()
        nursery.start_soon(recv_into, got, ours)
        await wait_all_tasks_blocked()
        leader.cancel()
        await wait_all_tasks_blocked()
        peer.send_nowait([b"x"])
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()

    assert (got, nothing) == ([[b"x"]], [])


async def test_when_the_leader_and_its_heir_are_cancelled_together_the_next_one_waits(
    open_socket: Open,
) -> None:
    ours, peer = pair(open_socket)
    got: list[Frames] = []

    # trio runs the two in random order, and only one of the orders is hard.
    for _ in range(30):
        async with trio.open_nursery() as nursery:
            scopes = [trio.CancelScope(), trio.CancelScope()]

            async def receive_in(scope: trio.CancelScope) -> None:
                with scope:
                    await ours.recv()

            for scope in scopes:
                nursery.start_soon(receive_in, scope)
                await wait_all_tasks_blocked()
            nursery.start_soon(recv_into, got, ours)
            await wait_all_tasks_blocked()
            for scope in reversed(scopes):
                scope.cancel()
            await wait_all_tasks_blocked()
            peer.send_nowait([b"x"])
            await wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()

    assert got == [[b"x"]] * 30


async def test_a_cancelled_receive_loses_no_message(
    open_socket: Open, autojump_clock: MockClock
) -> None:
    ours, peer = pair(open_socket)
    sent = [[b"%d" % number] for number in range(300)]
    got: list[Frames] = []

    for number, frames in enumerate(sent):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(recv_into, got, ours)
            await wait_all_tasks_blocked()
            peer.send_nowait(frames)
            # Cancelled before it wakes, as it takes the message, or after: all are tried.
            for _ in range(number % 5):
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()
        if frames not in got:
            with trio.move_on_after(1):
                await recv_into(got, ours)

    assert got == sent


async def test_a_cancelled_send_has_sent_nothing(open_socket: Open) -> None:
    ours, peer = pair(open_socket)
    sent: list[Frames] = []
    got: list[Frames] = []

    async def send(frames: Frames) -> None:
        await ours.send(frames)
        sent.append(frames)

    for number in range(200):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(send, [b"%d" % number])
            for _ in range(number % 4):
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()
    for _ in sent:
        await recv_into(got, peer)
    ours.send_nowait([b"end"])
    await recv_into(got, peer)

    assert got == [*sent, [b"end"]]


def fill(socket: TrioSocket, frames: Frames) -> int:
    """Send until the queue is full; return how many messages were sent."""
    sent = 0
    while sent < 100:
        try:
            socket.send_nowait(frames)
        except SocketFullError:
            break
        sent += 1
    return sent


async def test_a_full_socket_refuses_to_send_now(open_socket: Open) -> None:
    ours, _peer = pair(open_socket, high_water=2)

    sent = fill(ours, [b"x"])

    assert sent == 4  # two here, two there


async def test_a_sender_waits_for_room_beside_a_task_that_receives(open_socket: Open) -> None:
    ours, peer = pair(open_socket, high_water=2)
    received: list[Frames] = []
    answer: list[Frames] = []
    sent = fill(ours, [b"x"])

    async with trio.open_nursery() as nursery:
        nursery.start_soon(recv_into, answer, ours)
        await wait_all_tasks_blocked()
        nursery.start_soon(ours.send, [b"last"])
        await wait_all_tasks_blocked()
        for _ in range(sent + 1):
            await recv_into(received, peer)
        peer.send_nowait([b"answer"])

    assert (received, answer) == ([[b"x"]] * sent + [[b"last"]], [[b"answer"]])


async def test_a_sender_wakes_for_room_whose_edge_an_empty_receive_consumed(
    open_socket: Open,
) -> None:
    ours, peer = pair(open_socket, high_water=2)
    sent = fill(ours, [b"x"])

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ours.send, [b"last"])
        await wait_all_tasks_blocked()
        # No await from here to the receive: nobody else may see the edge.
        received = [peer._socket.recv_multipart(zmq.NOBLOCK) for _ in range(sent)]
        with trio.CancelScope() as scope:
            nursery.start_soon(cancel_when_all_sleep, scope)
            await ours.recv()
        nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(cancel_when_all_sleep, nursery.cancel_scope)
        await recv_into(received, peer)
    assert received == [[b"x"]] * sent + [[b"last"]]


async def cancel_when_all_sleep(scope: trio.CancelScope) -> None:
    await wait_all_tasks_blocked()
    scope.cancel()


async def router_and_dealer(open_socket: Open) -> tuple[TrioSocket, TrioSocket, bytes]:
    router = open_socket(zmq.ROUTER, high_water=2)
    dealer = open_socket(zmq.DEALER, high_water=2)
    router.bind(HERE)
    dealer.connect(HERE)
    await dealer.send([b"hello"])
    identity, _ = await router.recv()
    return router, dealer, identity


async def test_a_router_says_that_it_does_not_know_a_peer(open_socket: Open) -> None:
    router = open_socket(zmq.ROUTER)
    router.bind(HERE)

    with pytest.raises(NoSuchPeerError):
        await router.send([b"nobody", b"x"])


async def test_a_router_says_that_a_peer_is_full(open_socket: Open) -> None:
    router, _dealer, identity = await router_and_dealer(open_socket)

    sent = fill(router, [identity, b"x"])

    assert sent == 4


async def test_a_router_waits_for_the_room_of_the_peer_that_it_sends_to(
    open_socket: Open, autojump_clock: MockClock
) -> None:
    router, dealer, identity = await router_and_dealer(open_socket)
    idle = open_socket(zmq.DEALER)
    idle.connect(HERE)
    got: list[Frames] = []
    sent = fill(router, [identity, b"x"])

    async with trio.open_nursery() as nursery:
        nursery.start_soon(router.send, [identity, b"last"])
        await trio.sleep(1)
        for _ in range(sent + 1):
            await recv_into(got, dealer)

    assert got == [[b"x"]] * sent + [[b"last"]]


async def test_closing_wakes_every_task_that_waits(open_socket: Open) -> None:
    ours, _peer = pair(open_socket, high_water=1)
    fill(ours, [b"x"])
    ended: list[int] = []

    async def wait(operation: Callable[..., Awaitable[object]], *args: Frames) -> None:
        with pytest.raises(trio.ClosedResourceError):
            await operation(*args)
        ended.append(len(args))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait, ours.recv)
        nursery.start_soon(wait, ours.recv)
        nursery.start_soon(wait, ours.send, [b"y"])
        await wait_all_tasks_blocked()
        ours.close()
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()

    assert sorted(ended) == [0, 0, 1]
