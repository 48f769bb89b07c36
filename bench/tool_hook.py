"""What the hook before each call of a tool costs capd: `python bench/tool_hook.py`.

Claude Code asks the shim for `capd_turn` before it calls a tool of capd (docs/clients.md,
"Sub-agents"). This prints the processor time of the daemon and of the shim for one of each: a
`ping`, that hook for the conversation and for a sub-agent, and a call of a plain server's tool.
The kernel counts it in ticks, so 1,000 of each are made. Compare the rows of one run.
"""

import os
import sys
from collections.abc import Callable
from pathlib import Path

# This replaces the folder of this file, which would hide a package of the same name.
sys.path[0] = str(Path(__file__).parents[1] / "tests")

from whole.test_sub_agents import Editor  # noqa: E402 - its path
from whole_daemon import home_of_its_own  # noqa: E402 - its path

TIMES = 1000


def cpu(pid: int) -> float:
    """Return the milliseconds of processor time that a process has had (man 5 proc_pid_stat)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * 1000 / os.sysconf("SC_CLK_TCK")


def main() -> None:
    with home_of_its_own(is_shipped=False) as home:
        home.leave_out_model()
        home.plain("boats")
        home.start()
        with Editor(home) as editor:
            editor.enable("", "boats")

            def hook(agent: str) -> Callable[[int], object]:
                return lambda n: editor.hook(
                    "PreToolUse", agent_id=agent, tool_use_id=f"{agent}{n}", skill=""
                )

            rows: dict[str, Callable[[int], object]] = {
                "ping": lambda _: editor.ask("ping"),
                "hook of the conversation": hook(""),
                "hook of a sub-agent": hook("a1"),
                "call": lambda _: editor.call("boats__echo", {"text": "x"}),
            }
            pids = home.processes[-1].pid, editor.process.pid
            print(f"{'ms of processor time each':27}{'daemon':>8}{'shim':>8}")
            for name, once in rows.items():
                before = [cpu(pid) for pid in pids]
                for n in range(TIMES):
                    once(n)
                taken = [(cpu(pid) - b) / TIMES for pid, b in zip(pids, before, strict=True)]
                print(f"{name:27}{taken[0]:8.2f}{taken[1]:8.2f}")


if __name__ == "__main__":
    main()
