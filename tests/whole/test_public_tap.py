"""The public tap, added with `capd tap add`."""

import json
from pathlib import Path

import pytest

from whole_daemon import Home


@pytest.fixture
def public_tap(shared_fixtures: Path) -> Path:
    path = shared_fixtures / "data" / "octomind-tap"
    if not path.is_dir():
        pytest.skip(f"{path} is not there")
    return path


def test_the_public_tap_has_58_routable_and_14_with_their_reason(
    home: Home, public_tap: Path
) -> None:
    home.start()

    added = home.capd("tap", "add", str(public_tap))
    caps = json.loads(home.capd("caps", "--json").stdout)["capabilities"]

    mine = [c for c in caps if c["tap"] == "octomind-tap"]
    unroutable = [c for c in mine if not c["routable"]]
    assert added.returncode == 0, added.stderr
    assert "58 routable" in added.stdout
    assert len([c for c in mine if c["routable"]]) == 58
    assert len(unroutable) == 14
    assert {c["reason"] for c in unroutable} == {"no config.toml"}


def test_what_lacks_its_secret_is_not_started_and_names_the_key(
    home: Home, public_tap: Path
) -> None:
    home.start()
    home.capd("tap", "add", str(public_tap))
    editor = home.shim("one")

    refused = home.ask("enable", session="one", name="database-postgres")

    assert refused["ok"] is False
    assert "POSTGRES_CONNECTION_STRING" in refused["text"]
    assert home.servers() == []
    editor.leave()


def test_a_part_of_the_taps_own_program_is_refused_with_the_reason(
    home: Home, public_tap: Path
) -> None:
    home.start()
    home.capd("tap", "add", str(public_tap))
    editor = home.shim("one")

    refused = home.ask("enable", session="one", name="core")

    assert refused["ok"] is False
    assert "builtin_unsupported" in refused["text"]
    editor.leave()
