"""`capd find`, `capd add` of a registry's server, and `capd update`, against a local registry."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from registry_server import RegistryServer, entry, package, registry_server
from whole_daemon import Home


@pytest.fixture
def registry(home: Home) -> Iterator[RegistryServer]:
    with registry_server() as server:
        config = home.folder / "config"
        config.mkdir(exist_ok=True)
        (config / "config.toml").write_text(f'[registry]\nurls = ["{server.url}"]\n')
        (config / "taps.toml").write_text("starter = false\n")
        home.env |= {**server.environment, "UV_NO_CONFIG": "1", "HOME": str(home.folder)}
        for name in ("UV_INDEX", "UV_EXTRA_INDEX_URL", "UV_INDEX_URL"):
            home.env.pop(name, None)
        yield server


def own(home: Home, name: str) -> Path:
    return home.folder / "config" / "own" / "capabilities" / name


def published(registry: RegistryServer, version: str = "1.0.0", **more: Any) -> str:
    """Publish an echo server, and return its sha256."""
    registry.entries = [each for each in registry.entries if each["server"]["version"] != version]
    for each in registry.entries:
        each["_meta"]["io.modelcontextprotocol.registry/official"]["isLatest"] = False
    text = "Echo texts back, for trying things out"
    packages = [package("pypi", "capd-echo", version)]
    registry.entries.append(entry("io.github.someone/capd-echo", version, text, packages=packages))
    return registry.add_wheel("capd-echo", version, **more)


def test_two_commands_lead_from_a_search_to_the_first_call(
    home: Home, registry: RegistryServer
) -> None:
    digest = published(registry)
    home.start()

    found = home.capd("find", "echo", "a", "text", "--words")
    added = home.capd("add", "io.github.someone/capd-echo", "--yes")
    called = home.capd("call", "capd-echo__echo", '{"text": "hello"}')

    assert found.returncode == 0, found.stderr
    assert found.stdout.splitlines()[0].startswith("io.github.someone/capd-echo 1.0.0: Echo texts")
    assert added.returncode == 0, added.stderr
    assert f"checked: sha256:{digest}" in added.stdout
    assert "2 tools" in added.stdout
    assert called.returncode == 0, called.stderr
    assert "hello" in called.stdout
    record = json.loads((own(home, "capd-echo") / "registry.json").read_text())
    assert (record["version"], record["integrity"]) == ("1.0.0", f"sha256:{digest}")
