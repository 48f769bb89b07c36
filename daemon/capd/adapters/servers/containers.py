"""Containers of servers: finds the engine, makes one container for each run, and removes it.

    prepare ──engine runs──> in use ──guard's last command──> removed
       │                        │ the guard, the engine's program or capd was killed
       v                        v
    ContainerRefusedError    `release` removes it, or the sweep of the next daemon

The guard is the parent process of one server (`platform/guard.py`). Each container has a folder
below the state folder, with the path of its engine's program and the pipe for its secrets. The
folder is made before the container and removed after it. All functions block.
"""

import contextlib
import json
import os
import re
import secrets
import shutil
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from capd.adapters.servers.trees import TREES
from capd.core.errors import CapdError
from capd.core.servers.containers import (
    ENGINES,
    ContainerRequest,
    Engine,
    EngineKind,
    container_name,
    describe,
    listing_words,
    of_earlier_lives,
    refuse_project,
    removal_words,
    run_words,
    secret_lines,
)

_TIMEOUT = 30.0
_TRIES = 3
_MOST_BYTES = 1 << 20
_ENGINE, _PIPE = "engine", "secrets"
_QUESTIONS: Mapping[EngineKind, tuple[str, ...]] = {
    "podman": ("info", "--format={{.Host.Security.Rootless}} {{.Host.CgroupControllers}}"),
    "docker": ("info", "--format={{json .SecurityOptions}}"),
}
ENGINE_VARIABLES = (
    *("DBUS_SESSION_BUS_ADDRESS", "DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG"),
    *("CONTAINERS_CONF", "CONTAINERS_STORAGE_CONF", "REGISTRY_AUTH_FILE"),
)
"""Variables by which a user chooses and sets up an engine."""

log = structlog.get_logger(actor="containers")


class NoEngineError(CapdError):
    """There is no container engine here, or none that works."""


@dataclass(slots=True)
class Container:
    """One container, from its preparation to its removal."""

    name: str
    argv: tuple[str, ...]
    """The command that runs the container."""
    environment: Mapping[str, str] = field(repr=False)
    """The environment of the engine's program."""
    removal: tuple[str, ...]
    """The command that removes the container."""
    description: str
    """How the container confines the server, for a person."""
    mounted: str
    """The project's folder that the container sees; empty if it sees none."""
    _folder: Path
    _pipe: int

    def release(self, *, is_removed: bool) -> None:
        """Remove the container and its folder. Once that has succeeded, further calls do nothing.

        `is_removed` says that the container is gone already, so that only the folder is removed.
        """
        self._close()
        if not self._folder.exists():
            return
        if is_removed or _removed(self.removal, self.environment):
            shutil.rmtree(self._folder, ignore_errors=True)
        else:
            log.warning("container_not_removed", container=self.name)

    def _close(self) -> None:
        pipe, self._pipe = self._pipe, -1
        if pipe >= 0:
            os.close(pipe)


