"""Runs servers as processes, each under a guard: a process that ends the server's whole tree.

    LAUNCHING --pid N--> RUNNING --exit N--> EXITED --guard ends--> GONE
        |                   |                                         ^
        v                   +---- the guard itself was killed --------+
    SpawnFailedError               (capd kills what it can find)

`wait` returns at EXITED. That is the end of the process, not of its output, because a grandchild
may keep the pipes open. `stop`, `kill` and leaving `running` return at GONE, when no descendant is
left. Each server needs four descriptors: stdin, stdout, stderr, and a socket to the guard
(platform/guard.py describes its protocol). Nothing here forks: `Popen` without `preexec_fn` uses
vfork and exec.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path

import trio

from capd.adapters import platform
from capd.adapters.regular_files import is_regular
from capd.adapters.servers.containers import Container, Containers
from capd.adapters.servers.launching import Launching, LaunchPlan
from capd.adapters.servers.sandboxing import SandboxPlan, confinement
from capd.adapters.servers.stderr_tail import StderrTail
from capd.adapters.servers.trees import TREES, Tree
from capd.core.errors import CapdError
from capd.core.servers.containers import ContainerRequest
from capd.core.servers.membership import Membership
from capd.core.servers.runners import advice, path_advice
from capd.core.servers.sandbox import Confinement
from capd_protos.tree_marks import VARIABLE

_GUARD = Path(platform.__file__).with_name("guard.py")
# The guard's interpreter may need this variable to find its libraries. The server gets only the
# environment in its spec.
_GUARD_ENVIRONMENT_KEYS = ("LD_LIBRARY_PATH",)
_LAUNCH_TIMEOUT = 20.0
_KILL_TIMEOUT = 5.0
_REMOVAL_TIMEOUT = 60.0
"""Seconds for a guard to end the tree and then remove its container."""
_REMOVED = b"removed"
_SIGNALLED = 128
_MOST_LOOKS = 5
"""How often a start is tried, at most, if files change while they are checked."""


class CommandNotFoundError(CapdError):
    """The command is not an executable file, or is not on the server's PATH."""


class SpawnFailedError(CapdError):
    """The server cannot be started; the text says why."""


class TreeSurvivedError(CapdError):
    """Processes are still alive after SIGKILL."""


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """What to run: an argument list, never a shell line, with exactly this environment."""

    argv: tuple[str, ...] = field(repr=False)  # arguments and environment may contain secrets
    env: dict[str, str] = field(repr=False)
    cwd: Path
    box: SandboxPlan | None = field(default=None, repr=False)
    """The sandbox of the process; None for none."""
    check_trust: Callable[[], None] | None = field(default=None, repr=False, compare=False)
    """Raises if the process may not be started; called directly before the start."""
    launching: Launching | None = field(default=None, repr=False, compare=False)
    """How its launcher, such as npx, is kept from reading an untrusted folder; None if that is not
    needed."""
    contained: "Contained | None" = field(default=None, repr=False, compare=False)
    """The container that it runs in; None for none. With a container, `env` is the environment of
    the engine's program."""


@dataclass(frozen=True, slots=True)
class Contained:
    """The container in which a server is to run, and the object that prepares it."""

    containers: Containers
    request: ContainerRequest


@dataclass(frozen=True, slots=True)
class ExitStatus:
    """How a server ended: by itself with `code`, or by `signal`."""

    code: int | None = None
    signal: int | None = None
    is_guard_lost: bool = False
    """Whether the guard was killed. capd then killed the server's process group, but a process that
    escaped from the group may still run."""

    def __str__(self) -> str:
        """Return how the server ended, in words for a person."""
        if self.is_guard_lost:
            return "was killed because its guard was"
        if self.signal is None:
            return f"exited with code {self.code}"
        with contextlib.suppress(ValueError):
            return f"was ended by {signal.Signals(self.signal).name}"
        return f"was ended by signal {self.signal}"


