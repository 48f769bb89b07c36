"""capd in front of the SDK's everything-server gets the same results as that server alone."""

import socket
import sys
from pathlib import Path

import pytest

from whole_daemon import Home

from .suite import STDIO_SERVER, Outcomes, Suite, failing, served_directly

pytestmark = pytest.mark.servers

NO_SUCH_TOOL = "the tools of this extension are none of the server's: capd refuses them by an error"
OF_CAPD = "capd names the extension by itself, and knows that nobody has such a task"
EXPLAINED = {
    ("server-stateless", "sep-2575-server-sends-tools-list-changed-on-subscription"): (
        "the list is the same again before capd has asked for it, so nobody is told"
    ),
    ("tasks-capability-negotiation", "tasks-extension-advertised"): OF_CAPD,
    ("tasks-dispatch-and-envelope", "sep-2663-tasks-get-invalid-task-id-32602"): OF_CAPD,
    ("tasks-capability-negotiation", "sep-2663-server-rejects-undeclared-client"): NO_SUCH_TOOL,
    ("tasks-dispatch-and-envelope", "sep-2663-legacy-task-param-ignored"): NO_SUCH_TOOL,
    ("tasks-dispatch-and-envelope", "tasks-immediate-result-shortcut"): NO_SUCH_TOOL,
    ("tasks-dispatch-and-envelope", "tasks-result-type-complete-on-non-task-responses"): (
        NO_SUCH_TOOL
    ),
    ("tasks-lifecycle", "tasks-sync-tool-call"): NO_SUCH_TOOL,
}
"""Checks that end otherwise than without capd, each with its reason (docs/protocol.md)."""


def through_capd(
    home: Home, suite: Suite, revision: str, results: Path, *, poll_after: float = 0.0
) -> Outcomes:
    """Run a revision's requirements against the server behind capd's HTTP front."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    server = [sys.executable, str(STDIO_SERVER), str(suite.everything), home.tag]
    home.capability("everything", server)
    definition = home.folder / "tap/capabilities/everything/default.toml"
    with definition.open("a") as file:
        # Each scenario is a client of its own kind, and a handshake tells a server of one.
        file.write('scope = "session"\n')
    (home.folder / "config" / "config.toml").write_text(
        f"[listen_http]\nenabled = true\nport = {port}\npoll_after = {poll_after}\n"
        'names = "bare"\ncapabilities = ["mine/everything"]\n'
    )
    home.start()
    token = (home.folder / "state" / "http.token").read_text().strip()
    return suite.of_server(f"http://127.0.0.1:{port}/mcp", revision, results, token)


def test_the_handshake_generation_is_passed_check_by_check(
    home: Home, suite: Suite, tmp_path: Path, free_port: int
) -> None:
    with served_directly(suite, free_port) as url:
        direct = suite.of_server(url, "2025-11-25", tmp_path / "direct")

    # One scenario wants a stream to be closed in the middle of a call, and to be found again.
    found = through_capd(home, suite, "2025-11-25", tmp_path / "capd", poll_after=0.1)

    assert found == direct
    assert [each for statuses in found.values() for each in statuses] == ["SUCCESS"] * 84


def test_no_scenario_of_the_stateless_generation_fails_that_passes_without_capd(
    home: Home, suite: Suite, tmp_path: Path, free_port: int
) -> None:
    with served_directly(suite, free_port) as url:
        direct = suite.of_server(url, "2026-07-28", tmp_path / "direct")

    found = through_capd(home, suite, "2026-07-28", tmp_path / "capd")

    assert failing(found) - failing(direct) == set()
    others = {check for check in direct if found.get(check) != direct[check]}
    assert others == set(EXPLAINED)
