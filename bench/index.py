"""What the index costs: `python -m bench.index [--counts 100,10000] [--cold]`.

For each count, a daemon is started on a tap with that many capabilities of three tools each. The
tool lists are stored, and no server runs. The benchmark waits until the catalog has its vectors and
the index is made. Then it measures how long a person waits for `capd index --known`: the first
time, without a change, after a change of one capability, and after a hand edit of the file that
adds an unknown key. Prints a table and one line of JSON.
"""

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from capd.adapters.tool_lists import ToolLists
from capd.core.servers.identity import server_identity
from capd_client.control import Control, ControlError, DaemonDownError
from capd_protos.types import ServerName, ServerSpec, TapName, ToolDefinition, ToolName

VERBS = ("list", "read", "write", "find", "send", "open", "check", "deploy", "query", "convert")
NOUNS = ("files", "mails", "invoices", "tickets", "pages", "tables", "images", "builds", "maps")
TOOLS = 3
SERVERS = 100
PATIENCE = 3600.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--counts", default="100,10000")
    parser.add_argument(
        "--cold", action="store_true", help="do not wait for vectors: they are made meanwhile"
    )
    arguments = parser.parse_args()
    counts = [int(each) for each in arguments.counts.split(",")]
    rows = [measured(count, is_cold=arguments.cold) for count in counts]
    for row in rows:
        sys.stdout.write("  ".join(f"{key} {value}" for key, value in row.items()) + "\n")
    sys.stdout.write(json.dumps({"index": rows}) + "\n")
    return 0


def measured(count: int, *, is_cold: bool) -> dict[str, Any]:
    """Return the times for an index of `count` capabilities, in seconds."""
    home = Path(tempfile.mkdtemp(prefix="capd"))
    process = None
    try:
        specs = made_tap(home, count)
        keep_lists(home, specs)
        started = time.monotonic()
        process = started_daemon(home)
        wait_for_socket(home)
        wait_until_made(home, count, is_cold=is_cold)
        row: dict[str, Any] = {"capabilities": count}
        row["catalog, vectors and words made"] = round(time.monotonic() - started, 2)
        for name in ("first run", "no change"):
            row[name] = index(home)
            sys.stderr.write(f"{count} {name}: {row[name]} s\n")
        config = home / "tap/capabilities/c0/config.toml"
        config.write_text(config.read_text() + '# Changed.\ndomains = ["x"]\n')
        (home / "tap/capabilities/c0/default.toml").write_text(
            "# Description: Something else\n" + provider(server_of(0))
        )
        with contextlib.suppress(ControlError):
            # Reading 10,000 capabilities takes longer than the request may. The daemon goes on.
            ask(home, "reload")
        time.sleep(2 + count / 500)
        row["one changed"] = index(home)
        edit(home)
        row["hand edit"] = index(home)
        text = (home / "data/capability-index.yaml").read_text()
        assert "do: By hand" in text
        assert "unknown: 1" in text
        return row
    finally:
        if process is not None:
            process.send_signal(signal.SIGTERM)
            process.wait(60)
        shutil.rmtree(home, ignore_errors=True)


def made_tap(home: Path, count: int) -> list[ServerSpec]:
    """Write a tap of `count` capabilities; return their servers."""
    for at in range(count):
        folder = home / "tap/capabilities" / f"c{at}"
        folder.mkdir(parents=True)
        verb, noun = VERBS[at % len(VERBS)], NOUNS[at % len(NOUNS)]
        phrases = [f"{verb} the {noun} of project {at}", f"{verb} my {noun} {at}", f"{noun} {at}"]
        (folder / "config.toml").write_text(f"triggers = {json.dumps(phrases)}\n")
        (folder / "default.toml").write_text(
            f"# Description: {verb.capitalize()}s {noun} of project {at}.\n"
            + provider(server_of(at))
        )
    config = home / "config"
    config.mkdir()
    (config / "taps.toml").write_text(f'[[taps]]\nname = "mine"\npath = "{home}/tap"\n')
    return [
        ServerSpec(ServerName(name), "stdio", TapName("mine"), command=name)
        for name in dict.fromkeys(server_of(at) for at in range(count))
    ]


def server_of(at: int) -> str:
    """Return the server of a capability.

    A hundred servers serve all capabilities, because each server's tool list is a file.
    """
    return f"s{at % SERVERS}"


def provider(name: str) -> str:
    """Return the text of a definition with one server, which is never started."""
    return f'[[mcp.servers]]\nname = "{name}"\ntype = "stdio"\ncommand = "{name}"\n'


def keep_lists(home: Path, specs: list[ServerSpec]) -> None:
    """Store every server's tool list, as an earlier run of the daemon would have."""
    import trio  # noqa: PLC0415 - for this step alone

    async def keep() -> None:
        lists = ToolLists(home / "cache/tools")
        for spec in specs:
            tools = [
                ToolDefinition(
                    ToolName(f"tool_{at}"),
                    json.dumps(
                        {
                            "name": f"tool_{at}",
                            "description": f"Does thing {at} of {spec.name}.",
                            "inputSchema": {"type": "object"},
                        }
                    ).encode(),
                )
                for at in range(TOOLS)
            ]
            await lists.keep(server_identity(spec), spec.name, "1", tools)

    (home / "cache").mkdir(parents=True)
    trio.run(keep)


def started_daemon(home: Path) -> "subprocess.Popen[bytes]":
    """Start a daemon and return it at once."""
    environment = {**os.environ, "CAPD_HOME": str(home)}
    command = [sys.executable, "-P", "-m", "capd", "daemon", "run"]
    with (home / "log").open("ab") as log:
        return subprocess.Popen(command, env=environment, stderr=log, cwd="/")


def wait_for_socket(home: Path) -> None:
    """Wait until the daemon serves."""
    give_up_at = time.monotonic() + PATIENCE
    while time.monotonic() < give_up_at:
        try:
            ask(home, "sessions")
        except (DaemonDownError, ControlError):
            time.sleep(0.5)
        else:
            return
    raise SystemExit((home / "log").read_text())


def wait_until_made(home: Path, count: int, *, is_cold: bool) -> None:
    """Wait for the index, and unless `is_cold` for every vector of the catalog."""
    give_up_at = time.monotonic() + PATIENCE
    while time.monotonic() < give_up_at:
        status = ask(home, "status")
        log = (home / "log").read_text()
        is_made = (status.get("index") or {}).get("capabilities", 0) >= count
        if is_made and (is_cold or "tool_vectors_ready" in log):
            return
        time.sleep(0.5)
    raise SystemExit("the index was never made")


def index(home: Path) -> float:
    """Run `capd index --known`; return how long a person waits for it."""
    environment = {**os.environ, "CAPD_HOME": str(home)}
    command = [sys.executable, "-P", "-m", "capd_client.entry", "index", "--known"]
    started = time.monotonic()
    subprocess.run(command, env=environment, cwd="/", check=True, stdout=subprocess.DEVNULL)
    return round(time.monotonic() - started, 2)


def edit(home: Path) -> None:
    """Edit the index file as a person would."""
    file = home / "data/capability-index.yaml"
    text = file.read_text()
    at = text.index("\n    do: ")
    end = text.index("\n", at + 1)
    file.write_text(f"{text[:at]}\n    do: By hand\n    unknown: 1{text[end:]}")


def ask(home: Path, method: str, **params: Any) -> dict[str, Any]:
    with Control(str(home / "run/capd.sock"), timeout=600) as control:
        return control.call(method, params)


if __name__ == "__main__":
    sys.exit(main())
