"""Real servers, most of them hostile: none leaves a process behind."""

import array
import fcntl
import json
import os
import signal
import subprocess
import sys
import termios
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import trio

from capd.adapters import platform
from capd.adapters.servers import sandboxing
from capd.adapters.servers.processes import (
    CommandNotFoundError,
    ExitStatus,
    ProcessSpec,
    ServerProcess,
    SpawnFailedError,
    resolve_command,
    running,
)
from capd.adapters.servers.sandboxing import SandboxPlan
from capd.core.servers.sandbox import SandboxFeatures, SandboxMissingError, SandboxRequest
from support.programs import HOSTILE_SERVER

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks for survivors in /proc")

PATIENCE = 20.0
SHORT_GRACE = 0.05


class Evil:
    """The hostile server, with a mark by which all its processes are found."""

    def __init__(self, script: Path, folder: Path) -> None:
        self.tag = f"capd-test-{uuid.uuid4().hex}"
        self.out = folder / "out"
        self._script = script
        self._folder = folder

    def spec(self, mode: str = "ok", n: int = 0) -> ProcessSpec:
        options = ["--mode", mode, "--tag", self.tag, "--out", str(self.out), "--n", str(n)]
        argv = (sys.executable, str(self._script), *options)
        return ProcessSpec(argv, {"PATH": os.defpath, "CANARY": "declared"}, self._folder)

    def alive(self) -> list[str]:
        """Return the command line of each process of this tree that still runs."""
        found = []
        for process in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                command = process.read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            if self.tag in command:
                found.append(command)
        return found

    async def has(self, *endings: str) -> None:
        """Wait until each of `-grandchild`, `-holder` or the server itself (``) runs."""
        await until(
            lambda: all(any(f"{self.tag}{e} " in each for each in self.alive()) for e in endings)
        )


@pytest.fixture
def evil(tmp_path: Path) -> Evil:
    return Evil(HOSTILE_SERVER, tmp_path)


async def until(is_so: Callable[[], bool], patience: float = PATIENCE) -> None:
    with trio.fail_after(patience):
        while not is_so():
            await trio.sleep(0.01)


async def ask(process: ServerProcess, method: str, **params: object) -> dict[str, object]:
    """Send one request and return the next line."""
    request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    await process.stdin.send_all(json.dumps(request).encode() + b"\n")
    answer = b""
    while not answer.endswith(b"\n"):
        answer += await process.stdout.receive_some()
    message: dict[str, object] = json.loads(answer)
    return message


def unread_bytes(fd: int) -> int:
    count = array.array("i", [0])
    fcntl.ioctl(fd, termios.FIONREAD, count)
    return count[0]


def shell(script: str, folder: Path) -> ProcessSpec:
    return ProcessSpec(("sh", "-c", script), {"PATH": os.defpath}, folder)


async def test_a_server_answers_and_ends_when_its_stdin_closes(evil: Evil) -> None:
    with trio.fail_after(PATIENCE):
        async with running(evil.spec()) as process:
            assert (await ask(process, "ping"))["result"] == {}
            await process.stop(PATIENCE)

            status = await process.wait()

    assert status == ExitStatus(code=0)


@pytest.mark.parametrize(
    "mode",
    ["ok", "double_fork", "ignore_eof", "ignore_term,ignore_eof,double_fork,stdout_hold"],
)
async def test_no_descendant_is_left_after_a_stop(evil: Evil, mode: str) -> None:
    with trio.fail_after(PATIENCE):
        async with running(evil.spec(mode)) as process:
            await ask(process, "ping")
            await evil.has("", *(["-grandchild"] if "double_fork" in mode else []))

            await process.stop(SHORT_GRACE)

            assert evil.alive() == []


async def test_a_server_that_heeds_sigterm_is_not_killed(tmp_path: Path) -> None:
    async with running(
        shell("trap 'exit 7' TERM; echo; while :; do sleep 0.01; done", tmp_path)
    ) as process:
        await process.stdout.receive_some()

        with trio.fail_after(2 * PATIENCE):
            while not process._gone.is_set():
                process._command(b"T")
                await trio.sleep(0.05)

        assert await process.wait() == ExitStatus(code=7)


