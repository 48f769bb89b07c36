"""`capd check` on a command line: its findings with their places, and its exit code."""

import json
import subprocess
import sys
from pathlib import Path

from .conftest import PATIENT

TRIGGERS = '["one thing", "another thing", "a third thing"]'
SERVER = '[[mcp.servers]]\nname = "x"\ncommand = "prog"\n'


def check(
    base_env: dict[str, str], cwd: Path, *arguments: str
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-P", "-m", "capd_client.entry", "check", *arguments],
        env=base_env,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=PATIENT,
        check=False,
    )


FAULTS = {
    "well": (f"triggers = {TRIGGERS}\n", SERVER, ""),
    "blank": ('triggers = ["a", "b", "c", " "]\n', SERVER, "config.toml:1: error: "),
    "few": ('triggers = ["one"]\n', SERVER, "config.toml:1: warning: only 1 triggers"),
    "no-toml": ("triggers = [\n", SERVER, "config.toml:1: error: "),
    "malformed": (
        f"triggers = {TRIGGERS}\n",
        "[[mcp.servers]]\nname = 3\n",
        "default.toml:1: error: server 3 left out",
    ),
    "unresolved": (
        f"triggers = {TRIGGERS}\n",
        f'{SERVER}[roles.mcp]\nserver_refs = ["y"]\n',
        "default.toml:5: error: server_refs names 'y'",
    ),
    "unpinned": (
        f"triggers = {TRIGGERS}\n",
        '[[mcp.servers]]\nname = "x"\ncommand = "npx"\nargs = ["-y", "pkg"]\n',
        "default.toml:4: warning: server 'x': pkg has no exact version",
    ),
}
"""What is wrong with a capability: its two files, and how the line about it begins."""


def tap(folder: Path, *names: str) -> Path:
    for name in names:
        config, provider, _ = FAULTS[name]
        capability = folder / "mine" / "capabilities" / name
        capability.mkdir(parents=True)
        (capability / "config.toml").write_text(config)
        (capability / "default.toml").write_text(provider)
    return folder / "mine"


def test_each_fault_is_a_line_with_file_line_and_reason(
    base_env: dict[str, str], tmp_path: Path
) -> None:
    folder = tap(tmp_path, *FAULTS)

    done = check(base_env, tmp_path, str(folder))

    lines = done.stdout.splitlines()
    for name, (_, _, said) in FAULTS.items():
        place = f"{folder}/capabilities/{name}/"
        about = [line.removeprefix(place) for line in lines if line.startswith(place)]
        assert [line for line in about if line.startswith(said)] if said else about == [], name
    assert (done.stderr, done.returncode) == ("", 1)


def test_warnings_alone_are_exit_code_0(base_env: dict[str, str], tmp_path: Path) -> None:
    folder = tap(tmp_path, "well", "few", "unpinned")

    done = check(base_env, tmp_path, "--json", str(folder))

    report = json.loads(done.stdout)
    counted = (report["schema"], report["errors"], report["warnings"], done.returncode)
    assert counted == (1, 0, 2, 0)


def test_a_folder_that_is_no_tap_is_an_error(base_env: dict[str, str], tmp_path: Path) -> None:
    done = check(base_env, tmp_path, str(tmp_path / "nowhere"))

    assert done.returncode == 1
    assert str(tmp_path / "nowhere") in done.stdout
    assert "Traceback" not in done.stderr


def test_a_folder_named_capd_where_it_is_typed_is_not_run(
    base_env: dict[str, str], tmp_path: Path
) -> None:
    evil = tmp_path / "capd"
    evil.mkdir(exist_ok=True)
    (evil / "__init__.py").write_text("")
    (evil / "__main__.py").write_text('raise SystemExit("somebody else\'s code")')

    done = check(base_env, tmp_path)

    assert (done.stderr, done.returncode) == ("", 0)


def test_misspelled_keys_and_files_that_cannot_be_used_are_found(
    base_env: dict[str, str], tmp_path: Path
) -> None:
    config = Path(base_env["CAPD_HOME"], "config")
    config.mkdir(parents=True)
    (config / "config.toml").write_text("lingr = 3\n")
    (config / "clients.toml").write_text('[zed]\nrelist = "never"\n')

    for _ in range(2):
        done = check(base_env, tmp_path)

        assert f"{config}/config.toml:1: warning: unknown key `lingr`" in done.stdout
        assert f"{config}/clients.toml: error: [zed] is not used" in done.stdout
        assert (done.stderr, done.returncode) == ("", 1)


def test_a_misspelled_key_alone_is_a_warning(base_env: dict[str, str], tmp_path: Path) -> None:
    config = Path(base_env["CAPD_HOME"], "config")
    config.mkdir(parents=True)
    (config / "config.toml").write_text("lingr = 3\n")

    done = check(base_env, tmp_path, "--json")

    report = json.loads(done.stdout)
    (finding,) = report["findings"]
    assert (finding["path"], finding["line"]) == (str(config / "config.toml"), 1)
    assert (finding["severity"], report["errors"], done.returncode) == ("warning", 0, 0)


def test_a_configuration_that_is_no_toml_is_an_error(
    base_env: dict[str, str], tmp_path: Path
) -> None:
    config = Path(base_env["CAPD_HOME"], "config")
    config.mkdir(parents=True)
    (config / "config.toml").write_text("x = [\n")

    done = check(base_env, tmp_path)

    assert f"{config}/config.toml" in done.stdout
    assert done.returncode == 1
