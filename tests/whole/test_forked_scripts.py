"""A script forked by the tests behaves like one started as a process."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from capd.adapters.parsing import parser
from capd.adapters.parsing.jobs import ReadSkillNeeds
from capd.adapters.parsing.parser import Parser
from capd.adapters.tokens import counted_texts, counting_process
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


def test_a_fork_counts_tokens_like_a_started_process() -> None:
    forked = forked_scripts.own_process_command("counting")
    texts = counting_process.written([b"two words", b"", "gr\u00fc\u00dfe".encode()])

    counted = [
        subprocess.run(command, input=texts, capture_output=True, check=True).stdout
        for command in (forked, counted_texts.command())
    ]

    assert counting_process.read(counted[0])[:2] == [2, 0]
    assert counted[0] == counted[1]


@pytest.mark.parametrize(
    ("longest", "reason"), [(60.0, "error=''"), (0.001, "it takes more than 0.25 s to read")]
)
def test_a_fork_reads_a_text_within_its_time_and_ends_as_a_started_process(
    monkeypatch: pytest.MonkeyPatch, longest: float, reason: str
) -> None:
    forked = forked_scripts.own_process_command("parsing")
    started = Parser(longest=longest)
    text = "---\nname: one\nnumbers: [" + "1, " * 5_000 + "]\n---\nwords\n"
    job = ReadSkillNeeds(text.encode())

    read = [started.read(job)]
    monkeypatch.setattr(parser, "command", lambda *seconds: [*forked, *map(str, seconds)])
    with_forks = Parser(longest=longest)
    read.append(with_forks.read(job))
    for each in (started, with_forks):
        each.close()

    assert read[0] == read[1]
    assert reason in str(read[0])


def test_who_asks_for_nothing_keeps_nobody_waiting() -> None:
    command = forked_scripts.own_process_command("counting")
    with socket.socket(socket.AF_UNIX) as silent:
        silent.connect(command[4])

    counted = subprocess.run(command, input=b"", capture_output=True, check=True, timeout=60.0)

    assert counted.stdout == b""
