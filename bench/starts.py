"""What confinement adds to the start of a server.

    python bench/starts.py [--rounds N]

Starts a shell in each of the ways, in turns, and takes the time from the request to the first
byte that it writes. Prints the median of each way, and the median of its ratios to the level `off`
in the same round: a busy moment of the machine hits all alike.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import trio

from capd.adapters.servers.processes import ProcessSpec, running
from capd.adapters.servers.sandboxing import SandboxPlan, machine, own_folders
from capd.core.errors import CapdError
from capd.core.servers.sandbox import SandboxRequest
from capd_protos.places import places


@dataclass(frozen=True)
class DirectRoute:
    """One way to start a server."""

    name: str
    sandbox_request: SandboxRequest


WAYS = (
    DirectRoute("off", SandboxRequest("off")),
    DirectRoute("guard, apart", SandboxRequest(is_covered=False)),
    DirectRoute("guard", SandboxRequest()),
    DirectRoute("guard, ssh masked", SandboxRequest(masks=("ssh",))),
    DirectRoute("strict", SandboxRequest("strict")),
)


async def start(way: DirectRoute, root: Path) -> float:
    """Return how long a start takes, in milliseconds."""
    where = places({"CAPD_HOME": str(root / "capd"), "HOME": str(root)}, os.getuid())
    environment = {"HOME": str(root), "PATH": os.defpath}
    cache = Path(where.cache, "sandbox", "bench")
    box = SandboxPlan(
        way.sandbox_request, (), environment, str(root), cache, folders=own_folders(where, {})
    )
    begun = time.perf_counter()
    spec = ProcessSpec(("/bin/sh", "-c", "echo; cat"), environment, root, box)
    async with running(spec) as process:
        await process.stdout.receive_some()
        return (time.perf_counter() - begun) * 1000


async def measure(rounds: int) -> None:
    """Print a table."""
    machine()
    times: dict[str, list[float]] = {way.name: [] for way in WAYS}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve()
        (root / ".ssh").mkdir()
        for number in range(rounds + 1):
            for way in WAYS:
                try:
                    taken = await start(way, root)
                except CapdError as error:
                    sys.stderr.write(f"{way.name}: {error}\n")
                    continue
                # The first of each pays for caches.
                if number:
                    times[way.name].append(taken)
    print(f"{'way':<20}{'p50 ms':>8}{'p90 ms':>8}{'ratio to off':>14}{'more ms':>9}")
    base = times["off"]
    for name, mine in times.items():
        if len(mine) != len(base):
            continue
        ratio = statistics.median(one / other for one, other in zip(mine, base, strict=True))
        more = statistics.median(one - other for one, other in zip(mine, base, strict=True))
        p90 = statistics.quantiles(mine, n=10)[-1] if len(mine) > 1 else mine[0]
        p50 = statistics.median(mine)
        print(f"{name:<20}{p50:>8.1f}{p90:>8.1f}{ratio:>14.2f}{more:>9.1f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    trio.run(measure, parser.parse_args().rounds)
