"""Without the optional packages, capd works and reports what is missing."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from capd_protos import extras

CHECKOUT = Path(__file__).parents[1]
PROJECT = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
OPTIONAL = ("keyring", "opentelemetry", "prometheus_client", "rich", "textual", "usearch", "uv")
MOST_REQUIRED = 24
"""Packages that capd names itself; with what they need they were 58 when this was written."""

WITHOUT = f"""
import json, sys
from pathlib import Path

sys.modules.update(dict.fromkeys({OPTIONAL!r}))
# A server's and a client's whole program, every actor and every command.
import capd.main, capd.children, capd.daemon, capd_client.entry
from capd_client import commands
from capd.adapters.servers.child_environment import child_environment, uvx_folder
from capd.adapters.servers.http.token_store import best_store
from capd.adapters.secrets import system_keyring

for name in commands._MODULES:
    commands.cli.get_command(None, name)
found, note = system_keyring._look_up(["A"])
print(json.dumps({{
    "keyring": [found, note],
    "store": type(best_store(Path("/nowhere"))).__name__,
    "uvx": uvx_folder(),
    "path": child_environment({{"PATH": "/bin"}}, {{}}, extra_path=uvx_folder())["PATH"],
}}))
"""


def test_without_the_optional_packages_everything_else_is_there_and_each_is_named() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "keyring": [{}, f"secrets.env takes its place ({extras.missing('keyring')})"],
        "store": "FileStore",
        "uvx": "",
        # No empty entry, which would be the working directory.
        "path": "/bin",
    }


@pytest.mark.parametrize(
    ("prefix", "command"),
    [
        ("/home/ada/.local/share/uv/tools/capd", "uv tool install --force 'capd[top]'"),
        ("/home/ada/.local/pipx/venvs/capd", "pipx install --force 'capd[top]'"),
        ("/src/capd/.venv", "/src/capd/.venv/bin/python -m pip install 'capd[top]'"),
    ],
)
def test_the_command_is_that_of_whoever_installed_capd(prefix: str, command: str) -> None:
    assert extras.missing("top", prefix) == f"`capd top`: not installed. Add it with: {command}"


def test_every_extra_that_is_named_is_one_and_dev_has_them_all() -> None:
    optional = PROJECT["optional-dependencies"]
    named = set(extras._WHAT)

    assert named <= set(optional)
    assert set(optional) - named == {"all", "dev", "docs"}
    assert {each for name in named for each in optional[name]} <= set(optional["dev"])


def test_a_default_install_requires_few_packages() -> None:
    required = PROJECT["dependencies"]

    assert len(required) <= MOST_REQUIRED
    names = {each.split(">")[0].split("=")[0] for each in required}
    assert names.isdisjoint({"keyring", "prometheus-client", "rich", "textual", "usearch", "uv"})


def test_pypi_is_told_who_wrote_it_and_on_what_it_runs() -> None:
    assert PROJECT["authors"]
    classifiers = PROJECT["classifiers"]
    for version in ("3.11", "3.12", "3.13", "3.14"):
        assert f"Programming Language :: Python :: {version}" in classifiers
    assert "Operating System :: MacOS" in classifiers


def test_no_process_of_capd_imports_what_structlog_would_bring_for_colours() -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "capd", "check", "/nonexistent"],
        capture_output=True,
        text=True,
        check=False,
    )

    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "structlog.dev" in imported
    # The name `rich` is there for the moment in which structlog looks for it; nothing below it is.
    assert not {each for each in imported if each.startswith(("pygments", "rich.", "textual"))}
