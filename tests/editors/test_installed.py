"""Real clients read the files of `capd install` and reach a server through capd."""

import contextlib
import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from .lab import SUBJECTS, Lab, installed, tool_names

pytestmark = pytest.mark.clients

OWN = {"capability", "tool_search", "tool_call", "result_read"}
LISTING = {
    "codex": ("@openai/codex", "0.169.0"),
    "gemini": ("@google/gemini-cli", "0.61.0"),
    "qwen": ("@qwen-code/qwen-code", "0.24.4"),
    "copilot": ("@github/copilot", "1.0.102"),
}


def program(package: tuple[str, str], name: str) -> Path:
    folder = installed(package)
    modules = next(each for each in folder.parents if each.name == "node_modules")
    return modules / ".bin" / name


def through_capd(project: Path) -> list[dict[str, Any]]:
    """Answer as a model that looks for a tool, and calls it by the way that works everywhere."""
    log = {"name": "git__git_log", "arguments": {"repo_path": str(project), "max_count": 3}}
    return [{"tool": "tool_call$", "args": log}, {"text": "three commits"}]


@pytest.fixture
def lab(start_lab: Callable[..., Lab], tmp_path: Path) -> Iterator[Lab]:
    made = start_lab(through_capd(tmp_path / "harbour"))
    yield made
    end_processes_of(made.user)


def end_processes_of(user: Path) -> None:
    """End the processes of this home folder: Cline leaves one running."""
    for each in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if f"HOME={user}".encode() in each.read_bytes().split(b"\0"):
                os.kill(int(each.parent.name), signal.SIGKILL)


def add_continue(lab: Lab) -> list[str]:
    """Give the user Continue with the scripted model; return how it is asked."""
    config = lab.user / ".continue" / "config.yaml"
    config.parent.mkdir()
    config.write_text(
        "# mine\nname: Mine\nversion: 1.0.0\nschema: v1\nmodels:\n"
        "  - name: scripted   # by a test\n    provider: openai\n    model: gpt-4o\n"
        f"    apiBase: {lab.model.url}/v1\n    apiKey: fake\n"
    )
    found = program(("@continuedev/cli", "1.5.47"), "cn")
    lab.env |= {"CONTINUE_TELEMETRY_ENABLED": "0", "CONTINUE_CLI_AUTO_UPDATED": "1"}
    return [str(found), "--auto", "--config", str(config), "-p"]


def add_cline(lab: Lab) -> list[str]:
    """Give the user Cline with the scripted model; return how it is asked."""
    found = str(program(("cline", "3.0.65"), "cline"))
    provider = ["-p", "openai", "-k", "fake", "-m", "one", "-b", f"{lab.model.url}/v1"]
    lab.run(found, "auth", *provider)
    return [found, "--json"]


@pytest.mark.parametrize(
    ("client", "add", "prefix"),
    [("continue", add_continue, "capd_"), ("cline", add_cline, "capd__")],
)
def test_its_model_has_capds_tools_at_once_and_reaches_a_server_through_them(
    lab: Lab, client: str, add: Callable[[Lab], list[str]], prefix: str
) -> None:
    command = add(lab)
    lab.start_warm()
    lab.install(client)

    lab.run(*command, "what changed in the last three commits of this repository?")

    first, second, *_ = lab.model.bodies()
    named = [name for name in tool_names(first) if name.startswith(prefix)]
    assert {name.removeprefix(prefix) for name in named} == OWN
    results = json.dumps([each for each in second["messages"] if each["role"] == "tool"])
    assert all(subject in results for subject in SUBJECTS)


@pytest.mark.parametrize("client", LISTING)
def test_it_lists_capd_among_its_servers(lab: Lab, client: str) -> None:
    found = program(LISTING[client], client)
    before, _ = lab.show(str(found), "mcp", "list")
    lab.install(client)

    listed, _ = lab.show(str(found), "mcp", "list")

    assert ("capd" in before.split(), "capd" in listed.replace(":", " ").split()) == (False, True)
