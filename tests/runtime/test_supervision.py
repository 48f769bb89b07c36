"""The supervision tree: the order of starts, single restarts, and the order of stops."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock, wait_all_tasks_blocked

from capd.core.servers.restarts import RestartIntensity
from capd.runtime.supervision import Child, SupervisionGaveUpError, supervise

Status = trio.TaskStatus[None]


class Actor:
    """A scripted child that keeps a journal."""

    def __init__(self, name: str, journal: list[str], *, cleanup: float = 0, slow: float = 0):
        self.name = name
        self._journal = journal
        self._cleanup = cleanup
        self._slow = slow
        self._order: trio.Event = trio.Event()
        self._error: BaseException | None = None

    async def run(self, *, task_status: Status) -> None:
        self._order = trio.Event()
        self._journal.append(f"{self.name} starts")
        try:
            await trio.sleep(self._slow)
            self._journal.append(f"{self.name} runs")
            task_status.started()
            await self._order.wait()
            if self._error is not None:
                raise self._error
        except trio.Cancelled:
            self._journal.append(f"{self.name} stops")
            with trio.CancelScope(shield=True):
                await trio.sleep(self._cleanup)
            self._journal.append(f"{self.name} stopped")
            raise

    async def crash(self, error: BaseException) -> None:
        self._error = error
        self._order.set()
        await wait_all_tasks_blocked()

    async def finish(self) -> None:
        self._error = None
        self._order.set()
        await wait_all_tasks_blocked()


@asynccontextmanager
async def tree(*actors: Actor, stop_timeout: float = 5.0) -> AsyncIterator[None]:
    children = [Child(actor.name, actor.run) for actor in actors]
    async with trio.open_nursery() as nursery:

        async def run(*, task_status: Status) -> None:
            await supervise(children, task_status=task_status, stop_timeout=stop_timeout)

        await nursery.start(run)
        yield
        nursery.cancel_scope.cancel()


async def test_children_start_in_order_each_after_the_one_before_it_can_take_messages(
    autojump_clock: MockClock,
) -> None:
    journal: list[str] = []
    async with tree(Actor("a", journal, slow=2), Actor("b", journal, slow=1)):
        started = list(journal)

    assert started == ["a starts", "a runs", "b starts", "b runs"]


async def test_children_stop_in_reverse_order_each_finished_before_the_next_is_cancelled(
    autojump_clock: MockClock,
) -> None:
    journal: list[str] = []
    async with tree(*(Actor(name, journal, cleanup=2) for name in "abc")):
        journal.clear()

    assert journal == ["c stops", "c stopped", "b stops", "b stopped", "a stops", "a stopped"]


async def test_a_child_whose_cleanup_takes_too_long_does_not_hold_up_the_others(
    autojump_clock: MockClock,
) -> None:
    journal: list[str] = []
    with capture_logs() as logs:
        async with tree(Actor("a", journal), Actor("b", journal, cleanup=9)):
            journal.clear()

    assert journal == ["b stops", "a stops", "a stopped", "b stopped"]
    assert logs == [
        {"event": "child_overran_stop", "log_level": "error", "child": "b", "timeout": 5.0}
    ]


@pytest.mark.parametrize(
    "error", [ValueError("x"), ExceptionGroup("from a nursery", [ValueError("x")])]
)
async def test_a_child_that_crashes_is_restarted_alone(error: Exception) -> None:
    journal: list[str] = []
    actors = [Actor(name, journal) for name in "abc"]
    with capture_logs() as logs:
        async with tree(*actors):
            journal.clear()

            await actors[1].crash(error)

            after = list(journal)

    assert after == ["b starts", "b runs"]
    assert [(line["event"], line["child"]) for line in logs] == [
        ("child_crashed", "b"),
        ("child_restarting", "b"),
    ]


async def test_a_child_that_returns_is_restarted() -> None:
    journal: list[str] = []
    actor = Actor("a", journal)
    async with tree(actor):
        journal.clear()

        await actor.finish()

        after = list(journal)

    assert after == ["a starts", "a runs"]


async def test_a_transient_child_that_returns_is_done_and_the_next_one_starts() -> None:
    journal: list[str] = []

    async def once(*, task_status: Status) -> None:
        journal.append("once")

    children = [Child("once", once, transient=True), Child("a", Actor("a", journal).run)]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(supervise, children)

        await wait_all_tasks_blocked()

        nursery.cancel_scope.cancel()
    assert journal == ["once", "a starts", "a runs", "a stops", "a stopped"]


async def test_a_child_that_keeps_crashing_ends_the_tree_in_reverse_order(
    autojump_clock: MockClock,
) -> None:
    journal: list[str] = []
    names = [Actor(name, journal, cleanup=1) for name in "abc"]

    async def crash_often() -> None:
        await wait_all_tasks_blocked()
        for _ in range(4):
            await names[1].crash(ValueError("again"))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(crash_often)
        with (
            pytest.raises(SupervisionGaveUpError, match="b keeps crashing") as caught,
            trio.fail_after(60),
        ):
            await supervise([Child(actor.name, actor.run) for actor in names])

    assert caught.value.child == "b"
    assert journal == [
        *[f"{name} {what}" for name in "abc" for what in ("starts", "runs")],
        *["b starts", "b runs"] * 3,
        *["c stops", "c stopped", "a stops", "a stopped"],
    ]


async def test_a_child_that_never_gets_to_start_ends_the_tree(autojump_clock: MockClock) -> None:
    starts: list[str] = []

    async def broken(*, task_status: Status) -> None:
        starts.append("broken")
        await trio.sleep(0.1)
        raise ValueError("no configuration")

    async def never(*, task_status: Status) -> None:
        starts.append("never")

    with pytest.raises(SupervisionGaveUpError, match="broken"), trio.fail_after(60):
        await supervise([Child("broken", broken), Child("never", never)])

    assert starts == ["broken"] * 4


async def test_crashes_far_apart_do_not_end_the_tree(autojump_clock: MockClock) -> None:
    journal: list[str] = []
    actor = Actor("a", journal)
    async with tree(actor):
        for _ in range(20):
            await trio.sleep(2)

            await actor.crash(ValueError("now and then"))

        assert journal.count("a runs") == 21


async def test_the_crashes_of_one_child_are_not_counted_against_another() -> None:
    journal: list[str] = []
    actors = [Actor("a", journal), Actor("b", journal)]
    async with tree(*actors):
        for _ in range(3):
            for actor in actors:
                await actor.crash(ValueError("x"))

        assert (journal.count("a runs"), journal.count("b runs")) == (4, 4)


async def test_a_tree_that_is_cancelled_while_it_starts_stops_what_it_has_started(
    autojump_clock: MockClock,
) -> None:
    journal: list[str] = []
    children = [Child("a", Actor("a", journal).run), Child("b", Actor("b", journal, slow=60).run)]

    with trio.move_on_after(10):
        await supervise(children)

    assert journal == [
        *["a starts", "a runs", "b starts"],
        *["b stops", "b stopped", "a stops", "a stopped"],
    ]


async def test_a_tree_that_is_cancelled_at_once_leaves_no_child_running(
    autojump_clock: MockClock,
) -> None:
    journal: list[str] = []

    async def linger(*, task_status: Status) -> None:
        await trio.sleep(60)
        journal.append("was left running")

    # trio decides by chance whether the child or the cancellation comes first.
    for _ in range(20):
        with trio.CancelScope() as scope:
            scope.cancel()
            await supervise([Child("a", linger)])

    assert journal == []


async def test_a_child_that_fails_as_it_is_stopped_is_logged_and_not_restarted() -> None:
    starts: list[str] = []

    async def fails_at_the_end(*, task_status: Status) -> None:
        starts.append("x")
        task_status.started()
        try:
            await trio.sleep_forever()
        finally:
            raise ValueError("cannot clean up")

    with capture_logs() as logs, trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(supervise, [Child("x", fails_at_the_end)])
            await wait_all_tasks_blocked()
            scope.cancel()

    assert starts == ["x"]
    assert [line["event"] for line in logs] == ["child_crashed"]


async def test_the_end_of_the_process_is_no_crash() -> None:
    journal: list[str] = []
    actor = Actor("a", journal)

    with pytest.raises(BaseExceptionGroup) as caught:
        async with tree(actor):
            await actor.crash(KeyboardInterrupt())

    assert caught.group_contains(KeyboardInterrupt)
    assert journal == ["a starts", "a runs"]


async def test_the_intensity_is_the_callers_to_set(autojump_clock: MockClock) -> None:
    journal: list[str] = []

    async def broken(*, task_status: Status) -> None:
        journal.append("starts")
        await trio.sleep(0.1)
        raise ValueError("x")

    with pytest.raises(SupervisionGaveUpError), trio.fail_after(60):
        await supervise([Child("x", broken)], intensity=lambda: RestartIntensity(limit=0))

    assert journal == ["starts"]
