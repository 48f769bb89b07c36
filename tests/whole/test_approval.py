"""No call that needs approval is sent before a person answers."""

import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from capd_client.control import Control, ControlError
from capd_client.mcp_host import PROTOCOL_VERSION, McpHost
from whole_daemon import PATIENCE, SHIM, Home, wait_for

JOURNAL_SERVER = Path(__file__).parents[1] / "reliability" / "journal_server.py"
CALLS = 100
DECLINED = (
    "journal__mark was not sent: it was declined in test-editor, by the user or by their settings "
    "(rule '*:destructive' in [policy])."
)
AT_ONCE = 25
"""Of one session 32 calls run at a time."""
PERSON = """
import json, pathlib, sys, time
from capd_client.control import Control
socket, answer, count, journal, out = sys.argv[1:]
early, left = [], int(count)
while left:
    with Control(socket) as control:
        for each in control.call("approvals")["waiting"]:
            nonce = json.loads(each["arguments"])["nonce"]
            if nonce in pathlib.Path(journal).read_text().split():
                early.append(nonce)
            left -= len(control.call("approve", {"number": each["number"], "answer": answer})["answered"])
            if answer in ("session", "always"):
                left = 0
                break
    time.sleep(0.02)
pathlib.Path(out).write_text(json.dumps(early))
"""  # noqa: E501 - a program in a test
ON_A_TERMINAL = "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))"