@pytest.mark.parametrize(
    ("trap", "status"),
    [("trap 'exit 7' TERM", ExitStatus(code=7)), (":", ExitStatus(signal=signal.SIGTERM))],
)
@pytest.mark.parametrize(
    "sandbox_request", [SandboxRequest("strict"), SandboxRequest(masks=("ssh",))]
)
async def test_a_confined_server_ends_by_itself_when_it_is_asked_to(
    tmp_path: Path, sandbox_request: SandboxRequest, trap: str, status: ExitStatus
) -> None:
    if not sandboxing.machine().bwrap:
        pytest.skip("this machine has no bubblewrap, or forbids it")
    (tmp_path / "home").mkdir()
    box = SandboxPlan(sandbox_request, (), {"HOME": str(tmp_path / "home")}, str(tmp_path))
    spec = shell(f"{trap}; echo; while :; do sleep 0.01; done", tmp_path)
    async with running(replace(spec, box=box)) as process:
        await process.stdout.receive_some()

        with trio.fail_after(2 * PATIENCE):
            process._command(b"T")
            await process._gone.wait()

        assert await process.wait() == status


async def test_a_server_that_cannot_be_confined_is_not_started(tmp_path: Path) -> None:
    box = SandboxPlan(
        SandboxRequest("strict"), (), {"HOME": str(tmp_path)}, machine=SandboxFeatures
    )
    mark = tmp_path / "mark"

    with pytest.raises(SandboxMissingError, match="install bubblewrap"):
        async with running(replace(shell(f"echo > {mark}", tmp_path), box=box)):
            pass

    assert not mark.exists()


