"""A bridge into a container: connections go over the input and output of one command in it.

The engine (podman or Docker) runs that command with `exec`. Nothing is mounted, and no port is
opened. The container needs Python 3.8 and a home that can be written to; it needs no network.
"""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable
from typing import Any

from capd_client.bridge.holding import HeldBridge
from capd_client.bridge.opened import (
    BEAT,
    FAREWELL,
    RUN,
    FarBridge,
    FarSideError,
    Prepared,
    send_order,
)
from capd_client.bridge.streams import StreamEndedError, Streams

ENGINES = ("podman", "docker")
_OWN = {"podman": ("--detach-keys=",), "docker": ()}
"""More options of `exec` for each engine. podman's detach keys are switched off, because podman
would remove the bytes of these keys from any stream, and so from frames."""


class ContainerBridge(FarBridge):
    """A bridge into a container, over a command that the engine runs there with `exec`."""

    kind = "container"

    def __init__(
        self,
        bridge_socket: str,
        name: str,
        container: str,
        *,
        engine: str = "",
        user: str = "",
        is_installed: bool = False,
        say: Callable[[str], None],
        wake: int,
    ) -> None:
        """Create the bridge to `container`.

        `engine` is podman or docker; if it is empty, the engine that has the container is found.
        Commands in the container run as `user`; if that is empty, as the container's own user. The
        other parameters are those of `FarBridge`.

        Raises:
            FarSideError: neither engine has the container.
        """
        super().__init__(
            bridge_socket, name, container, is_installed=is_installed, say=say, wake=wake
        )
        self._exec = exec_words(engine or engine_of(container), container, user)

    def _ordered(
        self, order: dict[str, Any], payload: bytes, timeout: float | None
    ) -> dict[str, Any]:
        command = [*self._exec, "python3", "-c", RUN]
        return send_order(command, self._target, order, payload, timeout)

    def _serve(self, held: HeldBridge, prepared: Prepared, generation: str) -> bool:
        process = subprocess.Popen(
            [*self._exec, "python3", f"{prepared.folder}/capd.pyz", "hold-streams", generation],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert process.stdin is not None
        assert process.stdout is not None

        def connect() -> socket.socket:
            end = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                end.connect(held.socket)
            except BaseException:
                end.close()
                raise
            return end

        streams = Streams(process.stdout.fileno(), process.stdin.fileno(), connect=connect)
        try:
            return self._follow(streams, held, prepared)
        except StreamEndedError as error:
            raise FarSideError(f"{self._target}: {error}") from error
        finally:
            self._end(process, streams)

    def _follow(self, streams: Streams, held: HeldBridge, prepared: Prepared) -> bool:
        beat_at, is_held = 0.0, False
        while True:
            if time.monotonic() >= beat_at:
                beat_at = time.monotonic() + BEAT
                streams.say(beat=True)
            words, ready = streams.turn(BEAT, (held.fileno(), self._wake))
            if self._wake in ready:
                return True
            if held.fileno() in ready:
                self._hear(held)
            for word in words:
                if word.get("removed"):
                    self._on_removed(word)
                elif word.get("held") and not is_held:
                    is_held = True
                    self._on_held(prepared)

    def _end(self, process: "subprocess.Popen[bytes]", streams: Streams) -> None:
        """Have the far side remove its files, and end `process`, the engine's command.

        `streams` are the connections over its input and output.
        """
        streams.close()
        try:
            streams.say(bye=True)
            streams.drain()
            until = time.monotonic() + FAREWELL
            while time.monotonic() < until:
                words, _ = streams.turn(0.2)
                if any(each.get("removed") for each in words):
                    break
        except StreamEndedError:
            pass
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.close()
        process.stdin.close()
        try:
            process.wait(FAREWELL)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def exec_words(engine: str, container: str, user: str = "") -> list[str]:
    """Return the words to put before a command, so that it runs in a container as `user`.

    `engine` is the path of podman or docker. An empty user is the container's own.
    """
    kind = os.path.basename(engine)  # noqa: PTH119 - text to text
    as_user = [f"--user={user}"] if user else []
    return [engine, "exec", "--interactive", *_OWN.get(kind, ()), *as_user, container]


def engine_of(container: str) -> str:
    """Return the engine, podman or docker, that has a running container of this name.

    Raises:
        FarSideError: no engine is installed, or none has such a container.
    """
    found = [each for each in ENGINES if shutil.which(each)]
    for engine in found:
        words = [engine, "container", "inspect", "--format={{.State.Running}}", container]
        try:
            ended = subprocess.run(words, capture_output=True, timeout=30, check=False)
        except (OSError, subprocess.TimeoutExpired):
            continue
        if ended.stdout.strip() == b"true":
            return engine
    if not found:
        raise FarSideError("there is no podman and no docker here: install the package podman")
    raise FarSideError(f"no container that runs is called {container}: see {found[0]} ps")


def remove_files(name: str, container: str, engine: str = "", user: str = "") -> None:
    """Remove the files that the bridge `name` left in a container.

    `engine` is podman or docker; if it is empty, the engine that has the container is found. `user`
    is the user that the bridge ran as there; empty for the container's own.

    Raises:
        FarSideError: the container does not run, or the files could not be removed.
    """
    words = exec_words(engine or engine_of(container), container, user)
    send_order([*words, "python3", "-c", RUN], container, {"do": "remove", "name": name})
