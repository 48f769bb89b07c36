"""What a script costs against single calls: `python bench/scripts.py [--write]`.

One daemon and one server whose every call takes 20 ms or none, and answers with 2 kB of JSON:

- twelve calls one after the other, and one script of twelve: seconds, and prompt tokens of a model
  that pays for its whole conversation with each request;
- an inner call against a `tools/call` of its own, both without work at the server (medians);
- the first script of a daemon, and the ones after it, each of them another text;
- the daemon's memory before the first script, beside one that has scripts switched off.

Prints a table with what is wanted of each figure, met or MISSED. `--write` puts it in
docs/scripts.md.
"""

import argparse
import json
import shutil
import statistics
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

# This replaces the folder of this file, which would hide packages of the same name.
sys.path[0] = str(Path(__file__).parents[1] / "tests")

from capd.adapters.platform import rss_bytes  # noqa: E402 - as above
from capd.adapters.tokens.token_counts import count  # noqa: E402 - as above
from capd_client.mcp_host import McpHost  # noqa: E402 - as above
from whole_daemon import Home  # noqa: E402 - its path

PAGE = Path(__file__).parents[1] / "docs" / "scripts.md"
BEGIN, END = "<!-- bench/scripts.py --write -->\n", "<!-- end -->\n"
ITEMS = 12
ROUNDS = 5
INNER = 100
WARM = 30
COLD = 3
SYSTEM_TOKENS = 1_000
"""The tokens of a system prompt and the user's message, without the listed tools."""

SERVER = textwrap.dedent(
    """
    import json, sys, threading, time
    SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}, "ms": {"type": "integer"}}}
    lock = threading.Lock()

    def say(request, result):
        line = json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result})
        with lock:
            sys.stdout.write(line + "\\n")
            sys.stdout.flush()

    def called(request):
        asked = request["params"]["arguments"]
        time.sleep(asked.get("ms", 0) / 1000)
        item = {"number": asked["n"], "title": f"Issue {asked['n']}", "body": "words " * 330}
        say(request, {"content": [{"type": "text", "text": json.dumps(item)}]})

    for line in sys.stdin:
        request = json.loads(line)
        match request.get("method"):
            case "initialize":
                say(request, {"protocolVersion": request["params"]["protocolVersion"],
                    "capabilities": {"tools": {}}, "serverInfo": {"name": "t", "version": "1"}})
            case "tools/list":
                say(request, {"tools": [{"name": "get", "description": "Return an issue.",
                    "inputSchema": SCHEMA}]})
            case "tools/call":
                threading.Thread(target=called, args=(request,)).start()
            case _ if "id" in request:
                say(request, {})
    """
)
FAN_OUT = """
import asyncio
issues = await asyncio.gather(*[tracker.get(n=n, ms=20) for n in range(12)])
[issue["title"] for issue in issues]
"""
MANY = f"for n in range({INNER}):\n    await tracker.get(n=n, ms=0)\n"


