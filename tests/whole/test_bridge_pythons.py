"""The far side of a bridge runs on the oldest supported versions of Python."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from capd_client.bridge.bundle import bundle, far_side_program
from capd_client.mcp_host import McpHost
from support.bridges import Bridge, configured
from whole_daemon import Home, home_of_its_own, pids_with, wait_for

VERSIONS = ("3.8", "3.9", "3.10")
CONFIG = """
[surface]
mode = "dynamic"
[bridges.box]
capabilities = ["there"]
starts = ["there"]
"""
SERVER = Path(__file__).with_name("project_server.py")


def python(version: str) -> str:
    """Return a Python of a version, from `PATH` or pyenv, or skip."""
    kept = sorted(Path("~/.pyenv/versions").expanduser().glob(f"{version}.*/bin/python3"))
    for each in (shutil.which(f"python{version}"), *map(str, kept)):
        # A shim of pyenv is there also where its version is not chosen.
        if (
            each
            and subprocess.run([each, "-c", ""], capture_output=True, check=False).returncode == 0
        ):
            return each
    pytest.skip(f"there is no Python {version} here")


@pytest.fixture(params=VERSIONS)
def old(request: pytest.FixtureRequest) -> str:
    return python(request.param)


@pytest.fixture
def home(old: str) -> Iterator[Home]:
    with home_of_its_own(is_shipped=False) as made:
        made.capability("there", [old, "-I", str(SERVER), made.tag])
        definition = made.folder / "tap" / "capabilities" / "there" / "default.toml"
        definition.write_text(f'{definition.read_text()}where = "project"\n')
        configured(made, CONFIG)
        made.start()
        wait_for(lambda: len(made.ask("caps")["capabilities"]) == 1)
        yield made


def test_shim_holder_runner_and_guard_work_on_an_old_python(home: Home, old: str) -> None:
    there = home.folder / "there"
    there.mkdir()
    env = {"HOME": str(there), "PATH": os.defpath, "CAPD_SESSION": "old"}
    with Bridge(home) as bridge, contextlib.ExitStack() as stack:
        shim = bundle()
        order = {"do": "prepare", "kind": "ssh", "name": "box", "credential": bridge.credential}
        line = json.dumps({**order, "generation": "g1", "size": len(shim)}).encode()
        subprocess.run(
            [old, "-c", far_side_program()], env=env, input=line + b"\n" + shim, check=True
        )
        folder = there / ".local/share/capd-bridge/box"
        # In the place of the socket that sshd would make.
        (folder / "socket").symlink_to(bridge.path)
        program = str(folder / "capd.pyz")
        holder = stack.enter_context(
            subprocess.Popen(
                [old, program, "hold", "g1"],
                env=env,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
            )
        )
        stack.callback(holder.kill)
        with McpHost([old, program], env=env, cwd=str(there)) as editor:
            editor.initialize("far-editor")
            answer = editor.call("capability", {"action": "enable", "name": "there"})
            assert not answer.get("isError"), answer

            facts = json.loads(editor.call("there__where", {})["content"][0]["text"])
            editor.call("there__leave", {})

            assert (facts["cwd"], facts["env"]["HOME"]) == (str(there), str(there))
            assert len(pids_with(home.tag)) >= 2
            holder.send_signal(signal.SIGTERM)

            wait_for(lambda: pids_with(home.tag) == [])
            holder.wait(60)
            assert list(there.iterdir()) == [there / ".local"]
            assert list((there / ".local").rglob("*")) == [there / ".local/share"]
