"""Runs of misbehaving processes: how each run ends, and that no process remains."""

import os
import sys
import uuid
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import pytest
import structlog
import trio
from trio.testing import MockClock, memory_stream_one_way_pair

from capd.actors.supervisor.starts import Spawn
from capd.adapters.servers import server_run
from capd.adapters.servers.instance import Instance
from capd.adapters.servers.processes import ExitStatus, ProcessSpec, running
from capd.adapters.servers.server_connection import ServerConnection
from capd.adapters.servers.server_run import (
    CheckTools,
    NotVettedError,
    ServerLostError,
    ServerRun,
    StartFailedError,
)
from capd.core.errors import CapdError, leaves
from capd.core.protocol.outcomes import CallFailedError, OutcomeUnknownError
from capd.core.tools.tool_intake import AcceptedTool
from capd_protos.types import ClientFacts, ServerName, ToolName
from connection_calls import call_tool
from support.programs import HOSTILE_SERVER

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks for survivors in /proc")

PATIENCE = 30.0


class Run:
    """A run of the hostile server, and how it ended."""

    def __init__(
        self, script: Path, folder: Path, modes: str, n: int, vet: CheckTools | None = None
    ) -> None:
        self.tag = f"capd-test-{uuid.uuid4().hex}"
        self.effects = folder / "effects"
        self.server_connections: list[ServerConnection] = []
        self.tools: list[list[str]] = []
        self.errors: list[CapdError] = []
        self.ended = trio.Event()
        self.settled = trio.Event()
        options = ["--mode", modes, "--tag", self.tag, "--out", str(self.effects), "--n", str(n)]
        argv = (sys.executable, "-I", "-S", str(script), *options)
        self.spec = ProcessSpec(argv, {"PATH": os.defpath}, folder)
        self.run = ServerRun(ServerName("evil"), ClientFacts(), structlog.get_logger(), vet=vet)

    async def serve(self) -> None:
        try:
            await self.run.serve(running(self.spec), on_ready=self._ready, on_tools=self._changed)
        except* CapdError as errors:
            self.errors += leaves(errors)
        finally:
            self.ended.set()
            self.settled.set()

    def _ready(self, instance: Instance) -> None:
        self.server_connections.append(instance.server_connection)
        self.settled.set()

    def _changed(self) -> None:
        self.tools.append([tool.name for tool in self.run.tools])

    async def call(self, timeout: float = PATIENCE) -> str:
        """Return the outcome of one call, or its result."""
        try:
            result = await call_tool(
                self.server_connections[0], "echo", b'{"x":"hello"}', timeout=timeout
            )
        except CallFailedError as error:
            return error.outcome
        return result.decode()

    def alive(self) -> list[str]:
        found = []
        for process in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                command = process.read_bytes().decode(errors="replace")
            except OSError:
                continue
            if self.tag in command:
                found.append(command)
        return found


@asynccontextmanager
async def served(
    folder: Path, modes: str = "ok", n: int = 0, vet: CheckTools | None = None
) -> AsyncIterator[Run]:
    """A run that is ready, or has failed."""
    run = Run(HOSTILE_SERVER, folder, modes, n, vet)
    with trio.fail_after(2 * PATIENCE):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run.serve)
            await run.settled.wait()
            yield run
            nursery.cancel_scope.cancel()
    assert run.alive() == []


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_run, "STOP_GRACE", 0.2)


async def test_a_run_is_ready_with_its_tools_and_ends_when_it_is_cancelled(tmp_path: Path) -> None:
    async with served(tmp_path) as run:
        assert [tool.name for tool in run.run.tools] == ["echo"]
        assert run.run.pid > 0
        assert "hello" in await run.call()

    assert run.errors == []


async def test_a_server_that_exits_at_its_start_is_named_by_its_code(tmp_path: Path) -> None:
    async with served(tmp_path, "crash_start") as run:
        await run.ended.wait()

        assert [str(error) for error in run.errors] == ["it exited with code 3"]
        assert isinstance(run.errors[0], StartFailedError)
        assert run.server_connections == []


