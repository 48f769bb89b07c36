"""Dependency scripts run once, within limits, in a process tree that ends with them."""

import os
from pathlib import Path

import pytest
import trio

from capd.adapters.servers import installers
from capd.adapters.servers.installers import InstallFailedError, ensure_installed

PATIENCE = 30.0


@pytest.fixture
def script(tmp_path: Path) -> Path:
    return tmp_path / "tool.sh"


async def ensured(script: Path, text: str, path: str = os.defpath) -> bool:
    script.write_text(text)
    with trio.fail_after(PATIENCE):
        return await ensure_installed(script, {"PATH": path}, script.parent)


async def test_a_script_runs_until_its_check_passes(script: Path) -> None:
    text = "# check: test -e there\ntouch there\necho ran >> journal\n"

    assert await ensured(script, text) is True
    assert await ensured(script, text) is False

    assert (script.parent / "journal").read_text() == "ran\n"


async def test_a_script_without_a_check_always_runs(script: Path) -> None:
    assert await ensured(script, "exit 0\n") is True
    assert await ensured(script, "exit 0\n") is True


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("exit 3\n", "tool.sh exited with code 3"),
        ("echo one; echo two; exit 3\n", "tool.sh exited with code 3: one / two"),
        (
            "for n in 1 2 3 4 5 6 7; do echo line $n >&2; done; echo lost; exit 1\n",
            "tool.sh exited with code 1: line 3 / line 4 / line 5 / line 6 / line 7",
        ),
        ("kill -9 $$\n", "tool.sh was ended by SIGKILL"),
    ],
)
async def test_a_script_that_fails_says_how_and_its_last_lines(
    script: Path, text: str, expected: str
) -> None:
    with pytest.raises(InstallFailedError) as raised:
        await ensured(script, text)

    assert str(raised.value) == expected


async def test_a_script_that_takes_too_long_is_ended_with_its_tree(
    script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installers, "INSTALL_TIMEOUT", 0.5)
    with pytest.raises(InstallFailedError, match=r"did not end within 0\.5 s"):
        await ensured(script, "sleep 600 & echo $! > pid; wait\n")

    pid = int((script.parent / "pid").read_text())
    assert not Path(f"/proc/{pid}").exists()


async def test_a_check_that_hangs_is_a_check_that_fails(
    script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installers, "CHECK_TIMEOUT", 0.3)

    assert await ensured(script, "# check: sleep 600\nexit 0\n") is True


async def test_a_script_cannot_ask_and_can_say_a_lot(script: Path) -> None:
    text = "read answer && exit 9\nhead -c 300000 /dev/zero | tr '\\0' x\n"

    assert await ensured(script, text) is True


@pytest.mark.parametrize("path", ["/nowhere", ""])
async def test_a_machine_without_a_shell_is_told(script: Path, path: str) -> None:
    if path:
        with pytest.raises(InstallFailedError, match="sh was not found in PATH"):
            await ensured(script, "exit 0\n", path)
    else:
        assert await ensured(script, "exit 0\n", path) is True


async def test_a_script_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InstallFailedError, match=r"gone\.sh cannot be read"):
        await ensure_installed(tmp_path / "gone.sh", {}, tmp_path)


async def test_a_script_runs_under_the_interpreter_of_its_first_line(script: Path) -> None:
    assert await ensured(script, '#!/usr/bin/env bash\nwords=(a b)\ntest "${#words[@]}" = 2\n')


async def test_a_script_that_takes_too_long_is_quoted_with_its_last_words(
    script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installers, "INSTALL_TIMEOUT", 1.0)
    monkeypatch.setattr(installers, "TELL_PAUSE", 0.05)

    with pytest.raises(InstallFailedError) as raised:
        await ensured(script, "echo fetching; sleep 600\n")

    assert str(raised.value) == "tool.sh did not end within 1 s; its last line: fetching"


async def test_what_a_script_says_is_told_line_by_line_and_safe_to_print(
    script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installers, "TELL_PAUSE", 0.01)
    script.write_text(
        "printf '10%%\\r20%%\\r'; while ! test -e heard; do sleep 0.02; done\n"
        f"printf '\\033[31m{'x' * 300}\\n' >&2; while ! test -e done; do sleep 0.02; done\n"
    )
    heard: list[str] = []

    def on_line(line: str) -> None:
        heard.append(line)
        (script.parent / ("heard" if len(heard) == 1 else "done")).touch()

    with trio.fail_after(PATIENCE):
        await ensure_installed(script, {"PATH": os.defpath}, script.parent, on_line=on_line)

    assert heard == ["20%", f"\\x1b[31m{'x' * 192}"]