async def test_the_ladder_climbs_from_eof_to_sigterm_to_sigkill(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    script = f"""
        trap 'echo term >> {journal}' TERM
        echo; while read line; do :; done; echo eof >> {journal}
        while :; do sleep 0.01; done
    """
    with trio.fail_after(PATIENCE):
        async with running(shell(script, tmp_path)) as process:
            await process.stdout.receive_some()

            await process.stop(0.5)

            status = await process.wait()
    assert (journal.read_text().split(), status) == (["eof", "term"], ExitStatus(signal=9))


async def test_sigterm_reaches_every_descendant_once(tmp_path: Path) -> None:
    # The wake-up descriptor gets a byte at every arrival, even where one handler run serves two.
    program = """
import os, signal
os.fork() or os.setsid()
os.set_blocking(1, False)
signal.set_wakeup_fd(1, warn_on_full_buffer=False)
signal.signal(signal.SIGTERM, lambda *_: None)
os.write(1, b"+")
while True:
    signal.pause()
"""
    spec = ProcessSpec((sys.executable, "-I", "-c", program), {"PATH": os.defpath}, tmp_path)
    heard = b""
    with trio.fail_after(PATIENCE):
        async with running(spec) as process:
            for round_ in range(5):
                while len(heard) < 2 * (round_ + 1):
                    heard += await process.stdout.receive_some()
                process._command(b"T")
            while len(heard) < 12:
                heard += await process.stdout.receive_some()
            await process.kill()
            async for chunk in process.stdout:
                heard += chunk

    assert heard == b"++" + bytes([signal.SIGTERM]) * 10


async def test_the_guard_does_not_hold_the_servers_pipes_open(tmp_path: Path) -> None:
    with trio.fail_after(PATIENCE):
        async with running(shell("exec >&-; read line", tmp_path)) as process:
            assert await process.stdout.receive_some() == b""


async def test_stopping_twice_at_once_and_again_later_is_harmless(evil: Evil) -> None:
    with trio.fail_after(PATIENCE):
        async with running(evil.spec("ignore_eof,ignore_term")) as process:
            await ask(process, "ping")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(process.stop, SHORT_GRACE)
                nursery.start_soon(process.stop, SHORT_GRACE)
            await process.stop()
        await process.stop()

    assert await process.wait() == ExitStatus(signal=9)


async def test_a_cancelled_stop_still_completes(evil: Evil) -> None:
    with trio.fail_after(PATIENCE):
        async with running(evil.spec("ignore_eof,ignore_term,double_fork")) as process:
            await ask(process, "ping")
            with trio.CancelScope() as scope:
                scope.cancel()
                await process.stop(SHORT_GRACE)

            assert evil.alive() == []


async def test_leaving_the_block_leaves_nothing(evil: Evil) -> None:
    with trio.fail_after(PATIENCE):
        async with running(evil.spec("ignore_term,double_fork,stdout_hold")) as process:
            await ask(process, "ping")
            await evil.has("", "-grandchild", "-holder")

    assert evil.alive() == []


async def test_a_cancelled_block_leaves_nothing(evil: Evil) -> None:
    with trio.fail_after(PATIENCE), trio.CancelScope() as scope:
        async with running(evil.spec("ignore_term,double_fork,stdout_hold")) as process:
            await ask(process, "ping")
            await evil.has("", "-grandchild", "-holder")
            scope.cancel()
            await trio.sleep_forever()

    assert evil.alive() == []


async def test_an_error_in_the_block_comes_out_as_itself(evil: Evil) -> None:
    with pytest.raises(ZeroDivisionError):
        async with running(evil.spec()):
            raise ZeroDivisionError

    assert evil.alive() == []


async def test_a_spawn_that_is_cancelled_leaves_nothing(evil: Evil) -> None:
    with trio.move_on_after(0.001):
        async with running(evil.spec("ignore_term,double_fork")):
            await trio.sleep_forever()

    assert evil.alive() == []


async def test_a_killed_server_takes_its_descendants_along(evil: Evil) -> None:
    with trio.fail_after(PATIENCE):
        async with running(evil.spec("ignore_term,double_fork,stdout_hold")) as process:
            await ask(process, "ping")
            await evil.has("", "-grandchild", "-holder")

            os.kill(process.pid, signal.SIGKILL)

            assert await process.wait() == ExitStatus(signal=9)
            await until(lambda: evil.alive() == [], 2)


async def test_death_is_seen_though_a_grandchild_holds_the_pipes(evil: Evil) -> None:
    with trio.fail_after(PATIENCE):
        async with running(evil.spec("stdout_hold,die_in_call")) as process:
            await evil.has("-holder")
            request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {}}
            await process.stdin.send_all(json.dumps(request).encode() + b"\n")

            assert await process.wait() == ExitStatus(code=9)


async def test_a_crash_at_start_is_an_exit_status(evil: Evil) -> None:
    with trio.fail_after(PATIENCE):
        async with running(evil.spec("crash_start")) as process:
            assert await process.wait() == ExitStatus(code=3)


