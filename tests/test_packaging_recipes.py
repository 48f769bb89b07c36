"""The recipes of packaging/ name the current version and its dependencies."""

import json
import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
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


FEATURE = RECIPES / "devcontainer/capd"


def feature_schema() -> dict[str, Any]:
    """Return the schema of dev container features for the keys that are used here."""
    texts = {"type": "array", "items": {"type": "string"}}
    option = {
        "type": "object",
        "additionalProperties": False,
        "required": ["type", "default"],
        "properties": {
            "type": {"const": "string"},
            "default": {"type": "string"},
            "description": {"type": "string"},
            "proposals": texts,
        },
    }
    named = {name: {"type": "string"} for name in ("id", "version", "name", "description")}
    return {
        "type": "object",
        "additionalProperties": False,
        "required": ["id", "version"],
        "properties": {
            **named,
            "installsAfter": texts,
            "options": {"type": "object", "additionalProperties": option},
        },
    }


def test_the_dev_container_feature_is_of_this_version_and_as_its_specification_says() -> None:
    feature = json.loads(text_of("devcontainer/capd/devcontainer-feature.json"))

    jsonschema.validate(feature, feature_schema())
    assert (feature["id"], feature["version"]) == (FEATURE.name, PROJECT["version"])


def installed_feature(folder: Path, bridge: str) -> subprocess.CompletedProcess[str]:
    env = {"PATH": os.environ["PATH"], "DESTDIR": str(folder), "BRIDGE": bridge}
    return subprocess.run(
        ["sh", str(FEATURE / "install.sh")], env=env, capture_output=True, text=True, check=False
    )


def shim(folder: Path) -> subprocess.CompletedProcess[str]:
    env = {"PATH": os.environ["PATH"], "HOME": str(folder / "home")}
    command = str(folder / "usr/local/bin/capd-shim")
    return subprocess.run([command], env=env, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("bridge", "said"), [("", "the shim of box"), ("box", "the shim of box"), ("other", "")]
)
def test_the_command_of_the_dev_container_feature_starts_the_shim_of_a_bridge(
    bridge: str, said: str, tmp_path: Path
) -> None:
    assert installed_feature(tmp_path, bridge).returncode == 0
    closed = shim(tmp_path)
    program = tmp_path / "home/.local/share/capd-bridge/box/capd.pyz"
    program.parent.mkdir(parents=True)
    program.write_text('print("the shim of box")\n')

    opened = shim(tmp_path)

    assert (closed.returncode, closed.stdout) == (1, "")
    assert "capd bridge container ID" in closed.stderr
    assert opened.stdout.strip() == said


@pytest.mark.parametrize("bridge", ["$(id)", "../x", "a b", "`id`"])
def test_no_name_of_a_bridge_is_run_as_a_program(bridge: str, tmp_path: Path) -> None:
    refused = installed_feature(tmp_path, bridge)

    assert refused.returncode == 1
    assert not (tmp_path / "usr").exists()
