"""The real paths of projects: which are cached, and for how long."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from capd.adapters.trust.real_paths import RealPaths
from hung_reads import HungReads


@pytest.fixture
def reads() -> Iterator[HungReads]:
    made = HungReads()
    yield made
    made.answer()


@pytest.fixture
def link(tmp_path: Path) -> Path:
    (tmp_path / "project").mkdir()
    made = tmp_path / "link"
    made.symlink_to("project")
    return made


async def test_a_link_leads_to_the_real_path(tmp_path: Path, link: Path) -> None:
    found = await RealPaths().of(f"{link}/")

    assert found == str(tmp_path.resolve() / "project")


async def test_a_project_that_hangs_keeps_the_path_that_was_found(
    tmp_path: Path, link: Path, reads: HungReads
) -> None:
    paths = RealPaths(reads)
    await paths.of(str(link))
    reads.hung.add(str(link))

    found = await paths.again(str(link))

    assert found == str(tmp_path.resolve() / "project")


async def test_a_project_that_hangs_from_the_start_has_the_path_that_it_was_asked_by(
    reads: HungReads,
) -> None:
    reads.hung.add("/mnt/far")

    found = await RealPaths(reads).of("/mnt/far")

    assert found == "/mnt/far"


async def test_a_path_is_found_once_until_it_is_forgotten() -> None:
    asked: list[str] = []

    def resolve(path: str) -> str:
        asked.append(path)
        return path

    paths = RealPaths(resolve=resolve)
    for _ in range(3):
        await paths.of("/a")
    paths.forget()
    await paths.of("/a")

    assert asked == ["/a", "/a"]
