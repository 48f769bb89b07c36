"""The quickstart, typed twice in order by somebody who installed the wheel and nothing else."""

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


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Install the wheel, without any extra, into an environment of its own; return its Python."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", str(folder)]
    subprocess.run([*build, str(CHECKOUT)], check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    uv, python = find_uv_bin(), folder / "environment/bin/python"
    subprocess.run([uv, "venv", "-q", "--python", sys.executable, python.parents[1]], check=True)
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
