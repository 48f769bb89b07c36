"""The metadata on PyPI: working links and the supported platforms."""

import email
import importlib.util
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

import pytest

CHECKOUT = Path(__file__).parents[1]
ADDRESS = "https://git.example.org/ada/capd"
PROJECT = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def hook() -> ModuleType:
    place = CHECKOUT / "packaging/hatch_metadata.py"
    spec = importlib.util.spec_from_file_location("hatch_metadata", place)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("said", "address"),
    [
        ({}, ""),
        ({"CAPD_REPOSITORY": f"{ADDRESS}/"}, ADDRESS),
        (
            {"GITHUB_SERVER_URL": "https://git.example.org", "GITHUB_REPOSITORY": "ada/capd"},
            ADDRESS,
        ),
        ({"GITHUB_SERVER_URL": "https://git.example.org"}, ""),
        ({"CAPD_REPOSITORY": ADDRESS, "GITHUB_REPOSITORY": "bob/fork"}, ADDRESS),
    ],
)
def test_the_address_is_what_whoever_builds_says(said: Mapping[str, str], address: str) -> None:
    assert hook().repository(said) == address


@pytest.mark.parametrize(
    ("link", "published"),
    [
        ("[a](docs/a.md)", f"[a]({ADDRESS}/blob/v1.2.3/docs/a.md)"),
        ("[a](docs/a.md#b)", f"[a]({ADDRESS}/blob/v1.2.3/docs/a.md#b)"),
        ("![a](docs/a.svg)", f"![a]({ADDRESS}/raw/v1.2.3/docs/a.svg)"),
        ("[a](https://b.example/c)", "[a](https://b.example/c)"),
        ("[a](#b)", "[a](#b)"),
        ("git clone <this repository>", f"git clone {ADDRESS}"),
    ],
)
def test_a_link_beside_the_readme_leads_to_the_tag_of_the_version(
    link: str, published: str
) -> None:
    assert hook().absolute(link, ADDRESS, "1.2.3") == published
    assert hook().absolute(link, "", "1.2.3") == link


def test_a_wheel_of_a_known_address_has_links_that_work_on_pypi(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CAPD_REPOSITORY", ADDRESS)
    built = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(tmp_path)]
    # By way of the sdist, whose fields the wheel takes over.
    done = subprocess.run([*built, "."], cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as opened:
        (name,) = [each for each in opened.namelist() if each.endswith("dist-info/METADATA")]
        said = email.message_from_bytes(opened.read(name))

    shown = str(said.get_payload())
    targets = re.findall(r"\]\(([^)\s]+)\)", shown)
    assert [each for each in targets if not each.startswith((ADDRESS, "#", "https://"))] == []
    assert f"{ADDRESS}/raw/v{PROJECT['version']}/docs/pictures/status.svg" in targets
    assert "<this repository>" not in shown
    assert said["Description-Content-Type"] == "text/markdown"
    addresses = dict(each.split(", ", 1) for each in said.get_all("Project-URL", []))
    assert addresses == hook().urls(ADDRESS)


def test_the_classifiers_name_the_pythons_and_systems_that_the_pages_name() -> None:
    pythons = [f"Programming Language :: Python :: 3.{minor}" for minor in (11, 12, 13, 14)]

    assert set(pythons) <= set(PROJECT["classifiers"])
    assert {"Operating System :: MacOS", "Operating System :: POSIX :: Linux"} <= set(
        PROJECT["classifiers"]
    )
    assert PROJECT["authors"]
    assert PROJECT["requires-python"] == ">=3.11"
