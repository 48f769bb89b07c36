"""`python -m capd tap build PATH`: writes the tools of a tap's servers into its `tools.json`.

The tools are those that `capd index` has put into the cache. A server that is not in the cache
keeps its tools in `tools.json`, and is named in the output.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import trio

from capd.adapters.tap_files import TapPlace, TapUnreadableError, read_tap
from capd.adapters.tool_lists import ToolLists
from capd.core.servers.identity import server_identity
from capd.core.taps.tool_snapshot import FILE, written_snapshot
from capd_protos.types import ServerIdentity, ServerName, TapName, ToolDefinition

USAGE = "usage: capd tap build PATH"
FAILED = 1
WRONG_USAGE = 2


def main(arguments: Sequence[str], cache: Path) -> int:
    """Write the file; return the exit code. `cache` is where tool lists are kept."""
    if len(arguments) != 1 or arguments[0].startswith("-"):
        sys.stderr.write(USAGE + "\n")
        return WRONG_USAGE
    folder = Path(arguments[0])
    try:
        tap = read_tap(TapPlace(TapName(folder.resolve().name), folder))
    except TapUnreadableError as error:
        sys.stderr.write(f"capd: {error}\n")
        return FAILED
    servers = {
        server_identity(server): server.name
        for capability in tap.capabilities
        for server in capability.servers
        if server.transport != "builtin"
    }
    kept = trio.run(ToolLists(cache / "tools").load_all, sorted(servers))
    listed: list[tuple[ServerIdentity, ServerName, str, Sequence[ToolDefinition]]] = []
    missing: list[str] = []
    for identity, name in servers.items():
        own = kept.get(identity)
        if own is not None:
            listed.append((identity, name, own.server_version, own.tools))
            continue
        missing.append(name)
        if identity in tap.tool_lists:
            listed.append((identity, name, "", tap.tool_lists[identity]))
    file = folder / FILE
    try:
        partial = file.with_name(f".{FILE}.partial")
        partial.write_bytes(written_snapshot(listed))
        partial.replace(file)
    except OSError as error:
        sys.stderr.write(f"capd: {file}: {error.strerror}\n")
        return FAILED
    tools = sum(len(each) for *_, each in listed)
    sys.stdout.write(f"{file}: {tools} tools of {len(listed)} servers\n")
    if missing:
        sys.stderr.write(
            f"capd: {len(missing)} servers have not listed their tools yet: "
            f"{', '.join(sorted(missing))} (`capd index` asks them)\n"
        )
    return 0