async def test_what_a_failed_start_said_last_is_kept(tmp_path: Path) -> None:
    script = tmp_path / "says.py"
    script.write_text(
        "import sys\nfor n in range(30): print('line', n, file=sys.stderr)\nsys.exit(4)\n"
    )
    async with served(tmp_path) as run:
        run.spec = ProcessSpec((sys.executable, str(script)), {"PATH": os.defpath}, tmp_path)
        run.errors.clear()
        with pytest.raises(StartFailedError) as raised:
            await run.run.serve(running(run.spec), on_ready=run._ready, on_tools=run._changed)

        error = raised.value
        assert str(error) == "it exited with code 4 (last on stderr: line 29)"
        assert error.stderr == [f"line {number}" for number in range(20, 30)]


@pytest.mark.parametrize("mode", ["hang_init", "hang_start"])
async def test_a_server_that_is_never_ready_is_ended(
    tmp_path: Path, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_run, "START_TIMEOUT", 0.5)
    async with served(tmp_path, mode) as run:
        await run.ended.wait()

        assert isinstance(run.errors[0], StartFailedError)
        assert "0.5 s" in str(run.errors[0])


async def test_a_death_in_a_call_has_an_unknown_outcome_at_once(tmp_path: Path) -> None:
    # A grandchild holds the pipes: death is the process's own end (docs/design/processes.md).
    async with served(tmp_path, "die_in_call,stdout_hold") as run:
        assert await run.call() == "outcome_unknown"
        await run.ended.wait()

        assert [str(error) for error in run.errors] == ["it exited with code 9"]
        assert isinstance(run.errors[0], ServerLostError)


async def test_a_call_that_had_its_effect_is_never_sent_again(tmp_path: Path) -> None:
    async with served(tmp_path, "die_after_effect") as run:
        assert await run.call() == "outcome_unknown"
        await run.ended.wait()
        assert await run.call() == "not_sent"

        assert run.effects.read_text() == "EFFECT\n"


async def test_a_call_is_told_that_its_server_closed_its_output(tmp_path: Path) -> None:
    async with served(tmp_path, "close_stdout") as run:
        with pytest.raises(OutcomeUnknownError) as told:
            await call_tool(run.server_connections[0], "echo", b'{"x":"hello"}')

        await run.ended.wait()

    assert "closed its standard output" in str(told.value)
    assert [str(error) for error in run.errors] == ["it closed its standard output"]


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("dup_reply", "first"),
        ("bad_utf8", "outcome_unknown"),
        ("lone_surrogate", r"\ud800"),
        ("nan", "outcome_unknown"),
        ("deep_json", "outcome_unknown"),
        ("stdout_noise", "hello"),
        ("stderr_flood", "hello"),
        ("ansi", "ok"),
        ("inject", "Result: 3."),
        ("sample", "hello"),
        ("elicit", "hello"),
    ],
)
async def test_a_call_ends_once_whatever_its_server_writes(
    tmp_path: Path, mode: str, expected: str
) -> None:
    async with served(tmp_path, mode) as run:
        assert expected in await run.call()
        assert expected in await run.call()

        assert run.server_connections[0].is_alive
        assert run.errors == []


@pytest.mark.parametrize("mode", ["never_reply", "wrong_id"])
async def test_a_call_without_its_reply_ends_by_its_deadline(tmp_path: Path, mode: str) -> None:
    async with served(tmp_path, mode) as run:
        assert await run.call(timeout=0.3) == "outcome_unknown"

        assert run.server_connections[0].is_alive


async def test_a_server_that_stops_reading_refuses_and_blocks_nobody(tmp_path: Path) -> None:
    async with served(tmp_path, "no_read") as run:
        outcomes: list[str] = []

        async def call() -> None:
            outcomes.append(await run.call(timeout=1.0))

        async with trio.open_nursery() as nursery:
            for _ in range(1000):
                nursery.start_soon(call)

        assert len(outcomes) == 1000
        assert set(outcomes) == {"not_sent", "outcome_unknown"}


