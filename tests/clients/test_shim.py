"""The shim as a real process between a host and a daemon that the test plays."""

import contextlib
import json
import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from capd_client.shim.link import Shim, client_of

from .conftest import CLIENTS, PATIENT, FakeDaemon, Host, Link, encode, welcome

SCHEMA = json.loads((Path(__file__).parents[2] / "protos" / "socket.schema.json").read_text())
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "zed", "version": "1.25"},
    },
}
INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}
INITIALIZE_RESULT = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {}}
LIST_CHANGED = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
UNKNOWN = "capd went away while this ran, so it may have taken effect: check before repeating it"
Start = Callable[..., Host]
C_MODULES = {"_json", "_socket", "select", "errno", "_collections", "posix", "time", "pwd"}
WAYS = [
    pytest.param(None, id="launch.py"),
    pytest.param([sys.executable, "-m", "capd_client.entry", "mcp"], id="capd mcp"),
]


def call(key: int | str, **arguments: Any) -> dict[str, Any]:
    params = {"name": "git__log", "arguments": arguments}
    return {"jsonrpc": "2.0", "id": key, "method": "tools/call", "params": params}


def result(key: int | str, value: Any = None) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": key, "result": {"content": value or []}}


def error(key: int | str | None, code: int, name: str, message: str) -> dict[str, Any]:
    return {
        "jsonrpc": "2.0",
        "id": key,
        "error": {"code": code, "message": message, "data": {"code": name}},
    }


def shake_hands(host: Host, link: Link) -> None:
    """Take the host through the handshake of MCP."""
    host.write(INITIALIZE)
    assert link.read() == INITIALIZE
    link.write({"jsonrpc": "2.0", "id": 0, "result": INITIALIZE_RESULT})
    assert host.read()["result"] == INITIALIZE_RESULT
    host.write(INITIALIZED)
    assert link.read() == INITIALIZED


def test_the_hello_is_what_the_schema_says(
    daemon: FakeDaemon, start_host: Start, tmp_path: Path
) -> None:
    start_host(
        env={"CAPD_SESSION": "s:1", "CAPD_PARENT_SESSION": "p.1", "CAPD_PROJECT": "app/../x"}
    )

    hello = daemon.accept().welcome()

    assert hello == {
        "capd": "hello",
        "protocol": 1,
        "role": "mcp",
        "client": {"name": "zed", "pid": os.getpid()},
        "cwd": str(tmp_path),
        "project": str(tmp_path / "x"),
        "session": "s:1",
        "parent": "p.1",
        "dispatched": True,
        "durable": True,
    }
    jsonschema.validate(hello, {"$ref": "#/$defs/Hello", "$defs": SCHEMA["$defs"]})
    assert daemon.journal[0].startswith(b'{"capd":"hello"')


def test_without_a_name_the_client_is_the_parents_process(
    daemon: FakeDaemon, start_host: Start
) -> None:
    start_host(env={"CAPD_CLIENT": ""})

    hello = daemon.accept().read()

    name = Path(f"/proc/{os.getpid()}/comm").read_text().strip()
    assert hello["client"] == {"name": name, "pid": os.getpid()}


@pytest.mark.parametrize(
    ("command", "client"),
    [
        (["node", "/usr/bin/gemini", "-p"], "gemini"),
        (["/usr/bin/node", "--max-old-space-size=4096", "/usr/bin/qwen", "-p"], "qwen"),
        (["node", "/usr/lib/node_modules/@google/gemini-cli/bundle/gemini.js"], "gemini"),
        (["node", "/usr/lib/node_modules/@qwen-code/qwen-code/cli-entry.js"], "qwen"),
        (["/opt/copilot-linux-x64/copilot", "-p"], "copilot"),
        (["claude"], "claude"),
        (["node", "/home/claude/src/server.js"], ""),
        (["python3", "-m", "agent"], ""),
        ([""], ""),
    ],
)
def test_a_client_is_told_by_its_program_or_its_package(command: list[str], client: str) -> None:
    assert client_of(command) == client


def test_a_stray_byte_in_the_environment_spoils_no_frame(
    daemon: FakeDaemon, start_host: Start
) -> None:
    start_host(env={"CAPD_CLIENT": "z\udcffd", "KEY": "a\udcff", "OTHER": "é"})
    link = daemon.accept()

    hello = link.welcome(want_env=("KEY", "OTHER"))

    assert hello["client"]["name"] == "z?d"
    assert link.read() == {"capd": "env", "env": {"OTHER": "é"}}