def resolve_command(spec: ProcessSpec) -> Path:
    """Return the file that `spec` runs, found by the spec's own PATH and directory.

    Raises:
        CommandNotFoundError: there is no such file.
    """
    command = spec.argv[0]
    search = spec.env.get("PATH") or os.defpath
    if "/" in command:
        candidates = [spec.cwd / command]
    else:
        candidates = [spec.cwd / folder / command for folder in search.split(os.pathsep)]
    for candidate in candidates:
        if is_regular(candidate) and os.access(candidate, os.X_OK):
            return candidate
    if "/" in command:
        text = f"{candidates[0]} is not an executable file: {path_advice(command)}"
    else:
        text = f"{command} was not found in PATH ({search}): {advice(command)}"
    raise CommandNotFoundError(text)


class ServerProcess:
    """A running server, and the guard above it."""

    is_parked = False
    """Always False: only a connection by URL ends because a person must act first."""

    def __init__(self, launched: "_Launched") -> None:
        self.pid = launched.pid
        self.guard_pid = launched.guard.pid
        self.sandbox = launched.confinement.description
        """How it is confined, in words for a person; empty if no confinement was requested."""
        self.cwd = launched.cwd
        """Its working directory."""
        self.cwd_reason = launched.reason
        """Why its launcher was restricted; empty if it was not."""
        self._empty_folder = launched.empty_folder
        self._container = launched.container
        self._kill_timeout = _KILL_TIMEOUT if launched.container is None else _REMOVAL_TIMEOUT
        self.membership: Membership = launched.tree.membership(launched.confinement.prefix)
        """How capd knows which processes belong to the server."""
        self._tree = launched.tree
        self._is_guard_lost = False
        self._is_wrapped = launched.confinement.means == "bwrap"
        self.stdin = trio.lowlevel.FdStream(launched.stdin)
        self.stdout = trio.lowlevel.FdStream(launched.stdout)
        self._name = launched.name
        self._guard = launched.guard
        self._control = launched.control
        self._control.setblocking(False)
        self._started = launched.started
        self._stderr = StderrTail(launched.stderr)
        self._status: ExitStatus | None = None
        self._exited = trio.Event()
        self._gone = trio.Event()

    def stderr_tail(self) -> list[str]:
        """Return the last lines that the server wrote to stderr, safe to print."""
        return self._stderr.lines()

    async def wait(self) -> ExitStatus:
        """Wait until the server's process has ended; return how it ended."""
        await self._exited.wait()
        assert self._status is not None
        return self._status

    async def stop(self, grace: float = 2.0) -> None:
        """End the tree: close stdin, later send SIGTERM, later SIGKILL.

        `grace` is the number of seconds before each signal.

        This runs to the end even if the caller is cancelled. Calling it again is harmless; the
        shortest grace counts.

        Raises:
            TreeSurvivedError: SIGKILL was not enough.
        """
        with trio.CancelScope(shield=True):
            self.stdin.close()
            with trio.move_on_after(grace):
                await self._gone.wait()
            if not self._gone.is_set():
                self._command(b"T")
                with trio.move_on_after(grace):
                    await self._gone.wait()
            await self.kill()

    async def kill(self) -> None:
        """End the whole tree at once, and return when it is gone.

        Raises:
            TreeSurvivedError: SIGKILL was not enough.
        """
        if self._gone.is_set():
            return
        with trio.CancelScope(shield=True):
            self._guard.send_signal(signal.SIGCONT)  # a stopped guard would not obey
            self._command(b"K")
            with trio.move_on_after(self._kill_timeout):
                await self._gone.wait()
                return
            self._guard.kill()
            with trio.move_on_after(self._kill_timeout):
                await self._gone.wait()
                return
        raise TreeSurvivedError(
            f"{self._name} (pid {self.pid}) is still alive after SIGKILL:"
            f" look at it with: ps -o pid,stat,wchan,args -p {self.pid}"
        )

    async def _attend(self, scope: trio.CancelScope) -> None:
        """Watch the guard and read stderr until `scope`, which must be shielded, is cancelled."""
        # `kill` waits for what the watch sees, also while the caller is being cancelled.
        with scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._watch)
                nursery.start_soon(self._stderr.drain)

    async def _watch(self) -> None:
        rest, is_removed = b"", False
        while True:
            await trio.lowlevel.wait_readable(self._control)
            try:
                data = self._control.recv(256)
            except BlockingIOError:
                continue
            except OSError:  # the guard was killed with a command unread
                data = b""
            if not data:
                break
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                if line.startswith(b"exit "):
                    self._set_exited(self._exit_status(int(line.split()[1])))
                is_removed |= line == _REMOVED
        if self._status is None:
            self._is_guard_lost = True
            await trio.to_thread.run_sync(
                _kill_orphans, self.pid, self._started, limiter=_limiter()
            )
            self._set_exited(ExitStatus(signal=signal.SIGKILL, is_guard_lost=True))
        # The guard has closed its socket as its last act, so this wait is short.
        await trio.to_thread.run_sync(self._guard.wait)
        await trio.to_thread.run_sync(
            partial(TREES.leave, self._tree, is_guard_lost=self._is_guard_lost)
        )
        if self._container is not None:
            await trio.to_thread.run_sync(partial(self._container.release, is_removed=is_removed))
        self._gone.set()

    def _exit_status(self, number: int) -> ExitStatus:
        if self._is_wrapped and number > _SIGNALLED:  # bwrap reports a signal as shells do
            return ExitStatus(signal=number - _SIGNALLED)
        return ExitStatus(code=number) if number >= 0 else ExitStatus(signal=-number)

    def _set_exited(self, status: ExitStatus) -> None:
        self._stderr.read_available()
        self._status = status
        self._exited.set()

    def _command(self, incoming: bytes) -> None:
        with contextlib.suppress(OSError):  # the guard is gone, which is what is wanted
            self._control.send(incoming)

    def _close(self) -> None:
        self.stdin.close()
        self.stdout.close()
        self._stderr.close()
        self._control.close()
        _remove_empty(self._empty_folder)