class Editor(McpHost):
    """A client that may ask its user, and writes many calls before it reads an answer."""

    def __init__(self, home: Home, cwd: Path | None = None, *, can_ask: bool = True) -> None:
        super().__init__(
            [sys.executable, "-I", "-S", str(SHIM), home.socket],
            env={**home.env, "CAPD_SESSION": "one", "CAPD_CLIENT": "test-editor"},
            cwd=str(cwd or home.folder),
        )
        params = {
            "protocolVersion": PROTOCOL_VERSION,
            "capabilities": {"elicitation": {}} if can_ask else {},
            "clientInfo": {"name": "test-editor", "version": "1"},
        }
        self.ask("initialize", params)
        self._write({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def calls(
        self,
        name: str,
        arguments: list[Mapping[str, Any]],
        answer: Callable[[str], Mapping[str, Any]] | None = None,
    ) -> list[dict[str, Any]]:
        """Make calls together; `answer` gets the text of each question, and answers it."""
        ids = {f"call-{n}": each for n, each in enumerate(arguments)}
        for id_, each in ids.items():
            params = {"name": name, "arguments": each}
            self._write({"jsonrpc": "2.0", "id": id_, "method": "tools/call", "params": params})
        results: dict[str, dict[str, Any]] = {}
        while len(results) < len(ids):
            message = self._next("an answer", PATIENCE)
            if message.get("method") == "elicitation/create":
                assert answer is not None, "nobody here is to be asked"
                result = answer(message["params"]["message"])
                self._write({"jsonrpc": "2.0", "id": message["id"], "result": result})
            elif message.get("id") in ids:
                results[message["id"]] = message["result"]
        return [results[id_] for id_ in ids]


def marks(first: int, count: int) -> list[Mapping[str, Any]]:
    return [{"nonce": f"n{n}", "wait": 0} for n in range(first, first + count)]


def said(result: Mapping[str, Any]) -> str:
    return str(result["content"][0]["text"])


def nonce_in(question: str) -> str:
    line = next(each for each in question.splitlines() if each.startswith("Arguments: "))
    return str(json.loads(line.removeprefix("Arguments: "))["nonce"])


def settings(home: Home, text: str) -> None:
    folder = home.folder / "config"
    folder.mkdir(exist_ok=True)
    (folder / "config.toml").write_text(text)


def enable(home: Home, name: str) -> None:
    """Switch a capability on, as soon as the daemon has read its tap."""

    def enabled() -> bool:
        with contextlib.suppress(ControlError):
            return bool(home.ask("enable", session="one", name=name)["ok"])
        return False

    wait_for(enabled)


@pytest.fixture
def journal(home: Home) -> Path:
    """Define a server that writes each call to a file; return the file."""
    file = home.folder / "journal"
    argv = [sys.executable, "-I", str(JOURNAL_SERVER), str(file), home.tag, "journal"]
    home.capability("journal", argv)
    file.touch()
    settings(home, '[policy]\nask = ["*:destructive"]\nask_timeout = 600\n')
    return file


@pytest.fixture
def editor(home: Home, journal: Path) -> Iterator[Editor]:
    home.start()
    with Editor(home) as made:
        enable(home, "journal")
        yield made


@pytest.fixture
def silent(home: Home, journal: Path) -> Iterator[Editor]:
    """Connect a client that cannot ask its user."""
    home.start()
    with Editor(home, can_ask=False) as made:
        enable(home, "journal")
        yield made


ACCEPTED = {
    name: {"action": "accept", "content": {"answer": name}}
    for name in ("once", "session", "always")
}


@pytest.mark.parametrize(
    ("answer", "sent"),
    [
        *((each, CALLS) for each in ACCEPTED.values()),
        ({"action": "decline"}, 0),
    ],
)
def test_no_call_is_sent_before_its_answer_in_the_client(
    home: Home, editor: Editor, journal: Path, answer: Mapping[str, Any], sent: int
) -> None:
    early: list[str] = []
    questions: list[str] = []

    def ask(question: str) -> Mapping[str, Any]:
        questions.append(question)
        # One that was approved for longer may be sent while its own question is still open.
        if answer.get("content") not in ({"answer": "session"}, {"answer": "always"}):
            early.extend({nonce_in(question)} & set(journal.read_text().split()))
        elif len(questions) == 1:
            early.extend(journal.read_text().split())
        return answer

    results = [
        result
        for first in range(0, CALLS, AT_ONCE)
        for result in editor.calls("journal__mark", marks(first, AT_ONCE), ask)
    ]

    assert early == []
    assert len(journal.read_text().split()) == sent
    refused = [each for each in results if each["isError"]] if not sent else []
    assert [said(each) for each in results[:2]] == (["n0", "n1"] if sent else [DECLINED] * 2)
    assert [each["_meta"]["capd/outcome"] for each in refused] == ["refused"] * (CALLS - sent)
    assert questions[0].splitlines()[0] == (
        "capd: test-editor wants to call mark of the server journal."
    )


@pytest.mark.parametrize(
    ("answer", "sent"), [("once", CALLS), ("session", CALLS), ("always", CALLS), ("refuse", 0)]
)
def test_no_call_is_sent_before_its_answer_on_a_terminal(
    home: Home, silent: Editor, journal: Path, answer: str, sent: int
) -> None:
    out = home.folder / "early"
    script = [sys.executable, "-P", "-c", PERSON, home.socket, answer, str(CALLS), str(journal)]
    with subprocess.Popen(
        [sys.executable, "-c", ON_A_TERMINAL, *script, str(out)],
        env=home.env,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    ) as person:
        for first in range(0, CALLS, AT_ONCE):
            silent.calls("journal__mark", marks(first, AT_ONCE))
        assert person.wait(PATIENCE) == 0

    assert json.loads(out.read_text()) == []
    assert len(journal.read_text().split()) == sent


@pytest.mark.parametrize(
    ("answer", "sent"),
    [("--once", ["n0"]), ("--refuse", [])],
)
def test_a_question_that_the_client_dismisses_is_still_open_on_a_terminal(
    home: Home, editor: Editor, journal: Path, answer: str, sent: list[str]
) -> None:
    dismissed: list[int] = []

    def dismiss(_: str) -> Mapping[str, Any]:
        dismissed.extend(each["number"] for each in home.ask("approvals")["waiting"])
        return {"action": "cancel"}

    with ThreadPoolExecutor(1) as pool:
        calls = pool.submit(editor.calls, "journal__mark", marks(0, 1), dismiss)
        [number] = wait_for(lambda: dismissed)
        before = journal.read_text().split()
        answered = home.at_terminal("approve", str(number), answer, typed="")
        [result] = calls.result()

    assert before == []
    assert answered.returncode == 0, answered.stdout
    assert journal.read_text().split() == sent
    refusal = "journal__mark was not sent: the user refused it (rule '*:destructive' in [policy])."
    assert said(result) == (refusal if not sent else "n0")


def test_silence_refuses_with_the_true_reason(home: Home, silent: Editor, journal: Path) -> None:
    settings(home, '[policy]\nask = ["journal:ma*"]\nask_timeout = 1\n')
    home.ask("reload")

    results = silent.calls("journal__mark", marks(0, AT_ONCE))

    why = (
        "journal__mark was not sent: the user has to approve it (rule 'journal:ma*' in [policy]), "
        "and did not answer within 1 s. They answer in their editor, or with: capd approve"
    )
    assert {said(each) for each in results} == {why}
    assert {each["_meta"]["capd/outcome"] for each in results} == {"refused"}
    assert journal.read_text() == ""


def test_a_call_by_name_and_one_of_a_script_are_asked_about_as_any_other(
    home: Home, editor: Editor, journal: Path
) -> None:
    asked: list[str] = []

    def refuse(question: str) -> Mapping[str, Any]:
        asked.append(nonce_in(question))
        return {"action": "decline"}

    by_name = {"name": "journal__mark", "arguments": {"nonce": "a", "wait": 0}}
    script = {"code": "await journal.mark(nonce='b', wait=0)"}
    [called] = editor.calls("tool_call", [by_name], refuse)
    [scripted] = editor.calls("script_run", [script], refuse)

    assert asked == ["a", "b"]
    assert "it was declined in test-editor" in said(called)
    assert "it was declined in test-editor" in said(scripted)
    assert journal.read_text() == ""


def test_a_call_from_outside_of_the_client_waits_for_capd_approve(
    home: Home, editor: Editor, journal: Path
) -> None:
    arguments = json.dumps({"nonce": "x", "wait": 0})
    with subprocess.Popen(
        [
            *(sys.executable, "-P", "-m", "capd_client.entry", "call", "journal__mark"),
            *(arguments, "--session", "one"),
        ],
        env=home.env,
        stdout=subprocess.PIPE,
    ) as call:
        [waiting] = wait_for(lambda: home.ask("approvals")["waiting"])
        listed = json.loads(home.capd("approve", "--json").stdout)
        no_terminal = home.capd("approve", str(waiting["number"]), "--once")
        before = journal.read_text()

        answered = home.at_terminal("approve", typed="s\n")

        assert call.stdout is not None
        assert "x" in call.stdout.read().decode()
    assert listed["waiting"] == [waiting]
    assert (no_terminal.returncode, before) == (1, "")
    assert "this takes a person at a terminal: run capd approve in one" in no_terminal.stderr
    assert "journal:mark is approved in session one" in answered.stdout
    assert journal.read_text() == "x\n"


def test_always_outlives_the_daemon_until_it_is_taken_back(
    home: Home, editor: Editor, journal: Path
) -> None:
    editor.calls("journal__mark", marks(0, 1), lambda _: ACCEPTED["always"])
    saved = home.folder / "state" / "approvals.json"
    wait_for(saved.exists)
    home.processes[0].terminate()
    home.processes[0].wait(PATIENCE)
    home.start()
    wait_for(lambda: home.ask("sessions")["sessions"])

    [unasked] = editor.calls("journal__mark", marks(1, 1))
    listed = home.capd("approve")
    taken_back = home.at_terminal("approve", "--forget", "journal:mark", typed="")
    [refused] = editor.calls("journal__mark", marks(2, 1), lambda _: {"action": "decline"})

    assert said(unasked) == "n1"
    assert "Approved for always: journal:mark" in listed.stdout
    assert "You are asked again about: journal:mark" in taken_back.stdout
    assert "it was declined in test-editor" in said(refused)
    assert journal.read_text().split() == ["n0", "n1"]


def test_a_project_may_have_more_asked_and_never_less(home: Home, journal: Path) -> None:
    settings(home, '[policy]\nask = ["journal:mark"]\nask_timeout = 600\n')
    project = Path(tempfile.mkdtemp(dir=home.folder))
    (project / ".capd.toml").write_text(
        '[policy]\nask = ["more:*"]\nask_timeout = 1\n[policy.clients."*"]\nask = []\n'
    )
    home.plain("more")
    home.start()
    asked: list[str] = []

    def accept(question: str) -> Mapping[str, Any]:
        asked.append(question.splitlines()[-1])
        return ACCEPTED["once"]

    with Editor(home, project) as editor:
        for name in ("journal", "more"):
            enable(home, name)
        editor.calls("journal__mark", marks(0, 1), accept)
        editor.calls("more__echo", [{"text": "x"}], accept)

        status = home.ask("status")["daemon"]["project_files"]

    assert asked == [
        "You are asked because of the rule 'journal:mark' in [policy].",
        f"You are asked because of the rule 'more:*' in [policy] of {project / '.capd.toml'}.",
    ]
    assert ["is left out" in each for each in status[str(project)]] == [True, True]


APPROVER = """
import json, pathlib, socket, sys
out, path = sys.argv[1:3]
link = socket.socket(socket.AF_UNIX)
link.connect(path)
def say(line): link.sendall(json.dumps(line).encode() + b"\\n")
say({"capd": "hello", "protocol": 1, "role": "control", "client": {"name": "server"}})
lines = link.makefile()
lines.readline()
params = {"number": 1, "answer": "always"}
say({"jsonrpc": "2.0", "id": 1, "method": "approve", "params": params})
pathlib.Path(out).write_text(lines.readline())
for line in sys.stdin:
    request = json.loads(line)
    if "id" in request:
        results = {
            "initialize": {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "approver", "version": "1"},
            },
            "tools/list": {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]},
        }
        result = results.get(request["method"], {})
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)
"""


def test_a_server_cannot_approve_even_where_it_may_connect(home: Home, journal: Path) -> None:
    settings(home, '[servers]\nmay_connect = ["approver"]\n[policy]\nask = ["*"]\n')
    out = home.folder / "answer"
    argv = [sys.executable, "-I", "-c", APPROVER, str(out), home.socket, home.tag]
    home.capability("approver", argv)
    home.start()
    with home.shim("one"):
        enable(home, "approver")
        wait_for(lambda: out.exists() and out.read_text() != "")
        answer = json.loads(out.read_text())

    assert answer["error"]["message"] == "a process that capd started cannot ask this"


def test_a_question_that_is_open_ends_with_its_call(home: Home, silent: Editor) -> None:
    arguments = {"name": "journal__mark", "arguments": {"nonce": "x", "wait": 0}}
    silent._write({"jsonrpc": "2.0", "id": "left", "method": "tools/call", "params": arguments})
    wait_for(lambda: home.ask("approvals")["waiting"])

    silent._write(
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "left"}}
    )

    wait_for(lambda: home.ask("approvals")["waiting"] == [] or None)


