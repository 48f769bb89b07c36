"""The life of one daemon: it starts, serves, lets calls finish, and ends."""

import contextlib
import gc
import os
import resource
import signal
import threading
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import structlog
import trio

from capd import __version__
from capd.actor_clients import names
from capd.actor_clients.client import RELOAD_TIMEOUT
from capd.actor_clients.curator import CuratorClient
from capd.actor_clients.registry import RegistryClient
from capd.actor_clients.settings import SettingsClient
from capd.adapters import parsed_taps, platform
from capd.adapters.clients.unix_listener import (
    AlreadyServedError,
    LockUnsupportedError,
    PlaceLock,
    PublicListener,
    ServedPlace,
    listening,
    make_folder,
    make_private,
    sole_daemon,
)
from capd.adapters.live_settings import LiveSettings
from capd.adapters.memory_trimming import return_after_work
from capd.adapters.parsing.parser import Parser
from capd.adapters.regular_files import is_regular
from capd.adapters.servers import sandboxing
from capd.adapters.servers.login_path import is_from_shell, login_variables, merged
from capd.adapters.servers.trees import TREES
from capd.adapters.systemd import Notifier
from capd.adapters.tracing import TRACES
from capd.core.errors import CapdError
from capd.core.machine_conditions import MachineLimits, check_machine
from capd.runtime.boundary import kept_running
from capd.runtime.bus import Bus
from capd.runtime.pulse import beat
from capd.runtime.supervision import Child, supervise
from capd_protos.curator import DaemonStopping
from capd_protos.places import STATE_LOCK, Places, places
from capd_protos.socket import StopParams
from capd_protos.tree_marks import VARIABLE
from capd_protos.types import ActorName, Address

STOP_TIMEOUT = 10.0
"""Seconds for an actor to end. Servers get 2 s for each step of their stop."""
_LOOK_AT_PLACE = 1.0
"""Seconds between two checks that the daemon's socket can still be found."""
_PLACE_TAKEN = 10.0
"""Seconds after which a daemon gives way to another one that has the locks."""
TERMINAL_PAUSE = 1.0
"""Seconds between two checks that the terminal is still there."""
MOST_DESCRIPTORS = 16_384
_ALLOCATIONS_BETWEEN_LOOKS = 10_000
"""Allocations between two runs of the garbage collector."""

EVENTS = Address("inproc://events")
_WATCHED = (names.REGISTRY, names.SUPERVISOR, names.FINDER, names.CURATOR)
"""The actors that the daemon cannot work without. The embedder's process is watched separately."""
FAILED = 1
_LARGE_BLOCK_BYTES = 2 << 20
"""Memory blocks from this size on are returned to the system when they are freed. A smaller one is
often needed again soon, and new pages take time: with 32 KiB, results of 1 MB took a tenth longer.
"""

log = structlog.get_logger()


