"""One task's error ends that task and nothing else; cancellation is no error."""

import pytest
import structlog
import trio
from structlog.testing import capture_logs

from capd.runtime.boundary import contained

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

    assert [{key: value for key, value in line.items() if key != "where"} for line in logs] == [
        {
            "event": "task_failed",
            "log_level": "error",
            "task": "session 7",
            "error": kind,
            "text": text,
        }
    ]


async def test_the_log_names_the_line_that_failed() -> None:
    with capture_logs() as logs:
        await contained("x", fail, ValueError("x"), log=log)

    assert logs[0]["where"].startswith(f"{__file__}:")


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