@contextlib.asynccontextmanager
async def running(spec: ProcessSpec) -> AsyncIterator[ServerProcess]:
    """Run the server of `spec` while the block runs, and kill what is left of its tree afterwards.

    Raises:
        CommandNotFoundError: `argv[0]` cannot be found.
        SpawnFailedError, NoEmptyFolderError, NoEngineError: it cannot be started.
        SandboxMissingError: this machine cannot provide the sandbox.
        UntrustedError: it would run code of a project that is not trusted.
        ContainerRefusedError: its container would see too much, or its secrets do not fit.
        TreeSurvivedError: a part of its tree could not be killed.
    """
    process = ServerProcess(await trio.to_thread.run_sync(_launch, spec))
    tasks = contextlib.AsyncExitStack()
    scope = trio.CancelScope(shield=True)
    nursery = await tasks.enter_async_context(trio.open_nursery())
    nursery.start_soon(process._attend, scope)  # noqa: SLF001  # it is this block's own
    try:
        yield process
    finally:
        try:
            await process.kill()
        finally:
            scope.cancel()
            # Shielded, or a cancellation from outside would replace the exception of `kill`.
            nursery.cancel_scope.shield = True
            try:
                # Not `async with`: a nursery would wrap the block's own exception in a group.
                await tasks.aclose()
            finally:
                process._close()  # noqa: SLF001


@dataclass(frozen=True, slots=True)
class _Launched:
    name: str
    cwd: str
    reason: str
    empty_folder: Path | None
    container: Container | None
    confinement: Confinement
    guard: subprocess.Popen[bytes]
    tree: Tree
    control: socket.socket
    pid: int
    started: str | None
    stdin: int
    stdout: int
    stderr: int


class _ChangedError(Exception):
    """The files that a launcher reads have changed since the start was planned.

    A plan made directly before the start would differ.
    """


def _launch(spec: ProcessSpec) -> _Launched:
    """Start a guard, and the server of `spec` under it; return when the server is running.

    Blocks, so run it in a thread.
    """
    if spec.contained is not None:
        return _launch_contained(spec, spec.contained)
    for _ in range(_MOST_LOOKS):
        plan = spec.launching.plan(spec.argv, spec.env) if spec.launching else None
        folder = spec.launching.empty_folder() if spec.launching and _is_elsewhere(plan) else None
        try:
            return _launch_as(spec, plan, folder)
        except BaseException as error:
            _remove_empty(folder)
            if not isinstance(error, _ChangedError):
                raise
    raise SpawnFailedError(
        f"{spec.argv[0]} cannot start: the files that it reads in {spec.cwd} keep changing; "
        "try again when nothing writes there"
    )


