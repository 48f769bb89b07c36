"""Puts the daemon together: the only file that knows every actor.

capd daemon run            the daemon, in the foreground
capd check [PATH]          what is wrong with taps and overlays
capd eval ...              how good its decisions are, on data; no daemon takes part
"""

import contextlib
import gc
import os
import resource
import signal
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import structlog
import trio

from capd import __version__
from capd.actors import (
    curator_host,
    embedder,
    gateway,
    registry,
    secret_keeper,
    supervisor,
    tool_finder,
)
from capd.actors.control import Control
from capd.actors.embedder_keeper import EmbedderKeeper
from capd.actors.result_desk import ResultRoom
from capd.actors.starts import Starts, SupervisorSettings
from capd.adapters import platform
from capd.adapters.client_table import client_table
from capd.adapters.clients.connection import Connection
from capd.adapters.clients.session_environment import SessionEnvironments
from capd.adapters.clients.unix_listener import listening, make_private, sole_daemon
from capd.adapters.configuration import Configuration, load_configuration
from capd.adapters.log import configure_logs
from capd.adapters.result_store import ResultStore
from capd.adapters.secrets.stored_secrets import StoredSecrets
from capd.adapters.servers.child_environment import uvx_folder
from capd.adapters.servers.era_file import EraFile
from capd.adapters.servers.http.logins import Logins
from capd.adapters.servers.instance import Instance
from capd.adapters.servers.login_path import is_from_shell, login_path, merged
from capd.adapters.session_files import SessionFiles
from capd.adapters.session_settings import session_rules
from capd.adapters.spool import Spool
from capd.adapters.systemd import Notifier
from capd.adapters.tool_lists import ToolLists
from capd.core.errors import CapdError, leaves
from capd.core.results.limits import Limits
from capd.core.sessions.session_rules import SessionRules
from capd.embedder_process import load_model
from capd.runtime.bus import Bus
from capd.runtime.handover import Handover
from capd.runtime.pulse import beat
from capd.runtime.supervision import Child, supervise
from capd_protos.codec import MsgpackCodec
from capd_protos.curator import DaemonStopping, DrainSessions, SessionsDrained
from capd_protos.places import Places, places
from capd_protos.registry import RegistryDescribed, ReloadCatalog
from capd_protos.types import ActorName, Address, InstanceId

USAGE = "usage: python -m capd daemon run | eval ..."
FAILED = 1
WRONG_USAGE = 2
INTERRUPTED = 130

STOP_TIMEOUT = 10.0
"""Seconds that an actor may take to end; servers get 2 s for each step of their stop."""
RELOAD_TIMEOUT = 60.0
MOST_DESCRIPTORS = 16_384
LONGEST_IPC_BYTES = 100
_ALLOCATIONS_BETWEEN_LOOKS = 10_000

DRAINED: MsgpackCodec[SessionsDrained] = MsgpackCodec(SessionsDrained)
RELOADED: MsgpackCodec[RegistryDescribed] = MsgpackCodec(RegistryDescribed)

EVENTS = Address("inproc://events")
_WATCHED = (registry.NAME, supervisor.NAME, tool_finder.NAME, curator_host.NAME)
"""Actors without which the daemon is of no use; the embedder has a keeper of its own."""
_EMBEDDER_ENVIRONMENT = (
    "HOME",
    "LANG",
    "LD_LIBRARY_PATH",
    "PATH",
    "PYTHONPATH",
    "TMPDIR",
    "NO_COLOR",
    "CAPD_LOG",
)

log = structlog.get_logger()


