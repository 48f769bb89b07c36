"""Every command, typed with good and with bad input: no traceback, and the right exit code.

`typed_commands.py` has the table of inputs, and shows all of it as a program.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from whole import typed_commands
from whole.typed_commands import NEEDS_THE_MODEL, every_path, inputs_of, plain, too_long
from whole_daemon import Home, home_of_its_own, wait_for

Type = Callable[[str, int], tuple[int, str]]

AS_WIDE_AS_IT_IS = {"completion", "config schema", "help", "metrics"}
"""Scripts, JSON and Prometheus' text are for programs; the first page of help has 80 columns."""


@pytest.fixture(scope="module")
def home() -> Iterator[Home]:
    with home_of_its_own(is_forked=True) as made:
        made.plain("alpha")
        made.start()
        with made.shim("editor"):
            wait_for(lambda: made.ask("sessions")["sessions"])
            made.ask("enable", session="editor", name="alpha")
            yield made


@pytest.fixture(scope="module")
def typed(home: Home) -> Iterator[Type]:
    environment, project = typed_commands.surroundings(home)
    command = [sys.executable, "-P", str(Path(typed_commands.__file__)), "--serve"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def type_one(words: str, columns: int) -> tuple[int, str]:
            asked = {"words": words, "columns": columns, "env": environment, "cwd": str(project)}
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(f"{json.dumps(asked)}\n")
            process.stdin.flush()
            answer = json.loads(process.stdout.readline())
            return answer["exit_code"], answer["said"]

        yield type_one
        process.stdin.close()


@pytest.mark.parametrize("columns", [60, 0], ids=["60 columns", "a pipe"])
@pytest.mark.parametrize("path", every_path())
def test_a_command_ends_as_it_went_and_shows_no_traceback(
    typed: Type, path: str, columns: int
) -> None:
    for words, expected in inputs_of(path):
        if path in NEEDS_THE_MODEL and expected == typed_commands.FINE:
            continue
        code, said = typed(words, columns)

        lines = plain(said)
        assert "Traceback (most recent call last)" not in said, said
        assert code in ({0, 1, 2, 4} if expected is None else {expected}), (words, said)
        if columns == 0:
            assert "\x1b" not in said, said
        elif path not in AS_WIDE_AS_IT_IS and "--json" not in words:
            assert too_long(lines, columns) == [], words
        if code not in {0, 4}:
            assert [line for line in lines if line.strip() not in {"", "n"}], words


@pytest.mark.parametrize("words", ["no-such-command", "statsu"])
def test_a_command_that_is_not_there_is_wrong_usage(typed: Type, words: str) -> None:
    code, said = typed(words, 60)

    assert code == typed_commands.USAGE
    assert f"No such command '{words}'" in said


def test_the_inputs_are_of_commands_that_there_are() -> None:
    named = {*typed_commands.GOOD, *typed_commands.BAD, *typed_commands.BEFORE}

    assert named <= set(every_path())
