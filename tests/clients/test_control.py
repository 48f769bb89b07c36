"""The control client against a daemon that answers as scripted."""

import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from capd_client.control import Control, ControlError, DaemonDownError

from .conftest import PATIENT, SILENCE, FakeDaemon

Start = Callable[..., FakeDaemon]


def test_a_question_gets_the_result(start_daemon: Start) -> None:
    daemon = start_daemon({"caps": {"schema": 1, "capabilities": []}})

    with Control(str(daemon.path)) as control:
        result = control.call("caps")

    assert result == {"schema": 1, "capabilities": []}
    assert control.daemon == {"version": "0.1.0", "pid": 77}
    assert daemon.journal[0] == (
        b'{"capd":"hello","protocol":1,"role":"control","client":{"name":"capd"}}'
    )
    assert daemon.requests() == [{"method": "caps", "params": {}}]


def test_an_error_keeps_its_code_name_and_text(start_daemon: Start) -> None:
    error = {"code": 4004, "message": "no such session", "data": {"code": "not_found"}}
    daemon = start_daemon({"tools": {"error": error}})

    with Control(str(daemon.path)) as control, pytest.raises(ControlError) as caught:
        control.call("tools", {"session": "x"})

    told = (caught.value.code, caught.value.name, caught.value.message)
    assert told == (4004, "not_found", "no such session")


def test_a_text_that_is_not_utf_8_is_not_sent_and_the_next_request_is_answered(
    start_daemon: Start,
) -> None:
    daemon = start_daemon({"tools": {"schema": 1}})

    with Control(str(daemon.path)) as control:
        with pytest.raises(ControlError, match=r"'caf\\udce9' is not UTF-8") as caught:
            control.call("search", {"text": ["a", "caf\udce9"]})
        result = control.call("tools")

    assert caught.value.name == "invalid_params"
    assert result == {"schema": 1}
    assert daemon.requests() == [{"method": "tools", "params": {}}]


def test_an_answer_may_be_as_long_as_the_daemon_writes_them(start_daemon: Start) -> None:
    text = "x" * (33 * 1024 * 1024)
    daemon = start_daemon({"call": {"text": text}})

    with Control(str(daemon.path)) as control:
        result = control.call("call", {"name": "a"})

    assert result == {"text": text}


def test_nobody_at_the_socket_is_told_as_such(tmp_path: Path) -> None:
    path = tmp_path / "no.sock"

    with pytest.raises(DaemonDownError) as caught:
        Control(str(path)).call("status")

    assert str(caught.value) == f"no daemon at {path}"


def test_a_socket_that_nobody_listens_at_is_no_daemon(tmp_path: Path) -> None:
    path = tmp_path / "stale.sock"
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))

    with pytest.raises(DaemonDownError):
        Control(str(path)).connect()


def test_a_refused_hello_is_an_error_with_the_daemons_words(start_daemon: Start) -> None:
    daemon = start_daemon({})
    daemon.refusal = {"capd": "refused", "code": "protocol", "message": "update the older one"}

    with pytest.raises(ControlError) as caught:
        Control(str(daemon.path)).connect()

    assert (caught.value.name, caught.value.message) == ("protocol", "update the older one")


def test_something_else_at_the_socket_is_told(daemon: FakeDaemon) -> None:
    control = Control(str(daemon.path))

    with pytest.raises(ControlError) as caught:
        play_garbage(daemon, control)

    assert caught.value.message == f"what listens at {daemon.path} is not capd"


def play_garbage(daemon: FakeDaemon, control: Control) -> None:
    def answer() -> None:
        link = daemon.accept()
        link.read()
        link.write_bytes(b"220 ready\n")

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        control.connect()
    finally:
        thread.join()


def test_a_daemon_that_does_not_answer_is_told_as_slow_not_as_gone(start_daemon: Start) -> None:
    daemon = start_daemon({"caps": SILENCE})

    with (
        Control(str(daemon.path), timeout=0.01) as control,
        pytest.raises(ControlError) as caught,
    ):
        control.call("caps")

    assert caught.value.name == "timeout"


def test_events_come_until_the_daemon_goes(start_daemon: Start) -> None:
    events = [
        {"topic": "server.started", "event": {"type": "server.started", "name": "git"}},
        {"topic": "server.exited", "event": {"type": "server.exited", "name": "git"}},
    ]
    daemon = start_daemon(
        {"events": {"result": {"schema": 1, "topics": ["server."]}, "then": events}}
    )

    with Control(str(daemon.path)) as control:
        got = list(control.events(["server."]))

    assert got == events
    assert daemon.requests() == [{"method": "events", "params": {"topics": ["server."]}}]


def test_a_result_of_many_megabytes_arrives_whole(start_daemon: Start) -> None:
    text = "x" * (8 << 20)
    daemon = start_daemon({"call": {"schema": 1, "outcome": "result", "result": {"text": text}}})

    with Control(str(daemon.path)) as control:
        result = control.call("call", {"name": "x"})

    assert result["result"]["text"] == text


def test_closing_ends_the_wait_of_a_thread_for_both_ends(daemon: FakeDaemon) -> None:
    heard = threading.Event()

    def listen() -> None:
        for _ in control.events():
            heard.set()

    control = Control(str(daemon.path))
    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    link = daemon.accept()
    link.welcome()
    request = link.read()
    link.write({"jsonrpc": "2.0", "id": request["id"], "result": {}})
    link.write({"jsonrpc": "2.0", "method": "event", "params": {"topic": "x"}})
    assert heard.wait(PATIENT)

    control.close()

    assert link.read_line() == b""
    listener.join(PATIENT)
    assert not listener.is_alive()
