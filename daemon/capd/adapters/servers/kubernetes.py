"""A server in a Kubernetes cluster: `kubectl port-forward` under a guard, and HTTP over that port.

    kubectl started ──"Forwarding from 127.0.0.1:PORT"──> connection to that port ──> served
       │ it ends, or says nothing in time                        │ kubectl ends
       v                                                         v
    SpawnFailedError                                  the connection is lost; the next call
                                                      starts both again, after its back-off

A guard is the parent process of a server's process (`platform/guard.py`). kubectl runs as the
process of the instance. So it runs exactly while a session needs the server, and ends with the
daemon in any case.

kubectl is used instead of a library. kr8s forwards ports only under asyncio, and refuses trio. The
official client blocks a thread for each connection, and lightkube forwards no ports. A user with a
kubeconfig usually has kubectl, which supports every login that a cluster may ask for.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Literal

import trio

from capd.adapters.servers.processes import SpawnFailedError
from capd.adapters.servers.server_run import ServerEnd
from capd.adapters.stdio_frames import Frame, FrameReader
from capd.core.servers.kubernetes import ClusterService, forwarded_port
from capd.core.servers.membership import Membership

FORWARD_TIMEOUT = 45.0
"""Seconds for kubectl to open the port. It may log in first, with a program of its own."""
_LINE_CAP_BYTES = 4096
_LAST_WORDS_TIMEOUT = 1.0

Connect = Callable[[str], AbstractAsyncContextManager[ServerEnd]]
"""Connects to a URL."""


class ForwardedServer:
    """A server that is reached by URL through a forwarded port: kubectl, and the connection."""

    cwd = ""
    cwd_reason = ""
    sandbox = ""

    def __init__(self, kubectl: ServerEnd, remote: ServerEnd) -> None:
        self.pid = kubectl.pid
        self.membership: Membership | Literal[""] = kubectl.membership
        self.stdin, self.stdout = remote.stdin, remote.stdout
        self._kubectl, self._remote = kubectl, remote
        self._status: object = None
        self._is_over = trio.Event()

    @property
    def is_parked(self) -> bool:
        """Whether the server ended because a person has to do something first."""
        return self._remote.is_parked

    def stderr_tail(self) -> list[str]:
        """Return what kubectl wrote last to stderr, safe to print."""
        return self._kubectl.stderr_tail()

    async def wait(self) -> object:
        """Wait until the connection is lost or kubectl has ended; return what happened, and why."""
        await self._is_over.wait()
        return self._status

    async def stop(self, grace: float = 2.0) -> None:
        """End the session politely, then kubectl. Each gets `grace` seconds."""
        await self._remote.stop(grace)
        await self._kubectl.stop(grace)

    async def watch_connection(self) -> None:
        """Wait until the connection is lost, and note why, for `wait`."""
        self._end(await self._remote.wait())

    async def watch_kubectl(self) -> None:
        """Wait until kubectl has ended, and note that, for `wait`.

        The connection cannot work without it.
        """
        self._end(f"lost its way into the cluster: kubectl {await self._kubectl.wait()}")

    def _end(self, status: object) -> None:
        if not self._is_over.is_set():
            self._status = status
            self._is_over.set()


@asynccontextmanager
async def forwarded(
    place: ClusterService, kubectl: AbstractAsyncContextManager[ServerEnd], connect: Connect
) -> AsyncIterator[ForwardedServer]:
    """Keep a connection to `place` open while the block runs.

    `kubectl` starts the process that runs `place.command`; `connect` connects to a URL.

    Raises:
        CommandNotFoundError: kubectl is not on the PATH.
        SpawnFailedError: kubectl opened no port; the text says why.
    """
    # Not nested `async with` blocks: a nursery would wrap the block's own exception in a group.
    async with AsyncExitStack() as stack:
        process = await stack.enter_async_context(kubectl)
        lines = FrameReader(process.stdout, _LINE_CAP_BYTES)
        port = await _port(place, process, lines)
        remote = await stack.enter_async_context(connect(place.local_url(port)))
        server = ForwardedServer(process, remote)
        tasks = AsyncExitStack()
        nursery = await tasks.enter_async_context(trio.open_nursery())
        # kubectl writes a line for each connection, and would block on a full pipe.
        nursery.start_soon(_drain, lines)
        nursery.start_soon(server.watch_connection)
        nursery.start_soon(server.watch_kubectl)
        try:
            yield server
        finally:
            nursery.cancel_scope.cancel()
            nursery.cancel_scope.shield = True
            await tasks.aclose()


async def _port(place: ClusterService, kubectl: ServerEnd, lines: FrameReader) -> int:
    with trio.move_on_after(FORWARD_TIMEOUT) as patience:
        async for line in lines:
            port = forwarded_port(line.data) if isinstance(line, Frame) else None
            if port is not None:
                return port
    what = f"{place.namespace}/{place.service}"
    if patience.cancelled_caught:
        raise SpawnFailedError(f"kubectl opened no port to {what} within {FORWARD_TIMEOUT:g} s")
    status: object = "closed its output"
    with trio.move_on_after(_LAST_WORDS_TIMEOUT):
        status = await kubectl.wait()
    said = "; ".join(kubectl.stderr_tail()[-3:])
    raise SpawnFailedError(f"kubectl {status}, and cannot forward to {what}: {said or 'no reason'}")


async def _drain(lines: FrameReader) -> None:
    async for _ in lines:
        pass
