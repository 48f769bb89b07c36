"""`capd acp` between a scripted editor and a scripted agent, with a real daemon."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from acp.editor import Editor
from whole_daemon import OWN_TOOLS, Home, pids_with, wait_for

pytestmark = pytest.mark.model

SERVE = (
    "import sys; from capd_client.acp.dialogue import Dialogue; "
    "from capd_client.acp.proxy import Proxy; from capd_client.acp.turns import Turns; "
    "sys.exit(Proxy(sys.argv[1:], Dialogue([], {}), Turns(''), grace=0.1).run())"
)
"""`capd acp` that does not wait long for its agent to end."""


def test_two_sessions_of_one_agent_are_two_of_capd_and_each_has_its_own_turns(home: Home) -> None:
    home.plain("talk")
    home.start()
    with Editor(home) as editor:
        first, second = editor.open(home.folder), editor.open(home.folder)
        keys = [each["key"] for each in home.ask("sessions")["sessions"]]
        answer = editor.say(second, "look at what is there")
        decided = wait_for(lambda: home.ask("status")["decisions"])

        assert [key[:4] for key in keys] == ["acp-", "acp-"]
        assert answer["tools"] == OWN_TOOLS
        assert [each["session"] for each in decided] == [keys[1]]
        assert first != second
        assert editor.leave() == 0
    wait_for(lambda: not home.ask("sessions")["sessions"])


@pytest.mark.real
def test_a_prompt_brings_its_tools_and_the_model_is_not_told_twice(home: Home) -> None:
    home.plain("talk")
    home.start()
    with Editor(home) as editor:
        session = editor.open(home.folder)
        wait_for(lambda: home.ask("status")["embedder"]["state"] == "ready", 120)

        prompts = [editor.say(session, "please run talk")]
        # Its server starts meanwhile, which may take longer than a prompt waits.
        wait_for(lambda: home.ask("sessions")["sessions"][0]["active"])
        prompts += [editor.say(session, "please run talk") for _ in range(2)]

        told = [block["text"] for each in prompts for block in each["saw"][1:]]
        assert [words.split(";")[0] for words in told] in (
            [],
            ["capd switched on 'talk' for this message"],
        )
        assert "talk__echo" in prompts[-1]["tools"]


def test_without_a_daemon_the_agent_works_as_it_does_without_capd(home: Home) -> None:
    with Editor(home) as editor:
        session = editor.open(home.folder)

        answer = editor.say(session, "please run talk")

        assert answer["saw"] == [{"type": "text", "text": "please run talk"}]


def test_a_daemon_that_hangs_holds_no_prompt(home: Home) -> None:
    daemon = home.start()
    with Editor(home) as editor:
        session = editor.open(home.folder)
        daemon.send_signal(signal.SIGSTOP)
        try:
            answer = editor.say(session, "echo 3")
        finally:
            os.kill(daemon.pid, signal.SIGCONT)

        assert answer["text"] == "xxx"


def test_lines_of_any_size_and_kind_go_through_as_they_came(home: Home) -> None:
    big = "é" * 5_000_000
    said = b'{"n": 1.00, "n": 2}\n{"id": 1, "result": "' + big.encode() + b'"}\nnot'
    with Editor(home, ["cat"]) as editor:
        editor.write(said)
        assert editor.process.stdin is not None
        editor.process.stdin.close()
        assert editor.process.stdout is not None

        came = editor.process.stdout.read()

        assert came == said
        assert editor.process.wait(30) == 0


def test_a_hook_of_the_agent_does_not_hand_over_the_words_again(home: Home) -> None:
    home.plain("talk")
    home.start()
    with Editor(home) as editor:
        session = editor.open(home.folder)

        editor.say(session, "look at what is there")

        assert len(wait_for(lambda: home.ask("status")["decisions"])) == 1


def test_a_notification_reaches_the_agent_behind_the_prompt_it_follows(home: Home) -> None:
    with Editor(home) as editor:
        session = editor.open(home.folder)

        editor.tell("session/cancel", sessionId=session)
        editor.say(session, "echo 1")

        (heard,) = editor.heard
        assert heard["params"]["heard"]["method"] == "session/cancel"


def test_an_agent_that_ends_gives_its_code(home: Home) -> None:
    with Editor(home) as editor:
        session = editor.open(home.folder)

        blocks = [{"type": "text", "text": "die 7"}]
        with pytest.raises(AssertionError, match="the agent has ended"):
            editor.ask("session/prompt", sessionId=session, prompt=blocks)

        assert editor.process.wait(30) == 7


def test_an_agent_that_stays_when_its_editor_has_gone_is_ended() -> None:
    stubborn = [sys.executable, "-c", "import time; time.sleep(600)"]

    done = subprocess.run(
        [sys.executable, "-P", "-c", SERVE, *stubborn], input=b"", timeout=60, check=False
    )

    assert done.returncode == 128 + signal.SIGTERM


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="the tree is read from /proc")
@pytest.mark.parametrize("end", ["its input ends", "it is killed"])
def test_no_agent_outlives_its_editor_nor_does_what_it_started(home: Home, end: str) -> None:
    # It ignores all that asks it to go, and so does its child: Gemini CLI does.
    stubborn = (
        "import signal, subprocess, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
        "child = [sys.executable, '-c', 'import time; time.sleep(600)', sys.argv[1]]; "
        "subprocess.Popen(child); print('{}', flush=True); time.sleep(600)"
    )
    agent = [sys.executable, "-c", stubborn, home.tag]
    proxy = subprocess.Popen(
        [sys.executable, "-P", "-c", SERVE, *agent], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert proxy.stdin is not None
    assert proxy.stdout is not None
    proxy.stdout.readline()
    wait_for(lambda: len(pids_with(home.tag)) >= 3)

    if end == "it is killed":
        proxy.kill()
    proxy.stdin.close()

    wait_for(lambda: not pids_with(home.tag))
    proxy.wait()
    proxy.stdout.close()


DETACHED = "import time; time.sleep(600)"
# What it starts is nobody's child; it ends itself when it is asked to, or its input ends.
DETACHING_AGENT = """
import os, signal, subprocess, sys
if not os.fork():
    os.setsid()
    if not os.fork():
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2): os.dup2(null, fd)
        if sys.argv[3] == "ignoring": signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.execv(sys.executable, [sys.executable, "-c", sys.argv[2], sys.argv[1]])
    os._exit(0)
