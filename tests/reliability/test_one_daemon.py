"""One daemon per state folder, whatever happens to its socket's folder."""

import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from capd_client.control import Control, ControlError, DaemonDownError
from whole_daemon import wait_for

from .world import World

pytestmark = pytest.mark.reliability


def other_daemon(world: World, **env: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "capd", "daemon", "run"],
        env={**world.home.env, **env},
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def daemon_pid(world: World) -> int:
    assert world.process is not None
    return world.process.pid


def answering_pid(world: World) -> int:
    try:
        with Control(world.home.socket) as control:
            return int(control.daemon["pid"])
    except (DaemonDownError, ControlError):
        return 0


def test_a_second_daemon_does_not_start_where_the_run_folder_is_gone(world: World) -> None:
    world.start()
    shutil.rmtree(world.home.folder / "run")

    second = other_daemon(world)
    try:
        _, said = second.communicate(timeout=30)
    finally:
        second.kill()

    assert second.returncode == 1
    assert f"a daemon (pid {daemon_pid(world)}) already serves" in said
    assert "capd stop" in said


def test_a_daemon_puts_its_socket_back_and_serves_on(world: World) -> None:
    world.start()
    shutil.rmtree(world.home.folder / "run")

    pid = wait_for(lambda: answering_pid(world))

    assert pid == daemon_pid(world)
    run = world.home.folder / "run"
    assert run.stat().st_mode & 0o777 == 0o700
    assert (run / "capd.sock").stat().st_mode & 0o777 == 0o600
    world.honest("late")
    world.home.ask("reload")
    assert world.session("two", "late").said("late__echo", "here").startswith("late echo ")


def test_a_socket_of_somebody_else_in_its_place_is_replaced(world: World) -> None:
    world.start()
    path = Path(world.home.socket)
    path.unlink()
    path.write_text("no socket")

    assert wait_for(lambda: answering_pid(world)) == daemon_pid(world)


def test_stop_finds_a_daemon_whose_socket_is_gone(world: World) -> None:
    world.start()
    shutil.rmtree(world.home.folder / "run")

    process = world.process
    assert process is not None

    said = world.home.capd("stop")

    assert said.returncode == 0, said.stderr
    assert process.poll() is not None
    world.process = None


@pytest.mark.parametrize("socket", ["", "other.sock"])
def test_of_two_that_start_at_once_exactly_one_survives(world: World, socket: str) -> None:
    env = {"CAPD_SOCKET": str(world.home.folder / socket)} if socket else {}
    both = [other_daemon(world), other_daemon(world, **env)]

    try:
        ended = wait_for(lambda: [each for each in both if each.poll() is not None])
        (loser,) = ended
        (winner,) = [each for each in both if each is not loser]
        said = loser.communicate(timeout=30)[1]
        assert loser.returncode == 1
        assert f"a daemon (pid {winner.pid}) already serves" in said
        assert winner.poll() is None
    finally:
        for each in both:
            each.terminate()
            with suppress(subprocess.TimeoutExpired):
                each.communicate(timeout=20)
            each.kill()
