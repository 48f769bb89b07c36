"""A daemon starts with damaged files, serves, and reports what it could not use."""

import json
import random
from pathlib import Path

import pytest

from whole_daemon import wait_for

from .spoiling import spoiled
from .world import World

pytestmark = pytest.mark.reliability

FORMS = {".json": "json", ".toml": "toml"}


def kept(world: World) -> list[Path]:
    """Return every file that a daemon finds again."""
    folders = (world.home.folder / name for name in ("config", "state", "cache"))
    files = (file for folder in folders for file in sorted(folder.rglob("*")))
    # Without the list of taps there is nothing to serve.
    return [f for f in files if f.is_file() and f.stat().st_size and f.name != "taps.toml"]


@pytest.mark.parametrize("seed", range(5))
def test_a_daemon_starts_on_damaged_files_and_says_so(world: World, seed: int) -> None:
    config = world.home.folder / "config"
    config.mkdir()
    (config / "config.toml").write_text("[servers]\nlinger = 7\n[results]\nlimit = 2000\n")
    (config / "clients.toml").write_text('[mine]\nnames = ["test-editor"]\ntool_limit = 90\n')
    (config / "secrets.env").write_text("KEY='value'\n")
    (config / "secrets.env").chmod(0o600)
    world.honest("talk")
    world.start()
    session = world.session("one", "talk")
    session.said("talk__echo", "x" * 5000)
    wait_for(lambda: world.home.ask("status")["ledger"]["waiting"] == 0 or None)
    world.close()
    world.kill_daemon()
    rng = random.Random(seed)
    files = kept(world)
    for file in files:
        form = FORMS.get(file.suffix, "")
        file.write_bytes(spoiled(file.read_bytes(), rng, form))

    world.process = world.home.start()

    world.open_neighbour()
    again = world.session("one", "talk")
    said = again.said("talk__echo", "here")
    status = world.home.capd("status", "--json")
    told = world.log().partition("daemon_ready")[2] + json.dumps(json.loads(status.stdout))
    assert len(files) >= 8, files
    assert said.startswith("talk echo ")
    assert "Traceback" not in world.log()
    assert "child_crashed" not in world.log()
    # Of so many at least one cannot be read any more.
    assert any(word in told for word in ("unreadable", "is not used", "set aside", "damaged"))