os.wait()
print("{}", flush=True)
sys.stdin.read(1)
"""


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="the tree is read from /proc")
@pytest.mark.parametrize("child", ["ignoring", "obeying"])
@pytest.mark.parametrize("end", ["its input ends", "it is killed", "it is told to end"])
def test_what_an_agent_detached_ends_with_its_editor(home: Home, end: str, child: str) -> None:
    agent = [sys.executable, "-c", DETACHING_AGENT, home.tag, DETACHED, child]
    proxy = subprocess.Popen(
        [sys.executable, "-P", "-c", SERVE, *agent], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert proxy.stdin is not None
    assert proxy.stdout is not None
    proxy.stdout.readline()
    wait_for(lambda: len(pids_with(home.tag)) >= 3)

    if end == "it is killed":
        proxy.kill()
    elif end == "it is told to end":
        proxy.terminate()
    else:
        proxy.stdin.close()

    wait_for(lambda: not pids_with(home.tag), 10)
    proxy.wait()
    proxy.stdin.close()
    proxy.stdout.close()


def test_what_an_agent_left_that_ended_by_itself_stays(home: Home) -> None:
    agent = [sys.executable, "-c", DETACHING_AGENT, home.tag, DETACHED, "obeying"]
    with subprocess.Popen(
        [sys.executable, "-P", "-c", SERVE, *agent], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as proxy:
        assert proxy.stdin is not None
        proxy.stdin.write(b"x\n")
        proxy.stdin.flush()
        assert proxy.wait(30) == 0

    (left,) = pids_with(home.tag)
    os.kill(left, signal.SIGKILL)


def test_what_ends_the_proxy_ends_its_agent(home: Home) -> None:
    agent = [sys.executable, "-c", "import time; print('{}', flush=True); time.sleep(600)"]
    with Editor(home, agent) as editor:
        editor.read()

        editor.process.terminate()

        assert editor.process.wait(30) == 128 + signal.SIGTERM


@pytest.mark.parametrize(
    ("agent", "code", "why"),
    [("/no/such/agent", 127, "there is no program"), ("/etc/passwd", 1, "cannot be run")],
)
def test_an_agent_that_cannot_be_run_is_said(home: Home, agent: str, code: int, why: str) -> None:
    done = home.capd("acp", "--", agent)

    assert done.returncode == code
    assert why in done.stderr


def test_what_the_agent_is_asked_is_its_own(home: Home) -> None:
    program = Path(home.folder, "agent.py")
    program.write_text("import sys; print(sys.argv[1:])")

    done = home.capd("acp", "--", sys.executable, str(program), "--help", "--", "-x")

    assert done.stdout == "['--help', '--', '-x']\n"
