"""No other process of the user can connect to the embedder and read messages."""

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from whole_daemon import Home, wait_for

from .world import Session, World

pytestmark = pytest.mark.reliability

SECRET_WORDS = "please deploy the canary 8c1f to the staging cluster with talk"
ALIVE = 60.0


@contextlib.contextmanager
def impostor(path: Path) -> Iterator[zmq.Socket[bytes]]:
    """Listen where an embedder's socket was, or could be, as a server of this user can."""
    path.unlink(missing_ok=True)
    context = zmq.Context()
    router = context.socket(zmq.ROUTER)
    router.bind(f"ipc://{path}")
    try:
        yield router
    finally:
        context.destroy(linger=0)


def heard(router: "zmq.Socket[bytes]", seconds: float) -> bytes:
    said = b""
    give_up_at = time.monotonic() + seconds
    while time.monotonic() < give_up_at and b"canary" not in said:
        if router.poll(100):
            said += b"".join(router.recv_multipart())
    return said


def embedder_pid(home: Home) -> int:
    def ready() -> int:
        told = home.ask("status")["embedder"]
        return told["pid"] if told["state"] == "ready" else 0

    return wait_for(ready, ALIVE)


def is_routed_by_model(home: Home) -> bool:
    """Tell whether a message with the secret words reaches the model."""
    turn = home.ask("turn", session="user", text=SECRET_WORDS)
    return bool(turn["reason"] != "model_not_ready")


def names_of_sockets(folder: Path) -> set[str]:
    """Return the names of the Unix sockets that anybody has open below a folder."""
    lines = Path("/proc/net/unix").read_text().splitlines()[1:]
    names = [line.split(maxsplit=7)[7] for line in lines if len(line.split()) > 7]
    return {name for name in names if name.startswith(f"{folder}/")}


def start(world: World) -> Session:
    world.home.plain("talk")
    world.start()
    return world.session("user")


def test_who_listens_where_the_embedder_could_be_hears_nothing(world: World) -> None:
    start(world)
    pid = embedder_pid(world.home)

    with impostor(world.home.folder / "run" / "embedder.ipc") as router:
        os.kill(pid, 9)
        wait_for(lambda: embedder_pid(world.home) != pid, ALIVE)
        # No turn waits for a slow model: on a busy machine the first ones may do without it.
        wait_for(lambda: is_routed_by_model(world.home), ALIVE)
        said = heard(router, 2.0)

    assert said == b""


def test_no_name_in_the_file_system_leads_to_the_embedder(world: World) -> None:
    start(world)
    embedder_pid(world.home)

    run = sorted(each.name for each in (world.home.folder / "run").iterdir())

    assert [name for name in run if "embedder" in name] == []
    # The embedder's descriptors themselves are shown to root alone.
    assert names_of_sockets(world.home.folder) == {world.home.socket}


@pytest.mark.skipif(os.getuid() == 0, reason="root may read every process")
def test_another_process_of_this_user_reads_nothing_of_the_embedder(world: World) -> None:
    start(world)
    pid = embedder_pid(world.home)
    refused = []

    for what in ("environ", "mem", "maps", "fd/0"):
        try:
            (Path("/proc") / str(pid) / what).open("rb").close()
        except PermissionError:
            refused.append(what)

    assert refused == ["environ", "mem", "maps", "fd/0"]


def test_the_embedder_ends_with_a_killed_daemon_and_is_back_with_the_next(world: World) -> None:
    start(world)
    first = embedder_pid(world.home)

    world.close()
    world.kill_daemon()
    wait_for(lambda: not Path(f"/proc/{first}").exists(), ALIVE)
    world.process = world.home.start()
    world.open_neighbour()

    assert embedder_pid(world.home) != first


def test_a_stopped_embedder_costs_a_turn_its_routing_and_nothing_else(world: World) -> None:
    start(world)
    pid = embedder_pid(world.home)
    os.kill(pid, 19)

    turn = world.home.ask("turn", session="user", text=SECRET_WORDS)
    world.ask_neighbour()
    os.kill(pid, 9)

    assert turn["reason"] == "model_not_ready"
    assert embedder_pid(world.home) != pid
