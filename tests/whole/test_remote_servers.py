"""Servers by URL: used, logged in to, and refused."""

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.forked_scripts import server_command
from whole_daemon import OWN_TOOLS, Home, wait_for

SITE = Path(__file__).parents[1] / "adapters/servers/http/sdk_site.py"


@contextmanager
def site(mode: str) -> Iterator[str]:
    """Run one of the SDK's servers and give its address."""
    command = server_command(str(SITE), mode)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.kill()
        process.communicate()


def remote(home: Home, name: str, url: str) -> None:
    """Define a capability on a server by URL."""
    home.plain(name)
    (home.folder / "tap" / "capabilities" / name / "default.toml").write_text(
        f"[[mcp.servers]]\nname = {json.dumps(name)}\nurl = {json.dumps(url)}\n"
    )


@pytest.mark.parametrize(("mode", "path"), [("streamable", "/mcp"), ("sse", "/sse")])
def test_a_server_by_url_is_used_like_any_other(home: Home, mode: str, path: str) -> None:
    with site(mode) as base:
        remote(home, "web", base + path)
        home.start()
        editor = home.shim("one")
        home.ask("enable", session="one", name="web")

        result = editor.call("web__echo", {"text": "far away"})

        assert result["structuredContent"] == {"result": "far away"}
        [entry] = home.ask("servers")["servers"]
        assert (entry["state"], entry["pid"], entry["leases"]) == ("ready", 0, ["one"])
        editor.leave()


def test_a_server_that_wants_a_login_is_parked_until_a_person_has_logged_in(home: Home) -> None:
    with site("login") as base:
        remote(home, "guarded", f"{base}/mcp")
        home.start()
        editor = home.shim("one")
        refused = home.ask("enable", session="one", name="guarded")
        assert not refused["ok"]
        assert "capd login guarded" in refused["text"]
        [entry] = home.ask("servers")["servers"]
        assert entry["state"] == "parked"

        login = subprocess.Popen(
            [sys.executable, "-P", "-m", "capd_client.entry", "login", "guarded", "--no-browser"],
            env=home.env,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert login.stdout is not None
        address = next(line.strip() for line in login.stdout if line.strip().startswith("http"))
        with urllib.request.urlopen(address):
            pass
        rest, _ = login.communicate(timeout=60)

        assert "Logged in at guarded." in rest
        assert home.ask("enable", session="one", name="guarded")["ok"]
        assert editor.call("guarded__echo", {"text": "hi"})["structuredContent"] == {"result": "hi"}
        editor.leave()


def test_a_server_that_is_not_there_says_so_and_costs_nobody_else_anything(home: Home) -> None:
    remote(home, "gone", "http://127.0.0.1:9/mcp")
    home.plain("talk")
    home.start()
    editor = home.shim("one")

    refused = home.ask("enable", session="one", name="gone")

    assert not refused["ok"]
    assert "gone" in refused["text"]
    assert home.ask("enable", session="one", name="talk")["ok"]
    assert wait_for(lambda: [tool["name"] for tool in editor.tools()])[len(OWN_TOOLS) :] == [
        "talk__echo",
        "talk__shout",
    ]
    editor.leave()
