"""The socket's folder is private, and one daemon at a time serves it."""

import os
import socket
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from capd.adapters.clients.unix_listener import (
    AlreadyServedError,
    PlaceUnsafeError,
    listening,
    make_private,
    sole_daemon,
)

# As systemd does it: the socket is descriptor 3, and the environment says so.
TAKES_OVER = """
import os, socket, sys, trio
from capd.adapters.clients.unix_listener import listening
from pathlib import Path
os.dup2(int(sys.argv[2]), 3)
async def main():
    environment = {**os.environ, "LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "1",
                   "LISTEN_FDNAMES": "capd.socket"}
    with listening(Path(sys.argv[1], "unused"), environment) as given:
        print(given.socket.getsockname(), [k for k in environment if k.startswith("LISTEN")],
              os.get_inheritable(3), os.path.exists(sys.argv[1] + "/unused"))
        given.socket.close()
trio.run(main)
"""


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_a_folder_is_made_for_its_user_alone(tmp_path: Path) -> None:
    make_private(tmp_path / "a" / "b")
    make_private(tmp_path / "a" / "b")

    assert mode(tmp_path / "a" / "b") == 0o700


def linked(folder: Path) -> Path:
    (folder / "target").mkdir(mode=0o700)
    (folder / "link").symlink_to(folder / "target")
    return folder / "link"


def opened(folder: Path) -> Path:
    (folder / "open").mkdir()
    (folder / "open").chmod(0o750)
    return folder / "open"


def a_file(folder: Path) -> Path:
    (folder / "file").write_text("")
    return folder / "file"


def below_a_file(folder: Path) -> Path:
    return a_file(folder) / "run"


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (linked, "is not a folder"),
        (opened, "is open to other users: run chmod 700"),
        (a_file, "is not a folder: remove it"),
        (below_a_file, "cannot be made: Not a directory: correct the XDG_ variables, or set"),
    ],
)
def test_a_folder_that_is_not_safe_is_refused(
    tmp_path: Path, make: Callable[[Path], Path], reason: str
) -> None:
    with pytest.raises(PlaceUnsafeError, match=reason):
        make_private(make(tmp_path))


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_somebody_else_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir(mode=0o700)
    os.chown(folder, 65534, 65534)

    with pytest.raises(PlaceUnsafeError, match=r"not to you: .* or run sudo chown -R 0 /"):
        make_private(folder)


def test_one_daemon_at_a_time_and_the_second_is_told_who_the_first_is(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    with sole_daemon(lock):
        with pytest.raises(AlreadyServedError, match=rf"\(pid {os.getpid()}\) already serves"):
            sole_daemon(lock).__enter__()
        assert mode(lock) == 0o600
    with sole_daemon(lock):
        pass


def test_a_lock_that_a_killed_daemon_left_is_free(tmp_path: Path) -> None:
    script = (
        "import sys, os, time; from pathlib import Path\n"
        "from capd.adapters.clients.unix_listener import sole_daemon\n"
        "held = sole_daemon(Path(sys.argv[1])); held.__enter__()\n"
        "print('locked', flush=True); time.sleep(60)"
    )
    lock = tmp_path / "lock"
    command = [sys.executable, "-c", script, str(lock)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as first:
        assert first.stdout is not None
        first.stdout.readline()
        with pytest.raises(AlreadyServedError, match=rf"\(pid {first.pid}\)"):
            sole_daemon(lock).__enter__()
        first.kill()

    with sole_daemon(lock):
        assert lock.read_text() == f"{os.getpid()}\n"


def test_a_lock_that_is_a_link_is_refused(tmp_path: Path) -> None:
    target = tmp_path / "precious"
    target.write_text("keep")
    (tmp_path / "lock").symlink_to(target)

    with pytest.raises(PlaceUnsafeError, match="lock"):
        sole_daemon(tmp_path / "lock").__enter__()

    assert target.read_text() == "keep"


def test_a_folder_in_place_of_a_lock_is_to_be_removed(tmp_path: Path) -> None:
    with pytest.raises(PlaceUnsafeError, match="cannot be locked: Is a directory: remove it"):
        sole_daemon(tmp_path).__enter__()


def test_a_lock_in_a_folder_that_may_not_be_entered_names_the_folder(closed: Path) -> None:
    with pytest.raises(PlaceUnsafeError, match=f"Permission denied: see who owns {closed}"):
        sole_daemon(closed / "lock").__enter__()


async def test_the_socket_is_for_its_user_alone_and_goes_with_its_daemon(tmp_path: Path) -> None:
    path = tmp_path / "capd.sock"
    before = os.umask(0o000)
    try:
        with listening(path, {}) as listener:
            assert mode(path) == 0o600
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(str(path))
            listener.socket.close()
    finally:
        os.umask(before)

    assert not path.exists()


async def test_a_stale_socket_is_replaced_and_anything_else_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "capd.sock"
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))
    with listening(path, {}) as listener:
        listener.socket.close()

    path.write_text("precious")
    with pytest.raises(PlaceUnsafeError, match="is not a socket"):
        listening(path, {}).__enter__()
    assert path.read_text() == "precious"


async def test_a_path_that_no_socket_can_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PlaceUnsafeError, match="too long for a socket: set CAPD_SOCKET"):
        listening(tmp_path / ("x" * 200), {}).__enter__()
    with pytest.raises(PlaceUnsafeError, match="cannot be bound"):
        listening(Path("/nonexistent/capd.sock"), {}).__enter__()


async def test_what_systemd_gave_to_another_process_is_not_taken(tmp_path: Path) -> None:
    environment = {"LISTEN_PID": "1", "LISTEN_FDS": "1", "LISTEN_FDNAMES": "x", "HOME": "/"}
    path = tmp_path / "s"
    with listening(path, environment) as listener:
        assert path.exists()
        listener.socket.close()

    assert environment == {"HOME": "/"}


def test_the_socket_that_systemd_gave_is_taken_over_and_left_in_place(tmp_path: Path) -> None:
    path = tmp_path / "given"
    with socket.socket(socket.AF_UNIX) as given:
        given.bind(str(path))
        given.listen()
        done = subprocess.run(
            [sys.executable, "-c", TAKES_OVER, str(tmp_path), str(given.fileno())],
            pass_fds=(given.fileno(),),
            capture_output=True,
            text=True,
            check=True,
        )

    assert done.stdout.strip() == f"{path} [] False False"
    assert path.exists()


@pytest.mark.parametrize(
    ("family", "kind"),
    [
        (socket.AF_UNIX, socket.SOCK_DGRAM),
        (socket.AF_UNIX, socket.SOCK_STREAM),
        (socket.AF_INET, socket.SOCK_STREAM),
    ],
    ids=["datagrams", "silent", "network"],
)
def test_a_socket_of_systemds_that_is_no_listening_one_of_the_file_system_is_refused(
    tmp_path: Path, family: socket.AddressFamily, kind: socket.SocketKind
) -> None:
    with socket.socket(family, kind) as given:
        if family == socket.AF_INET:
            given.bind(("127.0.0.1", 0))
            given.listen()
        done = subprocess.run(
            [sys.executable, "-c", TAKES_OVER, str(tmp_path), str(given.fileno())],
            pass_fds=(given.fileno(),),
            capture_output=True,
            text=True,
            check=False,
        )

    assert "PlaceUnsafeError: systemd passed something else than a listening" in done.stderr
