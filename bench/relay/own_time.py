"""Where capd's own time goes for a call of 100 B: by process, by layer and by function.

First the plain programs are measured, then a daemon and a shim that sample themselves; the shares
of the samples are applied to the CPU time of the plain ones.
"""

import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from bench.relay import peers, process_trees, subjects
from bench.relay.capd_home import CapdHome
from bench.relay.measures import WORKLOADS, latencies, quantile
from bench.relay.subjects import Subject

import capd_client
from capd_client.daemon_process import daemon_environment

_SAMPLED = Path(__file__).with_name("sampled.py")
_SHIM = Path(capd_client.__file__).with_name("launch.py")
_TURNS = 10
_SHOWN = 22
_LAYERS = ("trio", "msgspec", "zmq", "structlog", "capd_client", "capd_protos", "capd", "lib")


@dataclass(frozen=True, slots=True)
class Usage:
    """The CPU microseconds and the voluntary context switches of one process per call."""

    cpu_us: float
    switches: float


def main(root: Path, calls: int) -> int:
    daemon_us, shim_us = _plain(root, calls)
    stacks = _sampled(root, calls)
    for who, per_call in (("daemon", daemon_us), ("shim", shim_us)):
        _print_shares(who, stacks[who], per_call)
    return 0


def _plain(root: Path, calls: int) -> tuple[float, float]:
    home = CapdHome(Path(tempfile.mkdtemp(dir=root)))
    daemon = home.start()
    home.load_model()
    folder = Path(tempfile.mkdtemp(dir=root))
    rows = {
        "direct": subjects.open_peer("direct", "Node", peers.direct(), folder, 0),
        "capd socket": subjects.open_capd_socket(home, "capd socket", "bench-socket"),
        "capd": subjects.open_capd(home, "capd"),
    }
    shim = rows["capd"].roots[0]
    server = rows["capd"].server_pids()[0]
    # The row "direct" has another server of its own, which is not watched.
    watched = {"shim": shim, "daemon": daemon.pid, "server": server}
    taken: dict[str, list[float]] = {name: [] for name in rows}
    usage: dict[str, dict[str, list[Usage]]] = {name: {} for name in rows}
    for _ in range(_TURNS):
        for name, subject in rows.items():
            before = {who: _usage(pid) for who, pid in watched.items()}
            each = latencies(subject, WORKLOADS[0], calls // _TURNS)
            taken[name] += each
            for who, pid in watched.items():
                after = _usage(pid)
                spent = Usage(
                    (after.cpu_us - before[who].cpu_us) / len(each),
                    (after.switches - before[who].switches) / len(each),
                )
                usage[name].setdefault(who, []).append(spent)
    print(f"{'':<14}{'p50 ms':>8}{'p99 ms':>8}   CPU us a call / times asleep a call")
    daemon_us = shim_us = 0.0
    for name, times in taken.items():
        line = f"{name:<14}{quantile(times, 0.5):>8.3f}{quantile(times, 0.99):>8.3f}  "
        for who, turns in usage[name].items():
            cpu = quantile([turn.cpu_us for turn in turns], 0.5)
            asleep = quantile([turn.switches for turn in turns], 0.5)
            line += f" {who} {cpu:.0f} / {asleep:.1f} "
            if name == "capd" and who == "daemon":
                daemon_us = cpu
            if name == "capd" and who == "shim":
                shim_us = cpu
        print(line)
    for subject in rows.values():
        subject.wire.close()
    process_trees.end_trees([shim, rows["direct"].roots[0], daemon.pid])
    return daemon_us, shim_us


def _sampled(root: Path, calls: int) -> dict[str, list[list[str]]]:
    home = CapdHome(Path(tempfile.mkdtemp(dir=root)))
    # With a variable of Python's, the daemon would replace its process, and the timer would end it.
    home.env = daemon_environment(home.env)
    output = {who: root / f"{who}.samples" for who in ("daemon", "shim")}
    python = sys.executable
    daemon = home.start(
        [python, "-P", str(_SAMPLED), str(output["daemon"]), "-m", "capd", "daemon", "run"]
    )
    home.load_model()
    home.shim = [python, "-I", "-S", str(_SAMPLED), str(output["shim"]), str(_SHIM), home.socket]
    subject = subjects.open_capd(home, "sampled")
    began_at = time.monotonic()
    latencies(subject, WORKLOADS[0], calls)
    ended_at = time.monotonic()
    _close(subject)
    process_trees.end_trees([daemon.pid])
    return {who: _stacks(path, began_at, ended_at) for who, path in output.items()}


def _close(subject: Subject) -> None:
    """Close the shim's input, as an editor does, and wait until it ends: it then writes samples."""
    subject.wire.close()
    give_up_at = time.monotonic() + 10.0
    while process_trees.tree(subject.roots[:1]) and time.monotonic() < give_up_at:
        time.sleep(0.02)


def _usage(pid: int) -> Usage:
    return Usage(process_trees.cpu_seconds([pid]) * 1e6, process_trees.voluntary_switches(pid))


def _stacks(path: Path, began_at: float, ended_at: float) -> list[list[str]]:
    found = []
    for line in path.read_text(encoding="utf-8").splitlines():
        at, _, stack = line.partition("\t")
        if began_at <= float(at) <= ended_at:
            found.append([_short(frame) for frame in stack.split(";")])
    return found


def _short(frame: str) -> str:
    """Return `layer/file:function` of a frame."""
    path, _, function = frame.rpartition(":")
    parts = Path(path).parts
    layer = next((each for each in _LAYERS if each in parts[:-1]), "")
    return f"{layer or 'lib'}/{parts[-1] if parts else path}:{function}"


def _print_shares(who: str, stacks: list[list[str]], per_call: float) -> None:
    if not stacks:
        print(f"\n{who}: no samples")
        return
    print(f"\n{who}: {per_call:.0f} us of CPU a call, {len(stacks)} samples")
    layers = Counter(stack[-1].split("/")[0] for stack in stacks)
    _print_top("by layer, self", layers.most_common(), len(stacks), per_call)
    own = Counter(stack[-1] for stack in stacks)
    _print_top("by function, self", own.most_common(_SHOWN), len(stacks), per_call)
    under = Counter(frame for stack in stacks for frame in set(stack))
    ours = [(frame, n) for frame, n in under.most_common() if frame.startswith("capd")]
    _print_top("by function of ours, with what it calls", ours[:_SHOWN], len(stacks), per_call)


def _print_top(title: str, entries: Iterable[tuple[str, int]], total: int, per_call: float) -> None:
    print(f"  {title}")
    for name, number in entries:
        share = number / total
        print(f"    {share * 100:5.1f} %  {share * per_call:6.1f} us  {name}")
