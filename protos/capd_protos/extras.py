"""The optional parts of capd (extras of its package), and how to install a missing one.

A default install leaves out what few people use. The command that installs an extra depends on how
this capd was installed: with uv, pipx or pip.
"""

import sys
from typing import Literal

Extra = Literal["keyring", "many-tools", "metrics", "otel", "top", "uv", "web"]

_WHAT: dict[Extra, str] = {
    "keyring": "the system's keyring",
    "many-tools": "the search of more than 20,000 tools",
    "metrics": "metrics in Prometheus' format",
    "otel": "traces",
    "top": "`capd top`",
    "uv": "uvx for servers from PyPI",
    "web": "`capd top --web`",
}


def missing(extra: Extra, prefix: str = "") -> str:
    """Return a sentence: what does not work without `extra`, and the command that installs it.

    `prefix` is the folder of the Python environment; empty for the one of this process.
    """
    return f"{_WHAT[extra]}: not installed. Add it with: {command(extra, prefix)}"


def command(extra: Extra, prefix: str = "") -> str:
    """Return the command that installs `extra` into this installation of capd."""
    folder = prefix or sys.prefix
    wanted = f"'capd[{extra}]'"
    if "/uv/tools/" in f"{folder}/":
        return f"uv tool install --force {wanted}"
    if "/pipx/venvs/" in f"{folder}/":
        return f"pipx install --force {wanted}"
    return f"{folder}/bin/python -m pip install {wanted}"
