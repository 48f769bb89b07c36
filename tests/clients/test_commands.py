"""The output, exit codes and errors of the `capd` command."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from capd_client import commands, tables

from .conftest import PATIENT, FakeDaemon

Start = Callable[..., FakeDaemon]
Run = Callable[..., Result]

SESSION = {
    "key": "zed-1",
    "client": "zed",
    "pid": 812,
    "project": "/src/app",
    "mode": "auto",
    "active": [
        {"kind": "capability", "name": "git", "last_used_at": 1.0},
        {"kind": "capability", "name": "fs", "last_used_at": 2.0},
    ],
    "cap": 5,
    "surface": 12,
    "available": 340,
    "age_s": 61,
    "tokens": 900,
    "tokens_saved": 41_000,
}
SERVER = {
    "name": "git",
    "identity": "9c1e",
    "scope": "project",
    "state": "ready",
    "pid": 99,
    "leases": ["zed-1"],
    "tools": 12,
    "restarts": 0,
    "uptime_s": 3_700,
    "last_error": "",
}
TAP = {
    "name": "octomind-tap",
    "path": "/taps/octomind",
    "revision": "abc123abc123",
    "routable": 58,
    "unroutable": {"a": "no server", "b": "no server", "c": "unsupported transport"},
    "findings": [],
    "error": "",
}
TAP_LINE = "octomind-tap: 58 routable, 3 not (no server: 2; unsupported transport: 1)"
STATUS = {
    "schema": 1,
    "daemon": {
        "version": "0.1.0",
        "pid": 77,
        "uptime_s": 90_061,
        "rss_bytes": 88 << 20,
        "degraded": [],
    },
    "embedder": {"state": "ready", "model": "minilm-int8", "reason": ""},
    "taps": [TAP],
    "sessions": [SESSION],
    "servers": [SERVER],
    "decisions": [
        {"session": "zed-1", "at": 1.0, "outcome": "abstain", "reason": "below_threshold"}
    ],
}
TURN = {
    "schema": 1,
    "session": "zed-1",
    "outcome": "activate",
    "name": "git",
    "reason": "",
    "top": [{"name": "git", "score": 0.71}],
    "changed": {"added": ["git__git_log"], "removed": ["fs__read"]},
    "ms": 412.5,
    "problem": "",
}
SWITCHED = {
    "schema": 1,
    "session": "zed-1",
    "ok": True,
    "text": "git is on",
    "changed": {"added": ["git__git_log"], "removed": []},
}
CALLED = {
    "schema": 1,
    "session": "zed-1",
    "outcome": "result",
    "result": {"content": [{"type": "text", "text": "one\ntwo"}, {"type": "image", "data": "AA"}]},
}
ANSWERS: dict[str, Any] = {
    "status": STATUS,
    "caps": {
        "schema": 1,
        "capabilities": [
            {"tap": "t", "name": "git", "provider": "p", "routable": True, "servers": ["git"]},
            {"tap": "t", "name": "x", "provider": "p", "routable": False, "reason": "no server"},
        ],
    },
    "servers": {"schema": 1, "servers": [SERVER]},
    "sessions": {"schema": 1, "sessions": [SESSION]},
    "tools": {
        "schema": 1,
        "session": "zed-1",
        "tools": [{"name": "git__git_log", "description": "Show the log.\nMore."}],
    },
    "discover": {"schema": 1, "hits": [{"tap": "t", "name": "git", "score": 0.5}]},
    "search": {
        "schema": 1,
        "ranked": [
            {"kind": "capability", "name": "git", "score": 0.9, "description": "look into it"},
            {"kind": "tool", "name": "git__log", "score": 0.45, "description": "Show it."},
        ],
        "hits": [{"name": "git__log", "definition": {"description": "Show it.\nMore."}}],
        "text": "By words.",
    },
    "index": {
        "schema": 1,
        "servers": [
            {"name": "git", "tools": 2, "error": ""},
            {"name": "db", "tools": 0, "error": "it broke"},
        ],
    },
    "turn": TURN,
    "enable": SWITCHED,
    "disable": SWITCHED,
    "routing": {"schema": 1, "session": "zed-1", "ok": True, "text": "Off."},
    "call": CALLED,
    "reload": {"schema": 1, "taps": [TAP]},
}


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, base_env: dict[str, str]) -> Run:
    """Run a `capd` command; return its output."""
    for name in list(os.environ):
        if name.startswith(("CAPD_", "XDG_", "COLUMNS")):
            monkeypatch.delenv(name)

    def run(*arguments: str, input: str | None = None, **env: str) -> Result:  # noqa: A002
        return CliRunner().invoke(
            commands.cli, arguments, input=input, env={**base_env, **env}, prog_name="capd"
        )

    return run


@pytest.mark.parametrize("method", ["status", "caps", "servers", "sessions", "tools", "reload"])
def test_json_is_the_daemons_result_and_nothing_else(
    start_daemon: Start, run: Run, method: str
) -> None:
    start_daemon(ANSWERS)

    result = run(method, "--json")

    assert json.loads(result.stdout) == ANSWERS[method]
    assert (result.stderr, result.exit_code) == ("", 0)


@pytest.mark.parametrize(
    ("arguments", "request_sent"),
    [
        (("tools", "--session", "s"), {"method": "tools", "params": {"session": "s"}}),
        (
            ("discover", "git", "log", "--limit", "2"),
            {"method": "discover", "params": {"intent": "git log", "limit": 2}},
        ),
        (
            ("search", "the", "log", "--limit", "2"),
            {"method": "search", "params": {"query": "the log", "limit": 2}},
        ),
        (
            ("search", "log", "--session", "s"),
            {"method": "search", "params": {"query": "log", "limit": 5, "session": "s"}},
        ),
        (
            ("routing", "off", "--session", "s"),
            {"method": "routing", "params": {"enabled": False, "session": "s"}},
        ),
        (
            ("enable", "git", "--session", "s"),
            {"method": "enable", "params": {"name": "git", "session": "s"}},
        ),
        (("disable", "t/git"), {"method": "disable", "params": {"name": "t/git"}}),
        (
            ("turn", "--session", "s", "what changed?"),
            {"method": "turn", "params": {"text": "what changed?", "session": "s", "mute": False}},
        ),
        (
            ("call", "git__git_log", '{"n": 1}'),
            {"method": "call", "params": {"name": "git__git_log", "arguments": {"n": 1}}},
        ),
        (("call", "x"), {"method": "call", "params": {"name": "x", "arguments": {}}}),
        (
            ("run", "-", "--input", "n=5", "--input", "who=me", "--session", "s"),
            {
                "method": "call",
                "params": {
                    "name": "script_run",
                    "arguments": {"code": "1", "inputs": {"n": 5, "who": "me"}},
                    "session": "s",
                },
            },
        ),
    ],
)
def test_a_command_asks_what_it_was_told(
    start_daemon: Start, run: Run, arguments: tuple[str, ...], request_sent: dict[str, Any]
) -> None:
    daemon = start_daemon(ANSWERS)

    result = run(*arguments, "--json", input="1\n")

    assert daemon.requests() == [request_sent]
    assert json.loads(result.stdout) == ANSWERS[request_sent["method"]]
    assert result.exit_code == 0


def test_a_search_is_a_table_of_a_line_each_and_what_is_to_be_said_beside_it(
    start_daemon: Start, run: Run
) -> None:
    start_daemon(ANSWERS)

    result = run("search", "log")

    table = [
        " score  kind        name      for",
        "  0.90  capability  git       look into it",
        "  0.45  tool        git__log  Show it.",
    ]
    assert (result.stdout.splitlines(), result.stderr) == (table, "By words.\n")
    assert result.exit_code == 0


def test_indexing_tells_each_server_and_those_that_did_not_answer(
    start_daemon: Start, run: Run
) -> None:
    told = [
        {"name": "git", "tools": 2, "error": "", "done": 1, "total": 2},
        {"name": "db", "tools": 0, "error": "it broke", "done": 2, "total": 2},
    ]
    events = [{"topic": "index.server", "event": each} for each in told]
    start_daemon({**ANSWERS, "events": {"then": events}})

    result = run("index")

    # The summary may overtake the progress: they come over two connections.
    assert sorted(result.stdout.splitlines()) == [
        "1/2 git: 2 tools",
        "2 servers asked, 2 tools known",
        "2/2 db: it broke",
    ]
    assert (result.stderr, result.exit_code) == ("capd: 1 of 2 servers did not answer: db\n", 1)


def test_an_index_in_json_is_the_result_alone(start_daemon: Start, run: Run) -> None:
    daemon = start_daemon(ANSWERS)

    result = run("index", "--json")

    assert (json.loads(result.stdout), result.exit_code) == (ANSWERS["index"], 1)
    assert [request["method"] for request in daemon.requests()] == ["index"]


def test_the_session_may_come_from_the_environment(start_daemon: Start, run: Run) -> None:
    daemon = start_daemon(ANSWERS)

    run("turn", "-", input="what changed?\n", CAPD_SESSION="from-env")

    params = {"text": "what changed?", "session": "from-env", "mute": True}
    assert daemon.requests() == [{"method": "turn", "params": params}]


def test_the_table_of_sessions_says_how_each_is_linked_to_its_hook(
    start_daemon: Start, run: Run
) -> None:
    hooked = {"client_sessions": ["c-1", "c-2"], "linked_by": "session id"}
    known = {"client_sessions": ["c-3"], "linked_by": ""}
    own = {"client_sessions": [], "linked_by": "its own connection"}
    sessions = [{**SESSION, **link} for link in (hooked, known, own)]
    start_daemon({"sessions": {"schema": 1, "sessions": sessions}})

    result = run("sessions")

    head, *rows = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert head == "session client pid project linked mode tools tokens saved active"
    start, rest = "zed-1 zed 812 /src/app", "auto 12/340 900 41000 2/5 (git, fs)"
    assert rows == [
        f"{start} c-1, c-2 by session id {rest}",
        f"{start} c-3 {rest}",
        f"{start} by its own connection {rest}",
    ]


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (("caps",), ["t/git p yes git", "t/x p no: no server"]),
        (("servers",), ["git ready 99 project zed-1 12 1 h 1 min 0"]),
        (("sessions",), ["zed-1 zed 812 /src/app no auto 12/340 900 41000 2/5 (git, fs)"]),
        (("tools",), ["git__git_log Show the log."]),
        (("discover", "log"), ["t/git 0.50"]),
        (("reload",), []),
    ],
)
def test_tables_have_a_row_for_each(
    start_daemon: Start, run: Run, command: tuple[str, ...], expected: list[str]
) -> None:
    start_daemon(ANSWERS)

    result = run(*command)

    assert [" ".join(line.split()) for line in result.stdout.splitlines()[1:]] == expected
    assert result.exit_code == 0


def test_a_server_is_shown_with_what_it_is_confined_to_and_where_it_runs(
    start_daemon: Start, run: Run
) -> None:
    held = {
        **SERVER,
        "sandbox": "guard, capd hidden, apart",
        "cwd": "/state/empty/x",
        "cwd_reason": "npx reads .npmrc",
        "membership": "sweep",
    }
    plain = {**SERVER, "name": "fs", "sandbox": "strict", "cwd": "/src/app", "cwd_reason": ""}
    start_daemon({"servers": {"schema": 1, "servers": [held, plain]}})

    result = run("servers")

    head, first, second = (" ".join(line.split()) for line in result.stdout.splitlines())
    assert "membership sandbox runs in" in head
    assert first.endswith("sweep guard, capd hidden, apart /state/empty/x (held: npx reads .npmrc)")
    assert second.endswith("strict /src/app")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("turn", "log"), "git is on in 412 ms\n  + git__git_log\n  - fs__read\n"),
        (("enable", "git"), "git is on\n  + git__git_log\n"),
        (
            ("reload",),
            f"{TAP_LINE}\n",
        ),
    ],
)
def test_acts_are_told_in_plain_words(
    start_daemon: Start, run: Run, arguments: tuple[str, ...], expected: str
) -> None:
    start_daemon(ANSWERS)

    result = run(*arguments)

    assert (result.stdout, result.stderr, result.exit_code) == (expected, "", 0)


def test_the_text_of_a_result_stands_alone_on_standard_output(
    start_daemon: Start, run: Run
) -> None:
    start_daemon(ANSWERS)

    result = run("call", "x")

    assert (result.stdout, result.exit_code) == ("one\ntwo\n", 0)
    assert result.stderr == "[image, 2 characters; --json has all of it]\n"


def test_an_abstention_is_told_with_the_best_that_was_found(start_daemon: Start, run: Run) -> None:
    abstained = {**TURN, "outcome": "abstain", "reason": "below_threshold", "changed": {}}
    start_daemon({"turn": abstained})

    result = run("turn", "hello")

    assert result.stdout == "nothing is switched on in 412 ms: below_threshold (best: git 0.71)\n"
    assert result.exit_code == 0


def test_a_turn_is_sent_again_while_a_loaded_model_answers_too_late(
    start_daemon: Start, run: Run
) -> None:
    """On a busy machine the first text takes a new model longer than a message may wait."""
    early = {**TURN, "outcome": "abstain", "reason": "model_not_ready", "changed": {}, "top": []}
    turns = [early, early, TURN]
    start_daemon({"turn": lambda _: turns.pop(0), "status": STATUS})

    result = run("turn", "log")

    assert result.stdout == "git is on in 412 ms\n  + git__git_log\n  - fs__read\n"


def test_a_turn_ends_where_the_model_cannot_be_used(start_daemon: Start, run: Run) -> None:
    early = {**TURN, "outcome": "abstain", "reason": "model_not_ready", "changed": {}, "top": []}
    embedder = {"state": "unusable", "model": "", "reason": "no such file"}
    daemon = start_daemon({"turn": early, "status": {**STATUS, "embedder": embedder}})

    result = run("turn", "log")

    assert result.stdout == "nothing is switched on in 412 ms: model_not_ready\n"
    assert [each["method"] for each in daemon.requests()].count("turn") == 1


@pytest.mark.parametrize(
    ("arguments", "answer", "said"),
    [
        (
            ("turn", "log"),
            {**TURN, "problem": "git cannot start"},
            "capd: git could not be switched on: git cannot start\n",
        ),
        (
            ("enable", "gti"),
            {**SWITCHED, "ok": False, "text": "no capability gti; near: git"},
            "capd: gti was not enabled: no capability gti; near: git\n",
        ),
        (
            ("call", "x"),
            {**CALLED, "result": {"isError": True, "content": []}},
            "capd: x answered with an error\n",
        ),
        (
            ("call", "x"),
            {**CALLED, "outcome": "refused", "result": {}, "message": "not trusted"},
            "capd: x: refused: not trusted\n",
        ),
        (
            ("reload",),
            {"schema": 1, "taps": [{**TAP, "error": "gone"}]},
            "capd: not reloaded; the last good state stays in use: octomind-tap\n",
        ),
        (
            ("servers",),
            {"error": {"code": 4005, "message": "the supervisor does not answer"}},
            "capd: the supervisor does not answer\n",
        ),
    ],
)
def test_a_failure_is_exit_code_1_and_a_line_on_stderr(
    start_daemon: Start, run: Run, arguments: tuple[str, ...], answer: dict[str, Any], said: str
) -> None:
    start_daemon({arguments[0]: answer})

    spoken, machine = run(*arguments), run(*arguments, "--json")

    assert (spoken.stderr, spoken.exit_code) == (said, 1)
    assert (machine.stderr, machine.exit_code) == (said, 1)
    assert "error" in answer or json.loads(machine.stdout) == answer


@pytest.mark.parametrize(
    "arguments",
    [
        ("status",),
        ("status", "--json"),
        ("turn", "hello"),
        ("events",),
        ("reload",),
        ("stop",),
        ("call", "x"),
    ],
)
def test_without_a_daemon_the_exit_code_is_3(
    run: Run, socket_at: Path, arguments: tuple[str, ...]
) -> None:
    result = run(*arguments)

    assert result.stdout == ""
    assert result.stderr == f"capd: no daemon at {socket_at}\nStart it with: capd daemon start\n"
    assert result.exit_code == 3


@pytest.mark.parametrize(
    "arguments",
    [
        ("nonsense",),
        ("turn",),
        ("turn", " "),
        ("call", "x", "{"),
        ("call", "x", "[]"),
        ("discover", "x", "--limit", "0"),
        ("tap", "add"),
    ],
)
def test_a_mistake_in_usage_is_exit_code_2(run: Run, arguments: tuple[str, ...]) -> None:
    result = run(*arguments)

    assert result.exit_code == 2
    assert "Traceback" not in result.stderr


def test_events_are_one_document_a_line(start_daemon: Start, run: Run) -> None:
    events = [{"topic": "server.exited", "event": {"type": "server.exited", "name": "a\x1b[2J"}}]
    answer = {"result": {"schema": 1, "topics": []}, "then": events * 2}
    start_daemon({"events": answer})

    machine, spoken = run("events", "--json"), run("events", "server.")

    assert [json.loads(line) for line in machine.stdout.splitlines()] == events * 2
    said = [line.partition(" ")[2] for line in spoken.stdout.splitlines()]
    assert said == ["server.exited name=a\\x1b[2J"] * 2


def test_who_follows_events_is_told_that_the_daemon_went(
    start_daemon: Start, run: Run, socket_at: Path
) -> None:
    start_daemon({"events": {"result": {"schema": 1, "topics": []}, "then": []}})

    result = run("events")

    assert result.stderr == (
        f"capd: the daemon at {socket_at} has closed the connection, so no more events come\n"
        "Once a daemon runs again, follow its events with: capd events\n"
    )
    assert (result.stdout, result.exit_code) == ("", 3)


EVIL = "\x1b]0;x\x07\x1b[31mred\x9b2J\u202egnp\u200b\U000e0041\r\nnext"


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        (("status",), {**STATUS, "servers": [{**SERVER, "name": EVIL, "last_error": EVIL}]}),
        (("status",), {**STATUS, "sessions": [{**SESSION, "client": EVIL, "project": EVIL}]}),
        (("status",), {**STATUS, "taps": [{**TAP, "name": EVIL, "unroutable": {"a": EVIL}}]}),
        (("tools",), {"schema": 1, "tools": [{"name": EVIL, "description": EVIL}]}),
        (("call", "x"), {**CALLED, "result": {"content": [{"type": "text", "text": EVIL}]}}),
        (("enable", "x"), {**SWITCHED, "text": EVIL, "changed": {"added": [EVIL]}}),
        (("enable", "x"), {**SWITCHED, "ok": False, "text": EVIL}),
        (("turn", "x"), {**TURN, "name": EVIL, "problem": EVIL}),
        (("servers",), {"error": {"code": 1, "message": EVIL}}),
        (("servers", "--json"), {"schema": 1, "servers": [{"name": EVIL}]}),
    ],
)
def test_what_servers_say_cannot_steer_a_terminal(
    start_daemon: Start, run: Run, arguments: tuple[str, ...], answer: dict[str, Any]
) -> None:
    start_daemon({arguments[0]: answer})

    result = run(*arguments)

    shown = result.stdout + result.stderr
    assert "gnp" in shown
    assert {each for each in shown if not each.isprintable()} <= {"\n"}


def test_invisible_characters_are_shown() -> None:
    shown = tables.printable("a\x1b\u202eb\u200b\nc\té", keep_lines=False)

    assert shown == "a\\x1b\\u202eb\\u200b\\nc\\té"


@pytest.mark.parametrize(("editor", "file"), [("emacs", "capd.el"), ("nvim", "plugin/capd.lua")])
def test_plugin_says_where_an_editors_files_are(run: Run, editor: str, file: str) -> None:
    said = run("plugin", editor)

    assert Path(said.stdout.strip(), file).is_file()


def test_version_tells_both_ends(start_daemon: Start, run: Run) -> None:
    alone = run("version")
    start_daemon({})
    both, machine = run("version"), run("version", "--json")

    mine = version("capd")
    assert alone.stdout == f"capd {mine}\ndaemon: not running\n"
    assert both.stdout == f"capd {mine}\ndaemon 0.1.0, pid 77\n"
    daemon = {"version": "0.1.0", "pid": 77}
    assert json.loads(machine.stdout) == {"schema": 1, "client": mine, "daemon": daemon}
    assert [each.exit_code for each in (alone, both, machine)] == [0, 0, 0]


def test_daemon_run_becomes_the_daemon(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    journal: list[tuple[str, list[str]]] = []
    monkeypatch.setattr(os, "execve", lambda path, command, _: journal.append((path, command)))

    run("daemon", "run", "--log-level", "debug")

    command = [sys.executable, "-P", "-m", "capd", "daemon", "run", "--log-level", "debug"]
    assert journal == [(sys.executable, command)]


def capd(
    base_env: dict[str, str], *arguments: str, **env: str
) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-X", "importtime", "-m", "capd_client.entry", *arguments]
    return subprocess.run(
        command,
        env={**base_env, **env},
        capture_output=True,
        text=True,
        timeout=PATIENT,
        check=False,
    )


def imported(importtime: str) -> set[str]:
    lines = (line for line in importtime.splitlines() if line.startswith("import time:"))
    return {line.rpartition("|")[2].strip().partition(".")[0] for line in lines}


def test_capd_mcp_imports_the_shim_and_nothing_else_of_weight(base_env: dict[str, str]) -> None:
    done = capd(base_env, "mcp")

    assert done.returncode == 0
    weights = {"click", "json", "socket", "typing", "rich", "msgspec", "trio", "pathlib"}
    assert imported(done.stderr) & (weights | {"_json"}) == {"_json"}


def test_a_reader_that_closes_the_pipe_gets_no_traceback(
    start_daemon: Start, base_env: dict[str, str]
) -> None:
    start_daemon({"caps": {"schema": 1, "capabilities": [{"name": "x" * 100}] * 1000}})
    command = [sys.executable, "-m", "capd_client.entry", "caps"]

    said = []
    for more in ([], ["--json"]):
        process = subprocess.Popen(
            [*command, *more], env=base_env, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        with process, process.stderr:
            said.append(process.stderr.read())

    assert said == [b"", b""]


@pytest.mark.parametrize("no_color", [True, False])
def test_colour_is_for_terminals_and_no_color_is_honoured(
    start_daemon: Start, base_env: dict[str, str], no_color: bool
) -> None:
    start_daemon(ANSWERS)
    env = {**base_env, "TERM": "xterm-256color", "COLUMNS": "200"}
    if no_color:
        env["NO_COLOR"] = "1"

    on_terminal = on_a_terminal([sys.executable, "-m", "capd_client.entry", "servers"], env)
    piped = subprocess.run(
        [sys.executable, "-m", "capd_client.entry", "servers"],
        env=env,
        capture_output=True,
        check=True,
        timeout=PATIENT,
    ).stdout

    assert b"\x1b" not in piped
    assert b"\x1b[3" not in on_terminal if no_color else b"\x1b[" in on_terminal


def on_a_terminal(command: list[str], env: dict[str, str]) -> bytes:
    main, other = os.openpty()
    process = subprocess.Popen(command, env=env, stdout=other, stderr=other, stdin=other)
    os.close(other)
    shown = b""
    try:
        while chunk := os.read(main, 4096):
            shown += chunk
    except OSError:
        # Linux says EIO where the last process at the far end is gone.
        pass
    finally:
        os.close(main)
    assert process.wait(PATIENT) == 0
    return shown
