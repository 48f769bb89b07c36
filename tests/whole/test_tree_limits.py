"""A server over its resource limits is ended with the reason; others are not affected."""

import sys
from typing import Any

import pytest

from capd_client.mcp_host import McpHost
from whole_daemon import PLAIN_SERVER, Home, pids_with, wait_for

HUNGRY = """
import os, sys, time
kind, tag, server = sys.argv[1:4]
if os.fork() == 0:
    os.setsid()
    if kind == "memory":
        taken = [b"x" * (8 << 20) for _ in range(50)]
    else:
        for _ in range(60):
            if os.fork() == 0:
                break
    time.sleep(600)
sys.argv = [server, tag]
exec(compile(open(server).read(), server, "exec"))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="a tree's use is known on Linux")
@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("memory", "MiB of memory, and 200 are the most ([servers] most_memory_mib)"),
        ("processes", "processes, and 40 are the most ([servers] most_processes)"),
    ],
)
def test_it_is_ended_with_everything_it_started_and_its_neighbour_stays(
    home: Home, kind: str, said: str
) -> None:
    config = home.folder / "config"
    config.mkdir(exist_ok=True)
    limits = "[servers]\nmost_processes = 40\nmost_memory_mib = 200\n"
    (config / "config.toml").write_text(limits)
    tag = f"{home.tag}-hungry"
    argv = [sys.executable, "-I", "-c", HUNGRY, kind, tag, str(PLAIN_SERVER)]
    home.capability("hungry", argv)
    home.plain("calm")
    home.start()
    editor = home.shim("one")
    for name in ("calm", "hungry"):
        home.ask("enable", session="one", name=name)

    reason = wait_for(lambda: last_error(home, "hungry"))
    wait_for(lambda: not pids_with(tag))

    assert said in reason
    assert echoed(editor, "calm").endswith("still here")
    editor.leave()


def last_error(home: Home, name: str) -> str:
    servers: list[dict[str, Any]] = home.ask("servers")["servers"]
    return str(next(each["last_error"] for each in servers if each["name"] == name))


def echoed(editor: McpHost, name: str) -> str:
    result = editor.call(f"{name}__echo", {"text": "still here"})
    return str(result["content"][0]["text"])