def _launch_contained(spec: ProcessSpec, contained: Contained) -> _Launched:
    container = contained.containers.prepare(contained.request, spec.env)
    started = replace(spec, argv=container.argv, env=dict(container.environment))
    try:
        return _launch_as(started, None, None, container)
    except BaseException:
        container.release(is_removed=False)
        raise


def _remove_empty(folder: Path | None) -> None:
    """Remove the folder that was made for a launcher, unless its server has written there."""
    if folder is not None:
        with contextlib.suppress(OSError):
            folder.rmdir()


def _is_elsewhere(plan: LaunchPlan | None) -> bool:
    return plan is not None and plan.is_elsewhere


def _launch_as(
    spec: ProcessSpec,
    plan: LaunchPlan | None,
    folder: Path | None,
    container: Container | None = None,
) -> _Launched:
    usual_cwd = spec.cwd
    spec = _planned(spec, plan, folder)
    name = spec.argv[0]
    # Not `Path.is_dir`, which raises if a name is too long.
    if not os.path.isdir(usual_cwd):  # noqa: PTH112
        raise SpawnFailedError(f"{name} cannot start in {usual_cwd}: there is no such directory")
    command = resolve_command(spec)
    found = confinement_of(spec, command)
    if container is not None:
        # The guard runs these words after the end of the tree (platform/guard.py, `--finally`).
        last = tuple(f"--finally={each}" for each in container.removal)
        found = Confinement("none", container.description, guard_options=last)
    introduction = _introduction(command, spec, found)
    with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:
        try:
            server_stdin, stdin = _pipe(theirs, ours)
            stdout, server_stdout = _pipe(ours, theirs)
            stderr, server_stderr = _pipe(ours, theirs)
            control, guard_control = socket.socketpair()
            ours.enter_context(control)
            theirs.enter_context(guard_control)
            guard = subprocess.Popen(
                [
                    *(sys.executable, "-I", "-S", str(_GUARD), str(guard_control.fileno())),
                    str(TREES.limit),
                    *found.guard_options,
                ],
                stdin=server_stdin,
                stdout=server_stdout,
                stderr=server_stderr,
                cwd=spec.cwd,
                env=_guard_environment(),
                pass_fds=(guard_control.fileno(),),
                start_new_session=True,  # a terminal's Ctrl-C must not bypass `stop`
            )
        except OSError as error:
            raise SpawnFailedError(f"{name} cannot start: {error.strerror}") from error
        theirs.close()
        tree = TREES.enter(guard.pid)
        try:
            pid, held = _introduce(control, introduction, spec)
        except BaseException:
            control.close()  # the guard kills what it has started, and ends
            _reap(guard)
            TREES.leave(tree, is_guard_lost=True)
            raise
        started = platform.process_start_time(pid)
        ours.pop_all()
        found = replace(
            found, description=found.description_with(held) if found.description else ""
        )
        cwd = usual_cwd if plan is not None and plan.enters_project else spec.cwd
        reason = plan.reason if plan is not None else ""
        if container is not None:
            cwd = Path(container.mounted or usual_cwd)
        facts = (name, str(cwd), reason, folder, container, found, guard, tree, control, pid)
        return _Launched(*facts, started, stdin, stdout, stderr)


def _planned(spec: ProcessSpec, plan: LaunchPlan | None, folder: Path | None) -> ProcessSpec:
    """Return `spec` changed to start as `plan` says, in `folder` if that is not None.

    Directly before the start, `check_trust` of the returned spec checks that the launcher's files
    still give the same plan.
    """
    if plan is None or spec.launching is None:
        return spec
    launching, argv, env, check_trust = spec.launching, spec.argv, spec.env, spec.check_trust

    def check_again() -> None:
        if launching.plan(argv, env) != plan:
            raise _ChangedError
        if check_trust is not None:
            check_trust()

    return replace(
        spec, argv=plan.argv, env=dict(plan.env), cwd=folder or spec.cwd, check_trust=check_again
    )


def _guard_environment() -> dict[str, str]:
    kept = {key: os.environ[key] for key in _GUARD_ENVIRONMENT_KEYS if key in os.environ}
    # Marked as a helper, not as a server: the daemon must not take its own guard for an orphan.
    return {**kept, VARIABLE: TREES.mark.of_helper}