@pytest.mark.parametrize(
    ("params", "why"),
    [
        ({}, "missing required field `number`"),
        ({"number": 1, "answer": "yes"}, "Invalid enum value 'yes' - at `$.answer`"),
        ({"number": "x", "answer": "once"}, "Expected `int`, got `str` - at `$.number`"),
    ],
)
def test_an_answer_that_is_none_is_refused(
    running_home: Home, params: dict[str, Any], why: str
) -> None:
    with Control(running_home.socket) as control, pytest.raises(ControlError) as error:
        control.call("approve", params)

    assert why in str(error.value)


@pytest.mark.parametrize(
    ("typed", "why"),
    [
        (["--once"], "--once needs the NUMBER of a call: capd approve"),
        (["--forget", "x", "--once"], "--forget cannot be combined with a NUMBER or an answer"),
        (["7"], "no call 7 waits for you\ncapd approve lists those that wait."),
        (["0"], "0 is not in the range x>=1"),
        (["1", "--refuse", "--json"], "an answer is given on a terminal, not with --json"),
    ],
)
def test_a_wrong_command_says_what_is_right(running_home: Home, typed: list[str], why: str) -> None:
    done = running_home.capd("approve", *typed)

    assert done.returncode != 0
    assert why in done.stderr


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("ask = 'x'", "line 2, `policy.ask`: Expected `array`, got `str`"),
        ("ask_timeout = 0", "line 2, `policy.ask_timeout`: Expected `float` >= 1.0"),
        ("aks = []", "line 2: unknown key `policy.aks` is read over; did you mean `ask`?"),
    ],
)
def test_a_wrong_key_is_named_with_its_line(home: Home, text: str, why: str) -> None:
    settings(home, f"[policy]\n{text}\n")
    home.start()

    problems = home.ask("status")["daemon"]["degraded"]

    assert [each for each in problems if why in each]
