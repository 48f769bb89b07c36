"""Confinement of real processes. What the machine does not support is skipped with a reason."""

import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from capd.adapters.servers import sandboxing
from capd.core.servers.sandbox import SandboxFeatures, SandboxRequest

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="namespaces and Landlock are Linux")
pytestmark = linux_only


PYTHON_FOLDER = Path(sys.executable).parent
"""On PATH: what is installed nowhere on it is not seen."""


class Place:
    """A home with secrets and tools, a project in it, and capd's own folder."""

    def __init__(self, root: Path) -> None:
        self.path: list[str] = []
        self.home = root / "home"
        self.project = self.home / "code" / "shop"
        self.own = self.home / ".config" / "capd"
        self.cache = root / "cache"
        for folder in (self.project, self.own, self.home / ".ssh", self.home / "tools" / "bin"):
            folder.mkdir(parents=True)
        (self.home / ".ssh" / "id").write_text("key")
        (self.home / ".netrc").write_text("login")
        (self.own / "secrets.env").write_text("SECRET=1")
        (self.project / "README").write_text("shop\n")
        tool = self.home / "tools" / "bin" / "tool"
        tool.write_text("#!/bin/sh\necho from the tool\n")
        tool.chmod(0o755)

    def run(self, sandbox_request: SandboxRequest, script: str, machine: SandboxFeatures) -> str:
        """Return the output of a shell with this confinement."""
        environment = {
            "HOME": str(self.home),
            "PATH": ":".join(
                [*self.path, f"{self.home}/tools/bin:{PYTHON_FOLDER}:/usr/local/bin:/usr/bin:/bin"]
            ),
        }
        box = sandboxing.SandboxPlan(
            sandbox_request,
            (self.own,),
            environment,
            str(self.project),
            self.cache,
            lambda: machine,
        )
        found = sandboxing.confinement(box, Path("/bin/sh"), self.project)
        answer = subprocess.run(
            [*found.prefix, "/bin/sh", "-c", script],
            env={**environment, **found.environment},
            cwd=self.project,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return answer.stdout


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def means(name: str) -> SandboxFeatures:
    """Return this machine with only one sandboxing feature; skip if it lacks that."""
    known = sandboxing.machine()
    if not getattr(known, name):
        pytest.skip(f"this machine has no {name}, or forbids it")
    return replace(SandboxFeatures(), **{name: getattr(known, name)})


LOOK = """
cat ~/.ssh/id 2>/dev/null || echo no key
cat ~/.netrc 2>/dev/null || echo no login
cat ~/.config/capd/secrets.env 2>/dev/null || echo no secrets
cat README && echo changed > README && cat README
tool
echo kept > "$TMPDIR/x" && cat "$TMPDIR/x"
touch ~/left 2>/dev/null || echo no home
"""


@pytest.mark.parametrize("name", ["bwrap", "landlock"])
def test_strict_leaves_the_project_a_cache_and_the_tools(place: Place, name: str) -> None:
    said = place.run(SandboxRequest("strict", has_network=True), LOOK, means(name))

    expected = "no key\nno login\nno secrets\nshop\nchanged\nfrom the tool\nkept\n"
    # Under bwrap the home is an empty one that is gone with the server.
    assert said == expected + ("no home\n" if name == "landlock" else "")
    assert not (place.home / "left").exists()
    assert (place.project / "README").read_text() == "changed\n"


KEYS = {
    ".cargo/credentials.toml": ".cargo/bin",
    ".fly/config.yml": ".fly/bin",
    ".local/share/uv/credentials/token": ".local/bin",
    ".dotnet/corefx/cryptography/key.pfx": ".dotnet",
}


@pytest.mark.parametrize("name", ["bwrap", "landlock"])
def test_strict_reads_no_credentials_that_lie_beside_programs(place: Place, name: str) -> None:
    for key, folder in KEYS.items():
        for path in (place.home / key, place.home / folder / "program"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("there\n")
    place.path = [str(place.home / each) for each in KEYS.values()]
    files = " ".join(f"~/{key} ~/{folder}/program" for key, folder in KEYS.items())
    script = f"for each in {files}; do cat $each 2>/dev/null || echo none; done"

    said = place.run(SandboxRequest("strict"), script, means(name))

    programs = ["there"] * 3 + ["none"]
    assert said.split() == [each for program in programs for each in ("none", program)]


CONNECT = f"""
exec {sys.executable} -I -c "
import socket, sys
try:
    socket.create_connection(('127.0.0.1', $PORT), timeout=5)
    print('connected')
except OSError as error:
    print('refused')
"
"""


@pytest.mark.parametrize("name", ["bwrap", "landlock"])
@pytest.mark.parametrize(("has_network", "said"), [(True, "connected\n"), (False, "refused\n")])
def test_strict_connects_nowhere_unless_that_was_agreed_to(
    place: Place, name: str, has_network: bool, said: str
) -> None:

    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        script = CONNECT.replace("$PORT", str(port))

        answer = place.run(SandboxRequest("strict", has_network=has_network), script, means(name))

    assert answer == said


def test_guard_hides_what_is_masked_and_nothing_else(place: Place) -> None:
    script = LOOK.replace("$TMPDIR", "$HOME")

    said = place.run(
        SandboxRequest("guard", masks=("capd", "ssh", "netrc")), script, means("bwrap")
    )

    expected = "no key\nno login\nno secrets\nshop\nchanged\nfrom the tool\nkept\n"
    assert said == expected
    assert (place.home / "left").exists()


def test_what_the_launcher_cannot_enforce_never_starts(tmp_path: Path) -> None:
    launcher = sandboxing._LAUNCHER
    answer = subprocess.run(
        [sys.executable, "-I", "-S", str(launcher), "--read=/usr", "--", str(tmp_path / "none")],
        capture_output=True,
        text=True,
        check=False,
    )

    assert answer.returncode == 126
    assert "capd sandbox:" in answer.stderr
    assert not list(tmp_path.iterdir())
