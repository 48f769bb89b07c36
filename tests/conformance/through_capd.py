"""Run the SDK's conformance client through capd: `through_capd.py CLIENT URL`.

The suite plays the server at URL. capd connects to it as a client, and the SDK's client connects
to capd's HTTP front, so what the suite sees is what capd sends. Where a login is asked for,
`capd login` is followed as a browser would.
"""

import asyncio
import contextlib
import fcntl
import json
import os
import runpy
import shutil
import socket
import sys
import tempfile
import urllib.request
from pathlib import Path
from typing import Any

import httpx2
from mcp import Client

sys.path.insert(0, str(Path(__file__).parents[1]))

from capd_client.control import ControlError
from whole_daemon import Home

NAME = "far"
MOST_LOGINS = 2
"""How often a person does as they are told by the refusal of a call."""


def started(home: Home, url: str) -> tuple[str, str]:
    """Start a daemon in front of `url`; return the front's URL and token."""
    home.plain(NAME)
    (home.folder / "tap" / "capabilities" / NAME / "default.toml").write_text(
        f"[[mcp.servers]]\nname = {json.dumps(NAME)}\nurl = {json.dumps(url)}\n"
    )
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    (home.folder / "config" / "config.toml").write_text(
        f'[listen_http]\nenabled = true\nport = {port}\nnames = "bare"\n'
        f'capabilities = ["mine/{NAME}"]\n'
    )
    home.start()
    token = (home.folder / "state" / "http.token").read_text().strip()
    return f"http://127.0.0.1:{port}/mcp", token


def log_in(home: Home) -> None:
    """Log in like a person who was asked to."""
    opened = home.ask("login", name=NAME)
    with contextlib.suppress(OSError), urllib.request.urlopen(opened["open"], timeout=20) as page:
        page.read()
    home.ask("login_wait", ticket=opened["ticket"])


async def use(url: str) -> bool:
    """List the tools and call the first one; return whether that went well."""
    async with Client(url, mode="legacy") as client:
        listed = await client.list_tools()
        results = [await client.call_tool(tool.name, {}) for tool in listed.tools[:1]]
        return bool(results) and not any(each.is_error for each in results)


def main(program: str, url: str) -> None:
    folder = Path(tempfile.mkdtemp(prefix="capd"))
    folder.chmod(0o700)
    home = Home(folder)
    try:
        front, token = started(home, url)

        class WithToken(httpx2.AsyncClient):
            """The SDK's client with a given token, which the SDK itself cannot take."""

            def __init__(self, *args: Any, **more: Any) -> None:
                super().__init__(*args, **more)
                self.headers["authorization"] = f"Bearer {token}"

        httpx2.AsyncClient = WithToken  # type: ignore[misc] # this process is the client alone
        if os.environ["MCP_CONFORMANCE_SCENARIO"].startswith("auth/"):
            # Without a login the server is parked, and there is nothing to call.
            for _ in range(MOST_LOGINS):
                if asyncio.run(use(front)):
                    break
                try:
                    log_in(home)
                except ControlError as error:
                    sys.stderr.write(f"no login: {error}\n")
            else:
                asyncio.run(use(front))
        else:
            sys.argv = [program, front]
            runpy.run_path(program, run_name="__main__")
    finally:
        sys.stderr.write(home.log())
        for process in home.processes:
            process.terminate()
            process.wait()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    # The suite starts all of its scenarios at once: forty daemons would wait for each other.
    with Path(sys.argv[1]).open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        main(sys.argv[1], sys.argv[2])
