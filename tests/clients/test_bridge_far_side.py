"""The process that holds a bridge on the far side: what it removes, and what it leaves."""

import contextlib
import json
import os
import stat
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from capd_client.bridge import far_side
from capd_client.bridge.bundle import bundle, far_side_program

HEAD = struct.Struct(">cII")
HOLD = """
import sys
from pathlib import Path
from capd_client.bridge import far_side
far_side.SILENCE = float(sys.argv[4])
getattr(far_side, sys.argv[1])(Path(sys.argv[2]), sys.argv[3])
"""


class Place:
    """A home on the far side, in which a bridge is prepared."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.folder = home / ".local/share/capd-bridge/box"
        self.env = {"HOME": str(home), "PATH": os.defpath}

    def order(self, **members: Any) -> str:
        """Send an order like the near side; return the answer."""
        shim = bundle()
        known = {"do": "prepare", "kind": "ssh", "name": "box", "credential": "secret"}
        line = json.dumps({**known, "generation": "g1", "size": len(shim), **members})
        done = subprocess.run(
            [sys.executable, "-c", far_side_program()],
            env=self.env,
            input=line.encode() + b"\n" + shim,
            stdout=subprocess.PIPE,
            check=False,
        )
        return done.stdout.decode()

    @contextlib.contextmanager
    def held(self, way: str, silence: float = 60.0) -> Iterator[subprocess.Popen[bytes]]:
        """Hold the place while the block runs."""
        words = [sys.executable, "-c", HOLD, way, str(self.folder), "g1", str(silence)]
        with subprocess.Popen(
            words,
            env={**self.env, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as process:
            try:
                yield process
            finally:
                process.kill()


@pytest.fixture
def place() -> Iterator[Place]:
    # The path of a socket is short.
    with tempfile.TemporaryDirectory(prefix="far") as home:
        made = Place(Path(home))
        assert '"folder"' in made.order()
        yield made


def last_word(output: bytes) -> dict[str, Any]:
    """Return the last word of a holder, in either form."""
    found: dict[str, Any] = json.loads(output[output.rindex(b"{") :])
    return found


@pytest.mark.parametrize("way", ["hold", "hold_streams"])
def test_silence_ends_it_and_everything_is_removed(place: Place, way: str) -> None:
    with place.held(way, silence=0.2) as process:
        assert process.stdout is not None

        process.wait(60)

        assert last_word(process.stdout.read()) == {"removed": True, "why": "silence"}
        assert list(place.folder.parent.parent.iterdir()) == []


@pytest.mark.parametrize("way", ["hold", "hold_streams"])
def test_the_end_of_its_input_ends_it_and_everything_is_removed(place: Place, way: str) -> None:
    with place.held(way) as process:
        assert process.stdin is not None
        process.stdin.close()

        assert process.wait(60) == 0
        assert list(place.folder.parent.parent.iterdir()) == []


def test_a_signal_ends_it_and_everything_is_removed(place: Place) -> None:
    with place.held("hold") as process:
        assert process.stdout is not None
        assert b"held" in process.stdout.readline()

        process.terminate()

        assert last_word(process.stdout.read()) == {"removed": True, "why": "stopped"}
        assert list(place.folder.parent.parent.iterdir()) == []


def test_what_a_newer_bridge_has_put_there_stays(place: Place) -> None:
    place.order(generation="g2", credential="newer")

    with place.held("hold") as process:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(60)

    assert (place.folder / "credential").read_text() == "newer"


def test_the_socket_in_a_container_is_for_its_user_alone(place: Place) -> None:
    with place.held("hold_streams") as process:
        assert process.stdout is not None
        kind, _, size = HEAD.unpack(process.stdout.read(HEAD.size))
        said = json.loads(process.stdout.read(size))

        assert (kind, said) == (b"w", {"held": True})
        for name in ("socket", "credential"):
            assert stat.S_IMODE((place.folder / name).stat().st_mode) == 0o600
        assert stat.S_IMODE(place.folder.stat().st_mode) == 0o700


def test_claude_code_has_the_tools_of_a_bridge_in_its_first_request(place: Place) -> None:
    place.order(install="claude-code")

    config = json.loads((place.home / ".claude.json").read_text())

    assert config["mcpServers"]["capd"] == {
        "type": "stdio",
        "command": sys.executable,
        "args": [str(place.folder / "capd.pyz")],
        "alwaysLoad": True,
    }


def test_a_server_of_the_user_that_is_called_capd_is_not_replaced(place: Place) -> None:
    config = place.home / ".claude.json"
    before = '{"mcpServers": {"capd": {"command": "mine"}}}'
    config.write_text(before)

    said = place.order(install="claude-code")

    assert "has another server that is called capd" in said
    assert config.read_text() == before
    assert not place.folder.exists()


@pytest.mark.parametrize("before", ["{ broken", "[]", '{"mcpServers": []}'])
def test_a_configuration_that_cannot_be_read_is_named_and_nothing_is_left(
    place: Place, before: str
) -> None:
    config = place.home / ".claude.json"
    config.write_text(before)

    said = place.order(install="claude-code")

    assert f"{config} is not" in said
    assert config.read_text() == before
    assert not place.folder.exists()


def test_an_entry_that_was_changed_meanwhile_is_not_removed(place: Place) -> None:
    place.order(install="claude-code")
    config = place.home / ".claude.json"
    changed = {"mcpServers": {"capd": {"command": "mine"}}}
    config.write_text(json.dumps(changed))

    with place.held("hold") as process:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(60)

    assert json.loads(config.read_text()) == changed


def test_a_link_in_the_place_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    place = Place(tmp_path / "home")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    place.folder.parent.mkdir(parents=True)
    place.folder.symlink_to(elsewhere)

    said = place.order()

    assert "is a link, or somebody else's" in said
    assert list(elsewhere.iterdir()) == []


def test_a_file_beside_is_not_written_through(tmp_path: Path) -> None:
    place = Place(tmp_path / "home")
    place.folder.mkdir(parents=True)
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (place.folder / "credential").symlink_to(victim)

    place.order()

    assert victim.read_text() == "mine"
    assert not (place.folder / "credential").is_symlink()


@pytest.mark.parametrize("is_there", [True, False], ids=["an empty folder", "no folder"])
def test_a_late_end_leaves_no_folder_where_everything_was_removed(
    tmp_path: Path, is_there: bool
) -> None:
    above = tmp_path / "share" / "capd-bridge"
    if is_there:
        above.mkdir(parents=True)

    far_side.clean(above / "laptop", "1")

    assert not above.exists()
