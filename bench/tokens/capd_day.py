"""A daemon in a folder of its own, whose tap has a capability for each server of the day."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.tokens.catalog import Server
from bench.tokens.day import filled
from bench.tokens.mcp_client import Follows, McpClient

from capd_client.control import Control, ControlError, DaemonDownError
from capd_client.mcp_host import without_capd

_PATIENCE = 180.0
_LOOKED = 0.5
_WARM_UP = "warm-up"


class NotReadyError(Exception):
    """The daemon is not ready for the benchmark; the text says why."""


class CapdDay:
    """One daemon, for one row."""

    def __init__(
        self,
        folder: Path,
        servers: Sequence[Server],
        places: dict[str, str],
        *,
        mode: str,
        kept: Path,
    ) -> None:
        """`kept` is the folder with the tool lists, for the daemons of later rows."""
        self.folder = folder
        self._project = Path(places["P"])
        self._env = {
            **without_capd(),
            "CAPD_HOME": str(folder),
            "CAPD_SURFACE": mode,
            # Servers stay from one conversation to the next, as in the rows without capd.
            "CAPD_LINGER": "600",
        }
        self._sessions = 0
        _define(folder, servers, places)
        self._kept = kept
        if kept.is_dir():
            shutil.copytree(kept, folder / "cache")
        with (folder / "daemon.log").open("wb") as log:
            self._daemon = subprocess.Popen(
                [sys.executable, "-P", "-m", "capd", "daemon", "run"],
                env=self._env,
                stderr=log,
                cwd=folder,
                start_new_session=True,
            )

    def prepare(self, tools: int) -> None:
        """Wait until all tools are known and searched by vectors, and messages are routed.

        Raises:
            NotReadyError: the daemon did not get there in time.
        """
        self._until("the daemon does not serve", lambda: bool(self._ask("status")))
        if not self._kept.is_dir():
            self._index()

        def is_ready() -> bool:
            found = self._ask("search", query="read a file", limit=1)
            # An answer by words and vectors together ("fused") says that the model is loaded.
            return found["mode"] == "fused" and int(found["searched"]) == tools

        self._until(f"not all of {tools} tools are searched by vectors", is_ready)
        # A session that begins makes the daemon compute the triggers' vectors. Without this one,
        # the first turns would be decided before they are there.
        first = self._client(_WARM_UP, "capd-bench", "never")
        try:
            first.open()
            self._until("messages are not routed", self._is_routing)
        finally:
            first.close()
        if not self._kept.is_dir():
            shutil.copytree(self.folder / "cache", self._kept)

    def client(self, name: str, follows: Follows, *, is_stateless: bool = False) -> McpClient:
        """Return a client with its own session."""
        self._sessions += 1
        return self._client(f"day-{self._sessions}", name, follows, is_stateless=is_stateless)

    def _client(
        self, session: str, name: str, follows: Follows, *, is_stateless: bool = False
    ) -> McpClient:
        return McpClient(
            [sys.executable, "-P", "-m", "capd_client.entry", "mcp"],
            env={**self._env, "CAPD_CLIENT": name, "CAPD_SESSION": session},
            folder=self._project,
            name=name,
            follows=follows,
            is_stateless=is_stateless,
        )

    def modes(self) -> set[str]:
        """Return the modes of all sessions but the first, which only warmed the daemon up."""
        sessions = self._ask("sessions")["sessions"]
        return {str(each["mode"]) for each in sessions if each["key"] != _WARM_UP}

    def close(self) -> None:
        """End the daemon, which ends its servers."""
        self._daemon.terminate()
        try:
            self._daemon.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(self._daemon.pid, signal.SIGKILL)
            self._daemon.wait()

    def _is_routing(self) -> bool:
        return bool(self._ask("status")["embedder"]["state"] == "ready")

    def _index(self) -> None:
        argv = [sys.executable, "-P", "-m", "capd_client.entry", "index"]
        done = subprocess.run(
            argv, env=self._env, cwd=self._project, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise NotReadyError(f"capd index: {done.stdout}{done.stderr}")

    def _ask(self, method: str, **params: Any) -> dict[str, Any]:
        with Control(str(self.folder / "run" / "capd.sock")) as control:
            return control.call(method, params)

    def _until(self, trouble: str, is_so: Any) -> None:
        give_up_at = time.monotonic() + _PATIENCE
        why = ""
        while time.monotonic() < give_up_at and self._daemon.poll() is None:
            try:
                if is_so():
                    return
            except (ControlError, DaemonDownError) as error:
                why = str(error)
            time.sleep(_LOOKED)
        log = (self.folder / "daemon.log").read_text(encoding="utf-8", errors="replace")
        raise NotReadyError(f"{trouble}: {why}\n{log[-2000:]}")


def _define(folder: Path, servers: Sequence[Server], places: dict[str, str]) -> None:
    for server in servers:
        capability = folder / "tap" / "capabilities" / server.name
        capability.mkdir(parents=True)
        triggers = f"triggers = {json.dumps(server.triggers, ensure_ascii=False)}\n"
        (capability / "config.toml").write_text(triggers, encoding="utf-8")
        argv: list[str] = filled(list(server.argv), places)
        env = ", ".join(
            f"{key} = {json.dumps(value)}" for key, value in filled(server.env, places).items()
        )
        (capability / "default.toml").write_text(
            f"[[mcp.servers]]\nname = {json.dumps(server.name)}\ncommand = {json.dumps(argv[0])}\n"
            f"args = {json.dumps(argv[1:])}\nenv = {{ {env} }}\ntimeout_seconds = 120\n",
            encoding="utf-8",
        )
    (folder / "config").mkdir()
    tap = json.dumps(str(folder / "tap"))
    (folder / "config" / "taps.toml").write_text(
        f'starter = false\n[[taps]]\nname = "day"\npath = {tap}\n', encoding="utf-8"
    )
