"""Dependency scripts: waiters share one run; it ends with the last waiter and reports progress."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from capd.actors.supervisor.installs import Installs
from capd.adapters.servers import installers
from capd_protos.supervisor import (
    DependenciesFailed,
    DependenciesReady,
    InstallDependencies,
    InstallEnded,
    InstallOutput,
    InstallStarted,
)
from capd_protos.types import SessionKey

from .fakes import RecordingBus

PATIENCE = 30.0
PATH = "/usr/bin:/bin"
A, B = SessionKey("a"), SessionKey("b")
Reply = DependenciesReady | DependenciesFailed


class Stage:
    """Scripts in a folder, and sessions that ask for them."""

    def __init__(self, folder: Path, bus: RecordingBus, nursery: trio.Nursery) -> None:
        self.folder = folder
        self.bus = bus
        self.installs = Installs(bus, folder)
        self.replies: dict[SessionKey, Reply] = {}
        self._nursery = nursery

    def script(self, text: str) -> None:
        (self.folder / "tool.sh").write_text(text)

    async def ask(self, session: SessionKey = A, *, wait: str = "", **more: list[str]) -> Reply:
        scripts = {"org/tool": str(self.folder / "tool.sh")} if not more else {}
        request = InstallDependencies(
            scripts, session, more.get("lacking", []), more.get("commands", []), wait
        )
        reply = await self.installs.ensure(request, {"PATH": PATH}, self._nursery)
        self.replies[session] = reply
        return reply

    async def until(self, name: str) -> None:
        """Wait until the script has made this file."""
        while not (self.folder / name).exists():
            await trio.sleep(0.01)

    def ran(self) -> int:
        journal = self.folder / "journal"
        return len(journal.read_text().split()) if journal.exists() else 0

    def is_alive(self) -> bool:
        pid = (self.folder / "pid").read_text().strip()
        return Path(f"/proc/{pid}").exists()


@asynccontextmanager
async def staged(folder: Path) -> AsyncIterator[Stage]:
    with trio.fail_after(PATIENCE):
        async with RecordingBus() as bus, trio.open_nursery() as nursery:
            yield Stage(folder, bus, nursery)
            nursery.cancel_scope.cancel()


WAITS = "echo ran >> journal\nsleep 600 &\necho $! > pid\ntouch began\nwait\n"
UNTIL_TOLD = "echo ran >> journal\ntouch began\nwhile ! test -e go; do sleep 0.02; done\n"


async def test_sessions_that_ask_for_one_script_wait_for_one_run(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        stage.script(UNTIL_TOLD)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stage.ask, A)
            nursery.start_soon(stage.ask, B)
            await stage.until("began")

            (tmp_path / "go").touch()

        ready = DependenciesReady(["org/tool"], [])
        assert (stage.replies, stage.ran()) == ({A: ready, B: ready}, 1)


async def test_a_script_goes_on_while_somebody_waits_for_it(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        stage.script(UNTIL_TOLD)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stage.ask, A)
            nursery.start_soon(stage.ask, B)
            await stage.until("began")

            stage.installs.leave(A)
            (tmp_path / "go").touch()

        assert stage.replies == {
            A: DependenciesFailed("org/tool", "nobody waits for it any more"),
            B: DependenciesReady(["org/tool"], []),
        }


async def test_of_two_waits_of_one_session_one_can_end_alone(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        stage.script(UNTIL_TOLD)
        replies: dict[str, Reply] = {}

        async def ask(wait: str) -> None:
            replies[wait] = await stage.ask(A, wait=wait)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, "1")
            nursery.start_soon(ask, "2")
            await stage.until("began")
            await wait_all_tasks_blocked()

            stage.installs.leave(A, "1")
            (tmp_path / "go").touch()

        assert replies == {
            "1": DependenciesFailed("org/tool", "nobody waits for it any more"),
            "2": DependenciesReady(["org/tool"], []),
        }


async def test_the_last_one_to_leave_ends_the_script_with_its_tree(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        stage.script(WAITS)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stage.ask, A)
            await stage.until("began")

            stage.installs.leave(A)

        while stage.is_alive():
            await trio.sleep(0.01)
        while not any(isinstance(event, InstallEnded) for event in stage.bus.events):
            await trio.sleep(0.01)
        ended = stage.bus.events[-1]
        assert isinstance(ended, InstallEnded)
        assert (ended.dependency, ended.outcome) == ("org/tool", "cancelled")


async def test_who_comes_while_a_script_is_being_ended_has_it_run_afresh(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        stage.script(WAITS)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stage.ask, A)
            await stage.until("began")
            stage.installs.leave(A)
            stage.script("echo ran >> journal\n")

            reply = await stage.ask(B)

        assert (reply, stage.ran(), stage.is_alive()) == (
            DependenciesReady(["org/tool"], []),
            2,
            False,
        )


async def test_a_daemon_that_stops_ends_the_script_with_its_tree(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage, trio.open_nursery() as nursery:
        stage.script(WAITS)
        nursery.start_soon(stage.ask, A)
        await stage.until("began")

        stage._nursery.cancel_scope.cancel()
        nursery.cancel_scope.cancel()

    assert not stage.is_alive()


async def test_what_a_script_does_is_told_and_what_was_there_is_no_installation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installers, "TELL_PAUSE", 0.01)
    async with staged(tmp_path) as stage:
        stage.script(
            "# check: test -e there\necho fetching\n"
            "while ! test -e go; do sleep 0.02; done\ntouch there\n"
        )
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stage.ask, A)
            while not any(isinstance(event, InstallOutput) for event in stage.bus.events):
                await trio.sleep(0.01)
            (tmp_path / "go").touch()

        again = await stage.ask(B)

        heard = [
            (type(event).__name__, getattr(event, "line", getattr(event, "outcome", "")))
            for event in stage.bus.events
            if isinstance(event, InstallStarted | InstallOutput | InstallEnded)
        ]
        assert heard == [
            ("InstallStarted", ""),
            ("InstallOutput", "fetching"),
            ("InstallEnded", "installed"),
            ("InstallEnded", "present"),
        ]
        assert again == DependenciesReady([], ["org/tool"])


@pytest.mark.parametrize(
    ("commands", "expected"),
    [
        pytest.param(["sh"], DependenciesReady([], []), id="its command is there"),
        pytest.param(
            ["sh", "no-such-command"],
            DependenciesFailed(
                "org/lost",
                "the tap has no script for it, and no-such-command is not on the PATH: install it",
            ),
            id="a command is not",
        ),
        pytest.param(
            [], DependenciesFailed("org/lost", "the tap has no script for it"), id="no server"
        ),
    ],
)
async def test_a_script_that_the_tap_lacks_matters_where_its_command_is_not_there(
    tmp_path: Path, commands: list[str], expected: Reply
) -> None:
    async with staged(tmp_path) as stage:
        reply = await stage.ask(lacking=["org/lost"], commands=commands)

        await wait_all_tasks_blocked()
        assert reply == expected


async def test_a_script_that_failed_is_run_again_by_who_asks_next(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        stage.script("echo ran >> journal\necho no disk >&2\nexit 3\n")

        replies = [await stage.ask(A), await stage.ask(A)]

        failed = DependenciesFailed("org/tool", "tool.sh exited with code 3: no disk")
        assert (replies, stage.ran()) == ([failed, failed], 2)