@pytest.mark.parametrize("victim", ["daemon", "server", "guard"])
async def test_whoever_is_killed_within_two_seconds_nothing_is_left(
    evil: Evil, victim: str
) -> None:
    # Without its guard a double-forked process escapes: guard and server are then all there is.
    modes = "ignore_term,ignore_eof,stdout_hold" + ("" if victim == "guard" else ",double_fork")
    spec = evil.spec(modes)
    program = f"""
import os, pathlib, trio
from capd.adapters.servers.processes import ProcessSpec, running
async def main():
    spec = ProcessSpec({spec.argv!r}, {spec.env!r}, pathlib.Path({str(spec.cwd)!r}))
    async with running(spec) as process:
        print(process.guard_pid, process.pid, flush=True)
        await trio.sleep_forever()
trio.run(main)
"""
    # The program goes through stdin, so that its own command line does not hold the tag.
    with subprocess.Popen(
        [sys.executable, "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as daemon:
        assert daemon.stdin is not None
        assert daemon.stdout is not None
        daemon.stdin.write(program.encode())
        daemon.stdin.close()
        guard, server = map(int, (await trio.to_thread.run_sync(daemon.stdout.readline)).split())
        await evil.has("", "-holder", *([] if victim == "guard" else ["-grandchild"]))

        os.kill({"daemon": daemon.pid, "server": server, "guard": guard}[victim], signal.SIGKILL)

        try:
            await until(lambda: evil.alive() == [], 2)
        finally:
            daemon.kill()


async def test_a_daemon_killed_during_a_spawn_leaves_nothing(evil: Evil) -> None:
    spec = evil.spec("ignore_term,ignore_eof,double_fork")
    program = f"""
import os, pathlib, signal
from capd.adapters.servers import processes
processes.platform.process_start_time = lambda pid: os.kill(os.getpid(), signal.SIGKILL)
processes._launch(
    processes.ProcessSpec({spec.argv!r}, {spec.env!r}, pathlib.Path({str(spec.cwd)!r}))
)
"""

    daemon = await trio.run_process(
        [sys.executable, "-"], stdin=program.encode(), check=False, capture_stderr=True
    )

    assert (daemon.returncode, daemon.stderr) == (-signal.SIGKILL, b"")
    await until(lambda: evil.alive() == [], 2)


async def test_a_lost_guard_is_reported_and_its_server_killed(evil: Evil) -> None:
    with trio.fail_after(PATIENCE):
        async with running(evil.spec("ignore_term,ignore_eof,stdout_hold")) as process:
            await ask(process, "ping")
            await evil.has("", "-holder")

            os.kill(process.guard_pid, signal.SIGKILL)

            assert await process.wait() == ExitStatus(signal=9, is_guard_lost=True)
            await process.stop()
            assert evil.alive() == []


async def test_a_stopped_guard_still_kills(evil: Evil) -> None:
    with trio.fail_after(PATIENCE):
        async with running(evil.spec("ignore_term,ignore_eof,double_fork")) as process:
            await ask(process, "ping")
            os.kill(process.guard_pid, signal.SIGSTOP)

            await process.stop(SHORT_GRACE)

            assert evil.alive() == []


async def test_a_guard_ignores_the_signals_of_a_terminal(evil: Evil) -> None:
    with trio.fail_after(PATIENCE):
        async with running(evil.spec()) as process:
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                os.kill(process.guard_pid, number)

            assert (await ask(process, "ping"))["result"] == {}
            assert os.getsid(process.guard_pid) == process.guard_pid
            assert os.getpgid(process.pid) == process.pid


async def test_a_server_survives_the_end_of_the_thread_that_spawned_it(
    evil: Evil, monkeypatch: pytest.MonkeyPatch
) -> None:
    # trio ends an idle worker thread after 10 s, and a parent-death signal goes with the thread.
    monkeypatch.setattr("trio._core._thread_cache.IDLE_TIMEOUT", 0.01)
    with trio.fail_after(PATIENCE):
        threads_before = len(list(Path("/proc/self/task").iterdir()))
        async with running(evil.spec()) as process:
            await until(lambda: len(list(Path("/proc/self/task").iterdir())) <= threads_before)

            assert (await ask(process, "ping"))["result"] == {}


async def test_what_nobody_vouches_for_at_the_last_moment_is_not_started(evil: Evil) -> None:
    def refuse() -> None:
        raise SandboxMissingError("it has changed")

    spec = replace(evil.spec("env_dump"), check_trust=refuse)

    with trio.fail_after(PATIENCE), pytest.raises(SandboxMissingError, match="it has changed"):
        async with running(spec):
            pass

    assert (evil.out.exists(), evil.alive()) == (False, [])


async def test_a_server_holds_three_descriptors_and_no_more(evil: Evil) -> None:
    with Path("/dev/null").open() as leak, trio.fail_after(PATIENCE):
        os.set_inheritable(leak.fileno(), True)
        async with running(evil.spec("ok")), running(evil.spec("fd_dump")) as process:
            await ask(process, "ping")

    found = json.loads(evil.out.read_text())
    # Listing the folder opens one more, which names itself.
    assert {fd for fd, target in found.items() if "/fd" not in target} == {"0", "1", "2"}


async def test_a_server_gets_exactly_the_environment_of_its_spec(
    evil: Evil, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", "canary")
    spec = evil.spec("env_dump")
    with trio.fail_after(PATIENCE):
        async with running(spec) as process:
            await ask(process, "ping")

    found = json.loads(evil.out.read_text())
    found.pop("LC_CTYPE", None)  # the server's interpreter sets it
    mark = found.pop("CAPD_INSTANCE")
    assert mark.endswith(".server")
    assert found == spec.env


async def test_the_guard_shows_nothing_of_the_spec(evil: Evil) -> None:
    with trio.fail_after(PATIENCE):
        async with running(evil.spec()) as process:
            await ask(process, "ping")
            guard = Path(f"/proc/{process.guard_pid}")

            shown = (guard / "cmdline").read_bytes() + (guard / "environ").read_bytes()

            assert b"CANARY" not in shown
            assert evil.tag.encode() not in shown
            assert (guard / "cwd").readlink() == Path("/")


async def test_signals_are_as_a_shell_would_give_them(tmp_path: Path) -> None:
    with trio.fail_after(PATIENCE):
        async with running(shell("cat /proc/self/status", tmp_path)) as process:
            lines = (await process.stdout.receive_some()).decode().split("\n")

    sets = ("SigBlk", "SigIgn", "SigCgt")
    masks = {line[:6]: int(line[7:], 16) for line in lines if line.startswith(sets)}
    assert set(masks) == set(sets)
    # 32 and 33 belong to glibc, whose posix_spawn ignores them.
    assert {name: mask & 0x7FFFFFFF for name, mask in masks.items()} == dict.fromkeys(masks, 0)


async def test_no_descriptor_and_no_zombie_stays_in_the_daemon(evil: Evil) -> None:
    async def cycle() -> None:
        async with running(evil.spec("crash_start")) as process:
            await process.wait()

    with trio.fail_after(PATIENCE):
        await cycle()
        before = (len(list(Path("/proc/self/fd").iterdir())), platform.descendants(os.getpid()))
        for _ in range(5):
            await cycle()
        with pytest.raises(CommandNotFoundError):
            async with running(ProcessSpec(("no-such-command",), {}, evil.out.parent)):
                pass

    assert (len(list(Path("/proc/self/fd").iterdir())), platform.descendants(os.getpid())) == before


async def test_stderr_is_always_drained_and_its_tail_kept(evil: Evil) -> None:
    with trio.fail_after(PATIENCE):
        async with running(evil.spec("stderr_flood")) as process:
            for _ in range(20):
                await ask(process, "ping")
            await until(lambda: sum(map(len, process.stderr_tail())) > 0)

            assert sum(map(len, process.stderr_tail())) <= 64 * 1024


async def test_the_last_words_are_there_when_wait_returns(tmp_path: Path) -> None:
    script = "yes 1234567 | head -c 65536 >&2; echo last words >&2; exit 1"
    with trio.fail_after(PATIENCE):
        async with running(shell(script, tmp_path)) as process:
            # Hold the loop until the pipe is full: draining it in one go is what makes the drain
            # pause, and meanwhile the server ends.
            while unread_bytes(process._stderr._fd) < 64 * 1024:
                pass
            await process.wait()

            assert process.stderr_tail()[-2:] == ["1234567", "last words"]


async def test_control_characters_in_stderr_are_escaped(tmp_path: Path) -> None:
    script = r"printf 'a\033[2Jb\r\n\tc\007\342\200\256d\377\n' >&2"
    with trio.fail_after(PATIENCE):
        async with running(shell(script, tmp_path)) as process:
            await process.wait()

            assert process.stderr_tail() == ["a\\x1b[2Jb", "\tc\\x07\\u202ed\ufffd"]


async def test_a_cut_tail_starts_with_a_whole_line(tmp_path: Path) -> None:
    with trio.fail_after(PATIENCE):
        async with running(shell("seq 100000 199999 >&2", tmp_path)) as process:
            await process.wait()

            tail = process.stderr_tail()
    assert (set(map(len, tail)), tail[-1]) == ({6}, "199999")
    assert 64 * 1024 - 14 <= len(tail) * 7 <= 64 * 1024


@pytest.mark.parametrize("argument", ["; touch pwn", "$(touch pwn)", "a\nb", "*", "~", ""])
async def test_arguments_are_never_read_by_a_shell(tmp_path: Path, argument: str) -> None:
    spec = ProcessSpec(("printf", "<%s>", argument), {"PATH": os.defpath}, tmp_path)
    with trio.fail_after(PATIENCE):
        async with running(spec) as process:
            assert await process.stdout.receive_some() == f"<{argument}>".encode()

    assert list(tmp_path.iterdir()) == []


async def test_the_command_is_found_by_the_servers_own_path(tmp_path: Path) -> None:
    script = tmp_path / "only-here"
    script.write_text("#!/bin/sh\necho found\n")
    script.chmod(0o700)
    with trio.fail_after(PATIENCE):
        async with running(
            ProcessSpec(("only-here",), {"PATH": str(tmp_path)}, Path("/"))
        ) as process:
            assert await process.stdout.receive_some() == b"found\n"
        async with running(ProcessSpec(("./only-here",), {}, tmp_path)) as process:
            assert await process.stdout.receive_some() == b"found\n"


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("nowhere", "nowhere was not found in PATH (/a:/b): install it, or give its full path"),
        (
            "npx",
            (
                "npx was not found in PATH (/a:/b): it comes with Node.js (package `nodejs` or "
                "`npm`, or https://nodejs.org)"
            ),
        ),
        ("/nowhere", "/nowhere is not an executable file: correct the command's path"),
        (
            "npx -y notes",
            (
                "npx -y notes was not found in PATH (/a:/b): it is one word with spaces: leave out "
                "the quotes around it; in a definition, `command` has its first word and `args` "
                "the others"
            ),
        ),
    ],
)
async def test_a_missing_command_says_where_it_was_looked_for(
    tmp_path: Path, command: str, text: str
) -> None:
    with pytest.raises(CommandNotFoundError) as refusal:
        async with running(ProcessSpec((command,), {"PATH": "/a:/b"}, tmp_path)):
            pass

    assert str(refusal.value) == text


async def test_what_the_system_refuses_is_an_error_with_its_reason(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o700)
    refused = {
        (str(script),): "No such file or directory",
        ("printf", "a\0b"): "a NUL",
    }

    for argv, reason in refused.items():
        with pytest.raises(SpawnFailedError, match=reason):
            async with running(ProcessSpec(argv, {"PATH": os.defpath}, tmp_path)):
                pass
    with pytest.raises(SpawnFailedError, match="no such directory"):
        async with running(ProcessSpec(("printf",), {"PATH": os.defpath}, tmp_path / "gone")):
            pass


async def test_large_arguments_and_environments_arrive_whole(tmp_path: Path) -> None:
    env = {"PATH": os.defpath, "BIG": "x" * 100_000, "ODD": "a=b\nc"}
    script = 'echo ${#BIG} ${#0}; printf %s "$ODD"'
    spec = ProcessSpec(("sh", "-c", script, "y" * 100_000), env, tmp_path)
    answer = b""
    with trio.fail_after(PATIENCE):
        async with running(spec) as process:
            async for chunk in process.stdout:
                answer += chunk

    assert answer == b"100000 100000\na=b\nc"


def test_a_spec_does_not_print_its_secrets(tmp_path: Path) -> None:
    spec = ProcessSpec(("server", "--key=SECRET"), {"TOKEN": "SECRET"}, tmp_path)

    assert "SECRET" not in repr(spec)


def test_a_folder_of_path_that_may_not_be_entered_is_passed_over(closed: Path) -> None:
    spec = ProcessSpec(("sh",), {"PATH": f"{closed / 'bin'}:{closed}:/bin"}, Path("/"))

    found = resolve_command(spec)

    assert found == Path("/bin/sh")
