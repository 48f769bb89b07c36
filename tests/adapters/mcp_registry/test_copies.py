"""A registry's copy is read page by page, refreshed by changes, and kept if that fails."""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from capd.adapters.mcp_registry.copies import CopyFiles, refresh
from capd.adapters.mcp_registry.copies import entry as fetched_entry
from capd.adapters.mcp_registry.fetching import Fetcher, FetchError
from capd.core.mcp_registry.server_json import EntryError
from capd.core.mcp_registry.summaries import Copy
from registry_server import OFFICIAL, RegistryServer, entry, package, registry_server


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    with registry_server() as server:
        yield server


@asynccontextmanager
async def fetching() -> AsyncIterator[Fetcher]:
    fetcher = await Fetcher.opened()
    try:
        yield fetcher
    finally:
        await fetcher.aclose()


async def refreshed(copy: Copy) -> str:
    async with fetching() as fetcher:
        return await refresh(copy, fetcher, lambda _: None, lambda _: None)


def named(count: int) -> list[str]:
    return [f"io.github.x/server-{number:02}" for number in range(count)]


async def test_every_page_of_the_latest_versions_is_read(registry: RegistryServer) -> None:
    registry.page_size = 4
    registry.entries = [entry(name, packages=[package("npm", "a")]) for name in named(10)]
    registry.entries.append(entry(named(1)[0], "0.9.0", is_latest=False))
    copy = Copy(registry.url)

    note = await refreshed(copy)

    assert note == ""
    assert sorted(copy.entries) == named(10)
    assert copy.entries[named(1)[0]].version == "1.0.0"
    assert copy.entries[named(1)[0]].runs == ("npm",)
    assert len(registry.asked) == 3


async def test_a_refresh_asks_for_what_has_changed_and_drops_what_was_deleted(
    registry: RegistryServer,
) -> None:
    registry.entries = [entry(name) for name in named(3)]
    copy = Copy(registry.url)
    await refreshed(copy)
    later = "2099-01-01T00:00:00Z"
    registry.entries[0]["_meta"][OFFICIAL] |= {"status": "deleted", "updatedAt": later}
    registry.entries.append(entry("io.github.y/new", updated_at=later))

    await refreshed(copy)

    assert sorted(copy.entries) == [*named(3)[1:], "io.github.y/new"]
    assert "updated_since=" in registry.asked[-1]


async def test_a_list_of_one_page_is_asked_for_with_its_etag(registry: RegistryServer) -> None:
    registry.entries = [entry(name) for name in named(2)]
    registry.etag = '"one"'
    copy = Copy(registry.url)
    await refreshed(copy)

    await refreshed(copy)
    unchanged = sorted(copy.entries)
    registry.etag, registry.entries = '"two"', registry.entries[1:]
    await refreshed(copy)

    assert unchanged == named(2)
    assert sorted(copy.entries) == named(2)[1:]
    assert "updated_since" not in registry.asked[-1]


async def test_an_interrupted_first_refresh_goes_on_where_it_stopped(
    registry: RegistryServer,
) -> None:
    registry.page_size = 2
    registry.entries = [entry(name) for name in named(6)]
    registry.breaks_after = 2
    copy = Copy(registry.url)
    with pytest.raises(FetchError):
        await refreshed(copy)
    half = (sorted(copy.entries), copy.synced_at)
    registry.breaks_after = -1
    registry.asked.clear()

    await refreshed(copy)

    assert half == (named(4), 0.0)
    assert (sorted(copy.entries), len(registry.asked)) == (named(6), 1)


async def test_a_registry_that_breaks_leaves_the_copy_as_it_was(registry: RegistryServer) -> None:
    registry.entries = [entry(name) for name in named(2)]
    copy = Copy(registry.url)
    await refreshed(copy)
    before = (dict(copy.entries), copy.synced_at)
    registry.breaks_after = 0

    with pytest.raises(FetchError, match="503"):
        await refreshed(copy)

    assert (copy.entries, copy.synced_at) == before


async def test_an_entry_out_of_form_is_left_out_and_counted(registry: RegistryServer) -> None:
    registry.entries = [entry(named(1)[0]), entry("no name at all")]
    copy = Copy(registry.url)

    note = await refreshed(copy)

    assert sorted(copy.entries) == named(1)
    assert note.startswith("1 entries are not as the schema has them")


async def test_a_copy_is_kept_and_one_that_is_damaged_counts_as_none(
    registry: RegistryServer, tmp_path: Path
) -> None:
    registry.entries = [entry(name) for name in named(2)]
    files = CopyFiles(tmp_path)
    copy = Copy(registry.url)
    async with fetching() as fetcher:
        await refresh(copy, fetcher, files.write, lambda _: None)

    kept = files.read(registry.url)
    (file,) = tmp_path.rglob("*.copy")
    file.write_bytes(b"no copy")
    damaged = files.read(registry.url)

    assert sorted(kept.entries) == named(2)
    assert (damaged.entries, damaged.synced_at) == ({}, 0.0)


async def test_one_version_is_looked_up_and_never_anothers_answer_taken(
    registry: RegistryServer,
) -> None:
    registry.entries = [
        entry("io.github.x/a", "2.0.0"),
        entry("io.github.x/a", "1.0.0", is_latest=False),
    ]
    async with fetching() as fetcher:
        latest, _ = await fetched_entry(registry.url, "io.github.x/a", "latest", fetcher)
        first, _ = await fetched_entry(registry.url, "io.github.x/a", "1.0.0", fetcher)
        with pytest.raises(FetchError, match="404"):
            await fetched_entry(registry.url, "io.github.x/a", "3.0.0", fetcher)
        registry.entries[0]["server"]["name"] = "io.github.x/b"
        registry.answer = lambda *_: (200, {}, _page_of(registry))  # type: ignore[method-assign]
        with pytest.raises(EntryError, match="another entry"):
            await fetched_entry(registry.url, "io.github.x/a", "latest", fetcher)

    assert (latest.server.version, first.server.version) == ("2.0.0", "1.0.0")


def _page_of(registry: RegistryServer) -> bytes:
    return json.dumps(registry.entries[0]).encode()