def main(arguments: Sequence[str]) -> int:
    """Run what the command line names; return the exit code."""
    return_code = 0
    match list(arguments):
        case ["daemon", "run"]:
            run = partial(_run_daemon, os.environ)
        case ["eval", *rest]:
            # It brings numpy in, which no daemon needs before its first turn.
            from capd.evaluation import command  # noqa: PLC0415

            return command.main(rest)
        case ["check", *rest]:
            from capd import check  # noqa: PLC0415 - the daemon has no use for it

            where = places(os.environ, os.getuid())
            configure_logs(os.environ)
            return check.main(rest, Path(where.config), Path(where.cache))
        case _:
            sys.stderr.write(USAGE + "\n")
            return WRONG_USAGE
    configure_logs(os.environ)
    problems: list[str] = []
    try:
        trio.run(run)
    except* CapdError as errors:
        problems = [str(error) for error in leaves(errors)]
    except* OSError as errors:
        problems = [f"the daemon cannot run: {error}" for error in leaves(errors)]
    except* KeyboardInterrupt:
        return_code = INTERRUPTED
    for problem in problems:
        sys.stderr.write(f"capd: {problem}\n")
    return FAILED if problems else return_code


async def _run_daemon(environment: "os._Environ[str]") -> None:
    """Serve until a signal, or a client, asks the daemon to stop."""
    where = places(environment, os.getuid())
    socket_path = Path(where.socket)
    notifier = Notifier(environment)
    for private in dict.fromkeys([socket_path.parent, Path(where.run)]):
        make_private(private)
    for folder in (Path(where.state), Path(where.cache)):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        stack.enter_context(sole_daemon(socket_path.with_name(socket_path.name + ".lock")))
        if Path(where.run) != socket_path.parent:
            # The same state under another socket is another daemon all the same.
            stack.enter_context(sole_daemon(Path(where.run, "capd.sock.lock")))
        configuration, problems = load_configuration(Path(where.config, "config.toml"), environment)
        for problem in problems:
            log.error("configuration_problem", reason=problem)
        _raise_descriptor_limit()
        server_listener = stack.enter_context(listening(socket_path, environment))
        # Nothing of the daemon depends on where it was started, and no folder is kept busy.
        os.chdir("/")
        daemon = Daemon(where, configuration, problems, dict(environment), server_listener)
        await daemon.run(notifier)


