"""How long an editor waits for the shim, and what it keeps resident.

    python bench/shim.py [SOCKET]

Starts the shim twenty times by each of its two commands, with the daemon at SOCKET or one that
this script plays. Measures the time from the start of the process to the line that answers
`initialize`. Prints a table, and the same as one line of JSON.
"""

import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

RUNS = 20
LAUNCHER = Path(__file__).parents[1] / "clients" / "capd_client" / "launch.py"
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "bench", "version": "1"},
    },
}
WELCOME = {
    "capd": "welcome",
    "protocol": 1,
    "daemon": {"version": "0", "pid": 77},
    "session": "bench-1",
    "resume": "token",
    "resumed": False,
    "want_env": ["HOME"],
}


def line(message: dict[str, Any]) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def play_daemon(path: str) -> None:
    """Accept every connection and answer its requests."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(128)

    def serve(sock: socket.socket) -> None:
        with sock, sock.makefile("rb") as lines:
            next(lines)
            sock.sendall(line(WELCOME))
            for each in lines:
                request = json.loads(each)
                if "id" in request:
                    sock.sendall(line({"jsonrpc": "2.0", "id": request["id"], "result": {}}))

    def accept() -> None:
        while True:
            sock, _ = listener.accept()
            threading.Thread(target=serve, args=(sock,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()


def measure(command: list[str], env: dict[str, str]) -> tuple[float, int]:
    """Return the milliseconds to the initialize reply and the peak of resident KiB."""
    started = time.perf_counter()
    with subprocess.Popen(
        command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(line(INITIALIZE))
        reply = json.loads(process.stdout.readline())
        took = (time.perf_counter() - started) * 1000
        assert "result" in reply, reply
        status = Path(f"/proc/{process.pid}/status").read_text()
        process.stdin.close()
    peak = next(each for each in status.splitlines() if each.startswith("VmHWM:"))
    return took, int(peak.split()[1])


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        path = sys.argv[1] if len(sys.argv) > 1 else f"{folder}/capd.sock"
        if len(sys.argv) == 1:
            play_daemon(path)
        env = {**os.environ, "CAPD_SOCKET": path, "CAPD_NO_START": "1"}
        script = Path(sys.executable).with_name("capd")
        commands = {
            "python -I -S launch.py": [sys.executable, "-I", "-S", str(LAUNCHER), path],
            "capd mcp": [str(script), "mcp"],
        }
        results: dict[str, dict[str, float]] = {}
        print(f"{'command':<24} {'median ms':>9} {'best':>6} {'worst':>6} {'peak MiB':>8}")
        for name, command in commands.items():
            # The first run writes bytecode and fills the page cache.
            measure(command, env)
            runs = [measure(command, env) for _ in range(RUNS)]
            times = sorted(took for took, _ in runs)
            peak = max(kib for _, kib in runs) / 1024
            median = statistics.median(times)
            print(f"{name:<24} {median:>9.1f} {times[0]:>6.1f} {times[-1]:>6.1f} {peak:>8.1f}")
            results[name] = {"median_ms": round(median, 1), "peak_mib": round(peak, 1)}
        print(json.dumps({"schema": 1, "runs": RUNS, "shim": results}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
