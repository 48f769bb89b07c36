"""The fake machine passes the same tests as real processes."""

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import structlog
import trio

from capd.actors.supervisor.starts import Spawn
from capd.adapters.servers.listings import list_tools
from capd.adapters.servers.negotiation import negotiate
from capd.adapters.servers.processes import (
    CommandNotFoundError,
    ExitStatus,
    ProcessSpec,
    SpawnFailedError,
    running,
)
from capd.adapters.servers.server_connection import ServerConnection
from capd.adapters.servers.server_run import ServerEnd
from capd.core.protocol.outcomes import OutcomeUnknownError
from capd_protos.types import ClientFacts, ServerName
from connection_calls import call_tool

from .fakes import Machine, Script

TINY = Path(__file__).with_name("tiny_server.py")
PATIENCE = 20.0


@pytest.fixture(params=["fake", "real"])
def spawn(request: pytest.FixtureRequest) -> Spawn:
    if request.param == "real":
        return running
    return Machine(**{sys.executable: Script(stderr=["hello from stderr"])}).spawn


@pytest.fixture
def spec(tmp_path: Path) -> ProcessSpec:
    return ProcessSpec((sys.executable, "-I", "-S", str(TINY)), {"PATH": os.defpath}, tmp_path)


@asynccontextmanager
async def serving(
    spawn: Spawn, spec: ProcessSpec
) -> AsyncIterator[tuple[ServerEnd, ServerConnection]]:
    with trio.fail_after(PATIENCE):
        async with spawn(spec) as process, trio.open_nursery() as nursery:
            server_connection = ServerConnection(
                ServerName("tiny"),
                process.stdin,
                process.stdout,
                on_list_changed=lambda _: None,
                log=structlog.get_logger(),
            )
            nursery.start_soon(server_connection.run)
            await negotiate(
                server_connection, ClientFacts(), wants_stateless=False, timeout=PATIENCE
            )
            yield process, server_connection
            nursery.cancel_scope.cancel()


async def test_its_handshake_names_its_tools(spawn: Spawn, spec: ProcessSpec) -> None:
    async with serving(spawn, spec) as (process, server_connection):
        tools = await list_tools(server_connection)

        assert [tool.definition.name for tool in tools] == ["echo", "die"]
        assert process.pid > 0
        assert process.stderr_tail() == ["hello from stderr"]


async def test_its_call_answers_what_it_was_asked(spawn: Spawn, spec: ProcessSpec) -> None:
    async with serving(spawn, spec) as (_, server_connection):
        result = await call_tool(server_connection, "echo", b'{"a":1}')

    assert b'{\\"a\\": 1}' in result


async def test_its_death_in_a_call_ends_its_output_and_shows_its_code(
    spawn: Spawn, spec: ProcessSpec
) -> None:
    async with serving(spawn, spec) as (process, server_connection), trio.open_nursery() as nursery:

        async def call() -> None:
            with pytest.raises(OutcomeUnknownError, match="exited with code 9"):
                await call_tool(server_connection, "die")

        nursery.start_soon(call)
        status = await process.wait()
        server_connection.close(str(status))

    assert status == ExitStatus(code=9)


async def test_it_ends_well_when_it_is_stopped_and_again_is_harmless(
    spawn: Spawn, spec: ProcessSpec
) -> None:
    async with serving(spawn, spec) as (process, _):
        await process.stop(PATIENCE)
        await process.stop(0.1)

        assert await process.wait() == ExitStatus(code=0)


async def test_it_is_gone_when_its_block_is_left(spawn: Spawn, spec: ProcessSpec) -> None:
    async with serving(spawn, spec) as (process, _):
        pass

    assert await process.wait() == ExitStatus(signal=9)


async def test_a_command_that_is_nowhere_starts_nothing(spawn: Spawn, tmp_path: Path) -> None:
    with pytest.raises(CommandNotFoundError, match="no-such-command"):
        async with spawn(ProcessSpec(("no-such-command",), {"PATH": "/nowhere"}, tmp_path)):
            pass


async def test_a_folder_that_is_not_there_starts_nothing(
    spawn: Spawn, spec: ProcessSpec, tmp_path: Path
) -> None:
    with pytest.raises(SpawnFailedError, match="no such directory"):
        async with spawn(ProcessSpec(spec.argv, spec.env, tmp_path / "gone")):
            pass


async def test_an_error_in_the_block_comes_out_as_it_is(spawn: Spawn, spec: ProcessSpec) -> None:
    with pytest.raises(ZeroDivisionError):
        async with spawn(spec):
            raise ZeroDivisionError
