"""The hook in Copilot CLI's folder, which VS Code runs as well."""

from collections.abc import Mapping
from typing import Any

from capd_client.hooks import copilot, vscode
from capd_client.hooks.copilot import answer
from capd_client.hooks.fields import Prompt

__all__ = ["answer", "prompt"]


def prompt(said: Mapping[str, Any], env: Mapping[str, str]) -> Prompt:
    """Read the JSON of whichever of the two runs it."""
    if vscode.is_of(said):
        return vscode.prompt(said, env)
    return copilot.prompt(said, env)