def _pipe(reader: contextlib.ExitStack, writer: contextlib.ExitStack) -> tuple[int, int]:
    """Return the reading and the writing end of a new pipe.

    The stack `reader` closes the reading end, and `writer` the writing end.
    """
    reading, writing = os.pipe()
    reader.callback(os.close, reading)
    writer.callback(os.close, writing)
    return reading, writing


def _reap(guard: subprocess.Popen[bytes]) -> None:
    try:
        guard.wait(_KILL_TIMEOUT)
    except subprocess.TimeoutExpired:
        guard.kill()
        guard.wait()


def _introduction(command: Path, spec: ProcessSpec, found: Confinement) -> bytes:
    environment = {**spec.env, **found.environment, VARIABLE: TREES.mark.of_server}
    pairs = [f"{key}={value}" for key, value in environment.items()]
    argv = spec.argv
    if found.prefix:
        argv = (*found.prefix, str(command), *spec.argv[1:])
        command = Path(found.prefix[0])
    items = [str(command), str(len(argv)), *argv, *pairs]
    if any("\0" in item for item in items) or any("=" in key or not key for key in spec.env):
        raise SpawnFailedError(
            f"{spec.argv[0]} cannot start: a NUL is in its arguments or environment,"
            " or a variable's name is empty or has an equals sign"
        )
    payload = b"".join(item.encode("utf-8", "surrogateescape") + b"\0" for item in items)
    return len(payload).to_bytes(4, "big") + payload


def confinement_of(spec: ProcessSpec, command: Path) -> Confinement:
    """Return how the server of `spec`, whose program is `command`, is confined.

    Raises:
        SandboxMissingError: this machine cannot provide the requested sandbox.
    """
    if spec.box is None:
        return Confinement("none", "")
    return confinement(spec.box, command, spec.cwd, (*spec.argv[1:], *spec.env.values()))


def _introduce(
    control: socket.socket, introduction: bytes, spec: ProcessSpec
) -> tuple[int, list[str]]:
    """Tell the guard what to start; return the server's pid and which confinement is in force.

    `introduction` is that command in the guard's format.
    """
    control.settimeout(_LAUNCH_TIMEOUT)
    name, answer = spec.argv[0], b""
    held: list[bytes] = []
    try:
        # Without a buffer, because `exit N` may already follow.
        with control.makefile("rb", buffering=0) as said:
            ready, *held = said.readline().split() or [b""]
            if ready == b"ready":
                if spec.check_trust is not None:
                    spec.check_trust()
                control.sendall(introduction)
                answer = said.readline()
    except OSError as error:
        raise SpawnFailedError(f"{name} cannot start: its guard does not answer") from error
    verb, _, number = answer.partition(b" ")
    if verb == b"pid":
        return int(number), [each.decode() for each in held]
    if verb == b"failed":
        raise SpawnFailedError(f"{name} cannot start: {os.strerror(int(number))}")
    raise SpawnFailedError(f"{name} cannot start: its guard ended")


@cache
def _limiter() -> trio.CapacityLimiter:
    """Return the limiter for searches for orphans, which keeps some threads free for other work."""
    return trio.CapacityLimiter(2)


def _kill_orphans(pid: int, started: str | None) -> None:
    """Kill what is left of the server `pid`, whose guard is gone. Blocks: run it in a thread.

    `started` identifies the process together with its pid.
    """
    doomed: dict[int, str | None] = {}
    deadline = time.monotonic() + _KILL_TIMEOUT
    while time.monotonic() < deadline:
        # Another process may have the pid by now, but not while the server's process group lives.
        if platform.process_start_time(pid) in {started, None}:
            doomed |= {
                each: platform.process_start_time(each) for each in (pid, *platform.tree_below(pid))
            }
            with contextlib.suppress(OSError):
                os.killpg(pid, signal.SIGKILL)
        living = [
            each
            for each, start in doomed.items()
            if start is not None and platform.process_start_time(each) == start
        ]
        for each in living:
            with contextlib.suppress(OSError):
                os.kill(each, signal.SIGKILL)
        for each in doomed:
            # Orphans are capd's children if it is a subreaper; otherwise init waits for them.
            with contextlib.suppress(ChildProcessError):
                os.waitpid(each, os.WNOHANG)
        if not living:
            return
        time.sleep(0.01)