async def test_a_storm_of_changes_is_one_list(tmp_path: Path) -> None:
    async with served(tmp_path, "list_changed_storm,rug_pull", n=300) as run:
        assert "hello" in await run.call()
        with trio.fail_after(PATIENCE):
            while not run.tools:
                await trio.sleep(0.01)

        assert run.tools == [["echo"]]
        assert b"evil.example" in run.run.tools[0].json


class Vetted:
    """Decides which tools may be used, and fails once."""

    def __init__(self) -> None:
        self.withheld: set[ToolName] = set()
        self.is_lost = False
        """The next answer."""

    async def __call__(self, listed: Sequence[AcceptedTool]) -> Collection[ToolName]:  # noqa: ARG002
        await trio.lowlevel.checkpoint()
        if self.is_lost:
            self.is_lost = False
            raise NotVettedError("nobody answers")
        return self.withheld


async def test_a_decision_that_could_not_be_looked_up_is_looked_up_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_run, "REFETCH_PAUSE", 0.0)
    vetted = Vetted()
    async with served(tmp_path, vet=vetted) as run:
        vetted.withheld, vetted.is_lost = {ToolName("echo")}, True

        run.run.vet_again()

        with trio.fail_after(PATIENCE):
            while not run.tools:
                await trio.sleep(0.01)
        assert run.tools == [[]]


async def test_a_list_that_nobody_could_compare_is_compared_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_run, "REFETCH_PAUSE", 0.0)
    vetted = Vetted()
    modes = "list_changed_storm,rug_pull"
    async with served(tmp_path, modes, n=1, vet=vetted) as run:
        vetted.is_lost = True

        await run.call()

        with trio.fail_after(PATIENCE):
            while not run.tools:
                await trio.sleep(0.01)
        assert run.tools == [["echo"]]
        assert b"evil.example" in run.run.tools[0].json


async def test_bad_and_doubled_names_never_reach_the_list(tmp_path: Path) -> None:
    async with served(tmp_path, "bad_names") as run:
        assert [tool.name for tool in run.run.tools] == ["echo"]


async def test_pages_that_never_end_do_not_hold_up_the_start(tmp_path: Path) -> None:
    async with served(tmp_path, "page_forever") as run:
        assert [tool.name for tool in run.run.tools] == ["echo"]


class Dying:
    """A process whose pipes close before its exit is noticed, as under load."""

    pid = 1
    is_parked = False
    sandbox = ""
    membership = ""
    cwd = ""
    cwd_reason = ""

    def __init__(self) -> None:
        self.stdin = Stuck()
        end, self.stdout = memory_stream_one_way_pair()
        end.close()

    async def wait(self) -> ExitStatus:
        await trio.sleep(0.5)
        return ExitStatus(code=7)

    def stderr_tail(self) -> list[str]:
        return ["no token"]

    async def stop(self, grace: float) -> None:  # noqa: ARG002
        await trio.lowlevel.checkpoint()


class Stuck(trio.abc.SendStream):
    async def send_all(self, data: bytes | bytearray | memoryview) -> None:  # noqa: ARG002
        await trio.sleep_forever()

    async def wait_send_all_might_not_block(self) -> None:
        await trio.sleep_forever()

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


async def test_a_death_explains_the_handshake_that_it_cut(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    @asynccontextmanager
    async def spawn(spec: ProcessSpec) -> AsyncIterator[Dying]:
        yield Dying()

    run = Run(tmp_path, tmp_path, "ok", 0)
    with pytest.raises(StartFailedError) as raised:
        await run.run.serve(
            cast("Spawn", spawn)(run.spec), on_ready=run._ready, on_tools=run._changed
        )

    assert str(raised.value) == "it exited with code 7 (last on stderr: no token)"
    assert raised.value.stderr == ["no token"]


async def test_a_server_that_closes_its_output_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_run, "CLOSED_OUTPUT_GRACE", 0.1)
    script = tmp_path / "closes.py"
    script.write_text("import os, time\nos.close(1)\ntime.sleep(600)\n")
    run = Run(script, tmp_path, "ok", 0)
    with trio.fail_after(PATIENCE):
        await run.serve()

    # What is seen first, the end of its output or that nothing can be written, is the reason.
    assert [type(error) for error in run.errors] == [StartFailedError]
    assert run.alive() == []
