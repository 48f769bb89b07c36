"""The public tap: which servers are identical, and where its secrets are declared."""

from pathlib import Path

import pytest

from capd.adapters.tap_files import TapPlace, read_tap
from capd.core.servers.identity import server_identity
from capd.core.servers.placeholders import Folders, resolved, wanted_keys
from capd.core.taps.catalog import Tap
from capd_protos.types import Finding, TapName


@pytest.fixture(scope="module")
def tap(shared_fixtures: Path) -> Tap:
    path = shared_fixtures / "data" / "octomind-tap"
    if not path.is_dir():
        pytest.skip(f"{path} is not there")
    return read_tap(TapPlace(TapName("octomind-tap"), path))


def test_capabilities_share_the_servers_that_they_define_alike_and_no_others(tap: Tap) -> None:
    users: dict[str, set[str]] = {}
    for capability in tap.capabilities:
        for server in capability.servers:
            if server.transport != "builtin":
                users.setdefault(server_identity(server), set()).add(capability.id.name)

    assert sorted(sorted(names) for names in users.values() if len(names) > 1) == [
        ["codesearch-graph", "codesearch-semantic", "codesearch-structural"],
        ["filesystem-read", "filesystem-write", "shell"],
        ["knowledge", "memory-read", "memory-write", "webfetch"],
    ]


def test_a_secret_inside_args_is_gated_filled_and_warned_of(tap: Tap) -> None:
    postgres = next(c for c in tap.capabilities if c.id.name == "database-postgres")
    (server,) = postgres.servers
    values = {"POSTGRES_CONNECTION_STRING": "postgres://me@db/x"}

    filled = resolved(server, values, Folders("/src", "/src"))

    assert postgres.wanted_keys == wanted_keys(server) == ("POSTGRES_CONNECTION_STRING",)
    assert filled.args[-1] == "postgres://me@db/x"
    assert [
        finding for finding in tap.findings if "POSTGRES_CONNECTION_STRING" in finding.reason
    ] == [
        Finding(
            "capabilities/database-postgres/postgres.toml",
            18,
            "server 'postgres': the value of POSTGRES_CONNECTION_STRING goes into args, which the "
            "process list shows",
            "warning",
        )
    ]


def test_every_placeholder_of_a_definition_is_filled(tap: Tap) -> None:
    servers = [server for c in tap.capabilities for server in c.servers]
    values = {key: "x" for server in servers for key in wanted_keys(server)}

    filled = [resolved(server, values, Folders("/src", "/src")) for server in servers]

    assert len(values) == 29
    assert "{{" not in repr(filled)
