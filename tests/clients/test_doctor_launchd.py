"""`capd doctor` on launchd: its reading of sample output of `launchctl print`."""

import plistlib
from typing import Any

import pytest

from capd_client.doctor.findings import Finding
from capd_client.doctor.launchd import Agent, agent_findings, agent_of
from capd_client.service.launchd import Launchd

RUNNING = """gui/501/dev.capd.daemon = {
\tactive count = 1
\tpath = /Users/ada/Library/LaunchAgents/dev.capd.daemon.plist
\ttype = LaunchAgent
\tstate = running

\tprogram = /opt/capd/bin/capd
\targuments = {
\t\t/opt/capd/bin/capd
\t\tdaemon
\t\trun
\t}

\tstderr path = /Users/ada/.local/state/capd/capd.log
\tenvironment = {
\t\tCAPD_HOME => /srv/capd
\t\tpid = 5
\t}

\tdomain = gui/501 [100005]
\tminimum runtime = 10
\texit timeout = 20
\truns = 1
\tpid = 812
\tlast exit code = (never exited)

\tspawn type = interactive (4)
\tevent channels = {
\t\t"x" = {
\t\t\tstate = 0
\t\t}
\t}
}
"""
STOPPED = RUNNING.replace("state = running", "state = not running").replace("\tpid = 812\n", "")
ABSENT = 'Bad request.\nCould not find service "dev.capd.daemon" in domain for user gui: 501\n'


@pytest.mark.parametrize(
    ("said", "agent"),
    [
        (RUNNING, Agent("running", 812, 1)),
        (STOPPED.replace("(never exited)", "0"), Agent("not running", 0, 1)),
        (
            STOPPED.replace("(never exited)", "78: EX_CONFIG").replace("runs = 1", "runs = 9"),
            Agent("not running", 0, 9, "with code 78: EX_CONFIG"),
        ),
        (
            RUNNING.replace(
                "last exit code = (never exited)", "last terminating signal = Killed: 9"
            ),
            Agent("running", 812, 1, "by signal Killed: 9"),
        ),
        ("", Agent()),
        ("state = \npid = x\nruns = ٣\n\x00", Agent()),
    ],
)
def test_what_launchd_says_of_the_agent_itself_is_read(said: str, agent: Agent) -> None:
    assert agent_of(said) == agent


def wanted(**changes: Any) -> bytes:
    agent = plistlib.loads(Launchd({"HOME": "/Users/ada"}).plist())
    return plistlib.dumps({**agent, **changes})


@pytest.mark.parametrize(
    ("written", "code", "said", "levels"),
    [
        (None, 113, ABSENT, ["note"]),
        (wanted(), 0, RUNNING, ["ok"]),
        (wanted(), 0, STOPPED, ["ok"]),
        (wanted(), 113, ABSENT, ["warning"]),
        (wanted(), 64, "Usage", ["warning"]),
        (wanted(Umask=0), 0, RUNNING, ["warning"]),
        (wanted(ProgramArguments=["/gone/capd"]), 0, RUNNING, ["error"]),
        (wanted(ProgramArguments=["/gone/capd"]), 113, ABSENT, ["error", "warning"]),
        (b"not a list", 0, RUNNING, ["error"]),
        (plistlib.dumps(["a list"]), 0, RUNNING, ["error"]),
        (wanted(), 0, STOPPED.replace("(never exited)", "1"), ["error"]),
        (wanted(), 0, RUNNING.replace("(never exited)", "1"), ["ok"]),
        (
            wanted(),
            0,
            RUNNING.replace("(never exited)", "1").replace("runs = 1", "runs = 40"),
            ["warning"],
        ),
    ],
)
def test_each_trouble_of_the_agent_is_a_finding_with_its_remedy(
    written: bytes | None, code: int, said: str, levels: list[str]
) -> None:
    found = list(agent_findings(written, wanted(), code, said))

    assert [each.level for each in found] == levels
    assert all(each.why and each.fix for each in found if each.level in {"warning", "error"})


def test_an_agent_that_dies_at_once_is_told_with_how_it_ended() -> None:
    said = STOPPED.replace("(never exited)", "1").replace("runs = 1", "runs = 12")

    found = list(agent_findings(wanted(), wanted(), 0, said))

    text = "dev.capd.daemon was started 12 times, and ended with code 1"
    why = "launchd starts it again each time that it dies"
    assert found == [Finding("service", "error", text, why, "see why: capd logs")]
