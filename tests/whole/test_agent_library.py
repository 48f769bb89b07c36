"""The agent library on a real daemon: turns, tools, calls, and a daemon that dies."""

import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import anyio
import pytest

import capd_client
from capd_client.agent import Connecting
from capd_client.agent.asynchronous import AsyncSession
from whole_daemon import OWN_TOOLS, Home, wait_for

BACKENDS = ["trio", "asyncio"]


def connecting(home: Home, **more: Any) -> Connecting:
    return capd_client.connect(
        client="test-agent", project=home.folder, env=home.env, socket=home.socket, **more
    )


def run_async(backend: str, work: Callable[[], Awaitable[None]]) -> None:
    """Run `work` on its own loop; the tests of this folder are not all on trio."""
    thread = ThreadPoolExecutor(1)
    with thread:
        thread.submit(lambda: anyio.run(work, backend=backend)).result(120)


def is_written_down(home: Home) -> bool:
    """Tell whether the active capabilities are in the saved record."""
    records = (home.folder / "state" / "sessions").glob("*.session")
    return any(b"talk" in record.read_bytes() for record in records)


def test_an_agent_switches_on_lists_and_calls(home: Home) -> None:
    home.plain("talk")
    home.start()
    with connecting(home, session="mine") as capd:
        before = [tool.name for tool in capd.tools()]

        change = capd.enable("talk")
        listed = capd.tools()
        result = capd.call("talk__echo", {"text": "hello"})
        undone = capd.disable("talk")

        assert (capd.key, before) == ("mine", OWN_TOOLS)
        assert (change.added, change.removed) == (("talk__echo", "talk__shout"), ())
        assert undone.removed == ("talk__echo", "talk__shout")
        schema = {"type": "object", "properties": {"text": {"type": "string"}}}
        (echo,) = [tool for tool in listed if tool.name == "talk__echo"]
        assert echo.input_schema == schema
        assert echo.as_openai()["function"]["parameters"] == schema
        assert result.text.endswith("hello")
        assert not result.is_error


def test_what_cannot_be_done_is_an_error_of_its_own_kind(home: Home) -> None:
    home.plain("talk")
    home.start()
    with connecting(home) as capd:
        with pytest.raises(capd_client.RefusedError, match="no tap has a capability"):
            capd.enable("nothing")
        with pytest.raises(capd_client.NotFoundError, match="no_such"):
            capd.call("no_such__tool")
        with pytest.raises(capd_client.NotSentError, match="not JSON"):
            capd.call("talk__echo", {"text": {1, 2}})

        assert len(capd.tools()) == len(OWN_TOOLS)
    with pytest.raises(capd_client.ClosedError):
        capd.tools()


def test_an_agent_whose_name_is_no_valid_text_opens_a_session(home: Home) -> None:
    home.start()

    with capd_client.connect(client="\udcffagent", env=home.env, socket=home.socket) as capd:
        assert capd.tools()


def test_a_timeout_may_be_without_end(home: Home) -> None:
    home.start()
    with connecting(home) as capd:
        tools = capd.tools(timeout=float("inf"))

        assert tools


def test_many_threads_use_one_session(home: Home) -> None:
    home.plain("talk")
    home.start()
    with connecting(home) as capd, ThreadPoolExecutor(8) as pool:
        capd.enable("talk")

        said = pool.map(
            lambda n: capd.call("talk__echo", {"text": str(n)}).text.split()[1], range(50)
        )

        assert list(said) == [str(n) for n in range(50)]


def test_a_session_outlives_the_daemon_with_what_it_has(home: Home) -> None:
    home.plain("talk")
    daemon = home.start()
    with connecting(home) as capd:
        capd.enable("talk")
        key = capd.key
        wait_for(lambda: is_written_down(home))
        daemon.kill()
        daemon.wait()
        asked: list[str] = []
        waiting = threading.Thread(
            target=lambda: asked.append(capd.call("talk__echo", {"text": "again"}).text)
        )
        waiting.start()
        home.start()

        waiting.join(60)

        assert asked[0].endswith("again")
        assert capd.key == key


