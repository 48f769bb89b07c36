"""What memories add to an activation, and to a call: `python bench/memories.py [RUNS]`.

Two daemons are compared: one has no memories, the other has 1,000. Of these, 20 are about the
capability or its tool, and 10 of the 20 refuse calls. Each run opens a session at each daemon in
turn. The session switches the capability on, whose server runs already, and calls its tool. The
program prints the times of both daemons, what memories add, and the same as one line of JSON.
"""

import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

# This replaces the folder of this file, which would hide a package of the same name.
sys.path[0] = str(Path(__file__).parents[1] / "tests")

from whole_daemon import Home, wait_for  # noqa: E402 - its path

OTHERS, OWN, CALLS = 980, 10, 20
WORDS = "The label of an issue is written without its area, and goes behind the milestone. "


def write_memories(home: Home) -> None:
    folder = home.folder / "tap/memories"
    folder.mkdir()

    def write(name: str, more: str) -> None:
        text = f'content = "{name}: {WORDS * 3}"\n{more}'
        (folder / f"{name}.toml").write_text(text)

    for n in range(OTHERS):
        write(f"other-{n}", f'kind = "declarative"\ncapability = "other-{n}"\n')
    for n in range(OWN):
        write(f"fact-{n}", 'kind = "declarative"\ncapability = "talk"\n')
        schema = f'required = ["label"]\nproperties.label.const = "area-{n}"\n'
        head = 'kind = "corrective"\ntool = "talk:echo"\nrefuses = true\n[arguments]\n'
        write(f"mistake-{n}", head + schema)


@contextmanager
def made_home(*, has_memories: bool) -> Iterator[Home]:
    folder = Path(tempfile.mkdtemp(prefix="capd"))
    home = Home(folder)
    home.plain("talk")
    if has_memories:
        write_memories(home)
    home.start()
    try:
        yield home
    finally:
        home.close()
        shutil.rmtree(folder, ignore_errors=True)


def timed(home: Home, session: str) -> tuple[float, list[float], bool]:
    """Return the ms of an activation, those of each call, and whether memories were delivered."""
    with home.shim(session) as editor:
        began = time.perf_counter()
        result = editor.call("capability", {"action": "enable", "name": "talk"})
        took = time.perf_counter() - began
        calls = []
        for n in range(CALLS):
            began = time.perf_counter()
            editor.call("talk__echo", {"text": str(n), "label": "goals"})
            calls.append((time.perf_counter() - began) * 1000)
    return took * 1000, calls, len(result["content"]) > 1


def quantiles(times: list[float]) -> dict[str, float]:
    ordered = sorted(times)
    at_99 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    return {"p50_ms": round(statistics.median(ordered), 2), "p99_ms": round(at_99, 2)}


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    kinds = {"without": False, "with memories": True}
    activations: dict[str, list[float]] = {kind: [] for kind in kinds}
    calls: dict[str, list[float]] = {kind: [] for kind in kinds}
    with ExitStack() as stack:
        homes = {
            kind: stack.enter_context(made_home(has_memories=has)) for kind, has in kinds.items()
        }
        for home in homes.values():
            # This session keeps the server running for all others.
            holder = stack.enter_context(home.shim("holder"))
            holder.call("capability", {"action": "enable", "name": "talk"})
        listed = homes["with memories"].ask("memories")["memories"]
        assert len(listed) == OTHERS + 2 * OWN
        wait_for(lambda: homes["with memories"].ask("status")["embedder"]["state"] == "ready")
        for run in range(runs):
            for kind, home in homes.items():
                took, of_calls, is_told = timed(home, f"run-{run}")
                assert is_told is kinds[kind]
                activations[kind].append(took)
                calls[kind] += of_calls
    figures = {}
    for what, times in (("activation", activations), ("call", calls)):
        rows = {kind: quantiles(of) for kind, of in times.items()}
        added = {
            key: round(rows["with memories"][key] - rows["without"][key], 2)
            for key in ("p50_ms", "p99_ms")
        }
        figures[what] = {**rows, "added": added}
        for kind, row in figures[what].items():
            print(f"{what:11} {kind:14} p50 {row['p50_ms']:8.2f} ms   p99 {row['p99_ms']:8.2f} ms")
    print(json.dumps({"schema": 1, "runs": runs, "memories": len(listed), "bench": figures}))


if __name__ == "__main__":
    main()
