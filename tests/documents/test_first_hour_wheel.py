"""The quickstart, typed twice, with only the wheel installed."""

import shutil
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from uv import find_uv_bin

from documents.newcomer import left_in, newcomer
from documents.test_first_hour import FROM_OTHERS, QUICKSTART, failures, lines_of, model_is_ready
from whole_daemon import wait_for

CHECKOUT = Path(__file__).parents[2]
LEAVES = ("rm -rf", "capd uninstall", "capd daemon")
"""What ends the first time: the second is typed on what it left."""


def newest_python() -> str:
    """Return the newest Python that runs here, of those on the PATH and of pyenv."""
    found = [shutil.which(f"python3.{minor}") for minor in range(sys.version_info[1] + 1, 20)]
    own = Path.home() / ".pyenv" / "versions"
    found += [str(each) for each in own.glob("3.*/bin/python3.[0-9]*") if each.suffix[1:].isdigit()]
    best: tuple[int, ...] = sys.version_info[:2]
    newest = sys.executable
    for python in filter(None, found):
        # A shim of pyenv for a version that is not chosen does not run.
        asked = [python, "-c", "import sqlite3, ssl, sys; print(*sys.version_info[:2])"]
        done = subprocess.run(asked, capture_output=True, text=True, check=False)
        version = tuple(map(int, done.stdout.split()))
        if version > best:
            best, newest = version, python
    return newest


@pytest.fixture(scope="module", params=["this Python", "the newest"])
def installed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Install the wheel, without any extra, into an environment of its own; return its Python."""
    runs = sys.executable if request.param == "this Python" else newest_python()
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", str(folder)]
    subprocess.run([*build, str(CHECKOUT)], check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    uv, python = find_uv_bin(), folder / "environment/bin/python"
    subprocess.run([uv, "venv", "-q", "--python", runs, python.parents[1]], check=True)
    subprocess.run([uv, "pip", "install", "-q", "--python", python, wheel], check=True)
    return str(python)


@pytest.mark.real
def test_the_quickstart_is_typed_twice_with_what_a_default_install_has(installed: str) -> None:
    with newcomer(installed) as person, ExitStack() as editor:
        lines = lines_of(QUICKSTART)
        start = lines.index("capd install claude") + 1
        failed = failures(person, lines[:start], editor)
        wait_for(lambda: model_is_ready(person), 120.0)
        again = [each for each in lines[start:] if not each.startswith(LEAVES)]
        failed += failures(person, again, editor)

        failed += failures(person, lines[start:], editor)
        editor.close()

        assert failed == []
        assert left_in(person.home, FROM_OTHERS) == []


@pytest.mark.real
def test_setup_alone_leads_to_a_first_tool(installed: str) -> None:
    with newcomer(installed) as person:
        said = person.types("capd setup", "\n\n\n")
        turn = [each.strip() for each in said.stdout.splitlines() if "capd turn" in each]

        done = person.types(turn[0])

        assert (done.returncode, "is on" in done.stdout) == (0, True), done
        assert person.types(turn[0]).returncode == 0
