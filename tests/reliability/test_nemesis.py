"""Ten sessions call while everything around them is killed, stopped, reloaded and filled up.

Servers write down what they do, clients what they hear; `history` holds the rules. A failure
names its seed. `CAPD_NEMESIS_SEEDS` (comma-separated) and `CAPD_NEMESIS_SECONDS` set more.
"""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from capd.adapters.platform import descendants, process_start_time
from whole_daemon import Home, home_of_its_own, wait_for

from .history import UNLISTED, Call, answer_of, violations
from .test_reloads import BAD_CONFIGS

pytestmark = pytest.mark.reliability

SEEDS = [int(each) for each in os.environ.get("CAPD_NEMESIS_SEEDS", "1,2").split(",")]
SECONDS = float(os.environ.get("CAPD_NEMESIS_SECONDS", "60"))
SESSIONS = 10
SERVERS = ("alpha", "beta", "gamma")
JOURNAL_SERVER = Path(__file__).parent / "journal_server.py"
PATIENCE = 120.0
"""Seconds after the last fault in which every call must have ended."""
LEFT_AFTER = 10.0
"""Seconds after the daemon's end in which no process may be left."""
GOOD_CONFIG = "[servers]\nlinger = {n}\n"
DISK_MIB = 4


class Editor:
    """A client behind a real shim; what comes twice is kept twice."""

    def __init__(self, home: Home, key: str) -> None:
        self.key = key
        self.is_gone = False
        self._answers: dict[int, list[dict[str, Any]]] = {}
        self._changed = threading.Condition()
        self._last_id = 0
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "capd_client.entry", "mcp", home.socket],
            env={**home.env, "CAPD_SESSION": key, "CAPD_CLIENT": "test-editor"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=home.folder,
        )
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()
        params = {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "test-editor", "version": "1"},
        }
        if self.answered(self.ask("initialize", params)):
            self._write({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def ask(self, method: str, params: dict[str, Any]) -> int:
        self._last_id += 1
        request = {"jsonrpc": "2.0", "id": self._last_id, "method": method, "params": params}
        self._write(request)
        return self._last_id

    def answered(self, request_id: int) -> list[dict[str, Any]]:
        """Wait for the answer; return all there are, none where the shim is gone."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._answers.get(request_id) or self.is_gone, timeout=PATIENCE
            )
            return self._answers.get(request_id, [])

    def kill(self) -> None:
        self.process.kill()

    def leave(self) -> None:
        with contextlib.suppress(OSError):
            if self.process.stdin is not None:
                self.process.stdin.close()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._reading.join(PATIENCE)
        if self.process.stdout is not None:
            self.process.stdout.close()

    def _write(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(message).encode() + b"\n")
            self.process.stdin.flush()
        except OSError:
            self.is_gone = True

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            message = json.loads(line)
            if "method" not in message:
                with self._changed:
                    self._answers.setdefault(message["id"], []).append(message)
                    self._changed.notify_all()
        with self._changed:
            self.is_gone = True
            self._changed.notify_all()


class Caller(threading.Thread):
    """One session that calls until it is told to stop; a new one where its shim was killed."""

    def __init__(self, home: Home, number: int, seed: int) -> None:
        super().__init__(daemon=True)
        self.calls: list[Call] = []
        self.editor: Editor | None = None
        self.is_over = threading.Event()
        self.problem = ""
        self._home = home
        self._number = number
        self._rng = random.Random(f"{seed} {number}")
        self._sent: list[tuple[Editor, int, Call]] = []
        self._lives = 0

    def run(self) -> None:
        try:
            while not self.is_over.is_set():
                self._live()
        except Exception as error:  # noqa: BLE001 - a caller that ends early is a failure
            self.problem = repr(error)

    def _live(self) -> None:
        self._lives += 1
        key = f"s{self._number}-{self._lives}"
        editor = self.editor = Editor(self._home, key)
        is_on = False
        while not (self.is_over.is_set() or editor.is_gone):
            if not is_on:
                is_on = self._switch_on(key)
                time.sleep(0 if is_on else 0.1)
                continue
            call = Call(f"{key}/{len(self.calls)}", key)
            arguments = {"nonce": call.nonce, "wait": self._rng.choice((0, 0, 1, 5, 20, 200))}
            name = f"{self._rng.choice(SERVERS)}__mark"
            self.calls.append(call)
            request = editor.ask("tools/call", {"name": name, "arguments": arguments})
            self._sent.append((editor, request, call))
            answers = editor.answered(request)
            is_on = not answers or answer_of(answers[0]).outcome != UNLISTED
            time.sleep(self._rng.random() / 20)
        if editor.is_gone:
            editor.leave()

    def _switch_on(self, key: str) -> bool:
        for name in SERVERS:
            try:
                if not self._home.ask("enable", session=key, name=name).get("ok"):
                    return False
            except Exception:  # noqa: BLE001 - the daemon may be gone at this moment
                return False
        return True

    def finish(self) -> None:
        """Take what was heard of every call, also what came after it was over."""
        for editor, request, call in self._sent:
            call.answers = [answer_of(each) for each in editor._answers.get(request, [])]
            call.is_client_gone = editor.is_gone


class Nemesis:
    """Does harm, one thing after the other, and mends it."""

    def __init__(self, home: Home, callers: list[Caller], seed: int, disk: Path | None) -> None:
        self.home = home
        self.done: Counter[str] = Counter()
        self.trace: list[str] = []
        self.seen: set[tuple[int, str]] = set()
        """Every process that was ever below a daemon, by its number and start."""
        self._callers = callers
        self._rng = random.Random(seed)
        self._disk = disk
        self._began_at = time.monotonic()
        self.daemon = home.start()
        self._actions: list[tuple[int, Callable[[], None]]] = [
            (5, self.signal_server),
            (3, self.signal_guard),
            (2, self.kill_daemon),
            (1, self.stop_daemon),
            (1, self.freeze_daemon),
            (2, self.signal_embedder),
            (3, self.kill_shim),
            (2, self.freeze_shim),
            (3, self.reload),
            *([(2, self.fill_disk)] if disk is not None else []),
        ]

    def harm(self, seconds: float) -> None:
        over_at = time.monotonic() + seconds
        weights = [weight for weight, _ in self._actions]
        while time.monotonic() < over_at:
            self.look()
            (_, action), *_ = self._rng.choices(self._actions, weights)
            action()
            time.sleep(self._rng.random() * 0.6)

    def look(self) -> None:
        """Note what runs below the daemon."""
        for pid in descendants(self.daemon.pid):
            start = process_start_time(pid)
            if start is not None:
                self.seen.add((pid, start))

    def _say(self, what: str, pid: int = 0) -> None:
        self.done[what] += 1
        self.trace.append(f"{time.monotonic() - self._began_at:7.2f} {what} {pid or ''}")

    def _below(self, mark: str) -> list[int]:
        found = []
        for pid in descendants(self.daemon.pid):
            with contextlib.suppress(OSError):
                if mark in Path(f"/proc/{pid}/cmdline").read_text(errors="replace"):
                    found.append(pid)
        return sorted(found)

    def _signal(self, what: str, pids: list[int], ways: tuple[str, ...]) -> None:
        if not pids:
            return
        pid, way = self._rng.choice(pids), self._rng.choice(ways)
        self._say(f"{what} {way}", pid)
        with contextlib.suppress(ProcessLookupError):
            if way == "STOP":
                os.kill(pid, signal.SIGSTOP)
                time.sleep(self._rng.random() * 1.5)
                os.kill(pid, signal.SIGCONT)
            else:
                os.kill(pid, signal.Signals[f"SIG{way}"])

    def signal_server(self) -> None:
        self._signal("server", self._below(self.home.tag), ("KILL", "TERM", "STOP", "ABRT"))

    def signal_guard(self) -> None:
        self._signal("guard", self._below("guard.py"), ("KILL", "STOP"))

    def signal_embedder(self) -> None:
        self._signal("embedder", self._below("embedder"), ("KILL", "TERM", "STOP"))

    def kill_daemon(self) -> None:
        self._say("daemon KILL", self.daemon.pid)
        self.daemon.kill()
        self.daemon.wait()
        time.sleep(self._rng.random())
        self.daemon = self.home.start()

    def stop_daemon(self) -> None:
        self._say("daemon TERM", self.daemon.pid)
        self.daemon.terminate()
        self.daemon.wait(60)
        time.sleep(self._rng.random())
        self.daemon = self.home.start()

    def freeze_daemon(self) -> None:
        self._signal("daemon", [self.daemon.pid], ("STOP",))

    def kill_shim(self) -> None:
        editor = self._rng.choice(self._callers).editor
        if editor is not None:
            self._say("shim KILL", editor.process.pid)
            editor.kill()

    def freeze_shim(self) -> None:
        editor = self._rng.choice(self._callers).editor
        if editor is not None and editor.process.poll() is None:
            self._signal("shim", [editor.process.pid], ("STOP",))

    def reload(self) -> None:
        is_good = self._rng.random() < 0.5
        text = GOOD_CONFIG.format(n=self._rng.randint(1, 3)) if is_good else ""
        self._say("reload good" if is_good else "reload bad", self.daemon.pid)
        file = self.home.folder / "config" / "config.toml"
        file.write_text(text if is_good else self._rng.choice(BAD_CONFIGS))
        self.daemon.send_signal(signal.SIGHUP)

    def fill_disk(self) -> None:
        assert self._disk is not None
        self._say("disk full")
        filler = self._disk / "filler"
        with filler.open("ab", buffering=0) as file:
            for size in (65_536, 4096, 1):
                with contextlib.suppress(OSError):
                    while True:
                        file.write(b"x" * size)
        time.sleep(self._rng.random() * 1.5)
        filler.unlink()

    def mend(self) -> None:
        """Leave good settings and a daemon that serves."""
        (self.home.folder / "config" / "config.toml").write_text(GOOD_CONFIG.format(n=1))
        self.daemon.send_signal(signal.SIGHUP)
        self.look()


def alive(seen: set[tuple[int, str]]) -> list[int]:
    return sorted(pid for pid, start in seen if process_start_time(pid) == start)


def descriptors(pid: int) -> Counter[str]:
    """Return how many descriptors of each kind a process has.

    The daemon shows its own to root alone: none are counted as another user.
    """
    found: Counter[str] = Counter()
    for link in Path(f"/proc/{pid}/fd").iterdir() if os.geteuid() == 0 else ():
        with contextlib.suppress(OSError):
            found[str(link.readlink()).partition(":[")[0]] += 1
    return found


@pytest.fixture
def home() -> Iterator[Home]:
    with home_of_its_own() as made:
        yield made


@pytest.fixture
def disk(home: Home) -> Iterator[Path | None]:
    """A small file system for the daemon's state, where this user may mount one."""
    folder = home.folder / "state"
    folder.mkdir(mode=0o700)
    if os.geteuid():
        yield None
        return
    options = f"size={DISK_MIB}m,mode=0700"
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        yield None
        return
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_call_is_lost_doubled_or_told_wrongly(home: Home, disk: Path | None, seed: int) -> None:
    journal = home.folder / "journal"
    journal.touch()
    for name in SERVERS:
        argv = [sys.executable, "-I", "-S", str(JOURNAL_SERVER), str(journal), home.tag, name]
        home.capability(name, argv)
    callers = [Caller(home, number, seed) for number in range(SESSIONS)]
    nemesis = Nemesis(home, callers, seed, disk)
    for caller in callers:
        caller.start()

    nemesis.harm(SECONDS)
    nemesis.mend()
    for caller in callers:
        caller.is_over.set()
    for caller in callers:
        caller.join(PATIENCE)
    unended = [caller.name for caller in callers if caller.is_alive()]
    held = home.ask("status")["servers"]
    sessions = {each["key"] for each in home.ask("sessions")["sessions"]}
    for caller in callers:
        if caller.editor is not None:
            caller.editor.leave()
    for caller in callers:
        caller.finish()
    wait_for(lambda: not home.ask("sessions")["sessions"], PATIENCE)
    wait_for(lambda: not home.servers(), PATIENCE)
    left_leases = [each["leases"] for each in home.ask("status")["servers"] if each.get("leases")]
    left_descriptors = descriptors(nemesis.daemon.pid)
    nemesis.look()
    nemesis.daemon.terminate()
    nemesis.daemon.wait(60)
    with contextlib.suppress(AssertionError):
        wait_for(lambda: not alive(nemesis.seen), LEFT_AFTER)
    left = alive(nemesis.seen)

    calls = [call for caller in callers for call in caller.calls]
    outcomes = Counter(each.outcome for call in calls for each in call.answers)
    broken = violations(calls, journal.read_text().split())
    strangers = [x for each in held for x in each["leases"] if x not in sessions]
    print(f"seed {seed}: {len(calls)} calls {dict(outcomes)}, faults {dict(nemesis.done)}")
    trace = "\n".join(nemesis.trace[-60:])
    assert broken == [], f"seed {seed}, {SECONDS:g} s; the last faults:\n{trace}"
    assert [caller.problem for caller in callers if caller.problem] == []
    assert unended == []
    assert strangers == []
    assert left == [], f"seed {seed}: left behind\n{trace}"
    assert left_leases == []
    # A server has three pipes and a socket, a session a socket.
    assert left_descriptors["pipe"] <= PIPES
    assert left_descriptors["socket"] <= SOCKETS


PIPES = 4
SOCKETS = 8
"""Of a daemon without servers and sessions: its listener, what wakes its loop, the embedder."""
