"""The first message after a boot: the daemon is started, and the model has capd's tools."""

import json
import re
from collections.abc import Callable

import pytest

from whole_daemon import wait_for

from .agents import CODEX, COPILOT, GEMINI, QWEN, Agent
from .lab import Lab

pytestmark = pytest.mark.clients

NAMES = {
    GEMINI: "mcp_capd_tool_call",
    COPILOT: "capd-tool_call",
    CODEX: "mcp__capd",
    QWEN: "mcp__capd__tool_call",
}


@pytest.mark.parametrize("agent", NAMES, ids=lambda each: each.client)
def test_the_first_request_after_a_boot_has_capds_own_tools(
    agent: Agent, start_lab: Callable[..., Lab]
) -> None:
    lab = start_lab([{"text": "hello"}])
    command = [*agent.give(lab), *(["-m", "gpt-4.1"] if agent is CODEX else [])]
    lab.install(agent.client)
    # The first run of all starts the daemon, the second finds it running.
    lab.run(*command, "say hello")
    lab.run(*command, "say hello")
    lab.home.ask("stop")
    lab.model.go_on([{"text": "hello"}])

    printed, _ = lab.show(*command, "say hello again")

    # Codex is done before the daemon is there, which would come up after the test.
    wait_for((lab.home.folder / "run" / "capd.sock").exists)
    first, *_ = lab.model.bodies()
    assert NAMES[agent] in json.dumps(first)
    assert "issues detected" not in printed
    # Not for Node, which calls its process MainThread.
    log = (lab.home.folder / "state" / "capd.log").read_text()
    assert set(re.findall(r'"session":"([a-z]+)-', log, re.IGNORECASE)) == {agent.client}
