"""The command-line agents: where each is installed from, and how it is pointed at the model."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from conformance.suite import node

from .lab import Lab, installed

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Agent:
    """One program, as the lab's user has it."""

    client: str
    """What `capd install` calls it."""
    package: tuple[str, str]
    program: str
    """In the folder of its packages; a pattern where it is of this machine."""
    point: Callable[[Lab], list[str]]
    """Gives it the scripted model and returns the command that takes a prompt behind it."""
    needs_node: bool = False

    def give(self, lab: Lab) -> list[str]:
        """Put the program into the lab; return its command, without the prompt."""
        packages = installed(self.package).parent
        found = sorted(packages.glob(self.program))
        if not found:
            pytest.skip(f"npm has no {self.client} for this machine")
        (lab.programs / self.client).symlink_to(found[0])
        if self.needs_node:
            (lab.programs / "node").symlink_to(node())
        return [self.client, *self.point(lab)]


def _codex(lab: Lab) -> list[str]:
    folder = lab.user / ".codex"
    folder.mkdir()
    (folder / "config.toml").write_text(
        "# mine\n"
        'model = "gpt-5.5"\nmodel_provider = "scripted"\n\n'
        "[model_providers.scripted]\n"
        f'name = "scripted"\nbase_url = "{lab.model.url}/v1"\nwire_api = "responses"\n'
    )
    # Who is asked nothing has to have allowed it before.
    allowed = 'mcp_servers.capd.default_tools_approval_mode="approve"'
    # Of the environment it passes on what it is told to; a test says by it who starts a daemon.
    passed = 'mcp_servers.capd.env_vars=["XDG_RUNTIME_DIR", "CAPD_NO_START"]'
    return ["exec", "--skip-git-repo-check", "--json", "-c", allowed, "-c", passed]


def _gemini(lab: Lab) -> list[str]:
    lab.env |= {
        "GOOGLE_GEMINI_BASE_URL": lab.model.url,
        "GEMINI_API_KEY": "fake",
        "GEMINI_CLI_TRUST_WORKSPACE": "true",
    }
    _write(
        lab.user / ".gemini/settings.json",
        {"security": {"auth": {"selectedType": "gemini-api-key"}}},
    )
    return ["--output-format", "json", "--approval-mode", "yolo", "-p"]


def _qwen(lab: Lab) -> list[str]:
    lab.env |= {
        "OPENAI_BASE_URL": f"{lab.model.url}/v1",
        "OPENAI_API_KEY": "fake",
        "OPENAI_MODEL": "scripted",
    }
    _write(lab.user / ".qwen/settings.json", {"security": {"auth": {"selectedType": "openai"}}})
    return ["--approval-mode", "yolo", "-p"]


def _copilot(lab: Lab) -> list[str]:
    lab.env |= {
        "COPILOT_OFFLINE": "true",
        "COPILOT_PROVIDER_BASE_URL": f"{lab.model.url}/v1",
        "COPILOT_PROVIDER_API_KEY": "fake",
        "COPILOT_MODEL": "scripted",
    }
    return ["--allow-all-tools", "-p"]


def _write(path: Path, document: Json) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=2) + "\n")


CODEX = Agent("codex", ("@openai/codex", "0.169.0"), "codex-*/vendor/*/bin/codex", _codex)
GEMINI = Agent(
    "gemini",
    ("@google/gemini-cli", "0.61.0"),
    "gemini-cli/bundle/gemini.js",
    _gemini,
    needs_node=True,
)
QWEN = Agent(
    "qwen", ("@qwen-code/qwen-code", "0.24.4"), "qwen-code/cli-entry.js", _qwen, needs_node=True
)
COPILOT = Agent("copilot", ("@github/copilot", "1.0.102"), "copilot-*/copilot", _copilot)
