"""`capd index` on a terminal: a bar on standard error, plain lines on standard output."""

import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from capd_client import commands

from .conftest import FakeDaemon

Start = Callable[[dict[str, Any]], FakeDaemon]


def test_on_a_terminal_progress_is_a_bar_beside_the_output(
    start_daemon: Start, base_env: dict[str, str]
) -> None:
    servers = [
        {"name": "git", "tools": 2, "error": "", "done": 1, "total": 2},
        {"name": "db", "tools": 0, "error": "it \x1b[31mbroke", "done": 2, "total": 2},
    ]
    start_daemon(
        {
            "index": {"schema": 1, "servers": servers},
            "events": {"then": [{"topic": "index.server", "event": each} for each in servers]},
        }
    )
    shown, terminal = pty.openpty()
    command = [sys.executable, "-m", "capd_client.entry", "index"]

    done = subprocess.run(
        command,
        env={**base_env, "TERM": "xterm"},
        stdout=subprocess.PIPE,
        stderr=terminal,
        check=False,
    )

    os.close(terminal)
    told = _read_all(shown)
    assert (done.stdout, done.returncode) == (b"2 servers asked, 2 tools known\n", 1)
    assert b"2/2" in told
    assert b"db: it \\x1b[31mbroke" in told


def test_the_index_is_made_in_a_folder_whose_name_is_not_utf_8(
    start_daemon: Start, base_env: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon = start_daemon({"index": {"schema": 1, "servers": []}})
    folder = tmp_path / "caf\udce9"
    folder.mkdir()
    monkeypatch.chdir(folder)

    done = CliRunner().invoke(commands.cli, ["index", "--known"], env=base_env)

    assert done.exit_code == 0, done.output
    asked = [each["params"] for each in daemon.requests() if each["method"] == "index"]
    assert [each["project"] for each in asked] == [""]


def _read_all(descriptor: int) -> bytes:
    read = b""
    try:
        while chunk := os.read(descriptor, 65536):
            read += chunk
    # How Linux says that the other side of a terminal is closed.
    except OSError:
        pass
    finally:
        os.close(descriptor)
    return read