def seconds(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


def text_of(result: dict[str, object]) -> str:
    content = result["content"]
    assert isinstance(content, list)
    return "\n".join(str(block["text"]) for block in content)


def script(editor: McpHost, code: str) -> str:
    result = editor.call("script_run", {"code": code}, 120)
    assert not result.get("isError"), result
    return text_of(result)


def single(editor: McpHost, n: int, ms: int) -> str:
    return text_of(editor.call("tracker__get", {"n": n, "ms": ms}))


def prompt_tokens(listed: str, rounds: list[tuple[str, str]]) -> int:
    """Return the tokens that all requests of a turn read."""
    said, total = SYSTEM_TOKENS + count(listed), 0
    for call, result in [*rounds, ("", "")]:
        total += said
        said += count(call) + count(result)
    return total


@dataclass(frozen=True)
class Figure:
    """A line of the table; `wanted` is the most that it may be."""

    name: str
    value: float
    unit: str
    wanted: float | None = None

    @property
    def columns(self) -> tuple[str, str, str]:
        if self.wanted is None:
            return self.name, self._said(self.value), "stated"
        word = "met" if self.value <= self.wanted else "MISSED"
        return self.name, self._said(self.value), f"{word}: at most {self._said(self.wanted)}"

    def _said(self, value: float) -> str:
        if self.unit == "%":
            return f"{100 * value:.1f} %"
        digits = 0 if self.unit in {"tokens", "KiB"} else 2
        return f"{value:,.{digits}f} {self.unit}".rstrip()


def capd_with_tracker(folder: Path, *, is_enabled: bool = True) -> Home:
    folder.mkdir(mode=0o700)
    home = Home(folder)
    server = home.folder / "tracker.py"
    server.write_text(SERVER)
    home.capability("tracker", [sys.executable, "-I", str(server), home.tag])
    if not is_enabled:
        (home.folder / "config" / "config.toml").write_text("[scripts]\nenabled = false\n")
    return home


def idle_bytes(folder: Path, *, is_enabled: bool) -> int:
    """Return the memory of a daemon in which a tool was called, and no script."""
    home = capd_with_tracker(folder, is_enabled=is_enabled)
    try:
        daemon = home.start()
        with home.shim("bench") as editor:
            editor.call("capability", {"action": "enable", "name": "tracker"})
            single(editor, 0, 0)
            return rss_bytes(daemon.pid) or 0
    finally:
        stopped(home)


def cold(folder: Path) -> float:
    """Return the seconds of a daemon's first script."""
    home = capd_with_tracker(folder)
    try:
        home.start()
        with home.shim("bench") as editor:
            editor.call("capability", {"action": "enable", "name": "tracker"})
            single(editor, 0, 0)
            return seconds(lambda: script(editor, "1 + 1"))
    finally:
        stopped(home)


def stopped(home: Home) -> None:
    home.close()
    for process in home.processes:
        process.kill()
        process.wait()


def measured(folder: Path) -> list[Figure]:
    colds = [cold(folder / f"cold{n}") for n in range(COLD)]
    idle = [
        statistics.median(
            idle_bytes(folder / f"idle{n}{is_enabled}", is_enabled=is_enabled) for n in range(COLD)
        )
        for is_enabled in (True, False)
    ]
    home = capd_with_tracker(folder / "warm")
    try:
        daemon = home.start()
        with home.shim("bench") as editor:
            editor.call("capability", {"action": "enable", "name": "tracker"})
            single(editor, 0, 0)
            before = rss_bytes(daemon.pid) or 0
            script(editor, "1 + 1")
            # Each is another script: nothing that is known of the one before helps it.
            warms = [
                seconds(partial(script, editor, f"x{n} = [{n}]\nx{n}[0] + 1")) for n in range(WARM)
            ]
            warm = statistics.median(warms)
            listed = json.dumps(editor.tools())
            results: list[str] = []
            together_said: list[str] = []
            aparts, togethers = [], []
            for _ in range(ROUNDS):
                aparts.append(
                    seconds(lambda: results.extend(single(editor, n, 20) for n in range(ITEMS)))
                )
                togethers.append(seconds(lambda: together_said.append(script(editor, FAN_OUT))))
            apart, together = statistics.median(aparts), statistics.median(togethers)
            calls = [
                json.dumps({"name": "tracker__get", "arguments": {"n": n}}) for n in range(ITEMS)
            ]
            directs, inners = [], []
            for _ in range(ROUNDS):
                directs += [seconds(lambda: single(editor, 0, 0)) for _ in range(INNER)]
                inners.append((seconds(lambda: script(editor, MANY)) - warm) / INNER)
            after = rss_bytes(daemon.pid) or 0
    finally:
        stopped(home)
    direct, inner = statistics.median(directs), statistics.median(inners)
    tokens_apart = prompt_tokens(listed, list(zip(calls, results[:ITEMS], strict=True)))
    tokens_together = prompt_tokens(listed, [(FAN_OUT, together_said[0])])
    return [
        Figure("first script of a daemon", 1000 * statistics.median(colds), "ms", 150),
        Figure("each further script", 1000 * warm, "ms", 10),
        Figure(f"{ITEMS} calls one after the other", 1000 * apart, "ms"),
        Figure(f"one script of {ITEMS} calls", 1000 * together, "ms"),
        Figure("its share of the time", together / apart, "", 0.4),
        Figure(f"prompts of {ITEMS} single calls", tokens_apart, "tokens"),
        Figure("prompts with one script", tokens_together, "tokens"),
        Figure("its share of the tokens", tokens_together / tokens_apart, "%", 0.15),
        Figure("a call by itself", 1000 * direct, "ms"),
        Figure("a call in a script", 1000 * inner, "ms"),
        Figure("what a script adds to a call", 1000 * (inner - direct), "ms", 0.5),
        Figure("daemon before any script", idle[0] / 1024, "KiB"),
        Figure("daemon with scripts switched off", idle[1] / 1024, "KiB"),
        Figure("daemon, grown after all of these", (after - before) / 1024, "KiB"),
    ]


def write(figures: list[Figure]) -> None:
    """Put the figures in the page."""
    rows = [" | ".join(each.columns) for each in figures]
    table = "\n".join(
        ["| what | measured | wanted |", "|---|---|---|", *(f"| {r} |" for r in rows)]
    )
    page = PAGE.read_text(encoding="utf-8")
    front, rest = page.split(BEGIN)
    PAGE.write_text(f"{front}{BEGIN}\n{table}\n\n{END}{rest.split(END)[1]}", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="put the table in docs/scripts.md")
    asked = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="capd"))
    try:
        figures = measured(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    for each in figures:
        name, value, word = each.columns
        print(f"{name:>34} {value:>15}  {word}")
    if asked.write:
        write(figures)


if __name__ == "__main__":
    main()
