"""The public Octomind tap is read unchanged (docs/design/routing.md)."""

from pathlib import Path

import pytest

from capd.adapters.tap_files import TapPlace, read_tap
from capd.core.servers.identity import server_identity
from capd.core.taps.catalog import Tap
from capd_protos.types import CapabilitySpec, Finding, TapName


@pytest.fixture(scope="module")
def tap(shared_fixtures: Path) -> Tap:
    return read_tap(TapPlace(TapName("muvon/tap"), shared_fixtures / "data" / "octomind-tap"))


@pytest.fixture(scope="module")
def by_name(tap: Tap) -> dict[str, CapabilitySpec]:
    return {capability.id.name: capability for capability in tap.capabilities}


def test_of_72_folders_58_are_routable_and_14_have_no_config(tap: Tap) -> None:
    got = (len(tap.reads), len(tap.capabilities), set(tap.unroutable.values()))

    assert got == (72, 58, {"no config.toml"})
    assert sorted(tap.unroutable) == sorted(
        [
            "avatar",
            "captions",
            "composition",
            "image-gen",
            "lipsync",
            "music",
            "octoweb",
            "publish-instagram",
            "publish-tiktok",
            "publish-youtube",
            "runtime",
            "stock",
            "video-gen",
            "voice",
        ]
    )


def test_nothing_is_wrong_with_it_but_secrets_in_args_and_a_version(tap: Tap) -> None:
    odd = [f for f in tap.findings if f.severity != "warning" or "goes into args" not in f.reason]

    reason = "server 'svelte': @sveltejs/mcp has no exact version, so each start may run other code"
    assert odd == [Finding("capabilities/svelte/svelte.toml", 18, reason, "warning")]


def test_every_trigger_is_read(tap: Tap) -> None:
    counts = [len(capability.triggers) for capability in tap.capabilities]

    assert (sum(counts), min(counts), max(counts)) == (541, 5, 14)


def test_the_key_of_postgres_is_found_in_its_args(by_name: dict[str, CapabilitySpec]) -> None:
    postgres = by_name["database-postgres"]

    assert postgres.wanted_keys == ("POSTGRES_CONNECTION_STRING",)
    assert postgres.allowed_tools == ("postgres:*",)


def test_capabilities_of_one_server_share_its_identity(by_name: dict[str, CapabilitySpec]) -> None:
    names = ("codesearch-graph", "codesearch-semantic", "codesearch-structural")

    identities = {server_identity(s) for name in names for s in by_name[name].servers}

    assert len(identities) == 1
    assert len({by_name[name].allowed_tools for name in names}) == 3


def test_parts_of_the_ancestors_program_are_known_as_builtin(
    by_name: dict[str, CapabilitySpec],
) -> None:
    builtin = {
        name
        for name, capability in by_name.items()
        if any(server.transport == "builtin" for server in capability.servers)
    }

    assert builtin == {"core", "agent", "orchestration"}


def test_six_capabilities_are_dependencies_alone(by_name: dict[str, CapabilitySpec]) -> None:
    alone = {name for name, capability in by_name.items() if not capability.servers}

    assert alone == {
        "docker",
        "kubernetes",
        "programming-nodejs",
        "programming-python",
        "programming-rust",
        "programming-swift",
    }
    assert all(by_name[name].requires for name in alone)