def test_a_session_outlives_a_capd_that_is_stopped_and_does_not_start_it(home: Home) -> None:
    home.plain("talk")
    daemon = home.start()
    with connecting(home, session="mine") as capd:
        home.ask("stop", for_good=True)
        daemon.wait()
        wait_for(lambda: capd._link.is_stopped and capd._link.phase == "apart")

        with pytest.raises(capd_client.NoDaemonError, match="capd was stopped"):
            capd.tools(timeout=60)
        home.start()
        names = [tool.name for tool in capd.tools(timeout=60)]

        assert (names, capd.key) == (OWN_TOOLS, "mine")


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_task_outlives_a_capd_that_is_stopped(home: Home, backend: str) -> None:
    home.plain("talk")
    daemon = home.start()
    listed: list[str] = []

    async def work() -> None:
        async with connecting(home, session="mine") as capd:
            home.ask("stop", for_good=True)
            daemon.wait()
            while not capd._link.is_stopped or capd._link.phase != "apart":
                await anyio.sleep(0.01)
            with pytest.raises(capd_client.NoDaemonError, match="capd was stopped"):
                await capd.tools(timeout=60)
            home.start()
            listed.extend([tool.name for tool in await capd.tools(timeout=60)])

    run_async(backend, work)

    assert listed == OWN_TOOLS


def test_a_call_that_was_under_way_when_the_daemon_died_may_have_run(
    home: Home, evil_server: list[str]
) -> None:
    home.capability("slow", [*evil_server, "--mode", "slow_loris", "--tag", home.tag])
    daemon = home.start()
    with connecting(home) as capd, ThreadPoolExecutor(1) as pool:
        (name, *_) = capd.enable("slow").added
        call = pool.submit(capd.call, name)
        wait_for(lambda: any(each.is_dispatched for each in capd._link._pending.values()))

        daemon.kill()

        with pytest.raises(capd_client.OutcomeUnknownError, match="may have run"):
            call.result(60)


def test_nobody_who_answers_is_said_at_once_and_how_to_start_one(home: Home) -> None:
    with pytest.raises(capd_client.NoDaemonError, match="capd daemon start"):
        connecting(home, patience=0).open()


def test_a_daemon_is_started_where_there_is_none(home: Home) -> None:
    home.plain("talk")
    env = {**home.env, "CAPD_NO_START": ""}

    with capd_client.connect(client="test-agent", env=env) as capd:
        names = [tool.name for tool in capd.tools()]

    home.ask("stop")
    assert names == OWN_TOOLS


@pytest.mark.parametrize("backend", BACKENDS)
def test_tasks_use_one_session(home: Home, backend: str) -> None:
    home.plain("talk")
    daemon = home.start()
    said: dict[str, str] = {}

    async def call(capd: AsyncSession, text: str) -> None:
        said[text] = (await capd.call("talk__echo", {"text": text})).text.split()[1]

    async def work() -> None:
        async with connecting(home, session="mine") as capd:
            change = await capd.enable("talk")
            assert change.added == ("talk__echo", "talk__shout")
            async with anyio.create_task_group() as group:
                for number in range(20):
                    group.start_soon(call, capd, str(number))
            wait_for(lambda: is_written_down(home))
            daemon.kill()
            daemon.wait()
            home.start()
            await call(capd, "again")
            assert capd.key == "mine"
            assert "talk__echo" in [tool.name for tool in await capd.tools()]
            raise KeyError("the body's own")

    with pytest.raises(KeyError):
        run_async(backend, work)

    texts = [str(number) for number in range(20)] + ["again"]
    assert said == dict(zip(texts, texts, strict=True))
    wait_for(lambda: not home.ask("sessions")["sessions"])


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_task_that_gives_up_leaves_the_session_usable(
    home: Home, evil_server: list[str], backend: str
) -> None:
    home.capability("slow", [*evil_server, "--mode", "slow_loris", "--tag", home.tag])
    home.start()

    async def work() -> None:
        async with connecting(home) as capd:
            (name, *_) = (await capd.enable("slow")).added
            with pytest.raises(capd_client.OutcomeUnknownError, match="may have run"):
                await capd.call(name, timeout=0.2)
            async with anyio.create_task_group() as group:
                group.start_soon(capd.call, name)
                while not capd._link._pending:
                    await anyio.sleep(0)
                group.cancel_scope.cancel()
            assert len(await capd.tools()) > len(OWN_TOOLS)

    run_async(backend, work)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_task_is_told_that_there_is_no_daemon(home: Home, backend: str) -> None:
    async def work() -> None:
        async with connecting(home, patience=0):
            pass

    with pytest.raises(capd_client.NoDaemonError, match="capd daemon start"):
        run_async(backend, work)
