"""Keeps the actors running: starts and stops them in order, and restarts one that crashes.

A child:  starting -> running -> crashed -> starting (while its intensity allows)
                                         -> given up (ends the whole tree)
          any state -> stopping -> finished

The restart intensity says how often a child may be restarted within how many seconds.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import structlog
import trio

from capd.core.errors import CapdError, described
from capd.core.servers.restarts import RestartIntensity

log = structlog.get_logger()


class SupervisionGaveUpError(CapdError):
    """A child crashed more often than its restart intensity allows."""

    def __init__(self, child: str) -> None:
        super().__init__(f"{child} keeps crashing and is not restarted again; its log says why")
        self.child = child


class RunChild(Protocol):
    """The function that a child runs; calls `task_status.started()` once it can take messages."""

    def __call__(self, *, task_status: trio.TaskStatus[None]) -> Awaitable[object]:
        """Run until cancelled."""
        ...


@dataclass(frozen=True, slots=True)
class Child:
    """One supervised task, such as an actor."""

    name: str
    run: RunChild
    transient: bool = False
    """Whether returning is a normal end, and not a crash."""


class _Ready:
    """What a supervised task gets as `task_status`.

    Unlike trio's own, it can be used again after a restart.
    """

    def __init__(self) -> None:
        self._event = trio.Event()

    def started(self, value: object = None) -> None:
        del value
        self._event.set()

    async def wait(self) -> None:
        await self._event.wait()


class _Post:
    """Runs one supervised task, and restarts it after a crash, unless it crashes too often.

    A return is a crash too, unless the child is transient.
    """

    def __init__(self, child: Child, intensity: RestartIntensity) -> None:
        self.child = child
        self.ready = _Ready()
        self._intensity = intensity
        self._finished = trio.Event()
        self._is_stopping = False
        self._scope = trio.CancelScope()
        self._log = log.bind(child=child.name)

    async def keep(self, give_up: Callable[[str], None]) -> None:
        """Run the task, again after each crash, until it is stopped or crashes too often.

        In the last case `give_up` is called with the task's name.
        """
        try:
            while not await self._run_once():
                if not self._intensity.record(trio.current_time()):
                    self._log.error("child_given_up")
                    give_up(self.child.name)
                    return
                self._log.info("child_restarting")
        finally:
            self._finished.set()

    async def stop(self, timeout: float) -> None:
        """Cancel the task, and wait up to `timeout` seconds until it has ended."""
        self._is_stopping = True
        self._scope.cancel()
        with trio.move_on_after(timeout, shield=True):
            await self._finished.wait()
        if not self._finished.is_set():
            self._log.error("child_overran_stop", timeout=timeout)

    async def _run_once(self) -> bool:
        """Run the task once; return whether it has ended for good."""
        if self._is_stopping:
            return True
        # Shielded, so that only `stop` ends a child: a cancellation from outside would end all of
        # them at once, in no order.
        self._scope = trio.CancelScope(shield=True)
        try:
            # The scope is inside `try`: it removes its own Cancelled from a group before `except`.
            with self._scope:
                await self.child.run(task_status=self.ready)
        except Exception as error:  # noqa: BLE001 - the supervisor
            self._log.error("child_crashed", **described(error))
            return self._is_stopping
        if self._is_stopping:
            return True
        if not self.child.transient:
            self._log.error("child_returned")
            return False
        # A transient child that ends before it reports readiness must not block the next child.
        self.ready.started()
        return True


async def supervise(
    children: Sequence[Child],
    *,
    stop_timeout: float = 5.0,
    intensity: Callable[[], RestartIntensity] = RestartIntensity,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Start `children` in order and keep them running until cancelled.

    Each starts after the one before it has called `started()`, and each has its own restart
    intensity. They are stopped in reverse order. Each has `stop_timeout` seconds to end; if it
    takes longer, that is logged, and the next one is stopped. A child whose cleanup awaits must
    shield it.

    Raises:
        SupervisionGaveUpError: a child crashed too often; all others have been stopped.
    """
    given_up: list[str] = []
    running = trio.CancelScope()

    def give_up(name: str) -> None:
        given_up.append(name)
        running.cancel()

    posts: list[_Post] = []
    async with trio.open_nursery() as nursery:
        try:
            with running:
                for child in children:
                    post = _Post(child, intensity())
                    posts.append(post)
                    nursery.start_soon(post.keep, give_up, name=child.name)
                    await post.ready.wait()
                task_status.started()
                await trio.sleep_forever()
        finally:
            for post in reversed(posts):
                await post.stop(stop_timeout)
    if given_up:
        raise SupervisionGaveUpError(given_up[0])
