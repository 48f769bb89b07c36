"""The script processes finish a step even if the process that began it dies."""

import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from capd.adapters.scripts.steps import Damaged, Ended, Resume, Start, Waiting
from capd.adapters.scripts.workers import ScriptsUnavailableError, ScriptWorkers
from capd.core.scripts.run import SLEEP, Answer, IssuedCall
from capd.core.scripts.stubs import checking_stubs, prelude, tool_functions
from capd_protos.types import WireName

FUNCTIONS = tool_functions([("web", "get", WireName("web__get"), b"{}")])
CODE = "x = await web.get()\nprint('then')\nx + 1"


def start(code: str, script: str = "a") -> Start:
    return Start(script, code, b"{}", prelude(FUNCTIONS), checking_stubs(FUNCTIONS))


def resume(waiting: Waiting, value: bytes = b"1", script: str = "a") -> Resume:
    return Resume(script, waiting.snapshot, {waiting.calls[0].id: Answer("value", value)})


@asynccontextmanager
async def workers(most: int = 2, idle: float = 60.0) -> AsyncIterator[ScriptWorkers]:
    made = ScriptWorkers(most, idle)
    try:
        yield made
    finally:
        pids = made.pids
        made.close()
        with trio.fail_after(30):
            while any(is_alive(pid) for pid in pids):
                await trio.sleep(0.01)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def waiting(made: ScriptWorkers, code: str = CODE, script: str = "a") -> Waiting:
    stepped = await made.run(start(code, script))
    assert isinstance(stepped, Waiting), stepped
    return stepped


async def ended(made: ScriptWorkers, step: Start | Resume) -> tuple[bytes, str]:
    stepped = await made.run(step)
    assert isinstance(stepped, Ended), stepped
    return stepped.value, stepped.error


async def test_a_script_waits_at_its_calls_and_goes_on_with_their_answers() -> None:
    async with workers() as made:
        first = await waiting(made)

        stepped = await made.run(resume(first))

        assert [(each.tool, each.arguments) for each in first.calls] == [("web__get", b"{}")]
        assert isinstance(stepped, Ended)
        assert (stepped.value, stepped.printed, stepped.error) == (b"2", "then\n", "")


async def test_no_process_is_started_before_the_first_script() -> None:
    async with workers() as made:
        assert made.pids == []


async def test_a_process_that_is_killed_between_two_steps_is_replaced() -> None:
    async with workers() as made:
        first = await waiting(made)
        (pid,) = made.pids
        os.kill(pid, signal.SIGKILL)

        assert await ended(made, resume(first)) == (b"2", "")
        assert made.pids != [pid]


async def test_a_process_that_is_killed_within_a_step_has_it_done_by_another() -> None:
    async with workers(most=1) as made:
        await ended(made, start("0"))
        (pid,) = made.pids
        os.kill(pid, signal.SIGSTOP)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ended, made, start("1"))
            while made.pids:
                await trio.sleep(0.01)
            os.kill(pid, signal.SIGKILL)

        assert pid not in made.pids


async def test_the_calls_are_told_before_their_snapshot_and_again_by_another_process() -> None:
    async with workers(most=1) as made:
        await ended(made, start("0"))
        (pid,) = made.pids
        told: list[list[IssuedCall]] = []

        def killed(calls: list[IssuedCall]) -> None:
            told.append(calls)
            if is_alive(pid):
                os.kill(pid, signal.SIGKILL)

        stepped = await made.run(start(CODE), killed)

        # Twice, unless its snapshot was out before it died.
        assert isinstance(stepped, Waiting)
        assert [each.tool for each in stepped.calls] == ["web__get"]
        assert told in ([stepped.calls], [stepped.calls] * 2)
        assert await ended(made, resume(stepped)) == (b"2", "")


async def test_scripts_take_turns_in_one_process_without_losing_their_places() -> None:
    async with workers(most=1) as made:
        a = await waiting(made, CODE, "a")
        b = await waiting(made, "y = 10 * await web.get()\ny", "b")

        assert await ended(made, resume(b, b"2", "b")) == (b"20", "")
        assert await ended(made, resume(a, b"3", "a")) == (b"4", "")
        assert len(made.pids) == 1


async def test_a_process_without_work_ends_by_itself_and_the_next_script_has_another() -> None:
    async with workers(idle=0.05) as made:
        await ended(made, start("0"))
        while made.pids:
            await trio.sleep(0.01)

        assert await ended(made, start("1")) == (b"1", "")


async def test_a_cancelled_step_ends_its_process() -> None:
    async with workers(most=1) as made:
        await ended(made, start("0"))
        (pid,) = made.pids

        async with trio.open_nursery() as nursery:
            nursery.start_soon(made.run, start("while True: pass"))
            while made.pids:
                await trio.sleep(0.01)
            nursery.cancel_scope.cancel()

        while is_alive(pid):
            await trio.sleep(0.01)
        assert await ended(made, start("1")) == (b"1", "")


