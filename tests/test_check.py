"""`capd check`: what it prints, and how it ends."""

import subprocess
import sys
from pathlib import Path

import pytest

from capd import check

CONFIG = 'triggers = ["one thing", "two things", "three things"]\n'
DEFAULT = '[[mcp.servers]]\nname = "x"\ncommand = "x"\n'


def tap(folder: Path, config: str = CONFIG, default: str = DEFAULT) -> Path:
    capability = folder / "capabilities" / "x"
    capability.mkdir(parents=True)
    (capability / "config.toml").write_text(config)
    (capability / "default.toml").write_text(default)
    return folder


def test_a_tap_without_faults_passes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = check.main([str(tap(tmp_path))], tmp_path)

    assert (code, capsys.readouterr().out) == (0, "0 errors, 0 warnings\n")


def test_each_fault_is_printed_with_file_line_and_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tap(tmp_path, 'triggers = [\n"a",\n"",\n"b",\n"c"]\n', '[deps]\nrequire = ["o/t"]\n')
    (folder / "capabilities" / "voice\x1b").mkdir()

    code = check.main([str(folder)], tmp_path)

    root = f"{folder}/capabilities"
    assert (code, capsys.readouterr().out.splitlines()) == (
        1,
        [
            f"{root}/x/config.toml:3: error: trigger '' is blank or not text: left out",
            f"{root}/voice\\x1b: warning: not routable: no config.toml",
            f"{root}/x/default.toml: error: requires 'o/t', and the tap has no deps/o/t.sh",
            "2 errors, 1 warnings",
        ],
    )


def test_an_overlay_is_checked_by_itself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "overlay.toml").write_text('tap = "t"\n')
    (tmp_path / "capabilities").mkdir()
    (tmp_path / "capabilities" / "x.toml").write_text('triggers = ["a"]\nservers = []\n')

    code = check.main([str(tmp_path)], tmp_path)

    line = f"{tmp_path}/capabilities/x.toml:2: error: `servers` is no key of an overlay: left out"
    assert (code, capsys.readouterr().out) == (1, f"{line}\n1 errors, 0 warnings\n")


def test_without_a_path_the_users_taps_and_overlays_are_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine, gone = tap(tmp_path / "mine", 'triggers = ["a"]\n'), tmp_path / "gone"
    (tmp_path / "taps.toml").write_text(
        f'shipped_overlays = false\n[[taps]]\nname = "mine"\npath = "{mine}"\n'
        f'[[taps]]\nname = "gone"\npath = "{gone}"\n[[overlays]]\npath = "none"\n'
    )

    code = check.main([], tmp_path)

    first, second, third, count = (
        line for line in capsys.readouterr().out.splitlines() if "/starter" not in line
    )
    assert code == 1
    assert first.startswith(f"{gone}: error: tap gone: ")
    assert second == (
        f"{mine}/capabilities/x/config.toml:1: warning: only 1 triggers: fewer than 3 route badly"
    )
    assert third.startswith(f"{tmp_path}/none/overlay.toml: error: no overlay.toml")
    assert count == "2 errors, 1 warnings"


@pytest.mark.parametrize("arguments", [["--json"], ["a", "b"]])
def test_other_arguments_are_wrong_usage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    code = check.main(arguments, tmp_path)

    assert (code, capsys.readouterr().err) == (2, "usage: capd check [PATH]\n")


def test_the_starter_tap_and_the_shipped_overlays_pass(tmp_path: Path) -> None:
    code = check.main([], tmp_path)

    assert code == 0


def test_the_command_hands_over_to_it_and_ends_as_it_does(tmp_path: Path) -> None:
    folder = tap(tmp_path, "triggers = []\n")
    command = [sys.executable, "-m", "capd_client.entry", "check", str(folder)]

    done = subprocess.run(command, capture_output=True, text=True, check=False)

    reason = "no triggers: 5 to 15 phrases in a user's words"
    assert done.stdout == (
        f"{folder}/capabilities/x/config.toml:1: error: {reason}\n1 errors, 0 warnings\n"
    )
    assert (done.returncode, done.stderr) == (1, "")