def test_only_the_keys_that_the_daemon_asks_for_are_sent(
    daemon: FakeDaemon, start_host: Start
) -> None:
    start_host(env={"GITHUB_TOKEN": "g", "EMPTY": "", "SLACK_TOKEN": "s", "CANARY": "c"})
    link = daemon.accept()

    link.welcome(want_env=("GITHUB_TOKEN", "EMPTY", "ABSENT"))
    first = link.read()
    link.write({"capd": "want_env", "keys": ["SLACK_TOKEN"]})
    second = link.read()

    assert first == {"capd": "env", "env": {"GITHUB_TOKEN": "g", "EMPTY": ""}}
    assert second == {"capd": "env", "env": {"SLACK_TOKEN": "s"}}
    assert b"CANARY" not in b"".join(daemon.journal)


@pytest.mark.parametrize("command", WAYS)
def test_lines_pass_unchanged_in_both_directions(
    daemon: FakeDaemon, start_host: Start, command: list[str] | None
) -> None:
    host = start_host(command=command)
    link = daemon.accept()
    link.welcome()
    odd = (
        b'{ "id" : 7, "jsonrpc":"2.0","method":"x/y" , "params":{"\\u00e9":1.50e3,"\xc3\xa9":[]}}\r'
    )

    host.write_bytes(odd + b"\n")
    there = link.read_line()
    link.write_bytes(odd.replace(b'"method":"x/y"', b'"result":{}') + b"\n")
    back = host.read_line()

    assert there == odd
    assert back == odd.replace(b'"method":"x/y"', b'"result":{}')


def test_link_frames_never_reach_the_host(daemon: FakeDaemon, start_host: Start) -> None:
    host = start_host()
    link = daemon.accept()
    link.welcome()
    host.write(call(1))
    link.read()

    link.write(
        {"capd": "dispatched", "id": 1},
        {"capd": "of the future", "id": 1},
        {"capd": "want_env", "keys": ["X"]},
        {"capd": 5},
    )
    link.write_bytes(b'{"capd":"broken\n')
    link.write(result(1))

    assert host.read() == result(1)


def test_a_hosts_link_frames_never_reach_the_daemon(daemon: FakeDaemon, start_host: Start) -> None:
    host = start_host()
    link = daemon.accept()
    link.welcome()

    host.write({"capd": "goodbye"}, {"capd": "env", "env": {}, "id": 4, "method": "x"}, call(1))

    assert link.read() == call(1)
    assert host.read() == error(
        4, -32600, "invalid_request", "`capd` is not a member of MCP requests"
    )


@pytest.mark.parametrize("is_id_last", [True, False])
def test_a_line_of_8_mib_passes_both_ways(
    daemon: FakeDaemon, start_host: Start, is_id_last: bool
) -> None:
    host = start_host()
    link = daemon.accept()
    link.welcome()
    body = [{"text": 'x"}\\' * 100, "n": [1, {}]}] * 20_000
    request, response = call(1, body=body), result(1, body)
    if is_id_last:
        request, response = (dict(reversed(each.items())) for each in (request, response))
    assert len(encode(request)) > 8 << 20
    writer = threading.Thread(target=host.write, args=(request,))

    writer.start()
    there = link.read()
    writer.join()
    writer = threading.Thread(target=link.write, args=(response,))
    writer.start()
    back = host.read()
    writer.join()

    assert there == request
    assert back == response


def test_a_big_request_is_known_by_its_id(daemon: FakeDaemon, start_host: Start) -> None:
    host = start_host()
    link = daemon.accept()
    link.welcome()
    body = {"params": {"name": "x", "arguments": {"id": 5, "b": "x" * 100_000}}, "id": "last"}

    host.write({"method": "tools/call", **body, "jsonrpc": "2.0"})
    link.read()
    link.write({"capd": "dispatched", "id": "last"})
    link.close()

    assert host.read() == error("last", 4002, "outcome_unknown", UNKNOWN)


