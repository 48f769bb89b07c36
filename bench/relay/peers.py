"""The relays that are compared, and how each is started in front of the echo server.

Each is set up as its own documentation tells a user to, with its logs as quiet as it allows.
"""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from bench.relay import installs

ECHO_SERVER = Path(__file__).with_name("echo_server.mjs")
SERVER_NAME = "echo"
_NODE_SERVER = ["node", str(ECHO_SERVER)]

Transport = Literal["pipes", "http", "sse"]


@dataclass(frozen=True, slots=True)
class Launch:
    """A command and how to speak to it."""

    argv: list[str]
    transport: Transport = "pipes"
    path: str = "/mcp"
    tool: str = "echo"
    wrap: Callable[[dict[str, Any]], dict[str, Any]] = lambda arguments: arguments


@dataclass(frozen=True, slots=True)
class Peer:
    """A relay that is compared with capd."""

    name: str
    language: str
    version: str
    package: str
    registry: Literal["pypi", "npm"]
    launch: Callable[[Path, Path, int], Launch]
    """Returns how to start it, given the folder of its commands, a folder of its own and a port."""
    note: str = ""

    def install(self) -> Path:
        """Install the package unless it is there; return the folder of its commands.

        Raises:
            installs.NotInstalledError: it cannot be installed.
        """
        if self.registry == "pypi":
            return installs.from_pypi(self.package, self.version)
        return installs.from_npm(self.package, self.version)


def direct() -> Launch:
    """Return how to start the echo server itself, without a relay."""
    return Launch(_NODE_SERVER)


def environment(folder: Path) -> dict[str, str]:
    """Return the environment of a peer: the user's own settings are neither read nor written."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("CAPD_", "XDG_", "MCP_"))}
    return {**kept, "HOME": str(folder), "NO_COLOR": "1"}


def _written(folder: Path, name: str, content: Mapping[str, Any]) -> str:
    path = folder / name
    path.write_text(json.dumps(content), encoding="utf-8")
    return str(path)


def _mcp_servers(folder: Path) -> str:
    server = {"command": _NODE_SERVER[0], "args": _NODE_SERVER[1:], "description": "Echoes."}
    return _written(folder, "mcp.json", {"mcpServers": {SERVER_NAME: server}})


def _fastmcp(commands: Path, folder: Path, _: int) -> Launch:
    options = ["--no-banner", "--log-level", "ERROR"]
    return Launch([str(commands / "fastmcp"), "run", _mcp_servers(folder), *options])


def _mcp_proxy(commands: Path, _: Path, port: int) -> Launch:
    options = ["--port", str(port), "--log-level", "ERROR"]
    return Launch([str(commands / "mcp-proxy"), *options, "--", *_NODE_SERVER], "http")


def _mcp_hub(commands: Path, folder: Path, port: int) -> Launch:
    argv = [str(commands / "mcp-hub"), "--port", str(port), "--config", _mcp_servers(folder)]
    return Launch(argv, "sse", tool=f"{SERVER_NAME}__echo")


def _supergateway(commands: Path, _: Path, port: int) -> Launch:
    # Without --stateful it starts a server for each request.
    options = ["--outputTransport", "streamableHttp", "--stateful", "--logLevel", "none"]
    stdio = ["--stdio", " ".join(_NODE_SERVER), "--port", str(port)]
    return Launch([str(commands / "supergateway"), *stdio, *options], "http")


def _lazy_mcp(commands: Path, folder: Path, _: int) -> Launch:
    server = {"name": SERVER_NAME, "description": "Echoes.", "command": _NODE_SERVER}
    config = _written(folder, "servers.json", {"servers": [server]})
    return Launch(
        [str(commands / "lazy-mcp"), "--config", config],
        tool="invoke_command",
        wrap=lambda arguments: {
            "server": SERVER_NAME,
            "command_name": "echo",
            "parameters": arguments,
        },
    )


def _dmcp(commands: Path, folder: Path, _: int) -> Launch:
    return Launch(
        [str(commands / "dmcp"), _mcp_servers(folder)],
        tool="call_dynamic_tool",
        wrap=lambda arguments: {"group": SERVER_NAME, "name": "echo", "args": arguments},
    )


def _slop_mcp(commands: Path, folder: Path, _: int) -> Launch:
    quoted = " ".join(json.dumps(each) for each in _NODE_SERVER[1:])
    (folder / ".slop-mcp.kdl").write_text(
        f'mcp "{SERVER_NAME}" {{\n    command "{_NODE_SERVER[0]}"\n    args {quoted}\n}}\n',
        encoding="utf-8",
    )
    return Launch(
        [str(commands / "slop-mcp"), "serve"],
        tool="execute_tool",
        wrap=lambda arguments: {
            "mcp_name": SERVER_NAME,
            "tool_name": "echo",
            "parameters": arguments,
        },
    )


PEERS = (
    Peer("fastmcp", "Python", "4.1.2", "fastmcp", "pypi", _fastmcp),
    Peer("mcp-proxy", "Python", "0.13.0", "mcp-proxy", "pypi", _mcp_proxy),
    Peer("mcp-hub", "Node", "4.2.1", "mcp-hub", "npm", _mcp_hub),
    Peer("supergateway", "Node", "4.0.0", "supergateway", "npm", _supergateway),
    Peer(
        "lazy-mcp",
        "Node",
        "2.7.2",
        "lazy-mcp",
        "pypi",
        _lazy_mcp,
        "hands the result over as JSON inside a text",
    ),
    Peer("dmcp", "Rust", "1.5.0", "dmcp", "pypi", _dmcp),
    Peer("slop-mcp", "Go", "0.15.0", "@standardbeagle/slop-mcp", "npm", _slop_mcp),
)