async def run_daemon(environment: "os._Environ[str]", problems: Sequence[str] = ()) -> None:
    """Serve until a signal or a client asks the daemon to stop.

    `environment` is the environment of this process. `problems` are shown in the status.
    """
    platform.share_one_heap()
    platform.keep_large_blocks_apart(_LARGE_BLOCK_BYTES)
    # numpy reads this when it is loaded, which is with the first message. A second thread of numpy
    # spins for a while after each product, which doubled the processor time of a turn.
    environment.setdefault("OPENBLAS_NUM_THREADS", "1")
    where = places(environment, os.getuid())
    # Called before the first secret is read: it keeps other processes of this user from reading
    # the memory of this one.
    platform.set_dumpable(environment.get("CAPD_DEBUG", "") not in {"", "0"})
    # Orphaned descendants become children of this process, so that they can be found.
    platform.become_subreaper()
    socket_path = Path(where.socket)
    is_service = "NOTIFY_SOCKET" in environment
    _raise_descriptor_limit()
    degraded = check_machine(_machine())
    notifier = Notifier(environment)
    for folder in (Path(where.state), Path(where.cache)):
        make_folder(folder)
    with contextlib.ExitStack() as stack:
        stack.callback(notifier.close)
        known = [*problems, *degraded]
        locks: list[PlaceLock] = []
        # The lock of the state folder is taken first: two daemons with different sockets must not
        # share a state folder, and the other locks vanish with their folders.
        try:
            locks.append(stack.enter_context(sole_daemon(Path(where.state, STATE_LOCK))))
        except LockUnsupportedError as error:
            known.append(f"{error}: nothing keeps a second daemon from the same state")
        private = list(dict.fromkeys([socket_path.parent, Path(where.run)]))
        for folder in private:
            make_private(folder)
        of_socket = socket_path.with_name(socket_path.name + ".lock")
        of_run = Path(where.run, "capd.sock.lock")
        locks += [stack.enter_context(sole_daemon(each)) for each in {of_socket, of_run}]
        parser = Parser(environment=lambda: {VARIABLE: TREES.mark.of_helper})
        stack.callback(parser.close)
        live = LiveSettings(Path(where.config), dict(environment), Path(where.state), reader=parser)
        live.load()
        if live.wait:
            # Some settings are read only at the start, so wait until the file is complete.
            await trio.sleep(live.wait)
            live.load()
        async with trio.open_nursery() as early:
            early.start_soon(trio.to_thread.run_sync, _import_actors)
            early.start_soon(
                trio.to_thread.run_sync, partial(_start_helpers, where, live, parser, is_service)
            )
        server_listener = stack.enter_context(listening(socket_path, environment))
        # Leave the working directory, so that it is not in use while the daemon runs.
        os.chdir("/")
        place = ServedPlace(private, locks, server_listener)
        daemon = Daemon(
            where, live, dict(environment), server_listener, place, problems=known, parser=parser
        )
        await daemon.run(notifier)


def _import_actors() -> None:
    """Import the modules of all actors, so that `Daemon.run` need not.

    It takes a third of all import time, and runs while helper processes start.
    """
    # As in `__main__`: what imports create stays for ever.
    gc.disable()
    try:
        import capd.children  # noqa: F401, PLC0415
    finally:
        gc.freeze()
        gc.enable()


def _start_helpers(where: Places, live: LiveSettings, parser: Parser, is_service: bool) -> None:
    """End the processes that an earlier daemon left, and begin two things that take long.

    One is the start of the parser process, if the user has taps that were never read: the daemon
    needs it before it can serve. The other is the sandboxing test, which is needed before the first
    server starts.
    """
    # First, because it ends the helper processes of an earlier daemon, and makes the mark by which
    # this daemon's helper processes are found.
    TREES.begin(Path(where.state), is_service=is_service)
    has_taps = is_regular(Path(where.config, "taps.toml"))
    if has_taps and not is_regular(Path(where.cache, parsed_taps.FILE)):
        parser.start()
    if live.current.sandbox.level != "off":
        threading.Thread(target=sandboxing.machine, name="sandbox trials", daemon=True).start()


