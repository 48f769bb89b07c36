"""The commands of the README and the first pages, typed line by line."""

import json
import re
import subprocess
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from documents import pages
from documents.newcomer import Newcomer, left_in, newcomer
from whole_daemon import wait_for

QUICKSTART = pages.DOCS / "quickstart.md"
CAPABILITY = pages.DOCS / "writing-a-capability.md"
SERVICE = pages.DOCS / "service.md"
NOT_TYPED = {
    "uv tool install": "test_first_hour_wheel.py installs the wheel",
    "git clone": "a checkout is there; bench/newcomer.py clones one",
    "make ": "it is what runs this; bench/newcomer.py runs `make run` in a fresh clone",
    "export PATH": "the command is on the PATH",
    "capd daemon install": "takes a service manager: tests/reliability/test_systemd.py",
}
TYPED = {
    "capd top": "q",
    "capd setup": "\n\n\n",
    "capd secret set NOTES_TOKEN": "a token of nobody\n",
}
MAY_FIND = {"capd doctor": (0, 1, 4)}
"""What a command says of the machine that the test is run on."""
FROM_OTHERS = (".npm", ".cache/", ".local/share/uv/")
"""Where programs that servers are run by keep what is theirs."""
_FILE = re.compile(r"^`(my-tap/[^`]+)`\n\n((?: {4}.*\n|\n)+)", re.MULTILINE)


def lines_of(page: Path) -> list[str]:
    """Return the lines of a page that can be typed."""
    return [line for line in pages.typed_lines(page) if not line.startswith(tuple(NOT_TYPED))]


def failures(person: Newcomer, lines: list[str], editor: ExitStack) -> list[str]:
    """Type `lines`, and return those that failed; connect the editor when it is set up."""
    failed = []
    for line in lines:
        done = wait_for(partial(said_in_time, person, line), 120.0)
        if done.returncode not in MAY_FIND.get(line, (0,)):
            failed.append(f"{line}: {done.returncode}: {done.stdout}{done.stderr}")
        if line == "capd install claude":
            editor.enter_context(person.editor())
        if line == "capd tap add my-tap":
            # A person types the next line later than its triggers are embedded.
            wait_for(partial(model_is_ready, person))
    return failed


def said_in_time(person: Newcomer, line: str) -> subprocess.CompletedProcess[str] | None:
    """Type a line; return None if its output asks to try again later."""
    done = person.types(line, TYPED.get(line, ""))
    return None if "Try again in a moment" in done.stderr else done


def model_is_ready(person: Newcomer) -> bool:
    status = json.loads(person.types("capd status --json").stdout)
    return bool(status["embedder"]["state"] == "ready")


def write_example(project: Path) -> None:
    """Write the files that the page shows."""
    for name, text in _FILE.findall(CAPABILITY.read_text("utf-8")):
        file = project / name
        file.parent.mkdir(parents=True, exist_ok=True)
        lines = (line.removeprefix("    ") for line in text.splitlines())
        file.write_text("\n".join(line for line in lines if not line.startswith("capd ")) + "\n")


def test_the_readme_can_be_typed_twice_and_leaves_nothing() -> None:
    with newcomer() as person, ExitStack() as editor:
        (person.project / "my-tap" / "capabilities").mkdir(parents=True)

        lines = lines_of(pages.README)
        failed = failures(person, [*lines, *lines], editor)
        editor.close()
        failed += failures(person, lines_of(pages.DOCS / "footprint.md"), editor)

        assert failed == []
        assert left_in(person.home, ()) == []


def test_the_example_of_a_capability_has_nothing_to_be_told_of(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    from capd.check import main  # what `capd check` runs, in a process of its own

    write_example(tmp_path)

    code = main([str(tmp_path / "my-tap")], tmp_path)

    assert (code, capfd.readouterr().out) == (
        0,
        "my-tap: 1 routable\n0 errors, 0 warnings\n",
    )


@pytest.mark.real
def test_the_quickstart_can_be_typed() -> None:
    with newcomer() as person, ExitStack() as editor:
        lines = lines_of(QUICKSTART)
        start = lines.index("capd install claude") + 1
        failed = failures(person, lines[:start], editor)
        wait_for(lambda: model_is_ready(person))

        failed += failures(person, lines[start:], editor)
        editor.close()

        assert failed == []
        assert left_in(person.home, FROM_OTHERS) == []


@pytest.mark.real
def test_a_capability_is_written_and_routed_to_as_the_page_says() -> None:
    with newcomer() as person, ExitStack() as editor:
        write_example(person.project)
        failed = failures(person, ["capd install claude"], editor)
        wait_for(lambda: model_is_ready(person))

        failed += failures(person, lines_of(CAPABILITY), editor)
        on = person.types("capd status --line").stdout

        assert failed == []
        assert on == "MCP active: 1/4 (spreadsheets)\n"


@pytest.mark.real
def test_the_daemon_is_kept_by_hand_as_the_page_says() -> None:
    with newcomer() as person, ExitStack() as editor:
        failed = failures(person, lines_of(SERVICE), editor)

        assert failed == []
