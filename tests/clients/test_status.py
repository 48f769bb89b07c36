"""`capd status` for a person, for a script, and for a shell prompt."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from capd_client.remedies import remedy
from capd_client.status_text import active_line, active_lines, client_line, status_lines

from .conftest import PATIENT, FakeDaemon

Start = Callable[..., FakeDaemon]

NOW = 1_000_000.0
SESSION: dict[str, Any] = {
    "key": "zed-1",
    "client": "zed",
    "pid": 812,
    "project": "/src/app",
    "mode": "dynamic",
    "connected": True,
    "age_s": 61,
    "active": [
        {"kind": "capability", "name": "git", "last_used_at": NOW - 190},
        {"kind": "capability", "name": "fs", "last_used_at": NOW - 10},
    ],
    "cap": 5,
    "surface": 12,
    "available": 340,
    "unlisted": 3,
    "tokens": 900,
    "tokens_saved": 41_000,
}
SERVER: dict[str, Any] = {
    "name": "git",
    "scope": "project",
    "state": "ready",
    "pid": 99,
    "leases": ["zed-1", "zed-2"],
    "tools": 12,
    "restarts": 2,
    "uptime_s": 3_700,
    "last_error": "it exited with code 1: fatal: not a git repository",
    "sandbox": "guard",
}
STATUS: dict[str, Any] = {
    "schema": 1,
    "daemon": {
        "version": "0.1.0",
        "pid": 77,
        "uptime_s": 90_061,
        "rss_bytes": 88 << 20,
        "degraded": ["/home/me/.config/capd/config.toml is not used: Expected `float`"],
    },
    "embedder": {
        "state": "ready",
        "reason": "",
        "model": "minilm-int8",
        "revision": "1.0.0",
        "pid": 78,
        "rss_bytes": 165 << 20,
        "profile": {"scorer": "evidence", "threshold": 0.48},
    },
    "taps": [
        {
            "name": "octomind-tap",
            "revision": "abc123abc123",
            "routable": 58,
            "unroutable": {"a": "no server", "b": "no server", "c": "unsupported transport"},
            "error": "",
            "skills": 2,
        }
    ],
    "not_watched": "the kernel gives no more watches",
    "sessions": [SESSION],
    "servers": [SERVER, {"name": "web", "state": "stopped", "scope": "session", "tools": 3}],
    "decisions": [
        {"session": "zed-1", "at": 5.0, "outcome": "activate", "name": "git", "reason": ""},
        {"session": "zed-1", "at": 65.0, "outcome": "abstain", "reason": "below_threshold"},
    ],
}


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.setenv("TZ", "UTC")
    time.tzset()


def test_everything_is_on_one_page_of_80_columns() -> None:
    lines = status_lines(STATUS, now=NOW, columns=80)

    assert lines == [
        "capd 0.1.0, pid 77, up 1 d 1 h, 88 MiB",
        "model minilm-int8 1.0.0: ready, pid 78, 165 MiB; profile: scorer evidence,",
        "  threshold 0.48",
        "degraded: /home/me/.config/capd/config.toml is not used: Expected `float`",
        "  fix: correct that line, then `capd restart`",
        "",
        "taps",
        "  octomind-tap: 58 routable, 3 not (no server: 2; unsupported transport: 1), 2",
        "    skills  [abc123abc123]",
        "  not watched: the kernel gives no more watches",
        "",
        "sessions",
        "  zed-1  zed 812, /src/app, 1 min 1 s old",
        "    12/340 tools (3 on and not listed), dynamic",
        "    900 tokens of tools, 41,000 fewer so far than with every tool",
        "    MCP active: 2/5 (git, fs)",
        "    last used: git 3 min 10 s ago, fs 10 s ago",
        "",
        "servers",
        "  git  ready, pid 99, up 1 h 1 min, held by 2 (zed-1, zed-2), 12 tools, project,",
        "    sandbox guard, restarts 2",
        "    last error: it exited with code 1: fatal: not a git repository",
        "  web  stopped, held by nobody, 3 tools, session",
        "",
        "last decisions",
        "  00:00:05  zed-1  activate git",
        "  00:01:05  zed-1  abstain (below_threshold)",
    ]


def test_a_daemon_with_nothing_in_it_says_none() -> None:
    lines = status_lines({"daemon": {"version": "0.1.0"}}, now=NOW, columns=80)

    assert lines == [
        *("capd 0.1.0, pid ?, up ?, ? MiB", "model none: unknown"),
        *("", "taps", "  none", "", "sessions", "  none", "", "servers", "  none"),
        *("", "last decisions", "  none"),
    ]


def test_a_client_is_called_what_a_person_calls_it() -> None:
    titled = {**SESSION, "client": "node", "client_title": "Gemini CLI", "client_line": "gemini"}

    lines = status_lines({**STATUS, "sessions": [titled]}, now=NOW, columns=80)

    assert "  zed-1  Gemini CLI 812, /src/app, 1 min 1 s old" in lines


def test_a_session_that_has_lost_its_client_says_so() -> None:
    lost = {**STATUS, "sessions": [{**SESSION, "connected": False}]}

    lines = status_lines(lost, now=NOW, columns=80)

    assert "  zed-1  zed 812, /src/app, 1 min 1 s old, lost its client" in lines


@pytest.mark.parametrize(
    ("counted", "said"),
    [
        (
            {"tokens": 900, "tokens_saved": 41_000},
            "900 tokens of tools, 41,000 fewer so far than with every tool",
        ),
        (
            {"tokens": 900, "tokens_saved": -20},
            "900 tokens of tools, 20 more so far than with every tool",
        ),
        ({"tokens": 900, "tokens_saved": None}, "900 tokens of tools"),
        ({"tokens": None, "tokens_saved": None}, ""),
        ({"tokens": None, "tokens_state": "not_counted"}, "tokens: not counted"),
    ],
)
def test_tokens_are_told_as_far_as_they_are_counted(counted: dict[str, Any], said: str) -> None:
    shown = {**STATUS, "sessions": [{**SESSION, **counted}]}

    lines = status_lines(shown, now=NOW, columns=80)

    assert "    12/340 tools (3 on and not listed), dynamic" in lines
    assert [line.strip() for line in lines if "tokens" in line] == [said] * bool(said)


def test_what_is_kept_and_what_waits_for_a_restart_is_told() -> None:
    daemon = {
        "version": "0.1.0",
        "needs_restart": ["embedder.placement"],
        "project_files": {"/src/app": ["line 3: servers are ignored until capd trust"]},
    }
    ledger = {"enabled": True, "rows": {"calls": 3, "decisions": 0}, "size_bytes": 2 << 20}

    lines = status_lines({"daemon": daemon, "ledger": {**ledger, "dropped": 1}}, now=0, columns=80)
    without = status_lines({"daemon": {}, "ledger": {"enabled": False}}, now=0, columns=80)

    assert lines[2:5] == [
        "needs a restart: embedder.placement (`capd restart`)",
        "/src/app: line 3: servers are ignored until capd trust",
        "records: 3 calls, 2 MiB, 1 dropped",
    ]
    assert without[2] == "records: none are kept ([ledger] enabled = false)"


@pytest.mark.parametrize(
    ("problem", "fix"),
    [
        ("no routing: the file is short", "`capd doctor` says how to repair the model"),
        ("/x/taps.toml is not TOML", "correct that file"),
        ("CAPD_LINGER is not used: Expected `float`", "correct or unset that variable"),
        ("it stopped; call an electrician", "call an electrician"),
        ("nobody knows", "`capd doctor` looks closer"),
    ],
)
def test_each_reason_has_its_remedy(problem: str, fix: str) -> None:
    said = remedy(problem)

    assert said.startswith(fix)


@pytest.mark.parametrize(
    ("session", "expected"),
    [
        ("", ["zed-1: MCP active: 2/5 (git, fs)", "zed-2: MCP active: 0/5"]),
        ("zed-1", ["MCP active: 2/5 (git, fs)"]),
        ("nobody", []),
    ],
)
def test_what_is_on_is_a_line_a_session(session: str, expected: list[str]) -> None:
    both = {"sessions": [SESSION, {**SESSION, "key": "zed-2", "active": []}]}

    lines = active_lines(both, session)

    assert lines == expected


# The command


def capd(env: dict[str, str], *arguments: str, trace: bool = False) -> Any:
    more = ["-X", "importtime"] if trace else []
    return subprocess.run(
        [sys.executable, *more, "-m", "capd_client.entry", *arguments],
        env=env,
        capture_output=True,
        text=True,
        timeout=PATIENT,
        check=False,
    )


def test_a_degraded_daemon_is_told_by_the_exit_code(
    start_daemon: Start, base_env: dict[str, str]
) -> None:
    start_daemon({"status": STATUS})

    spoken, machine = capd(base_env, "status"), capd(base_env, "status", "--json")

    assert "  fix: correct that line, then `capd restart`" in spoken.stdout.splitlines()
    assert (json.loads(machine.stdout), machine.stderr) == (STATUS, "")
    assert (spoken.returncode, machine.returncode) == (4, 4)


def test_a_daemon_that_is_well_is_exit_code_0(
    start_daemon: Start, base_env: dict[str, str]
) -> None:
    start_daemon({"status": {**STATUS, "daemon": {"version": "0.1.0", "degraded": []}}})

    done = capd(base_env, "status")

    assert (done.stdout.splitlines()[0], done.returncode) == ("capd 0.1.0, pid ?, up ?, ? MiB", 0)


@pytest.mark.parametrize("arguments", [("--line",), ("--line", "--session", "zed-1")])
def test_the_line_is_for_prompts(
    start_daemon: Start, base_env: dict[str, str], arguments: tuple[str, ...]
) -> None:
    start_daemon({"status": STATUS})

    done = capd(base_env, "status", *arguments)

    assert done.stdout == "MCP active: 2/5 (git, fs)\n"


def test_both_ways_of_asking_print_the_same(start_daemon: Start, base_env: dict[str, str]) -> None:
    start_daemon({"status": {**STATUS, "sessions": []}})

    plain, parsed = capd(base_env, "status"), capd(base_env, "status", "--session", "")

    assert (plain.stdout, plain.returncode) == (parsed.stdout, parsed.returncode)


def test_without_a_daemon_the_exit_code_is_3(base_env: dict[str, str], socket_at: Path) -> None:
    done = capd(base_env, "status")

    said = f"capd: no daemon at {socket_at}\nStart it with: capd daemon start\n"
    assert (done.stdout, done.stderr, done.returncode) == ("", said, 3)


def test_an_error_of_the_daemon_is_exit_code_1(
    start_daemon: Start, base_env: dict[str, str]
) -> None:
    start_daemon({"status": {"error": {"code": 4005, "message": "the registry\x1b[2J is busy"}}})

    done = capd(base_env, "status")

    said = "capd: the registry\\x1b[2J is busy\n"
    assert (done.stdout, done.stderr, done.returncode) == ("", said, 1)


def test_the_plain_command_imports_nothing_heavy(
    start_daemon: Start, base_env: dict[str, str]
) -> None:
    start_daemon({"status": {**STATUS, "daemon": {}}})

    done = capd(base_env, "status", trace=True)

    lines = (line for line in done.stderr.splitlines() if line.startswith("import time:"))
    imported = {line.rpartition("|")[2].strip().partition(".")[0] for line in lines}
    heavy = {"trio", "zmq", "mcp", "msgspec", "rich", "tomlkit", "capd", "asyncio", "structlog"}
    assert imported & (heavy | {"click", "capd_client"}) == {"capd_client"}


@pytest.mark.parametrize("no_colour", [True, False])
def test_a_terminal_gets_colour_unless_it_is_told_not_to(
    start_daemon: Start, base_env: dict[str, str], no_colour: bool
) -> None:
    start_daemon({"status": STATUS})
    env = {**base_env, "TERM": "xterm-256color", **({"NO_COLOR": "1"} if no_colour else {})}
    main, other = os.openpty()

    with subprocess.Popen(
        [sys.executable, "-m", "capd_client.entry", "status"], env=env, stdout=other, stdin=other
    ) as process:
        os.close(other)
        shown = _read_all(main)

    assert process.returncode == 4
    assert (b"\x1b[1mtaps\x1b[0m" in shown) is not no_colour
    assert (b"\x1b" in shown) is not no_colour


def _read_all(descriptor: int) -> bytes:
    shown = b""
    try:
        while chunk := os.read(descriptor, 4096):
            shown += chunk
    except OSError:
        # Linux says EIO where the last process at the far end is gone.
        pass
    finally:
        os.close(descriptor)
    return shown


def test_top_without_a_terminal_says_what_to_do(base_env: dict[str, str]) -> None:
    done = capd(base_env, "top")

    what, remedy = done.stderr.splitlines()
    assert (done.stdout, what, done.returncode) == ("", "capd: `capd top` needs a terminal", 1)
    assert remedy == "For a script: capd status --json, or capd events --json"


def test_top_without_a_daemon_is_told_before_the_screen_is_taken(
    base_env: dict[str, str], socket_at: Path
) -> None:
    main, other = os.openpty()
    env = {**base_env, "TERM": "xterm-256color"}

    with subprocess.Popen(
        [sys.executable, "-m", "capd_client.entry", "top"],
        env=env,
        stdin=other,
        stdout=other,
        stderr=subprocess.PIPE,
    ) as process:
        os.close(other)
        assert process.stderr is not None
        said = process.stderr.read().decode()

    os.close(main)
    # A path that does not fit beside the words has a line of its own.
    assert said.split()[:5] == ["capd:", "no", "daemon", "at", str(socket_at)]
    assert process.returncode == 3


def test_memories_are_counted_where_there_are_any() -> None:
    told = {"told": 3, "left_out": 2, "tokens": 1900, "budget": 2000}
    session = {**SESSION, "memories": told}
    taps = [{"name": "~", "memories": 7, "findings": [{}]}, {"name": "t", "memories": 1}]

    lines = status_lines({**STATUS, "sessions": [session], "taps": taps}, now=NOW, columns=80)

    assert "    memories: 3 delivered, 1900 of 2000 tokens, 2 left out" in lines
    assert "  your own: 7 memories, 1 finding (`capd check`)" in lines
    assert "  t: 0 routable, 1 memory" in lines


def test_what_a_model_was_told_of_and_what_had_no_room_is_counted() -> None:
    told = {"listed": 24, "left_out": 3, "tokens": 148, "suggestions_left_out": 1}
    used = {"name": "mine/git", "uses": 12, "success_rate": 0.917, "mean_ms": 41.3}
    index = {"capabilities": 58, "set_by_user": 2, "most_used": [used]}
    status = {**STATUS, "sessions": [{**SESSION, "index": told}], "index": index}

    lines = status_lines(status, now=NOW, columns=120)

    assert [line.strip() for line in lines if "index:" in line] == [
        "index: 58 capabilities, 2 values set by hand; most used: mine/git 12x, 92 %, 41 ms",
        "index: 24 capabilities in 148 tokens, 3 left out, 1 suggestions left out",
    ]


def test_single_tools_and_what_shows_none_take_no_slot_in_the_active_line() -> None:
    tools = [{"kind": "tool", "name": f"t{n}", "tools": [f"t{n}"]} for n in range(18)]
    active = [
        {"kind": "capability", "name": "git", "tools": ["git__log"]},
        {"kind": "capability", "name": "filtered", "tools": []},
        {"kind": "dependencies", "name": "ruff", "tools": []},
        *tools,
    ]

    line = active_line({"active": active, "cap": 4})

    assert line == "MCP active: 1/4 (git, filtered, ruff) + 18 single tools"


TWO = {
    "sessions": [
        {
            "key": "claude-1",
            "client_sessions": ["c-1"],
            "project": "/src/app",
            "active": [{"name": name} for name in ("git", "time", "files", "web", "db")],
        },
        {"key": "claude-2", "client_sessions": ["c-2"], "project": "/src/app", "active": []},
        {"key": "zed-1", "project": "/src/zed", "active": [{"name": "git\x1b[2J"}]},
        {"key": "child", "parent": "zed-1", "project": "/src/zed", "active": [{"name": "x"}]},
    ]
}


@pytest.mark.parametrize(
    ("session", "project", "line"),
    [
        ("c-1", "/src/app", "capd: git, time, files, web +1"),
        ("c-2", "/src/app", "capd: nothing on"),
        # Not known by its id yet: the project names it if only one session is there.
        ("c-9", "/src/app", ""),
        ("c-9", "/src/zed", "capd: git\\x1b[2J"),
        ("", "", ""),
    ],
)
def test_a_clients_status_line_is_of_its_own_conversation(
    session: str, project: str, line: str
) -> None:
    assert client_line(TWO, session, project) == line