class Daemon:
    """All actors of one daemon, and how they are stopped."""

    def __init__(
        self,
        where: Places,
        live: LiveSettings,
        environment: dict[str, str],
        server_listener: PublicListener,
        place: ServedPlace,
        *,
        problems: list[str],
        parser: Parser,
    ) -> None:
        """Create the daemon, without starting anything. `problems` are shown in its status.

        `place` (the folders, locks and socket by which others find the daemon) is restored if
        somebody removes a part of it. `server_listener` is the public socket. `parser` reads files
        that others may have written.
        """
        self._parser = parser
        self._where = where
        self._live = live
        self._problems = problems
        self._place = place
        self._place_problem = ""
        self._environment = environment
        self._listener = server_listener
        self._started_at = time.monotonic()
        # `nohup` says that the daemon is to outlive its terminal.
        is_detached = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        self._has_terminal = not is_detached and platform.has_controlling_terminal()
        self._scope = trio.CancelScope()
        self._stop_asked = trio.Event()
        self._is_for_good = False
        self._is_ready = False
        self._path_known = trio.Event()

    async def run(self, notifier: Notifier) -> None:
        """Start the actors, serve until a stop is asked for, and stop the actors in reverse order.

        `notifier` reports the daemon's state to systemd.
        """
        from capd.children import addresses  # noqa: PLC0415 - `_import_actors` has imported it

        async with (
            Bus(
                addresses(),
                ActorName("daemon"),
                events=EVENTS,
                bind_events=True,
            ) as bus,
            trio.open_nursery() as around,
        ):
            self._bus = bus
            # None of these may end the daemon with an error, for example when no thread can be
            # started because the user has too many processes.
            keep = partial(kept_running, log=log)
            # Started outside of the scope that it cancels, so that it also sees a second signal.
            around.start_soon(self._follow_signals, around)
            around.start_soon(keep, "login path", self._take_login_path)
            around.start_soon(keep, "socket", self._keep_place)
            around.start_soon(keep, "memory trimming", return_after_work)
            if self._has_terminal:
                around.start_soon(self._follow_terminal)
            around.start_soon(keep, "traces", TRACES.run, self._environment)
            around.start_soon(keep, "ends of processes", TREES.follow_ends)
            around.start_soon(keep, "watcher", TREES.keep_watcher)
            async with trio.open_nursery() as nursery:
                with self._scope:
                    await nursery.start(
                        partial(supervise, self._children(bus), stop_timeout=STOP_TIMEOUT)
                    )
                    _rest_the_collector()
                    log.info("daemon_ready", socket=self._where.socket, version=__version__)
                    self._is_ready = True
                    notifier.ready(f"serving {self._where.socket}")
                    if notifier.watchdog:
                        watched = (_WATCHED, notifier.watchdog, notifier.alive)
                        around.start_soon(keep, "watchdog", beat, bus, *watched)
                    await self._stop_asked.wait()
                    notifier.stopping()
                    await self._drain(bus)
                nursery.cancel_scope.cancel()
            around.cancel_scope.cancel()
        await trio.to_thread.run_sync(TREES.end_adopted)
        log.info("daemon_stopped")

    def stop(self, how: StopParams | None = None) -> None:
        """Begin to stop the daemon: calls in progress may finish, and nothing new starts.

        With `how.for_good`, clients are told not to reconnect.
        """
        if how is not None:
            self._is_for_good = how.for_good
        self._bus.publish(DaemonStopping())
        self._stop_asked.set()
        if not self._is_ready:
            self._scope.cancel()

    def _children(self, bus: Bus) -> list[Child]:
        from capd.children import Children, Shared  # noqa: PLC0415 - as above

        made = Children(self._where, self._live, self._environment, self._problems, self._parser)
        shared = Shared(
            bus, self._listener, self.described, self.stop, self._stop_asked, self._path_known
        )
        return made.all(shared)

    async def _drain(self, bus: Bus) -> None:
        """Let calls in progress end, then close the connections.

        Clients are told to reconnect to the next daemon, unless the daemon stops for good.
        """
        within = self._live.current.daemon.drain
        try:
            await CuratorClient(bus).drain(
                within, is_for_good=self._is_for_good, timeout=within + STOP_TIMEOUT
            )
        except CapdError as error:
            log.warning("not_drained", reason=str(error))

    def described(self) -> dict[str, Any]:
        """Return the part of the status that is about the daemon itself, such as its pid."""
        return {
            "version": __version__,
            "pid": os.getpid(),
            "uptime_s": round(time.monotonic() - self._started_at, 3),
            "rss_bytes": platform.rss_bytes(os.getpid()) or 0,
            "socket": self._where.socket,
            "membership": TREES.membership,
            "path": self._environment.get("PATH", os.defpath),
            "degraded": [
                *self._live.problems,
                *self._problems,
                *([self._place_problem] if self._place_problem else []),
            ],
            "needs_restart": self._live.needs_restart,
            "project_files": self._live.project_problems,
        }

    async def _follow_signals(self, nursery: trio.Nursery) -> None:
        watched = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        # Counts signals, not requests to stop: `capd stop` asks on the socket first, and then
        # systemd sends the first signal.
        was_signalled = False
        with trio.open_signal_receiver(*watched) as signals:
            async for number in signals:
                log.info("signal_received", signal=signal.Signals(number).name)
                if number == signal.SIGHUP and not self._ends_with_terminal():
                    nursery.start_soon(self._reload)
                elif was_signalled:
                    # The second signal: exit at once. Each server's guard process ends it when
                    # this process is gone.
                    os._exit(FAILED)
                else:
                    was_signalled = True
                    self.stop()

    def _ends_with_terminal(self) -> bool:
        return self._has_terminal and not platform.has_controlling_terminal()

    async def _follow_terminal(self) -> None:
        """Stop when the terminal in which the daemon was started is gone.

        SIGHUP alone is not enough: if the shell was killed, a background job gets no signal.
        """
        while not self._ends_with_terminal():
            await trio.sleep(TERMINAL_PAUSE)
        if not self._stop_asked.is_set():
            log.info("terminal_lost")
            self.stop()

    async def _reload(self) -> None:
        try:
            await SettingsClient(self._bus).reload(timeout=RELOAD_TIMEOUT)
            await RegistryClient(self._bus).reload(timeout=RELOAD_TIMEOUT)
        except CapdError as error:
            log.error("reload_failed", reason=str(error))

    async def _keep_place(self) -> None:
        """Restore the socket, its folders and the locks when somebody removes them.

        If another daemon has had the locks for `_PLACE_TAKEN` seconds, stop this one. Return when
        somebody asks the daemon to stop.
        """
        taken_since: float | None = None
        while not self._stop_asked.is_set():
            await trio.sleep(_LOOK_AT_PLACE)
            if await trio.to_thread.run_sync(self._place.is_whole, abandon_on_cancel=True):
                taken_since, self._place_problem = None, ""
                continue
            try:
                self._place.restore()
            except AlreadyServedError as error:
                # Another daemon may just have started; it ends when it finds the state locked.
                taken_since = trio.current_time() if taken_since is None else taken_since
                if trio.current_time() - taken_since >= _PLACE_TAKEN:
                    log.error("place_taken", reason=str(error))
                    self.stop()
            except (CapdError, OSError) as error:
                problem = f"{self._where.socket} is gone and cannot be put back: {error}"
                if problem != self._place_problem:
                    log.error("place_not_restored", reason=problem)
                self._place_problem = problem
            else:
                taken_since, self._place_problem = None, ""
                log.warning("place_restored", socket=self._where.socket)

    async def _take_login_path(self) -> None:
        """Use the login shell's PATH and network variables for servers started from now on."""
        if not is_from_shell(self._environment):
            found = await login_variables(self._environment)
            path = merged(self._environment.get("PATH", os.defpath), found.pop("PATH", ""))
            self._environment.update(found, PATH=path)
            folders = len(self._environment["PATH"].split(os.pathsep))
            log.info("login_path_taken", folders=folders)
        self._path_known.set()


def _rest_the_collector() -> None:
    """Exempt all present objects from garbage collection, and run the collector less often.

    Each run visits every object, which takes milliseconds. Calls leave no reference cycles behind.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_ALLOCATIONS_BETWEEN_LOOKS, 10, 10)
    platform.trim_memory()


def _machine() -> MachineLimits:
    """Return the limits of this machine and of this process."""

    def limit(kind: int) -> int | None:
        soft, _ = resource.getrlimit(kind)
        return None if soft == resource.RLIM_INFINITY else soft

    return MachineLimits(
        pid=os.getpid(),
        proc_pid=platform.proc_pid(),
        descriptors=limit(resource.RLIMIT_NOFILE),
        address_bytes=limit(resource.RLIMIT_AS),
        data_bytes=limit(resource.RLIMIT_DATA),
    )


def _raise_descriptor_limit() -> None:
    """Raise the limit of open descriptors to at most MOST_DESCRIPTORS.

    A session may need two, and a server four.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MOST_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
