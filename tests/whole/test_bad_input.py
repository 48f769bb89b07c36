"""Bad input gets a clear answer, loses nothing, and affects nobody else."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from capd_client.mcp_host import HostError
from whole_daemon import Home, wait_for

SERVER = """
import json, os, sys, time
for line in sys.stdin:
    m = json.loads(line)
    if "id" not in m: continue
    def reply(r): sys.stdout.buffer.write(b'{"jsonrpc":"2.0","id":%d,"result":' % m["id"] + r + b"}\\n"); sys.stdout.flush()
    if m["method"] == "initialize":
        reply(b'{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"x","version":"1"}}')
    elif m["method"] == "tools/list": reply(TOOLS)
    else:
        CALL
"""  # noqa: E501 - a program in a test


def odd_server(home: Home, name: str, *, tools: str, call: str = "reply(b'{}')") -> None:
    """Define a capability on a server that lists `tools`, a bytes literal."""
    path = home.folder / f"{name}.py"
    path.write_text(SERVER.replace("TOOLS", tools).replace("CALL", call))
    home.capability(name, [sys.executable, "-I", str(path), home.tag])


ECHO = 'b\'{"tools":[{"name":"echo","inputSchema":{"type":"object"}}]}\''


def test_a_tool_that_is_not_utf8_costs_its_own_server_only(home: Home) -> None:
    home.plain("talk")
    odd_server(home, "odd", tools='b\'{"tools":[{"name":"echo","\\xff":1}]}\'')
    daemon = home.start()
    editor = home.shim("one")
    home.ask("enable", session="one", name="talk")

    for _ in range(5):
        home.ask("enable", session="one", name="odd")
        home.ask("disable", session="one", name="odd")

    assert editor.call("talk__echo", {"text": "here"})["content"][0]["text"].endswith("here")
    assert daemon.poll() is None
    editor.leave()


def test_a_log_that_cannot_be_written_costs_the_log_only(home: Home) -> None:
    home.plain("talk")
    with Path("/dev/full").open("wb") as full:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "capd", "daemon", "run"], env=home.env, stderr=full
        )
    home.processes.append(process)
    wait_for(lambda: Path(home.socket).exists())
    editor = home.shim("one")

    answer = home.ask("enable", session="one", name="talk")

    assert answer["ok"] is True
    editor.leave()


def test_a_secret_is_in_no_error_no_log_and_no_status(home: Home) -> None:
    script = 'echo "bad key $0 and $KEY" >&2; exit 3'
    home.capability("leaky", ["sh", "-c", script, "{{ENV:REVIEW_TOKEN}}"])
    config = home.folder / "tap/capabilities/leaky/default.toml"
    config.write_text(config.read_text() + 'env = { KEY = "{{ENV:REVIEW_TOKEN}}" }\n')
    home.start()
    home.env["REVIEW_TOKEN"] = "sk-canary-4711"
    editor = home.shim("one")

    answer = home.ask("enable", session="one", name="leaky")

    assert answer["ok"] is False
    assert "bad key [secret] and [secret]" in answer["text"]
    assert "sk-canary" not in str(home.ask("status"))
    files = [path.read_bytes() for path in home.folder.rglob("*") if path.is_file()]
    assert not [data for data in files if b"sk-canary" in data]
    editor.leave()


@pytest.mark.parametrize("text", ["x = " + "9" * 5000, "x = " + "[" * 5000, "not toml", "\xff"])
def test_a_list_of_taps_that_cannot_be_read_leaves_the_starter_tap_and_says_so(
    home: Home, text: str
) -> None:
    config = home.folder / "config"
    config.mkdir(exist_ok=True)
    (config / "taps.toml").write_bytes(text.encode("latin-1"))
    (config / "config.toml").write_bytes(text.encode("latin-1"))
    home.start()

    status = home.ask("status")

    assert [tap["name"] for tap in status["taps"]] == ["taps.toml", "starter"]
    assert len(status["daemon"]["degraded"]) == 2


def test_a_folder_whose_name_is_no_text_and_a_pipe_cost_nothing_else(home: Home) -> None:
    home.plain("talk")
    capabilities = os.fsencode(home.folder / "tap/capabilities")
    os.mkdir(capabilities + b"/b\xff")  # noqa: PTH102 - a name in bytes
    os.mkfifo(home.folder / "tap/capabilities/talk/pipe.toml")
    (home.folder / "tap/capabilities/talk/folder.toml").mkdir()
    home.start()

    caps = {c["name"]: c["routable"] for c in home.ask("caps")["capabilities"]}

    assert caps["talk"] is True


def test_a_call_that_is_under_way_ends_before_its_server(home: Home) -> None:
    begun = home.folder / "begun"
    call = f'open({str(begun)!r}, "w"); time.sleep(1.5); '
    call += 'reply(b\'{"content":[{"type":"text","text":"done"}]}\')'
    odd_server(home, "slow", tools=ECHO, call=call)
    home.start()
    editor = home.shim("one")
    home.ask("enable", session="one", name="slow")
    results: list[dict[str, object]] = []
    calling = threading.Thread(target=lambda: results.append(editor.call("slow__echo", {})))
    calling.start()
    wait_for(begun.exists)

    answer = home.ask("disable", session="one", name="slow")
    calling.join()

    assert answer["ok"] is True
    assert results == [{"content": [{"type": "text", "text": "done"}]}]
    wait_for(lambda: not home.servers())
    editor.leave()


@pytest.mark.parametrize("way", ["sigterm", "capd stop"])
def test_a_call_that_is_under_way_ends_before_the_daemon(home: Home, way: str) -> None:
    begun = home.folder / "begun"
    call = 'time.sleep(1.5); reply(b\'{"content":[{"type":"text","text":"done"}]}\')'
    odd_server(home, "slow", tools=ECHO, call=f"open({str(begun)!r}, 'w').close(); {call}")
    daemon = home.start()
    editor = home.shim("one")
    home.ask("enable", session="one", name="slow")
    results: list[dict[str, object]] = []
    calling = threading.Thread(target=lambda: results.append(editor.call("slow__echo", {})))
    calling.start()
    wait_for(begun.exists)

    if way == "sigterm":
        daemon.terminate()
    else:
        home.ask("stop")
    calling.join()

    assert results == [{"content": [{"type": "text", "text": "done"}]}]
    assert daemon.wait(30) == 0
    editor.leave()


def test_a_call_that_does_not_end_holds_the_daemon_up_for_a_bounded_time(home: Home) -> None:
    home.env |= {"CAPD_DRAIN": "0.2", "CAPD_NO_START": "1"}
    begun = home.folder / "begun"
    stuck = f"open({str(begun)!r}, 'w').close(); time.sleep(600)"
    odd_server(home, "stuck", tools=ECHO, call=stuck)
    daemon = home.start()
    editor = home.shim("one")
    home.ask("enable", session="one", name="stuck")
    with pytest.raises(HostError, match="no answer"):
        editor.ask("tools/call", {"name": "stuck__echo"}, timeout=0.1)
    wait_for(begun.exists)

    daemon.terminate()

    assert daemon.wait(30) == 0
    editor.process.kill()
    editor.leave()


def test_a_hangup_reads_the_taps_again(home: Home) -> None:
    daemon = home.start()
    home.plain("late")

    daemon.send_signal(signal.SIGHUP)

    wait_for(lambda: "late" in {c["name"] for c in home.ask("caps")["capabilities"]})
    assert daemon.poll() is None


@pytest.mark.parametrize("for_good", [False, True])
def test_clients_are_told_before_the_daemon_goes(home: Home, *, for_good: bool) -> None:
    home.start()
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(home.socket)
        client.sendall(
            b'{"capd":"hello","protocol":1,"role":"mcp","client":{"name":"x"},"cwd":"/"}\n'
        )
        lines = client.makefile("rb")
        assert b'"welcome"' in lines.readline()

        home.ask("stop", for_good=for_good)

        told = json.loads(lines.readline())
        assert told == {"capd": "closing", "reason": "stopping", "reconnect": not for_good}


@pytest.mark.parametrize("spoiled", ["state", "cache"], ids=["state is a file", "cache is a file"])
def test_a_folder_that_cannot_be_made_is_told_in_one_line(shipped_home: Home, spoiled: str) -> None:
    (shipped_home.folder / spoiled).write_text("in the way")

    result = shipped_home.capd("daemon", "run")

    assert result.returncode == 1
    assert result.stderr.startswith("capd: ")
    assert len(result.stderr.splitlines()) == 1