@pytest.mark.parametrize(
    "code",
    [
        'await log.find(path=".", **{"max-count": 5})',
        'await log.find(**{"path": ".", "max-count": 5})',
        '"größe"; await log.find(path="größe", **{"max-count": 5})',
        'await log.find(\n    path=".",\n    **{"max-count": 5},\n)',
    ],
)
async def test_an_argument_that_python_cannot_name_is_given_beside_ones_of_other_types(
    code: str,
) -> None:
    kinds = {"path": "string", "max-count": "integer", "word": "string", "all": "boolean"}
    schema = {
        "type": "object",
        "properties": {name: {"type": kind} for name, kind in kinds.items()},
        "required": ["path"],
    }
    listed = json.dumps({"name": "find", "inputSchema": schema}).encode()
    functions = tool_functions([("log", "find", WireName("log__find"), listed)])
    async with workers() as made:
        stepped = await made.run(
            Start("a", code, b"{}", prelude(functions), checking_stubs(functions))
        )

    assert isinstance(stepped, Waiting), stepped
    assert json.loads(stepped.calls[0].arguments)["max-count"] == 5


async def test_the_list_that_gather_returns_is_a_list() -> None:
    async with workers() as made:
        first = await waiting(
            made, "import asyncio\nx = await asyncio.gather(web.get(), web.get())\nx + [3]"
        )
        answers = {each.id: Answer("value", b"1") for each in first.calls}

        assert await ended(made, Resume("a", first.snapshot, answers)) == (b"[1, 1, 3]", "")


async def test_a_sleep_of_a_script_is_a_wait_of_the_daemons() -> None:
    async with workers() as made:
        first = await waiting(made, "import asyncio\nawait asyncio.sleep(1e9)\n7")

        assert [(each.tool, each.arguments) for each in first.calls] == [(SLEEP, b"60.0")]
        assert await ended(made, resume(first, b"null")) == (b"7", "")


@pytest.mark.parametrize(
    ("code", "value"),
    [
        ("{1: (2, {3}), 'x': b'y'}", b'{"1": [2, [3]], "x": "y"}'),
        ("float('inf')", b"null"),
        ("import datetime\ndatetime.date(2026, 1, 2)", b'"2026-01-02"'),
        ("x = 1", b"null"),
        ("inputs", b"{}"),
        ("2 ** 100", str(2**100).encode()),
    ],
)
async def test_a_value_is_json(code: str, value: bytes) -> None:
    async with workers() as made:
        assert await ended(made, start(code)) == (value, "")


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("x = 1\n1 / 0", "Line 2: ZeroDivisionError: division by zero\n    1 / 0"),
        ("raise ToolError('a')", "Line 1: ToolError: a\n    raise ToolError('a')"),
        ("def f():\n    raise KeyError('k')\nf()", "Line 2: KeyError: k\n    raise KeyError('k')"),
    ],
)
async def test_an_error_has_the_line_of_the_script(code: str, error: str) -> None:
    async with workers() as made:
        assert (await ended(made, start(code)))[1] == error


@pytest.mark.parametrize("code", ["web.get()", "await web.get(1)", "await web.nope()", "for", "y"])
async def test_what_is_no_valid_script_is_not_run(code: str) -> None:
    async with workers() as made:
        stepped = await made.run(start(f"print('run')\n{code}"))

        assert isinstance(stepped, Ended)
        assert stepped.error
        assert stepped.printed == ""


async def test_types_are_checked_by_the_lines_of_the_script() -> None:
    async with workers() as made:
        stepped = await made.run(start("x = 1\nawait web.get(1)"))

        assert isinstance(stepped, Ended)
        assert stepped.error == (
            "The script was not run, and no call was made: its types are wrong.\n"
            "line 2:15: error[too-many-positional-arguments] "
            "Too many positional arguments to bound method `_web.get`: expected 1, got 2"
        )


@pytest.mark.parametrize(
    "code",
    [
        "web = 5\nweb + 1",
        "for web in [6]:\n    pass\nweb",
        "web = [6][0]\nweb",
        "int = 6\nint",
        "# a line\n\n6",
    ],
)
async def test_a_script_may_use_any_name_for_a_value_of_its_own(code: str) -> None:
    async with workers() as made:
        assert await ended(made, start(code)) == (b"6", "")


async def test_no_script_is_checked_by_what_another_one_has_declared() -> None:
    async with workers(most=1) as made:
        assert await ended(made, start("own = 1\nown")) == (b"1", "")
        assert await ended(made, start("own = 'a'\nown")) == (b'"a"', "")

        stepped = await made.run(start("own"))

        assert isinstance(stepped, Ended)
        assert "line 1:1: error[unresolved-reference]" in stepped.error


@pytest.mark.parametrize("name", ["Any", "TypedDict", "_nobody"])
async def test_names_of_the_stubs_alone_are_not_the_scripts(name: str) -> None:
    async with workers() as made:
        stepped = await made.run(start(name))

        assert isinstance(stepped, Ended)
        assert "error[unresolved-reference]" in stepped.error


async def test_a_snapshot_that_is_none_is_said_to_be_damaged() -> None:
    async with workers() as made:
        assert isinstance(await made.run(Resume("a", b"garbage", {})), Damaged)


async def test_a_process_that_cannot_be_started_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    async with workers() as made:
        with pytest.raises(ScriptsUnavailableError, match="cannot be started"):
            await made.run(start("1"))
