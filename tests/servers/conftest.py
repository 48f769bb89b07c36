"""One daemon for all ordinary servers, and ways to start each directly and through capd."""

import contextlib
import functools
import http.server
import itertools
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest
from uv import find_uv_bin

from capd_client.mcp_host import without_capd
from whole_daemon import Home, wait_for

from .conversation import Server, Side, filled
from .line_client import EndedError, LineClient
from .project import made_project


@dataclass(frozen=True, slots=True)
class Both:
    """Both ways to every server, in projects that are made anew for each conversation."""

    home: Home
    web: str
    known: set[str] = field(default_factory=set)
    sessions: Iterator[int] = field(default_factory=itertools.count)

    @property
    def temporary(self) -> Path:
        """TMPDIR of the daemon and of every server: its value finds their processes."""
        return self.home.folder / "tmp"

    @contextlib.contextmanager
    def directly(self, server: Server) -> Iterator[Side]:
        """Start the server itself; skip if its package cannot be installed."""
        project = self._project(server)
        places = self._places(project)
        argv = [filled(part, places) for part in server.command]
        uv = os.path.dirname(find_uv_bin())  # noqa: PTH120 - as the daemon adds it
        env = {
            **without_capd(),
            "TMPDIR": str(self.temporary),
            "PATH": os.pathsep.join((os.environ["PATH"], uv)),
        }
        env |= {name: filled(value, places) for name, value in server.env.items()}
        try:
            with self._client(server, argv, env, project) as client:
                try:
                    spoken = client.initialize()["protocolVersion"]
                except EndedError as error:
                    pytest.skip(f"{server.package} from {server.registry} does not start: {error}")
                assert spoken == server.speaks
                yield Side(client, "", places)
        except FileNotFoundError as error:
            pytest.skip(f"{server.package} cannot be started: {error}")

    @contextlib.contextmanager
    def through_capd(self, server: Server) -> Iterator[Side]:
        """Start an editor's `capd mcp` and switch the server's capability on."""
        self._define(server)
        project = self._project(server)
        argv = [sys.executable, "-P", "-m", "capd_client.entry", "mcp"]
        session = f"{server.name}-{next(self.sessions)}"
        env = {**self.home.env, "CAPD_SESSION": session, "CAPD_CLIENT": "test-editor"}
        with self._client(server, argv, env, project) as client:
            client.initialize()
            enabled = client.ask(
                "tools/call",
                {"name": "capability", "arguments": {"action": "enable", "name": server.name}},
            ).read()
            assert f"'{server.name}' is on" in enabled["content"][0]["text"], enabled
            prefix = f"{server.name}__"
            yield Side(client, prefix, self._places(project))

    def processes(self) -> list[str]:
        """Return the command line of every process that has this TMPDIR."""
        tag = f"TMPDIR={self.temporary}".encode()
        found = []
        for folder in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if folder.name.isdigit() and tag in (folder / "environ").read_bytes().split(b"\0"):
                    found.append((folder / "cmdline").read_text().replace("\0", " "))
        return found

    def _client(
        self, server: Server, argv: list[str], env: dict[str, str], project: Path
    ) -> LineClient:
        stderr = self.home.folder / f"{server.name}.stderr"
        return LineClient(argv, env=env, folder=project, stderr=stderr)

    def _project(self, server: Server) -> Path:
        folder = self.home.folder / "projects" / server.name
        made_project(folder)
        return folder

    def _places(self, project: Path) -> dict[str, str]:
        return {"PROJECT": str(project), "WEB": f"{self.web}/{project.name}"}

    def _define(self, server: Server) -> None:
        """Put the row into the tap as a user would, and have the daemon read it."""
        if server.name in self.known:
            return
        self.home.capability(server.name, list(server.command))
        definition = self.home.folder / "tap/capabilities" / server.name / "default.toml"
        if server.env:
            pairs = ", ".join(
                f"{key} = {msgspec.json.encode(value).decode()}"
                for key, value in server.env.items()
            )
            with definition.open("a") as file:
                file.write(f"env = {{ {pairs} }}\n")
        self.known.add(server.name)
        self.home.ask("reload")


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base's name
        pass


@pytest.fixture(scope="module")
def both() -> Iterator[Both]:
    # Short: a socket's path has at most 108 bytes.
    folder = Path(tempfile.mkdtemp(prefix="capd"))
    folder.chmod(0o700)
    home = Home(folder)
    (folder / "projects").mkdir()
    (folder / "tmp").mkdir()
    home.env["TMPDIR"] = str(folder / "tmp")
    # Two dozen servers are more than a session of an editor lists by itself (docs/surface.md).
    home.env["CAPD_SURFACE"] = "dynamic"
    # What capd answers itself, or makes short, is tested where it is at home: here bytes are held
    # against bytes.
    home.env["CAPD_RESULT_LIMIT"] = "0"
    (folder / "config").mkdir(exist_ok=True)
    (folder / "config" / "config.toml").write_text("[surface]\ncheck_arguments = false\n")
    serve = functools.partial(_Quiet, directory=str(folder / "projects"))
    web = http.server.ThreadingHTTPServer(("127.0.0.1", 0), serve)
    threading.Thread(target=web.serve_forever, daemon=True).start()
    made = Both(home, f"http://127.0.0.1:{web.server_address[1]}")
    try:
        home.start()
        yield made
        home.close()
        with contextlib.suppress(AssertionError):
            wait_for(lambda: not made.processes(), 10.0)
        assert made.processes() == []
    finally:
        web.shutdown()
        web.server_close()
        for process in home.processes:
            process.kill()
            process.wait()
        shutil.rmtree(folder, ignore_errors=True)
