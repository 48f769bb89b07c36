"""A server without a declared scope is shared according to the generation that it speaks."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from capd_protos import supervisor as messages
from capd_protos.types import ClientFacts, SessionKey

from .fakes import Script, server
from .test_supervisor import Stage, staged

BOTH = ("handshake", "stateless")
STATELESS = ClientFacts("2026-07-28")


@asynccontextmanager
async def two_projects(
    folder: Path, generations: tuple[str, ...], client: ClientFacts = STATELESS
) -> AsyncIterator[tuple[Stage, str]]:
    """A supervisor with one server, and a second project."""
    other = folder / "other"
    other.mkdir(exist_ok=True)
    async with staged(folder, alpha=Script(generations=generations)) as stage:
        stage.client = client
        yield stage, str(other)


async def scopes(stage: Stage) -> list[tuple[str, list[SessionKey]]]:
    # In an order of their own: the ids of instances are counted through all tests.
    return sorted((entry.scope, entry.leases) for entry in await stage.entries())


@pytest.mark.parametrize(
    ("generations", "client", "scope"),
    [
        (("handshake",), STATELESS, "project"),
        (BOTH, ClientFacts("2025-11-25"), "project"),
        (BOTH, STATELESS, "shared"),
        (("stateless",), ClientFacts("2025-11-25"), "shared"),
        (("stateless",), STATELESS, "shared"),
    ],
)
async def test_the_generation_that_a_server_spoke_decides_at_its_next_start(
    autojump_clock: MockClock,
    tmp_path: Path,
    generations: tuple[str, ...],
    client: ClientFacts,
    scope: str,
) -> None:
    async with two_projects(tmp_path, generations, client) as (stage, other):
        await stage.ready("a")

        second = await stage.ready("b", project=other)

        entry = next(each for each in await stage.entries() if each.instance == second.instance)
        assert entry.scope == scope


async def test_a_session_that_holds_its_projects_instance_keeps_it_and_so_does_the_project(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with two_projects(tmp_path, BOTH) as (stage, other):
        first = await stage.ready("a")
        shared = await stage.ready("b", project=other)

        again = await stage.ready("a")
        neighbour = await stage.ready("c")

        assert again.instance == neighbour.instance == first.instance != shared.instance
        assert await scopes(stage) == [("project", ["a", "c"]), ("shared", ["b"])]


async def test_an_instance_that_died_is_started_where_its_holder_had_it(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with two_projects(tmp_path, BOTH) as (stage, other):
        await stage.ready("a")
        await stage.ready("b", project=other)
        for process in stage.machine.processes:
            process.exit(9)
        await trio.sleep(1)

        for session, project in (("a", ""), ("b", other)):
            await stage.ready(session, project=project)

        assert await scopes(stage) == [("project", ["a"]), ("shared", ["b"])]
        assert [spec.cwd for spec in stage.machine.specs] == [tmp_path] * 4


async def test_a_shared_instance_runs_in_no_project(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with two_projects(tmp_path, ("stateless",)) as (stage, other):
        first = await stage.ready("a", project=other)
        await stage.release("a", first.instance)
        await stage.ask(messages.ReleaseServer(SessionKey("a"), first.instance, at_once=True))
        while stage.machine.alive:
            await stage.entries()

        await stage.ready("a", project=other)

        assert [spec.cwd for spec in stage.machine.specs] == [Path(other), tmp_path]


async def test_what_was_met_is_known_to_the_next_daemon(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with two_projects(tmp_path, BOTH) as (stage, other):
        await stage.ready("a")
    async with two_projects(tmp_path, BOTH) as (stage, other):
        first = await stage.ready("a")

        second = await stage.ready("b", project=other)

        assert first == second
        assert await scopes(stage) == [("shared", ["a", "b"])]


async def test_a_server_that_is_another_version_by_now_is_shared_no_more(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with two_projects(tmp_path, BOTH) as (stage, other):
        await stage.ready("a")
    async with two_projects(tmp_path, ("handshake",)) as (stage, other):
        first = await stage.ready("a")

        second = await stage.ready("b", project=other)

        assert first.instance != second.instance
        held = [(scope, leases) for scope, leases in await scopes(stage) if leases]
        assert held == [("project", ["a"]), ("project", ["b"])]


async def test_a_definition_that_names_a_scope_has_it_in_either_generation(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    spec = server(is_scope_fixed=True)
    async with two_projects(tmp_path, BOTH) as (stage, other):
        await stage.ready("a", spec)

        await stage.ready("b", spec, other)

        assert await scopes(stage) == [("project", ["a"]), ("project", ["b"])]


async def test_a_server_that_is_known_as_stateless_gets_no_handshake_while_it_is_slow(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with two_projects(tmp_path, BOTH) as (stage, other):
        await stage.ready("a")
        stage.machine.scripts["alpha"].probe_delay = 20.0

        await stage.ready("b", project=other)

        slow = stage.machine.processes[-1]
        assert len(stage.machine.processes) == 2
        assert (slow.asked_for("initialize"), len(slow.asked_for("server/discover"))) == ([], 1)
