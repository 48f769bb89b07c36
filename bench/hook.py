"""How long `capd hook` keeps an editor waiting: the time of whole processes.

Run as: python bench/hook.py [RUNS]. It first times the hook with no daemon running. Then it starts
a daemon of its own, connects one session through `capd mcp`, waits for the model, and sends
messages that switch nothing on. So each time is that of starting, connecting, routing and
answering. A bare Python process is timed as well. Prints a table and a line of JSON.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from capd_client.control import Control, DaemonDownError
from capd_client.mcp_host import McpHost, without_capd

CAPD = str(Path(sys.executable).with_name("capd"))
PATIENCE = 60.0


def timed(argv: list[str], env: dict[str, str], said: str) -> float:
    started_at = time.perf_counter()
    subprocess.run(argv, input=said.encode(), env=env, stdout=subprocess.DEVNULL, check=True)
    return (time.perf_counter() - started_at) * 1000


def quantiles(times: list[float]) -> dict[str, float]:
    ordered = sorted(times)
    at_99 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    return {"p50_ms": round(statistics.median(ordered), 1), "p99_ms": round(at_99, 1)}


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    with tempfile.TemporaryDirectory(prefix="capd") as folder:
        env = {**without_capd(), "CAPD_HOME": folder}
        said = json.dumps({"prompt": "thanks, that looks good to me", "cwd": folder})
        hook = [CAPD, "hook", "claude", "UserPromptSubmit"]
        rows = {"no daemon": [timed(hook, env, said) for _ in range(runs)]}
        daemon = subprocess.Popen(
            [CAPD, "daemon", "run"], env=env, stderr=subprocess.DEVNULL, cwd=folder
        )
        try:
            control = ready(f"{folder}/run/capd.sock")
            with McpHost([CAPD, "mcp"], env=env, cwd=folder) as editor:
                editor.initialize("bench")
                while control.call("status")["embedder"]["state"] != "ready":
                    time.sleep(0.1)
                rows["daemon up"] = [timed(hook, env, said) for _ in range(runs)]
                decided = len(control.call("status")["decisions"])
        finally:
            daemon.terminate()
            daemon.wait()
    bare = [sys.executable, "-c", "import json, socket"]
    rows["python, json and socket alone"] = [timed(bare, env, "") for _ in range(runs)]
    figures = {name: quantiles(times) for name, times in rows.items()}
    for name, row in figures.items():
        print(f"{name:32} p50 {row['p50_ms']:7.1f} ms   p99 {row['p99_ms']:7.1f} ms")
    print(json.dumps({"schema": 1, "runs": runs, "decisions_seen": decided, "hook": figures}))


def ready(socket: str) -> Control:
    control = Control(socket)
    give_up_at = time.monotonic() + PATIENCE
    while True:
        try:
            control.connect()
        except DaemonDownError:
            if time.monotonic() > give_up_at:
                raise
            time.sleep(0.05)
        else:
            return control


if __name__ == "__main__":
    main()
