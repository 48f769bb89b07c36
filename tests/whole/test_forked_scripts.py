"""A script that tests fork is the one that a process would run."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support import forked_scripts
from whole_daemon import Home, wait_for

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="scripts are forked on Linux alone")


def script(folder: Path, text: str) -> str:
    path = folder / "script.py"
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize(
    ("end", "status"),
    [
        ("", 0),
        ("sys.exit(3)", 3),
        ("sys.exit('no')", 1),
        ("1 / 0", 1),
        ("os.kill(os.getpid(), 9)", 137),
    ],
)
def test_it_has_what_its_process_was_given_and_ends_with_its_status(
    tmp_path: Path, end: str, status: int
) -> None:
    said = "print(sys.argv[1:], os.getcwd(), os.environ['MARK'], sys.stdin.read(), flush=True)"
    file = script(tmp_path, f"import os, sys\n{said}\n{end}\n")

    done = subprocess.run(
        forked_scripts.server_command(file, "a", "b c"),
        env={"MARK": "yes"},
        cwd=tmp_path,
        input="words",
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.stdout, done.returncode) == (f"['a', 'b c'] {tmp_path} yes words\n", status)


def test_it_ends_with_its_process(tmp_path: Path) -> None:
    file = script(tmp_path, "import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(600)\n")
    command = forked_scripts.server_command(file)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())

        process.send_signal(signal.SIGKILL)

        wait_for(lambda: not Path(f"/proc/{pid}").exists())


def test_a_forked_command_says_what_a_started_one_says(home: Home) -> None:
    forked = home.capd("tap", "add", "--nonsense")
    home.env["PYTHONUTF8"] = "1"
    started = home.capd("tap", "add", "--nonsense")

    said = [(each.returncode, each.stdout, each.stderr) for each in (forked, started)]
    assert said[0] == said[1]
    assert forked.args != started.args


@pytest.mark.parametrize("name", ["PYTHONPATH", "PYTHONUTF8", "LD_PRELOAD", "LC_ALL"])
def test_what_python_is_told_at_its_start_takes_a_start(name: str) -> None:
    assert not forked_scripts.can_fork_capd({**os.environ, name: "/of/its/own"})
