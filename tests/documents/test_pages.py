"""Links on the pages resolve, and quoted constants equal those in the code."""

import re
import runpy
from pathlib import Path

import pytest
import yaml

from documents import pages

ROOT = Path(__file__).parents[2]
GENERATOR = pages.DOCS / "regenerate.py"


@pytest.mark.parametrize("page", pages.pages(), ids=lambda page: page.name)
def test_links_lead_to_files_and_headings_that_are_there(page: Path) -> None:
    broken = []

    for file, heading in pages.links(page):
        target = page.parent / file
        if not target.exists() or (heading and heading not in pages.headings(target)):
            broken.append(f"{file}#{heading}")

    assert broken == []


@pytest.mark.parametrize("name", ["reference-cli.md", "reference-control.md"])
def test_a_reference_is_as_the_code_has_it(name: str) -> None:
    written = runpy.run_path(str(GENERATOR))["pages"]()

    text = written[pages.DOCS / name]

    assert text.rstrip() + "\n" == (pages.DOCS / name).read_text("utf-8"), (
        "run python docs/regenerate.py"
    )


def test_clients_lose_capd_before_the_folders_are_deleted_that_it_takes_for_that() -> None:
    told = {page.name: pages.typed_lines(page) for page in pages.pages()}

    removing = {
        name: any(line.startswith("capd uninstall --all") for line in lines[:at])
        for name, lines in told.items()
        for at, line in enumerate(lines)
        if line.startswith("rm -rf ~/.config/capd")
    }

    assert removing == {"footprint.md": True, "quickstart.md": True}


class _Site(yaml.SafeLoader):
    """Reads mkdocs.yml, in which one value is that of a variable."""


_Site.add_constructor("!ENV", lambda *_: None)


def in_navigation() -> list[str]:
    text = (ROOT / "mkdocs.yml").read_text("utf-8")
    site = yaml.load(text, Loader=_Site)
    return re.findall(r"[\w/-]+\.md", str(site["nav"]))


def test_at_most_twenty_pages_are_in_the_navigation_each_once() -> None:
    placed = in_navigation()

    assert len(placed) == len(set(placed)) <= 20


def test_every_page_is_in_the_navigation_or_linked_from_one_that_is() -> None:
    placed = in_navigation()

    # The design notes have a list of their own.
    starts = [*placed, "design/index.md"]
    linked = {
        (pages.DOCS / page).parent.joinpath(file).resolve().relative_to(pages.DOCS).as_posix()
        for page in starts
        for file, _ in pages.links(pages.DOCS / page)
        if (pages.DOCS / page).parent.joinpath(file).resolve().is_relative_to(pages.DOCS)
    }
    there = {page.relative_to(pages.DOCS).as_posix() for page in pages.DOCS.rglob("*.md")}
    assert there - linked - set(placed) == set()


def test_the_first_table_of_links_of_the_readme_is_on_its_first_screen() -> None:
    lines = pages.README.read_text("utf-8").splitlines()

    assert lines.index("## Read on") <= 40


def test_every_folder_and_every_actor_has_its_place_in_the_picture() -> None:
    words = set(re.findall(r"[\w/]+", (pages.DOCS / "architecture.md").read_text("utf-8")))
    daemon, client = ROOT / "daemon/capd", ROOT / "clients/capd_client"
    actors = {path.stem for path in (daemon / "actors").glob("*.py")} - {"__init__"}
    folders = {
        f"{path.parent.name}/"
        for top in (daemon, client)
        for path in top.rglob("__init__.py")
        if path.parent not in (daemon, client)
    }
    named = {f"{word.removesuffix('/').rpartition('/')[2]}/" for word in words if "/" in word}

    missing = (actors - words) | (folders - named)

    assert missing == set()


def test_every_param_of_a_control_method_is_explained() -> None:
    rows = (pages.DOCS / "reference-control.md").read_text("utf-8").splitlines()

    params = [row for row in rows if row.startswith("| `")]
    assert len(params) > 20
    assert [row for row in params if row.split("|")[4].strip() == ""] == []