class Daemon:
    """All actors of one daemon, and how they are told to stop."""

    def __init__(
        self,
        where: Places,
        configuration: Configuration,
        problems: list[str],
        environment: dict[str, str],
        server_listener: trio.SocketListener,
    ) -> None:
        self._where = where
        self._configuration = configuration
        self._problems = problems
        self._environment = environment
        self._listener = server_listener
        self._started_at = time.monotonic()
        self._scope = trio.CancelScope()
        self._stop_asked = trio.Event()
        self._is_ready = False
        self._path_known = trio.Event()

    async def run(self, notifier: Notifier) -> None:
        """Start every actor in its order, serve, and stop them in reverse."""
        async with (
            Bus(self._addresses(), ActorName("daemon"), events=EVENTS, bind_events=True) as bus,
            trio.open_nursery() as around,
        ):
            self._bus = bus
            # Outside of what it stops: a second signal must be heard while the first is obeyed.
            around.start_soon(self._follow_signals, around)
            around.start_soon(self._take_login_path)
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
                        around.start_soon(beat, bus, _WATCHED, notifier.watchdog, notifier.alive)
                    await self._stop_asked.wait()
                    notifier.stopping()
                    await self._drain(bus)
                nursery.cancel_scope.cancel()
            around.cancel_scope.cancel()
        log.info("daemon_stopped")

    def stop(self) -> None:
        """End the daemon in good order: what runs may finish, nothing else begins."""
        self._bus.publish(DaemonStopping())
        self._stop_asked.set()
        if not self._is_ready:
            self._scope.cancel()

    async def _drain(self, bus: Bus) -> None:
        """Let calls under way end; clients are told to come back to the next daemon."""
        within = self._configuration.daemon.drain
        try:
            await bus.ask(curator_host.NAME, DrainSessions(within), DRAINED, within + STOP_TIMEOUT)
        except CapdError as error:
            log.warning("not_drained", reason=str(error))

    def described(self) -> dict[str, Any]:
        """Return the daemon's own part of the status."""
        return {
            "version": __version__,
            "pid": os.getpid(),
            "uptime_s": round(time.monotonic() - self._started_at, 3),
            "rss_bytes": platform.rss_bytes(os.getpid()) or 0,
            "socket": self._where.socket,
            "path": self._environment.get("PATH", os.defpath),
            "degraded": list(self._problems),
        }

    async def _follow_signals(self, nursery: trio.Nursery) -> None:
        watched = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        with trio.open_signal_receiver(*watched) as signals:
            async for number in signals:
                log.info("signal_received", signal=signal.Signals(number).name)
                if number == signal.SIGHUP:
                    nursery.start_soon(self._reload)
                elif self._stop_asked.is_set():
                    # Asked twice: the guards end every server when this process is gone.
                    os._exit(FAILED)
                else:
                    self.stop()

    async def _reload(self) -> None:
        try:
            await self._bus.ask(registry.NAME, ReloadCatalog(), RELOADED, RELOAD_TIMEOUT)
        except CapdError as error:
            log.error("reload_failed", reason=str(error))

    async def _take_login_path(self) -> None:
        """Extend the PATH of servers that are started from here on."""
        if not is_from_shell(self._environment):
            found = await login_path(self._environment)
            self._environment["PATH"] = merged(self._environment.get("PATH", os.defpath), found)
            folders = len(self._environment["PATH"].split(os.pathsep))
            log.info("login_path_taken", folders=folders)
        self._path_known.set()

    def _addresses(self) -> dict[ActorName, Address]:
        names = (registry.NAME, supervisor.NAME, tool_finder.NAME, curator_host.NAME)
        addresses = {name: Address(f"inproc://{name}") for name in names}
        is_apart = self._configuration.embedder.placement == "process"
        socket = Path(self._where.run, "embedder.ipc")
        # A socket's path has a limit; where it is too long, the model lives in this process.
        is_apart = is_apart and len(os.fsencode(socket)) <= LONGEST_IPC_BYTES
        addresses[embedder.NAME] = Address(f"ipc://{socket}" if is_apart else "inproc://embedder")
        return addresses

    def _children(self, bus: Bus) -> list[Child]:
        where, configuration = self._where, self._configuration
        instances: Handover[InstanceId, Instance] = Handover()
        connections: Handover[int, Connection] = Handover()
        stored = StoredSecrets(
            Path(where.config), self._environment.get("CREDENTIALS_DIRECTORY", "")
        )
        environments = SessionEnvironments(stored)
        shared_cwd = Path(where.state, "shared")
        shared_cwd.mkdir(mode=0o700, exist_ok=True)
        tool_lists = ToolLists(Path(where.cache, "tools"))
        settings = SupervisorSettings(
            linger=configuration.servers.linger,
            longest_call=configuration.servers.longest_call,
            shared_cwd=shared_cwd,
            environment=self._environment,
            extra_path=uvx_folder(),
            version=__version__,
            spool=Spool(Path(where.cache)),
            tool_lists=tool_lists,
            path_known=self._path_known,
            eras=EraFile(Path(where.cache, "eras.json")),
        )
        logins = Logins(Path(where.state, "logins"))
        starts = Starts(settings, logins)
        results = self._result_room()
        control = Control(bus, environments, daemon=self.described, stop=self.stop)
        return [
            self._embedder_child(bus),
            Child(
                registry.NAME,
                lambda task_status: registry.Registry(
                    bus,
                    Path(where.config, "taps.toml"),
                    Path(where.cache, "vectors.bin"),
                    configuration.routing.priors,
                    is_watching=configuration.taps.watch,
                ).run(task_status=task_status),
            ),
            Child(
                secret_keeper.NAME,
                lambda task_status: secret_keeper.SecretKeeper(bus, stored).run(
                    task_status=task_status
                ),
            ),
            Child(
                supervisor.NAME,
                lambda task_status: supervisor.Supervisor(
                    bus, instances, environments, settings, starts
                ).run(task_status=task_status),
            ),
            Child(
                tool_finder.NAME,
                lambda task_status: tool_finder.ToolFinder(
                    bus, tool_lists, environments, Path(where.cache, "tool_vectors.bin")
                ).run(task_status=task_status),
            ),
            Child(
                curator_host.NAME,
                lambda task_status: curator_host.CuratorHost(
                    bus,
                    connections,
                    instances,
                    environments,
                    SessionFiles(Path(where.state, "sessions")),
                    domains=configuration.domains(),
                    rules=self._session_rules(),
                    version=__version__,
                    results=results,
                ).run(task_status=task_status),
            ),
            Child(
                "gateway",
                lambda task_status: gateway.Gateway(
                    bus,
                    self._listener,
                    connections,
                    control,
                    __version__,
                    stopping=self._stop_asked,
                ).run(task_status=task_status),
            ),
            *self._http_children(bus, connections),
        ]

    def _result_room(self) -> ResultRoom | None:
        """Return where long results are kept, None where none is ever cut."""
        table = self._configuration.results
        limits = Limits(table.limit, table.servers, table.tools, table.media)
        if not (table.limit or any(table.servers.values()) or any(table.tools.values())):
            return None
        folder = Path(self._where.cache, "results")
        return ResultRoom(ResultStore(folder, most_bytes=table.store_mib << 20), limits)

    def _session_rules(self) -> SessionRules:
        table, problems = client_table(Path(self._where.config, "clients.toml"))
        for problem in problems:
            log.error("configuration_problem", reason=problem)
        self._problems.extend(problems)
        return session_rules(self._configuration, table)

    def _http_children(self, bus: Bus, connections: Handover[int, Connection]) -> list[Child]:
        table = self._configuration.listen_http
        if not table.enabled:
            return []
        # Imported here: whoever does not switch it on has nothing of it in memory.
        from capd.actors import http_gateway  # noqa: PLC0415
        from capd.adapters.clients.http_front.admission import Admission  # noqa: PLC0415
        from capd.adapters.clients.http_front.bearer_token import kept_token  # noqa: PLC0415

        try:
            token = kept_token(Path(self._where.state, "http.token"))
            listener = http_gateway.listener_on(table.port)
        except (CapdError, OSError) as error:
            problem = f"[listen_http] is not served on port {table.port}: {error}"
            log.error("configuration_problem", reason=problem)
            self._problems.append(problem)
            return []
        settings = http_gateway.HttpSettings(
            Admission(table.port, token),
            is_bare=table.names == "bare",
            capabilities=table.capabilities,
            project=table.project,
            poll_after=table.poll_after,
        )
        return [
            Child(
                http_gateway.NAME,
                lambda task_status: http_gateway.HttpGateway(
                    bus, listener, connections, settings
                ).run(task_status=task_status),
            )
        ]

    def _embedder_child(self, bus: Bus) -> Child:
        settings = self._configuration.embedder
        if self._addresses()[embedder.NAME].startswith("inproc:"):
            return Child(
                embedder.NAME,
                lambda task_status: embedder.Embedder(
                    bus, load_model, idle=settings.idle, on_idle="unload"
                ).run(task_status=task_status),
            )
        address = self._addresses()[embedder.NAME]
        # -P: the folder that the daemon was started in must not be searched for modules.
        argv = [sys.executable, "-P", "-m", "capd", "embedder", address, str(settings.idle)]
        kept = {
            key: self._environment[key] for key in _EMBEDDER_ENVIRONMENT if key in self._environment
        }
        # onnxruntime uploads usage data unless this is set before it is imported.
        keeper_environment = {**kept, "ORT_DISABLE_TELEMETRY": "1"}
        return Child(
            embedder.NAME,
            lambda task_status: EmbedderKeeper(bus, argv, keeper_environment).run(
                task_status=task_status
            ),
        )


def _rest_the_collector() -> None:
    """Look for cycles among what comes from here on, and less often.

    What was imported stays, and each look at it costs milliseconds; a call leaves no cycle behind.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_ALLOCATIONS_BETWEEN_LOOKS, 10, 10)


def _raise_descriptor_limit() -> None:
    """Allow as many descriptors as two per session and four per server may need."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MOST_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
