"""What a script costs against single calls: `python bench/scripts.py`.

One daemon and one server whose every call takes 20 ms or none, and answers with 2 kB of JSON:

- twelve calls one after the other, and one script of twelve: seconds, and prompt tokens of a model
  that pays for its whole conversation with each request;
- an inner call against a `tools/call` of its own, both without work at the server (medians);
- the first script of a daemon, and the ones after it;
- the daemon's memory before the first script, and after.

Prints a table, and the same as one line of JSON.
"""

import json
import shutil
import statistics
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

# In place of this folder, where this file would hide packages of its name.
sys.path[0] = str(Path(__file__).parents[1] / "tests")

from capd.adapters.platform import rss_bytes  # noqa: E402 - as above
from capd.adapters.tokens.token_counts import count  # noqa: E402 - as above
from capd_client.mcp_host import McpHost  # noqa: E402 - as above
from whole_daemon import Home  # noqa: E402 - its path

ITEMS = 12
INNER = 200
WARM = 30
SYSTEM_TOKENS = 1_000
"""Of a system prompt and the user's message, beside the tools that are listed."""

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
    """Return what all requests of a turn read: the list, and what was said before each."""
    said, total = SYSTEM_TOKENS + count(listed), 0
    for call, result in [*rounds, ("", "")]:
        total += said
        said += count(call) + count(result)
    return total


def measured(home: Home) -> dict[str, float]:
    server = home.folder / "tracker.py"
    server.write_text(SERVER)
    home.capability("tracker", [sys.executable, "-I", str(server), home.tag])
    daemon = home.start()
    with home.shim("bench") as editor:
        editor.call("capability", {"action": "enable", "name": "tracker"})
        single(editor, 0, 0)
        before = rss_bytes(daemon.pid)
        cold = seconds(lambda: script(editor, "1 + 1"))
        warm = statistics.median(seconds(lambda: script(editor, "1 + 1")) for _ in range(WARM))
        listed = json.dumps(editor.tools())
        results: list[str] = []
        apart = seconds(lambda: results.extend(single(editor, n, 20) for n in range(ITEMS)))
        together_said: list[str] = []
        together = seconds(lambda: together_said.append(script(editor, FAN_OUT)))
        calls = [json.dumps({"name": "tracker__get", "arguments": {"n": n}}) for n in range(ITEMS)]
        direct = statistics.median(seconds(lambda: single(editor, 0, 0)) for _ in range(INNER))
        inner = (seconds(lambda: script(editor, MANY)) - warm) / INNER
        after = rss_bytes(daemon.pid)
    tokens_apart = prompt_tokens(listed, list(zip(calls, results, strict=True)))
    tokens_together = prompt_tokens(listed, [(FAN_OUT, together_said[0])])
    return {
        "cold_ms": 1000 * cold,
        "warm_ms": 1000 * warm,
        "apart_ms": 1000 * apart,
        "together_ms": 1000 * together,
        "time_share": together / apart,
        "tokens_apart": tokens_apart,
        "tokens_together": tokens_together,
        "token_share": tokens_together / tokens_apart,
        "direct_ms": 1000 * direct,
        "inner_ms": 1000 * inner,
        "overhead_ms": 1000 * (inner - direct),
        "daemon_grown_kib": ((after or 0) - (before or 0)) / 1024,
    }


def main() -> None:
    folder = Path(tempfile.mkdtemp(prefix="capd"))
    home = Home(folder)
    try:
        found = measured(home)
        home.close()
    finally:
        for process in home.processes:
            process.kill()
            process.wait()
        shutil.rmtree(folder, ignore_errors=True)
    for name, value in found.items():
        print(f"{name:>18} {value:12,.2f}")
    print(json.dumps({name: round(value, 3) for name, value in found.items()}))


if __name__ == "__main__":
    main()
