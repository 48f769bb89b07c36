"""Commands without an editor run in a scratch session of the folder."""

import contextlib
import json

import pytest

from capd_client.control import DaemonDownError
from whole_daemon import Home, wait_for


@pytest.mark.model
def test_commands_without_an_open_session_use_a_scratch_session_that_keeps_what_is_on(
    home: Home,
) -> None:
    home.plain("talk")
    home.start()

    for _ in range(2):
        enabled = home.capd("enable", "talk")
        listed = home.capd("tools")
        called = home.capd("call", "talk__echo", '{"text": "hi"}')
        turned = home.capd("turn", "what is the weather like on the moon?")

        assert [each.returncode for each in (enabled, listed, called, turned)] == [0] * 4
        assert "talk__echo" in listed.stdout
        assert called.stdout.split()[1:] == ["hi"]
        assert called.stderr.startswith("No session is open: using scratch-")
    # A command does not wait until the daemon has noticed that it is gone.
    wait_for(lambda: home.ask("sessions")["sessions"] == [])


def test_the_result_of_a_call_stands_alone_on_standard_output(home: Home) -> None:
    home.plain("talk")
    home.start()
    home.capd("enable", "talk")

    for _ in range(2):
        called = home.capd("call", "talk__echo", "--json", '{"text": "hi"}')

        assert json.loads(called.stdout)["outcome"] == "result"


def test_an_open_session_is_used_where_it_is_the_only_one(home: Home) -> None:
    home.plain("talk")
    home.start()
    editor = home.shim("one")

    enabled = home.capd("enable", "talk")

    assert (enabled.returncode, enabled.stderr) == (0, "")
    (session,) = home.ask("sessions")["sessions"]
    assert session["key"] == "one"
    editor.leave()


def test_of_several_sessions_one_has_to_be_named(home: Home) -> None:
    home.start()
    editors = [home.shim("one"), home.shim("two")]

    done = home.capd("tools")

    assert done.returncode == 1
    assert done.stderr == "capd: which session? (one, two) Name one with --session.\n"
    for editor in editors:
        editor.leave()


def test_a_command_that_needs_the_daemon_starts_it(home: Home) -> None:
    home.plain("talk")
    del home.env["CAPD_NO_START"]
    try:
        for _ in range(2):
            listed = home.capd("tools")
            found = home.capd("discover", "use talk now")

            assert (listed.returncode, found.returncode) == (0, 0), listed.stderr + found.stderr
    finally:
        with contextlib.suppress(DaemonDownError):
            home.ask("stop", for_good=True)
    wait_for(lambda: home.capd("daemon", "stop").returncode == 0)


@pytest.mark.model
def test_where_the_daemon_must_not_be_started_the_command_that_does_is_named(home: Home) -> None:
    for command in (("tools",), ("turn", "x"), ("call", "x"), ("enable", "x"), ("search", "x")):
        done = home.capd(*command)

        assert done.returncode == 3
        assert (
            done.stderr == f"capd: no daemon at {home.socket}\nStart it with: capd daemon start\n"
        )
