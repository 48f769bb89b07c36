"""Packages come from the user's index, match every digest, and are stored by digest."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from capd.adapters.mcp_registry.fetching import Fetcher
from capd.adapters.mcp_registry.package_indexes import npm_settings, python_indexes
from capd.adapters.mcp_registry.packages import (
    PackageError,
    PackagePlaces,
    SwappedError,
    artifact,
)
from capd.core.mcp_registry.resolution import Artifact, InstalledLaunchers, Resolution, resolve
from capd.core.mcp_registry.server_json import read_entry
from registry_server import RegistryServer, entry, package, registry_server, wheel

ALL = InstalledLaunchers(frozenset({"npx", "uvx", "docker"}))


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    with registry_server() as server:
        yield server


def resolved(kind: str, identifier: str, version: str = "1.0.0", **more: str) -> Resolution:
    said = entry("io.github.x/y", packages=[package(kind, identifier, version, **more)])
    return resolve(read_entry(json.dumps(said).encode()), ALL)


async def fetched(
    registry: RegistryServer, folder: Path, resolution: Resolution, recorded: str = ""
) -> Artifact:
    environment = {**registry.environment, "HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
    places = PackagePlaces(
        folder / "packages", npm_settings(environment), python_indexes(environment)
    )
    fetcher = await Fetcher.opened()
    try:
        return await artifact(resolution, places, fetcher, recorded)
    finally:
        await fetcher.aclose()


def kept(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "packages").glob("*/*"))


async def test_a_wheel_is_kept_by_its_sha256(registry: RegistryServer, tmp_path: Path) -> None:
    digest = registry.add_wheel("some-mcp")

    found = await fetched(registry, tmp_path, resolved("pypi", "Some_MCP"))

    file = tmp_path / "packages" / digest / "some_mcp-1.0.0-py3-none-any.whl"
    assert (found.integrity, found.file) == (f"sha256:{digest}", str(file.resolve()))
    assert hashlib.sha256(file.read_bytes()).hexdigest() == digest


async def test_a_tarball_is_kept_with_the_program_that_npx_would_run(
    registry: RegistryServer, tmp_path: Path
) -> None:
    integrity = registry.add_npm("@scope/some-mcp")

    found = await fetched(registry, tmp_path, resolved("npm", "@scope/some-mcp"))

    assert (found.integrity, found.program) == (integrity, "some-mcp")
    assert kept(tmp_path) == ["some-mcp-1.0.0.tgz"]


async def test_a_second_fetch_of_the_same_is_the_same_file(
    registry: RegistryServer, tmp_path: Path
) -> None:
    registry.add_npm("some-mcp")

    first = await fetched(registry, tmp_path, resolved("npm", "some-mcp"))
    second = await fetched(registry, tmp_path, resolved("npm", "some-mcp"), first.integrity)

    assert first == second


@pytest.mark.parametrize("kind", ["npm", "pypi"])
async def test_a_swapped_file_is_refused_and_not_kept(
    registry: RegistryServer, tmp_path: Path, kind: str
) -> None:
    registry.add_npm("some-mcp", served=b"another")
    registry.add_wheel("some-mcp", served=b"another")

    with pytest.raises(SwappedError):
        await fetched(registry, tmp_path, resolved(kind, "some-mcp"))

    assert kept(tmp_path) == []


@pytest.mark.parametrize("kind", ["npm", "pypi"])
async def test_a_version_published_anew_is_refused_where_the_first_is_recorded(
    registry: RegistryServer, tmp_path: Path, kind: str
) -> None:
    registry.add_npm("some-mcp")
    registry.add_wheel("some-mcp")
    first = await fetched(registry, tmp_path, resolved(kind, "some-mcp"))
    registry.add_npm("some-mcp", source="// other")
    registry.add_wheel("some-mcp", source="# other\n")

    with pytest.raises(SwappedError, match="when it was added"):
        await fetched(registry, tmp_path, resolved(kind, "some-mcp"), first.integrity)


async def test_a_file_that_its_entry_says_otherwise_of_is_refused(
    registry: RegistryServer, tmp_path: Path
) -> None:
    registry.add_wheel("some-mcp")

    with pytest.raises(SwappedError, match="its entry says"):
        await fetched(
            registry, tmp_path, replace(resolved("pypi", "some-mcp"), file_sha256="0" * 64)
        )


async def test_an_image_is_named_by_the_digest_of_its_manifest(
    registry: RegistryServer, tmp_path: Path
) -> None:
    host = registry.url.removeprefix("http://")
    manifest = b'{"schemaVersion": 2}'
    registry.manifests["/v2/owner/image/manifests/1.0.0"] = manifest
    resolution = resolved("oci", f"localhost:{host.rpartition(':')[2]}/owner/image:1.0.0", "")

    found = await fetched(registry, tmp_path, resolution)
    with pytest.raises(SwappedError):
        await fetched(registry, tmp_path, resolution, "sha256:" + "0" * 64)

    assert found.digest == f"sha256:{hashlib.sha256(manifest).hexdigest()}"


@pytest.mark.parametrize(
    ("kind", "name", "why"),
    [("npm", "absent", "is not in"), ("pypi", "absent", "is not in"), ("npm", "old", "SHA-512")],
)
async def test_what_cannot_be_had_says_why(
    registry: RegistryServer, tmp_path: Path, kind: str, name: str, why: str
) -> None:
    registry.add_npm("old")
    registry.npm["old"]["versions"]["1.0.0"]["dist"]["integrity"] = "sha1-abc="

    with pytest.raises(PackageError, match=why):
        await fetched(registry, tmp_path, resolved(kind, name))


async def test_a_version_that_is_withdrawn_or_absent_is_refused(
    registry: RegistryServer, tmp_path: Path
) -> None:
    registry.add_wheel("some-mcp")
    registry.simple["some-mcp"]["files"][0]["yanked"] = "broken"

    with pytest.raises(PackageError, match="yanked"):
        await fetched(registry, tmp_path, resolved("pypi", "some-mcp"))
    with pytest.raises(PackageError, match=r"no version 2\.0\.0"):
        await fetched(registry, tmp_path, resolved("pypi", "some-mcp", "2.0.0"))


async def test_an_index_in_html_is_read_as_well(registry: RegistryServer, tmp_path: Path) -> None:
    data = wheel("some-mcp")
    digest = hashlib.sha256(data).hexdigest()
    registry.files["some_mcp-1.0.0-py3-none-any.whl"] = data
    link = f'<a href="../../files/some_mcp-1.0.0-py3-none-any.whl#sha256={digest}">x</a>'
    answer = registry.answer

    def in_html(path: str, headers: object) -> tuple[int, dict[str, str], bytes]:
        return (200, {}, link.encode()) if path.startswith("/simple/") else answer(path, headers)

    registry.answer = in_html  # type: ignore[method-assign]

    found = await fetched(registry, tmp_path, resolved("pypi", "some-mcp"))

    assert found.integrity == f"sha256:{digest}"


def test_npm_is_asked_where_its_settings_say(tmp_path: Path) -> None:
    (tmp_path / ".npmrc").write_text(
        "registry=https://one.example/npm/\n@mine:registry = https://two.example\n"
        "//two.example/:_authToken=${TOKEN}\n; //one.example/:_authToken=no\n"
    )
    environment = {"HOME": str(tmp_path), "TOKEN": "secret", "npm_config_globalconfig": "/none"}

    found = npm_settings(environment)
    by_variable = npm_settings({**environment, "NPM_CONFIG_REGISTRY": "https://three.example"})

    assert found.registry("a") == "https://one.example/npm"
    assert found.registry("@mine/a") == "https://two.example"
    assert found.headers("https://two.example") == {"authorization": "Bearer secret"}
    assert found.headers("https://one.example/npm") == {}
    assert by_variable.registry("a") == "https://three.example"
    assert npm_settings({"HOME": "/none"}).registry("a") == "https://registry.npmjs.org"


def test_uv_is_asked_where_its_settings_say(tmp_path: Path) -> None:
    (tmp_path / "uv").mkdir()
    (tmp_path / "uv/uv.toml").write_text(
        '[[index]]\nurl = "https://one.example/simple/"\n'
        '[[index]]\nurl = "https://two.example/simple"\ndefault = true\n'
    )
    environment = {"XDG_CONFIG_HOME": str(tmp_path), "HOME": "/none"}

    by_file = python_indexes(environment)
    by_variable = python_indexes(
        {
            **environment,
            "UV_INDEX": "mine=https://x.test/simple",
            "UV_DEFAULT_INDEX": "https://y.test",
        }
    )

    assert by_file == ["https://one.example/simple", "https://two.example/simple"]
    assert by_variable == ["https://x.test/simple", "https://one.example/simple", "https://y.test"]
    assert python_indexes({"HOME": "/none"}) == ["https://pypi.org/simple"]
