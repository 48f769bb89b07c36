"""`capd doctor` on processes that no daemon manages any more."""

from pathlib import Path

from capd_client.doctor.environment import CheckContext
from capd_client.doctor.processes import check_processes
from capd_protos.places import places
from capd_protos.tree_marks import Mark, home_mark

UID = Path("/proc/self").stat().st_uid


class Proc:
    """A fake /proc."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = {"HOME": str(folder / "home"), "CAPD_HOME": str(folder / "capd")}
        self.places = places(self.env, UID)
        self.mark = Mark(home_mark(self.places.state), "0" * 16)

    def process(
        self,
        pid: int,
        parent: int,
        *,
        value: str = "",
        limit: str = "unlimited",
        state: str = "S",
    ) -> None:
        folder = self.folder / str(pid)
        folder.mkdir()
        (folder / "stat").write_text(f"{pid} (a) b) {state} {parent} 1 1")
        (folder / "environ").write_bytes(f"A=1\0CAPD_INSTANCE={value}\0".encode())
        (folder / "limits").write_text(f"Max file locks      {limit}      {limit}      locks\n")

    def seen(self, daemon: int = 0, membership: str = "") -> CheckContext:
        status = {"status": {"daemon": {"membership": membership}}} if daemon else {}
        about = {"pid": daemon, "version": "1"} if daemon else {}
        return CheckContext(self.env, UID, self.places, "1", about, status)


def test_what_has_a_mark_and_no_daemon_above_it_is_named(tmp_path: Path) -> None:
    proc = Proc(tmp_path)
    proc.process(10, 1)
    proc.process(11, 10, value=proc.mark.of_server)
    proc.process(20, 1, value=proc.mark.of_server)
    proc.process(21, 1, limit=str(proc.mark.limit(None)))
    proc.process(22, 1, value=Mark("ffffffff", "0" * 16).of_server)
    proc.process(23, 1, limit="5")

    (left, way) = check_processes(proc.seen(10, "sweep"), tmp_path)

    assert (left.level, left.fix) == (
        "warning",
        "capd daemon restart (a daemon that starts ends them)",
    )
    assert left.what == "processes of servers are still running without a daemon: 20, 21"
    told = "the daemon knows its servers' processes by guards, a watcher, and marks that"
    assert (way.level, way.what) == ("ok", f"{told} processes inherit")


def test_without_a_daemon_whatever_has_the_mark_is_left(tmp_path: Path) -> None:
    proc = Proc(tmp_path)
    proc.process(11, 1, value=proc.mark.of_server)

    (left,) = check_processes(proc.seen(), tmp_path)

    assert left.what.endswith(": 11")


def test_what_has_ended_is_not_left(tmp_path: Path) -> None:
    """Its limit can be read until somebody collects it."""
    proc = Proc(tmp_path)
    proc.process(11, 1, limit=str(proc.mark.limit(None)), state="Z")
    proc.process(12, 1, value=proc.mark.of_server)
    (tmp_path / "12/stat").unlink()

    assert list(check_processes(proc.seen(), tmp_path)) == []


def test_a_way_that_finds_too_little_is_a_note(tmp_path: Path) -> None:
    (way,) = check_processes(Proc(tmp_path).seen(10, "group"), tmp_path)

    assert way.level == "note"
