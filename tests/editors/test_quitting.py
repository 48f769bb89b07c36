"""A client that quits and kills its children leaves the shared daemon running."""

from collections.abc import Callable
from pathlib import Path

import pytest

from .agents import COPILOT
from .lab import Lab

pytestmark = pytest.mark.clients


def opencode_command(lab: Lab, program: Path) -> list[str]:
    lab.add_opencode(program)
    return ["opencode", "run"]


@pytest.mark.parametrize("client", ["opencode", "copilot"])
def test_a_client_that_started_the_daemon_quits_and_the_daemon_stays(
    client: str, start_lab: Callable[..., Lab], opencode: Path
) -> None:
    lab = start_lab([{"text": "hello"}])
    command = opencode_command(lab, opencode) if client == "opencode" else COPILOT.give(lab)
    lab.install(client)
    lab.run(*command, "say hello")
    first = lab.home.ask("status")["daemon"]["pid"]

    lab.run(*command, "say hello again")

    assert lab.home.ask("status")["daemon"]["pid"] == first
