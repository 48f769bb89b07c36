"""A daemon that runs the embedding model in its own process."""

import subprocess
from pathlib import Path

import pytest

from whole_daemon import Home, wait_for

pytestmark = pytest.mark.model


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="asks Linux what is loaded")
def test_it_routes_without_a_second_process_and_loads_onnxruntime_at_its_start(home: Home) -> None:
    home.plain("talk")
    config = home.folder / "config" / "config.toml"
    config.write_text('[embedder]\nplacement = "daemon"\n')

    daemon = home.start()

    # Otherwise a search over many tools, which loads usearch, could come first: then onnxruntime
    # would end the process.
    assert "onnxruntime" in Path(f"/proc/{daemon.pid}/maps").read_text()
    editor = home.shim("one")
    wait_for(lambda: home.ask("status")["embedder"]["state"] == "ready", 60)
    taken = wait_for(
        lambda: (
            (turn := home.ask("turn", session="one", text="use the talk right now"))["reason"]
            != "model_not_ready"
            and turn
        )
    )
    assert (taken["outcome"], taken["name"]) == ("activate", "talk")
    listed = subprocess.run(
        ["ps", "-o", "args=", "--ppid", str(daemon.pid)], capture_output=True, text=True, check=True
    )
    assert "capd embedder" not in listed.stdout
    editor.leave()
