"""What capd asks macOS. Where this is another system, what can be is asked of a stand-in.

The tests marked `macos_only` await their first run on the hosted job (.github/workflows/gate.yml).
"""

import os
import shutil
import socket
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from capd.adapters import platform
from capd.adapters.platform import portable
from capd_client.service.launchd import Launchd

macos_only = pytest.mark.skipif(sys.platform != "darwin", reason="asks macOS")


class Socket:
    """A socket whose peer macOS describes: `struct xucred` of sys/ucred.h, and a pid."""

    def getsockopt(self, level: int, option: int, size: int = 0, /) -> "int | bytes":
        assert level == 0, "SOL_LOCAL"
        if option == 2:
            return 4711
        assert (option, size) == (1, 76), "LOCAL_PEERCRED, sizeof(struct xucred)"
        return struct.pack("@IIh16I", 0, 501, 2, 20, 12, *[0] * 14)


def test_the_peer_is_read_as_macos_lays_it_out() -> None:
    assert portable.peer_credentials(Socket()) == (4711, 501, 20)  # type: ignore[arg-type]


@macos_only
def test_macos_names_the_peer_of_a_unix_socket(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as near:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        near.connect(str(tmp_path / "s"))
        far, _ = listener.accept()
        with far:
            peer = platform.peer_credentials(far)

    assert peer == (os.getpid(), os.getuid(), os.getgid())


@macos_only
def test_macos_tells_the_end_of_a_process_without_proc() -> None:
    assert not Path("/proc").exists()
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    start = platform.process_start_time(process.pid)
    size = platform.rss_bytes(process.pid)
    parent = platform.parent_pid(process.pid)

    process.communicate(b"\n")

    assert start
    assert size
    assert parent == os.getpid()
    assert platform.process_start_time(process.pid) is None


@macos_only
def test_kqueue_reports_the_end_of_a_process() -> None:
    """Trio waits for processes by it there."""
    import select

    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    queue = select.kqueue()  # type: ignore[attr-defined,unused-ignore]
    event = select.kevent(  # type: ignore[attr-defined,unused-ignore]
        process.pid,
        select.KQ_FILTER_PROC,  # type: ignore[attr-defined,unused-ignore]
        select.KQ_EV_ADD,  # type: ignore[attr-defined,unused-ignore]
        select.KQ_NOTE_EXIT,  # type: ignore[attr-defined,unused-ignore]
    )
    queue.control([event], 0)

    process.communicate(b"\n")

    [ended] = queue.control(None, 1, 30)
    queue.close()
    assert ended.ident == process.pid


@macos_only
def test_launchd_s_own_checker_accepts_the_agent(tmp_path: Path) -> None:
    plutil = shutil.which("plutil")
    assert plutil
    file = tmp_path / "agent.plist"
    file.write_bytes(Launchd({"HOME": str(tmp_path)}).plist())

    done = subprocess.run([plutil, "-lint", str(file)], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout
