"""`capd tap build` saves the tools of a tap's servers in the tap."""

import json
import shutil
import sys
from pathlib import Path

from whole_daemon import PLAIN_SERVER, Home, wait_for


def listed(tap: Path) -> dict[str, list[str]]:
    """Return the names in a tap's `tools.json`, by server."""
    read = json.loads((tap / "tools.json").read_text())
    servers = read["servers"].values()
    return {each["name"]: [tool["name"] for tool in each["tools"]] for each in servers}


def test_a_taps_tools_are_written_and_found_where_its_servers_have_never_run(home: Home) -> None:
    home.plain("alpha")
    # Another argument is another server.
    home.capability("beta", [sys.executable, "-I", str(PLAIN_SERVER), home.tag, "beta"])
    tap = home.folder / "tap"
    home.start()

    built = home.capd("tap", "build", str(tap))

    assert built.returncode == 0, built.stderr
    assert built.stdout.splitlines()[-1] == f"{tap / 'tools.json'}: 4 tools of 2 servers"
    assert listed(tap) == {"alpha": ["echo", "shout"], "beta": ["echo", "shout"]}

    # Somebody who installs the tap: nothing was ever listed there.
    home.close()
    shutil.rmtree(home.folder / "cache")
    home.start()
    found = wait_for(lambda: home.ask("search", query="select:beta__shout")["hits"])

    assert [each["name"] for each in found] == ["beta__shout"]


def test_a_server_that_does_not_answer_keeps_what_was_written_and_is_named(home: Home) -> None:
    home.plain("alpha")
    tap = home.folder / "tap"
    home.start()
    home.capd("tap", "build", str(tap))
    home.close()
    shutil.rmtree(home.folder / "cache")
    home.capability("gone", [sys.executable, "-I", "-c", "import sys; sys.exit(3)", home.tag])
    home.start()

    again = home.capd("tap", "build", str(tap))

    assert again.returncode == 0
    assert "1 server has not listed tools yet: gone" in again.stderr
    assert listed(tap) == {"alpha": ["echo", "shout"]}


def test_what_is_no_tap_is_refused_and_nothing_is_written(home: Home) -> None:
    home.plain("alpha")
    home.start()
    folder = home.folder / "no-tap"
    folder.mkdir()

    refused = home.capd("tap", "build", str(folder))

    assert refused.returncode != 0
    assert str(folder) in refused.stderr
    assert list(folder.iterdir()) == []


def test_a_server_that_is_not_listed_again_keeps_its_tools_and_its_version(home: Home) -> None:
    runner, serves = home.folder / "runner", home.folder / "serves"
    runner.write_text(
        f"#!/bin/sh\ntest -e {serves} || exit 3\n"
        f"exec {sys.executable} -I {PLAIN_SERVER} {home.tag}\n"
    )
    runner.chmod(0o700)
    serves.touch()
    home.capability("alpha", [str(runner)])
    tap = home.folder / "tap"
    home.start()
    home.capd("index")
    home.capd("tap", "build", str(tap))
    before = (tap / "tools.json").read_bytes()
    home.close()
    serves.unlink()
    shutil.rmtree(home.folder / "cache")
    home.start()

    again = home.capd("tap", "build", str(tap))

    assert "not listed tools yet: alpha" in again.stderr
    assert (tap / "tools.json").read_bytes() == before
    assert b'"version": "1"' in before