class Containers:
    """Prepares and removes the containers of one daemon's servers."""

    def __init__(
        self, folder: Path, environment: Mapping[str, str], kept: Sequence[str] = ()
    ) -> None:
        """Use the folder `folder`, which gets a folder for each container.

        `environment` is the daemon's, with `ENGINE_VARIABLES`. No container may see the folders
        `kept`.
        """
        self._folder = folder
        self._environment = environment
        self._kept = kept
        self._engine: Engine | None = None
        self._lock = threading.Lock()

    def prepare(self, request: ContainerRequest, environment: Mapping[str, str]) -> Container:
        """Return a container that can be run as `request` says.

        `environment` has further variables for the engine's program.

        Raises:
            NoEngineError: there is no engine.
            ContainerRefusedError: the container would see too much, or its secrets do not fit.
        """
        refuse_project(request, [os.path.realpath(each) for each in self._kept])
        lines = secret_lines(request) if request.secrets else b""
        environment = {**self._of_engine(), **environment}
        engine = self.engine(environment)
        mark = TREES.mark
        name = container_name(mark.home, mark.life, secrets.token_hex(6))
        folder = self._folder / name
        folder.mkdir(mode=0o700, parents=True)
        pipe = -1
        try:
            (folder / _ENGINE).write_text(engine.command)
            path = folder / _PIPE
            if lines:
                os.mkfifo(path, 0o600)
                # Opened for reading too: the open does not wait for a reader, and the bytes stay
                # in the pipe.
                pipe = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
                os.write(pipe, lines)
            argv = run_words(engine, request, name, mark.home, str(path) if lines else "")
        except BaseException:
            if pipe >= 0:
                os.close(pipe)
            shutil.rmtree(folder, ignore_errors=True)
            raise
        return Container(
            name,
            argv,
            environment,
            removal_words(engine, [name]),
            describe(engine, request),
            request.project,
            folder,
            pipe,
        )

    def engine(self, environment: Mapping[str, str]) -> Engine:
        """Return the engine to use: the first of `ENGINES` on PATH that answers.

        `environment` has the PATH, and is that of the engine's program.

        This call also starts the process that rootless podman keeps running between its commands.
        So that process does not become a part of a server's tree.

        Raises:
            NoEngineError: none answers; the text has the reason of each.
        """
        with self._lock:
            if self._engine is not None and os.access(self._engine.command, os.X_OK):
                return self._engine
            reasons = []
            for kind in ENGINES:
                command = shutil.which(kind, path=environment.get("PATH", os.defpath))
                if command is None:
                    continue
                answer = _ran((command, *_QUESTIONS[kind]), environment)
                if answer.returncode == 0:
                    self._engine = _engine(kind, command, answer.stdout)
                    return self._engine
                last = answer.stderr.strip().splitlines()[-1:] or ["it says nothing"]
                reasons.append(f"{kind} does not work: {last[0][:300]}")
            why = "; ".join(reasons) or "there is no podman and no docker on PATH"
            raise NoEngineError(f"it runs in a container, and {why}: install the package podman")

    def sweep(self) -> None:
        """Remove the containers that earlier runs of this daemon have left."""
        mark = TREES.mark
        left = of_earlier_lives(self._recorded(), mark.home, mark.life)
        if not left:
            # Without containers, no engine is started.
            return
        environment = {**self._environment, **self._of_engine()}
        is_clean = True
        for command in sorted({self._engine_of(each) for each in left} - {""}):
            kind: EngineKind = "docker" if Path(command).name == "docker" else "podman"
            engine = Engine(kind, command, is_rootless=False, user=0, group=0)
            listed = _ran(listing_words(engine, mark.home), environment)
            names = of_earlier_lives(listed.stdout.split(), mark.home, mark.life)
            is_clean &= listed.returncode == 0
            if names:
                is_clean &= _removed(removal_words(engine, names), environment)
                log.warning("leftover_containers_removed", containers=len(names))
        if is_clean:
            for each in left:
                shutil.rmtree(self._folder / each, ignore_errors=True)

    def _recorded(self) -> Iterator[str]:
        with contextlib.suppress(OSError):
            yield from sorted(os.listdir(self._folder))  # noqa: PTH208

    def _engine_of(self, name: str) -> str:
        try:
            return (self._folder / name / _ENGINE).read_text()[:4096]
        except (OSError, ValueError):
            return ""

    def _of_engine(self) -> dict[str, str]:
        given = self._environment
        return {name: given[name] for name in ENGINE_VARIABLES if given.get(name)}


def _engine(kind: EngineKind, command: str, answer: str) -> Engine:
    has_cpu = True
    if kind == "podman":
        is_rootless = answer.startswith("true")
        # Rootless podman starts no container with a limit whose cgroup controller it does not have.
        has_cpu = not is_rootless or "cpu" in re.findall(r"\w+", answer)
    else:
        try:
            is_rootless = any("rootless" in str(each) for each in json.loads(answer) or ())
        except ValueError:
            is_rootless = False
    cpus = (os.cpu_count() or 1) if has_cpu else 0
    return Engine(kind, command, is_rootless, os.getuid(), os.getgid(), cpus)


def _removed(words: Sequence[str], environment: Mapping[str, str]) -> bool:
    # A container whose parent was killed is stopped by the first try, and removed by the second.
    return any(_ran(words, environment).returncode == 0 for _ in range(_TRIES))


def _ran(
    words: Sequence[str], environment: Mapping[str, str]
) -> "subprocess.CompletedProcess[str]":
    """Run `words`, a short command of an engine; return its exit code and output.

    The code is 127 if the command could not run or took too long.
    """
    try:
        ended = subprocess.run(
            words,
            env=dict(environment),
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TIMEOUT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return subprocess.CompletedProcess(words, 127, "", str(error))
    out, err = (
        each[:_MOST_BYTES].decode(errors="replace") for each in (ended.stdout, ended.stderr)
    )
    return subprocess.CompletedProcess(words, ended.returncode, out, err)
