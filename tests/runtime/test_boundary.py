"""An error ends only its own task; cancellation is no error."""

from itertools import pairwise

import pytest
import structlog
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

from capd.runtime.boundary import contained, kept_running

log = structlog.get_logger()


async def fail(error: BaseException) -> None:
    await trio.lowlevel.checkpoint()
    raise error


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (OSError("reset\nby peer"), "OSError", "reset by peer"),
        (ValueError("x" * 1000), "ValueError", "x" * 300),
        (
            ExceptionGroup("group", [KeyError("a"), ExceptionGroup("inner", [ValueError("b")])]),
            "KeyError, ValueError",
            "'a'; b",
        ),
    ],
)
async def test_an_error_is_logged_with_its_text_and_goes_no_further(
    error: Exception, kind: str, text: str
) -> None:
    with capture_logs() as logs:
        await contained("session 7", fail, error, log=log)

    places = {"where", "trace"}
    assert [{key: value for key, value in line.items() if key not in places} for line in logs] == [
        {
            "event": "task_failed",
            "log_level": "error",
            "task": "session 7",
            "error": kind,
            "text": text,
        }
    ]


async def test_the_log_names_the_line_that_failed_and_the_calls_that_led_there() -> None:
    with capture_logs() as logs:
        await contained("x", fail, ValueError("x"), log=log)

    assert logs[0]["where"].startswith(f"{__file__}:")
    line = logs[0]["where"].rpartition(":")[2]
    calls = [each.partition(" ")[2] for each in logs[0]["trace"].split(" > ")]
    assert calls == ["contained", "fail"]
    assert logs[0]["trace"].endswith(f"test_boundary.py:{line} fail")


async def test_a_task_that_ends_well_is_not_logged() -> None:
    with capture_logs() as logs:
        await contained("x", trio.sleep, 0, log=log)

    assert logs == []


async def test_a_cancelled_task_is_cancelled() -> None:
    with capture_logs() as logs, trio.CancelScope() as scope:
        scope.cancel()
        await contained("x", trio.sleep_forever, log=log)

    assert (logs, scope.cancelled_caught) == ([], True)


async def test_an_error_beside_a_cancellation_does_not_escape() -> None:
    async def fail_when_cancelled() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise ValueError("while cancelled")

    async def task() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            nursery.start_soon(fail_when_cancelled)
            await trio.sleep_forever()

    with capture_logs() as logs, trio.CancelScope() as scope:
        scope.cancel()
        await contained("x", task, log=log)

    assert [line["error"] for line in logs] == ["ValueError"]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)])
async def test_the_end_of_the_process_is_let_through(error: BaseException) -> None:
    with pytest.raises(type(error)):
        await contained("x", fail, error, log=log)


# A task that an actor cannot do without


class Failing:
    """A task that fails a number of times, each after it has run for a while, and then returns."""

    def __init__(self, times: int, runs_for: float = 0.0) -> None:
        self.began_at: list[float] = []
        self._times = times
        self._runs_for = runs_for

    async def run(self, name: str) -> None:
        assert name == "argument"
        self.began_at.append(trio.current_time())
        await trio.sleep(self._runs_for)
        if len(self.began_at) <= self._times:
            raise KeyError("planted")


async def test_a_task_that_fails_is_begun_again_after_growing_pauses(
    autojump_clock: MockClock,
) -> None:
    failing = Failing(9)
    with capture_logs() as logs:
        await kept_running("x", failing.run, "argument", log=log)

    pauses = [after - at for at, after in pairwise(failing.began_at)]
    assert pauses == pytest.approx([0.5, 1, 2, 4, 8, 16, 30, 30, 30])
    assert [each["event"] for each in logs] == ["task_failed", "task_begun_again"] * 9


async def test_a_task_that_ran_well_for_long_is_begun_again_soon(
    autojump_clock: MockClock,
) -> None:
    failing = Failing(4, runs_for=1000.0)

    await kept_running("x", failing.run, "argument", log=log)

    pauses = [after - at - 1000.0 for at, after in pairwise(failing.began_at)]
    assert pauses == pytest.approx([0.5] * 4)


async def test_a_task_that_is_cancelled_is_not_begun_again() -> None:
    with trio.CancelScope() as scope:
        scope.cancel()
        await kept_running("x", trio.sleep_forever, log=log)

    assert scope.cancelled_caught
