"""The recipes of packaging/ name what this version is and needs."""

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[1]
RECIPES = CHECKOUT / "packaging"
PROJECT = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def text_of(name: str) -> str:
    return (RECIPES / name).read_text(encoding="utf-8")


def test_the_aur_recipe_is_of_this_version_and_its_shell_can_be_parsed() -> None:
    recipe = RECIPES / "aur/PKGBUILD"

    done = subprocess.run(["bash", "-n", str(recipe)], capture_output=True, text=True, check=False)
    shown = subprocess.run(
        ["bash", "-c", f'. "{recipe}"; echo "$pkgname $pkgver ${{license[0]}}"; type -t package'],
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert shown.stdout.split() == ["capd", PROJECT["version"], PROJECT["license"], "function"]


def test_the_dockerfile_runs_capd_as_a_user_of_its_own_and_names_extras_that_exist() -> None:
    lines = text_of("docker/Dockerfile").splitlines()
    text = "\n".join(lines)

    assert lines[[line.startswith("USER") for line in lines].index(True)] == "USER capd"
    assert lines[-1] == 'CMD ["daemon", "run"]'
    named = set(re.findall(r"\[(\w+)\]\"", text))
    assert named <= set(PROJECT["optional-dependencies"])
    images = re.findall(r"^FROM python:(3\.\d+)-slim", text, re.MULTILINE)
    assert images
    for image in images:
        assert f"Programming Language :: Python :: {image}" in PROJECT["classifiers"]


@pytest.mark.parametrize("name", ["flake.nix", "homebrew/capd.rb", "docker/Dockerfile"])
def test_every_pair_of_brackets_is_closed(name: str) -> None:
    text = re.sub(r"^\s*#.*", "", text_of(name), flags=re.MULTILINE)

    for opening, closing in ("{}", "[]", "()"):
        assert text.count(opening) == text.count(closing), (name, opening)


def test_the_formula_is_ruby() -> None:
    ruby = shutil.which("ruby")
    formula = text_of("homebrew/capd.rb")

    assert formula.count("\n  def ") + formula.count(" do\n") + 1 == len(
        re.findall(r"^\s*end$", formula, re.MULTILINE)
    )
    assert f'license "{PROJECT["license"]}"' in formula
    if ruby is not None:
        subprocess.run([ruby, "-c", str(RECIPES / "homebrew/capd.rb")], check=True)