def test_a_line_above_the_limit_is_answered_and_not_sent(
    daemon: FakeDaemon, start_host: Start
) -> None:
    host = start_host()
    link = daemon.accept()
    link.welcome()
    start = b'{"jsonrpc":"2.0","method":"tools/call","params":{"x":"'

    host.write_bytes(start)
    for _ in range(33):
        host.write_bytes(b"x" * (1 << 20))
    host.write_bytes(b'"},"id":9}\n' + encode(call(1)))

    text = "the line is longer than 33554432 bytes; nothing was sent"
    assert host.read() == error(9, -32600, "invalid_request", text)
    assert link.read() == call(1)


def test_a_host_that_does_not_read_holds_the_daemon_up(
    daemon: FakeDaemon, start_host: Start
) -> None:
    host = start_host()
    link = daemon.accept()
    link.welcome()
    line = encode(result("none", "y" * 9000))

    taken = push(link.fileno(), line)

    assert taken < 8 << 20
    lines = {host.read_line() for _ in range(taken // len(line))}
    assert lines == {line.rstrip()}


def test_a_daemon_that_does_not_read_holds_the_host_up(
    daemon: FakeDaemon, start_host: Start
) -> None:
    host = start_host()
    link = daemon.accept()
    link.welcome()
    line = encode({"jsonrpc": "2.0", "method": "notifications/x", "params": {"text": "y" * 9000}})

    taken = push(host.stdin, line)

    assert taken < 8 << 20
    lines = {link.read_line() for _ in range(taken // len(line))}
    assert lines == {line.rstrip()}


def push(fd: int, line: bytes) -> int:
    """Write `line` until the shim takes no more; return the bytes it took."""
    os.set_blocking(fd, False)
    taken = 0
    # The wait ends as soon as something is taken: only the last one is waited out.
    while taken < 64 << 20 and select.select([], [fd], [], 0.3)[1]:
        with contextlib.suppress(BlockingIOError):
            taken += os.write(fd, line[taken % len(line) :])
    os.set_blocking(fd, True)
    return taken


def test_requests_that_may_have_run_are_answered_as_unknown_and_the_others_sent_again(
    daemon: FakeDaemon, start_host: Start
) -> None:
    host = start_host()
    link = daemon.accept()
    link.welcome()
    host.write(call(1), call("2"), call(3))
    assert [link.read() for _ in range(3)] == [call(1), call("2"), call(3)]
    link.write({"capd": "dispatched", "id": 1}, {"capd": "dispatched", "id": 3}, result(3))

    link.close()
    again = daemon.accept()
    hello = again.welcome(pid=77, resume="token-2", resumed=True)
    resent = again.read()
    again.write(result("2"))

    assert (hello["session"], hello["resume"]) == ("zed-1", "token-1")
    assert resent == call("2")
    assert [host.read() for _ in range(3)] == [
        result(3),
        error(1, 4002, "outcome_unknown", UNKNOWN),
        result("2"),
    ]


def test_a_durable_request_is_sent_again_and_the_next_daemon_is_told_which_it_is(
    daemon: FakeDaemon, start_host: Start
) -> None:
    host = start_host()
    link = daemon.accept()
    link.welcome()
    host.write(call(1), call("2"))
    assert [link.read() for _ in range(2)] == [call(1), call("2")]
    link.write({"capd": "durable", "id": "2"})

    link.close()
    again = daemon.accept()
    hello = again.welcome(pid=77, resumed=True)
    resent = [again.read() for _ in range(2)]
    again.write(result("2"), result(1))

    assert hello["again"] == ["2"]
    jsonschema.validate(hello, {"$ref": "#/$defs/Hello", "$defs": SCHEMA["$defs"]})
    assert resent == [call(1), call("2")]
    assert [host.read() for _ in range(2)] == [result("2"), result(1)]


def test_what_the_daemon_wrote_before_it_died_counts_when_the_shim_is_writing(
    daemon: FakeDaemon, start_host: Start
) -> None:
    host = start_host()
    link = daemon.accept()
    link.welcome()
    host.write(call(1))
    link.read()
    os.kill(host.process.pid, signal.SIGSTOP)
    link.write({"capd": "dispatched", "id": 1})
    host.write(call(2))
    link.close()

    os.kill(host.process.pid, signal.SIGCONT)
    again = daemon.accept()
    again.welcome(resumed=True)
    resent = again.read()

    assert resent == call(2)
    assert host.read() == error(1, 4002, "outcome_unknown", UNKNOWN)


def test_what_the_daemon_wrote_before_it_died_counts_when_a_write_fails(tmp_path: Path) -> None:
    served = Shim(str(tmp_path / "s.sock"), {})
    ours, theirs = socket.socketpair()
    with ours, theirs:
        served._sock, served._phase = ours, "up"
        served._on_host_line(encode(call(1)))
        served._on_host_line(encode(call(2)))
        served._write_daemon()
        theirs.sendall(encode({"capd": "dispatched", "id": 1}))
        theirs.close()
        served._on_host_line(encode(call(3)))

        served._write_daemon()

    assert [bytes(each) for each in served._to_host] == [
        encode(error(1, 4002, "outcome_unknown", UNKNOWN))
    ]
    assert [each.line for each in served._outbox] == [encode(call(2)), encode(call(3))]


def test_a_late_answer_to_a_request_that_was_answered_is_not_a_second_one(
    daemon: FakeDaemon, start_host: Start
) -> None:
    host = start_host()
    link = daemon.accept()
    link.welcome()
    host.write(call(1))
    link.read()
    link.write({"capd": "dispatched", "id": 1})
    link.close()
    again = daemon.accept()
    again.welcome(resumed=True)

    again.write(result(1), LIST_CHANGED)

    assert host.read() == error(1, 4002, "outcome_unknown", UNKNOWN)
    assert host.read() == LIST_CHANGED


def test_a_half_line_of_a_daemon_that_died_never_reaches_the_host(
    daemon: FakeDaemon, start_host: Start
) -> None:
    host = start_host()
    link = daemon.accept()
    link.welcome()
    link.write_bytes(encode(result(5))[:-10])
    link.close()

    again = daemon.accept()
    again.welcome(resumed=True)
    again.write(LIST_CHANGED)

    assert host.read() == LIST_CHANGED


def test_a_request_that_kills_each_daemon_is_not_sent_for_ever(
    daemon: FakeDaemon, start_host: Start
) -> None:
    host = start_host()
    link = daemon.accept()
    link.welcome()
    host.write(call(1))

    for _ in range(2):
        assert link.read() == call(1)
        link.close()
        link = daemon.accept()
        link.welcome(resumed=True)
    assert link.read() == call(1)
    link.close()

    text = "capd went away before this was sent to a server: it is safe to repeat"
    assert host.read() == error(1, 4001, "not_sent", text)


def test_every_reconnect_uses_the_token_of_the_last_welcome(
    daemon: FakeDaemon, start_host: Start
) -> None:
    start_host(env={"CAPD_PARENT_SESSION": "p"})
    tokens = []

    for number in range(3):
        link = daemon.accept()
        hello = link.welcome(resume=f"token-{number}", resumed=bool(number))
        tokens.append((hello.get("resume"), hello.get("parent")))
        link.close()

    assert tokens == [(None, "p"), ("token-0", None), ("token-1", None)]


def test_another_daemon_gets_the_handshake_again_and_the_host_a_hint(
    daemon: FakeDaemon, start_host: Start
) -> None:
    host = start_host()
    link = daemon.accept()
    link.welcome(pid=77)
    shake_hands(host, link)
    host.write(call(1))
    link.read()
    link.close()

    again = daemon.accept()
    again.welcome(pid=78, resumed=True)
    replay = again.read()
    again.write({"jsonrpc": "2.0", "id": replay["id"], "result": INITIALIZE_RESULT})
    rest = [again.read(), again.read()]
    again.write(result(1))

    assert replay == {**INITIALIZE, "id": replay["id"]}
    assert replay["id"] != INITIALIZE["id"]
    assert rest == [INITIALIZED, call(1)]
    assert [host.read(), host.read()] == [LIST_CHANGED, result(1)]


def test_the_same_daemon_that_forgot_the_session_gets_the_handshake_again(
    daemon: FakeDaemon, start_host: Start
) -> None:
    host = start_host()
    link = daemon.accept()
    link.welcome()
    shake_hands(host, link)
    link.close()

    again = daemon.accept()
    again.welcome(resumed=False)

    assert again.read()["method"] == "initialize"


def test_the_same_daemon_that_kept_the_session_gets_no_second_handshake(
    daemon: FakeDaemon, start_host: Start
) -> None:
    host = start_host()
    link = daemon.accept()
    link.welcome()
    shake_hands(host, link)
    link.close()

    again = daemon.accept()
    again.welcome(resumed=True)
    host.write(call(1))

    assert again.read() == call(1)


def test_an_initialize_on_its_way_is_sent_again_as_itself(
    daemon: FakeDaemon, start_host: Start
) -> None:
    host = start_host()
    link = daemon.accept()
    link.welcome(pid=77)
    host.write(INITIALIZE)
    link.read()
    link.close()

    again = daemon.accept()
    again.welcome(pid=78)

    assert again.read() == INITIALIZE


def test_an_answer_to_a_daemon_that_is_gone_is_not_given_to_the_next(
    daemon: FakeDaemon, start_host: Start
) -> None:
    host = start_host()
    link = daemon.accept()
    link.welcome(pid=77)
    os.kill(host.process.pid, signal.SIGSTOP)
    link.close()
    host.write({"jsonrpc": "2.0", "id": 1, "result": {"roots": []}}, call(2))
    os.kill(host.process.pid, signal.SIGCONT)

    again = daemon.accept()
    again.welcome(pid=78)

    assert again.read() == call(2)


def test_a_cancelled_request_is_neither_answered_nor_sent_again(
    daemon: FakeDaemon, start_host: Start
) -> None:
    host = start_host()
    link = daemon.accept()
    link.welcome()
    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
    host.write(call(1), call(2))
    assert [link.read(), link.read()] == [call(1), call(2)]
    host.write(cancel)
    assert link.read() == cancel

    link.close()
    again = daemon.accept()
    again.welcome(resumed=True)

    assert again.read() == call(2)


@pytest.mark.parametrize("request_id", [1.0, 1.5])
def test_a_request_with_a_fraction_as_its_id_gets_its_outcome(
    daemon: FakeDaemon, start_host: Start, request_id: float
) -> None:
    host = start_host()
    link = daemon.accept()
    link.welcome()
    host.write({**call(1), "id": request_id})
    link.read()
    link.write({"capd": "dispatched", "id": request_id})
    link.close()

    answer = host.read()

    assert answer == error(1, 4002, "outcome_unknown", UNKNOWN) | {"id": request_id}
    assert isinstance(answer["id"], float)


def test_a_request_that_is_cancelled_before_it_was_sent_is_not_sent(
    daemon: FakeDaemon, start_host: Start
) -> None:
    host = start_host()
    link = daemon.accept()
    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}

    host.write(call(1), cancel, call(2))
    link.welcome()

    assert link.read() == call(2)


def test_a_token_that_is_refused_is_dropped_for_a_session_of_its_own(
    daemon: FakeDaemon, start_host: Start
) -> None:
    host = start_host()
    link = daemon.accept()
    link.welcome()
    shake_hands(host, link)
    link.close()
    refusing = daemon.accept()
    refusing.read()
    refusing.write({"capd": "refused", "code": "resume_refused", "message": "no", "protocol": 1})
    refusing.close()

    hello = daemon.accept().welcome(session="zed-2")

    assert "session" not in hello
    assert "resume" not in hello


@pytest.mark.parametrize("code", ["overloaded", "stopping", "session_in_use"])
def test_a_refusal_that_passes_is_waited_out(
    daemon: FakeDaemon, start_host: Start, code: str
) -> None:
    host = start_host()
    host.write(call(1))
    link = daemon.accept()
    link.read()
    link.write({"capd": "refused", "code": code, "message": "later"})
    link.close()

    again = daemon.accept()
    again.welcome()

    assert again.read() == call(1)


def test_a_refusal_for_good_answers_every_request(daemon: FakeDaemon, start_host: Start) -> None:
    host = start_host()
    host.write(INITIALIZE)
    link = daemon.accept()
    link.read()

    link.write({"capd": "refused", "code": "protocol", "message": "speak 2\x1b[31m", "protocol": 2})
    first = host.read()
    host.write(call("b"), INITIALIZED)
    second = host.read()

    text = "capd refuses this session: speak 2\x1b[31m"
    assert first == error(0, 4003, "refused", text)
    assert second == error("b", 4003, "refused", text)
    assert host.hang_up() == 0
    said = f"capd: refused by the daemon at {daemon.path}: speak 2\\x1b[31m\n"
    assert host.stderr() == said


def test_after_its_patience_the_shim_answers_and_still_comes_back(
    daemon: FakeDaemon, start_host: Start, start_daemon: Callable[..., FakeDaemon]
) -> None:
    host = start_host(env={"CAPD_PATIENCE": "0.2", "CAPD_IDLE_RETRY": "0.05"})
    link = daemon.accept()
    link.welcome()
    shake_hands(host, link)
    daemon.stop_listening()
    host.write(call(1))
    link.read()
    link.close()

    first = host.read()
    host.write(call(2))
    second = host.read()
    again = start_daemon().accept()
    again.welcome(pid=78)
    replay = again.read()
    again.write({"jsonrpc": "2.0", "id": replay["id"], "result": INITIALIZE_RESULT})
    hint = host.read()
    host.write(call(3))

    text = (
        f"capd is not running (no daemon at {daemon.path}), so nothing was sent and it is safe to "
        "repeat. Start it with: capd daemon start"
    )
    assert first == error(1, 4001, "not_sent", text)
    assert second == error(2, 4001, "not_sent", text)
    assert hint == LIST_CHANGED
    assert [again.read(), again.read()] == [INITIALIZED, call(3)]


def test_a_daemon_that_was_stopped_for_good_is_not_waited_for(
    daemon: FakeDaemon, start_host: Start
) -> None:
    host = start_host()
    link = daemon.accept()
    link.welcome()
    host.write(call(1))
    link.read()

    daemon.stop_listening()
    link.write({"capd": "closing", "reason": "capd stop", "reconnect": False})
    link.close()

    text = (
        "capd is not running (it closed the session: capd stop), so nothing was sent and it is "
        "safe to repeat. Start it with: capd daemon start"
    )
    assert host.read() == error(1, 4001, "not_sent", text)


def test_a_daemon_that_hangs_up_before_the_first_write_is_tried_again(
    daemon: FakeDaemon, start_host: Start
) -> None:
    host = start_host()
    daemon.accept().close()
    host.write(call(1))

    link = daemon.accept()
    link.welcome()

    assert link.read() == call(1)


def test_the_end_of_input_is_a_goodbye(daemon: FakeDaemon, start_host: Start) -> None:
    host = start_host()
    link = daemon.accept()
    link.welcome()
    host.write(call(1))
    link.read()

    code = host.hang_up()

    assert code == 0
    assert link.read() == {"capd": "goodbye"}
    assert link.read() == {}


LISTING = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
LISTENING = {"jsonrpc": "2.0", "id": 3, "method": "subscriptions/listen"}


def test_requests_that_are_open_at_the_end_of_input_are_answered(
    daemon: FakeDaemon, start_host: Start
) -> None:
    host = start_host()
    link = daemon.accept()
    host.write({**INITIALIZE, "id": 1}, INITIALIZED, LISTING, LISTENING)
    host.end_input()
    link.welcome()
    assert [link.read()["method"] for _ in range(4)][-1] == "subscriptions/listen"

    link.write(result(1), result(2))

    assert [host.read(), host.read(), host.read()] == [result(1), result(2), {}]
    assert host.process.wait(PATIENT) == 0
    assert link.read() == {"capd": "goodbye"}


def test_no_answer_is_waited_for_when_nobody_reads_it(
    daemon: FakeDaemon, start_host: Start
) -> None:
    host = start_host()
    link = daemon.accept()
    link.welcome()
    host.write(LISTING)
    link.read()
    assert host.process.stdout is not None
    host.end_input()

    host.process.stdout.close()

    assert link.read() == {"capd": "goodbye"}
    assert host.process.wait(PATIENT) == 0


def test_an_answer_that_does_not_come_is_not_waited_for_without_end(
    daemon: FakeDaemon, start_host: Start
) -> None:
    host = start_host()
    link = daemon.accept()
    link.welcome()
    host.write(LISTING)
    link.read()

    assert host.hang_up() == 0
    assert link.read() == {"capd": "goodbye"}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_is_a_goodbye(
    daemon: FakeDaemon, start_host: Start, number: signal.Signals
) -> None:
    host = start_host()
    link = daemon.accept()
    link.welcome()
    host.write(call(1))
    link.read()

    host.process.send_signal(number)

    assert link.read() == {"capd": "goodbye"}
    assert host.process.wait(PATIENT) == 0
    assert host.stderr() == ""


def test_a_host_that_stops_reading_for_good_is_gone(daemon: FakeDaemon, start_host: Start) -> None:
    host = start_host()
    link = daemon.accept()
    link.welcome()
    assert host.process.stdout is not None

    host.process.stdout.close()

    assert link.read() == {"capd": "goodbye"}
    assert host.process.wait(PATIENT) == 0


@pytest.mark.parametrize("command", WAYS)
def test_without_a_daemon_that_it_may_start_it_says_so_and_stands_in(
    start_host: Start, socket_at: Path, command: list[str] | None
) -> None:
    host = start_host(command=command)

    host.write(INITIALIZE)
    instructions = host.read()["result"]["instructions"]

    assert instructions.startswith(f"capd has no tools to offer: no daemon at {socket_at}.\n")
    assert host.hang_up() == 0
    assert host.stderr() == f"capd: no daemon at {socket_at}\nStart it with: capd daemon start\n"


def test_the_socket_may_be_named(daemon: FakeDaemon, start_host: Start, tmp_path: Path) -> None:
    relative = os.path.relpath(daemon.path, tmp_path)

    start_host(relative, env={"CAPD_HOME": "/nowhere"})

    assert daemon.accept().read()["capd"] == "hello"


def test_a_word_too_many_is_a_usage_error(start_host: Start) -> None:
    host = start_host("a", "b")

    said = host.stderr()

    assert said == "usage: capd mcp [SOCKET]\n"
    assert host.process.returncode == 2


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be two users")
def test_a_daemon_of_another_user_is_told_nothing(
    start_host: Start, socket_at: Path, tmp_path: Path
) -> None:
    tmp_path.chmod(0o755)
    socket_at.parent.parent.chmod(0o755)
    socket_at.parent.mkdir(mode=0o777)
    ready_read, ready_write = os.pipe()
    child = os.fork()
    if child == 0:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(socket_at))
        os.setuid(65534)
        listener.listen(1)
        os.write(ready_write, b"r")
        sock, _ = listener.accept()
        os.write(ready_write, sock.recv(100) or b"nothing")
        os._exit(0)
    os.read(ready_read, 1)

    host = start_host()
    said = host.stderr()
    heard = os.read(ready_read, 100)

    os.waitpid(child, 0)
    os.close(ready_read)
    os.close(ready_write)
    assert heard == b"nothing"
    assert said == (
        f"capd: the daemon at {socket_at} runs as user 65534, not as you\n"
        "Remove that socket, or set CAPD_SOCKET.\n"
    )
    assert host.process.returncode == 1


def test_the_welcome_of_the_tests_is_what_the_schema_says() -> None:
    schema = {"$ref": "#/$defs/Welcome", "$defs": SCHEMA["$defs"]}

    jsonschema.validate(welcome(want_env=("A",)), schema)


def test_the_shim_imports_its_own_modules_and_small_c_modules_only(
    daemon: FakeDaemon, start_host: Start
) -> None:
    bare = [sys.executable, "-I", "-S", "-X", "importtime", "-c", "pass"]
    shim = [sys.executable, "-I", "-S", "-X", "importtime"]
    baseline = imported(start_host(command=bare).stderr())
    host = start_host(command=[*shim, str(CLIENTS / "capd_client" / "launch.py")])
    link = daemon.accept()
    link.welcome(want_env=("HOME",))
    link.read()
    shake_hands(host, link)
    if sys.version_info < (3, 13):
        # From then on the C scanner itself imports json for its error.
        link.write_bytes(b'{"capd":"broken\n')
    host.write(call(1, big="x" * 10_000))
    link.read()
    link.close()
    daemon.accept().welcome(pid=78)
    host.hang_up()

    extra = imported(host.stderr()) - baseline

    own = {each for each in extra if each.partition(".")[0] == "capd_client"}
    assert {each for each in own if not each.startswith("capd_client.shim")} == {"capd_client"}
    assert extra - own <= C_MODULES


def imported(importtime: str) -> set[str]:
    return {line.rpartition("|")[2].strip() for line in importtime.splitlines()}
