"""What files of strangers cost the daemon: the longest gap of its event loop, and memory.

    python -m bench.hostile_files [NAME...]

Each attack is a project (or a tap). The daemon's own code for settings and catalogs reads it in
this process, while another task measures how long the event loop keeps it waiting. For each attack
the program prints the longest gap, the most by which this process's memory grew, the time until
everything was read, and the first problem that was reported. The limits are 50 ms and 10 MiB.
"""

import argparse
import contextlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import trio

from capd.actors.registry.catalog_vectors import CatalogVectors
from capd.actors.registry.project_catalogs import ProjectCatalogs
from capd.adapters.live_settings import LiveSettings
from capd.adapters.parsing.parser import Parser
from capd.adapters.routing_files import read_profile
from capd.adapters.tap_files import TapPlace, read_tap
from capd.adapters.trust.trust_file import TrustFile
from capd.core.taps.catalog import Catalog
from capd.runtime.bus import Bus
from capd_protos.types import ActorName, Address, TapName

LONGEST_GAP = 0.05
MOST_BYTES = 10 << 20
TICK = 0.001
TRIGGERS = 'triggers = ["one of a", "two of a", "three of a"]\n'
SETTINGS = ".capd.toml"

Attack = Callable[[Path], object]


def settings(text: str) -> Attack:
    """Return the attack that writes `text` as a project's settings file."""
    return lambda root: (root / SETTINGS).write_text(text)


def memories(text: str, count: int = 1, suffix: str = "toml") -> Attack:
    """Return the attack that writes `count` memories with `text`; `%N` becomes the number."""

    def write(root: Path) -> None:
        folder = root / ".capd/memories"
        folder.mkdir(parents=True)
        for n in range(count):
            (folder / f"m{n}.{suffix}").write_text(text.replace("%N", str(n)))

    return write


def capability(provider: str, config: str = TRIGGERS, count: int = 1) -> Attack:
    """Return the attack that writes `count` capabilities; `%N` becomes the number."""

    def write(root: Path) -> None:
        for n in range(count):
            folder = root / f".capd/capabilities/c{n}"
            folder.mkdir(parents=True)
            (folder / "config.toml").write_text(config.replace("%N", str(n)))
            (folder / "default.toml").write_text(provider.replace("%N", str(n)))

    return write


def skills(text: str, count: int = 1) -> Attack:
    """Return the attack that writes `count` skills with `text`; `%N` becomes the number."""

    def write(root: Path) -> None:
        for n in range(count):
            folder = root / f"skills/s{n}"
            folder.mkdir(parents=True)
            (folder / "SKILL.md").write_text(text.replace("%N", str(n)))

    return write


def many_providers(root: Path) -> None:
    folder = root / ".capd/capabilities/c"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(TRIGGERS)
    for n in range(3000):
        (folder / f"p{n}.toml").write_text("x = 1\n" * 500)
    (folder / "default.toml").write_text("x = 1\n")


MEMORY = 'kind = "declarative"\ntool = "x:y"\n'
SERVER = '[[mcp.servers]]\nname = "s%N"\ncommand = "npx"\n'
SERVERS = "".join(
    f'[[mcp.servers]]\nname = "s{n}"\ncommand = "./a"\nargs = ["{n} %N"]\n' for n in range(30)
)

ATTACKS: dict[str, Attack] = {
    # The four attacks that were reported first.
    "settings: 3 KB of spaces": settings('a = """\n' + " " * 3000 + '"""\nservers = 1\n'),
    "settings: 120 KB of dots": settings("a" + ".a" * 60_000 + " = 1\n"),
    "settings: 80,000 rules": settings(
        "[policy]\ndeny = [" + ",".join(f'"x{n}*[ab]?"' for n in range(80_000)) + "]\n"
    ),
    "memory: 3 KB of spaces": memories(MEMORY + 'content = """x\n' + " " * 3000 + '"""\nzz = 1\n'),
    # Similar attacks, some within the limit on a file's size.
    "settings: 60 KB of dots": settings("a" + ".a" * 30_000 + " = 1\n"),
    "settings: 60 KB of dots, a thousand times": settings(f"{'a.' * 29}b = 1\n" * 1000),
    "settings: 5,000 rules": settings(
        "[policy]\ndeny = [" + ",".join(f'"x{n}*[ab]?"' for n in range(4000)) + "]\n"
    ),
    "settings: 7,000 unknown keys": settings("".join(f"k{n} = 1\n" for n in range(6500))),
    "settings: 60,000 brackets": settings("a = " + "[" * 60_000),
    "settings: tables in tables": settings("a = " + "{b=" * 300 + "1" + "}" * 300 + "\n"),
    "settings: 50,000 unknown keys": settings("".join(f"k{n} = 1\n" for n in range(50_000))),
    "settings: 100,000 brackets": settings("a = " + "[" * 100_000),
    "settings: 30,000 tables": settings("".join(f"[a.b{n}]\n" for n in range(30_000))),
    "settings: a key of a megabyte": settings('"' + "k" * 1_000_000 + '" = 1\n'),
    "settings: a number of 100,000 digits": settings("a = " + "9" * 100_000 + "\n"),
    "settings: dearest rules that count": settings(
        "[policy]\ndeny = [" + ",".join(f'"*:*{"[!a]*?*" * 14}{n}*"' for n in range(64)) + "]\n"
    ),
    "memory: a thousand, each slow": memories(MEMORY + "x" + ".y" * 20_000 + " = %N\n", 1000),
    "memory: a thousand of 60 KB": memories(
        MEMORY + f'content = """{"word " * 12_000}%N"""\n', 1000
    ),
    "memory: nested heads": memories("---\nkind: " + "[" * 8000 + "\n---\nx\n", 200, "md"),
    "memory: an endless schema": memories(
        MEMORY + "[arguments]\nrequired = ['a']\nproperties.a" + ".not" * 3000 + ".x = 1\n", 50
    ),
    "capability: a title of spaces": capability(
        "# Title: a" + " " * 100_000 + "\u2028b\n" + SERVER, count=50
    ),
    "capability: 50,000 triggers": capability(
        SERVER, "triggers = [" + ",".join(f'"t{n}"' for n in range(12_000)) + "]\n", 50
    ),
    "capability: 20,000 of no trigger": capability(
        SERVER, "triggers = [" + ",".join(map(str, range(20_000))) + "]\n", 50
    ),
    "capability: 256 of 30 servers": capability(SERVERS, count=256),
    "capability: names a hundred thousand files": capability(
        f'{SERVER}args = ["{" ".join(f"a{n}" for n in range(15_000))}"]\n', count=60
    ),
    "capability: 3,000 providers": many_providers,
    "capability: dots": capability("a" + ".a" * 50_000 + " = 1\n", count=250),
    "skill: a thousand of nested heads": skills(
        "---\nname: %N\na: " + "[" * 8000 + "\n---\nx", 1000
    ),
    "skill: anchors": skills(
        "---\na: &a [x,x,x,x,x,x,x,x,x]\n"
        + "".join(
            f"{chr(98 + n)}: &{chr(98 + n)} [{','.join([f'*{chr(97 + n)}'] * 9)}]\n"
            for n in range(20)
        )
        + "---\nx",
        100,
    ),
}


def written(name: str, root: Path) -> Path:
    """Write an attack below `root`, and return its folder."""
    folder = root / "".join(c if c.isalnum() else "-" for c in name)
    folder.mkdir()
    ATTACKS[name](folder)
    return folder


def peak_bytes() -> int:
    """Return the most memory that this process has had since `forget_peak`."""
    text = Path("/proc/self/status").read_text()
    return int(text.split("VmHWM:")[1].split()[0]) * 1024


def forget_peak() -> int:
    """Reset the peak; return the memory in use."""
    Path("/proc/self/clear_refs").write_text("5")
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def _tick(longest: list[float]) -> None:
    last, cpu = trio.current_time(), time.process_time()
    while True:
        await trio.sleep(TICK)
        now, cpu_now = trio.current_time(), time.process_time()
        # Time in which other processes had the CPU does not count as a gap.
        longest[0] = max(longest[0], min(now - last - TICK, cpu_now - cpu))
        last, cpu = now, cpu_now


async def measured(name: str, folder: Path) -> tuple[float, int, float, str]:
    """Return the longest gap (s), the memory growth (bytes), the time (s), the first finding."""
    parser = Parser()
    root = folder.parent
    live = LiveSettings(root / "config", {}, None, reader=parser)
    live.load()
    longest = [0.0]
    said = ""
    addresses = {ActorName("bench"): Address("inproc://bench")}
    async with Bus(addresses, ActorName("bench")) as bus, trio.open_nursery() as nursery:
        catalogs = ProjectCatalogs(
            TrustFile(root / "trust.json"),
            Catalog,
            lambda each: CatalogVectors(bus, root / each, read_profile()),
            lambda _project, _catalog: None,
            parser=parser,
        )
        nursery.start_soon(lambda: catalogs.run(is_watching=False))
        nursery.start_soon(_tick, longest)
        await trio.sleep(0.05)
        before, longest[0] = forget_peak(), 0.0
        began = time.perf_counter()
        await live.load_project(str(folder))
        rules = live.rules(str(folder)).policy(["zed"], str(folder))
        for number in range(200):
            rules.restriction("server", f"some_tool_of_a_server_{number}")
        if name.startswith("skill"):
            reader = parser.reading()
            place = TapPlace(TapName("t"), folder)
            tap = await trio.to_thread.run_sync(read_tap, place, reader)
            said = next((f.reason for f in tap.findings), "")
        else:
            await catalogs.load(str(folder))
            while not catalogs.known(str(folder)):
                await trio.sleep(0.01)
            read = catalogs.read(catalogs.known(str(folder)))
            findings = read.tap.findings if read.tap is not None else ()
            said = read.error or next((f.reason for f in findings), "")
        took = time.perf_counter() - began
        await trio.sleep(0.05)
        said = next(iter(live.project_problems.get(str(folder), [])), said)
        nursery.cancel_scope.cancel()
    grown = max(0, peak_bytes() - before)
    await trio.to_thread.run_sync(parser.close)
    return longest[0], grown, took, said


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="capd"))
    try:
        yield made
    finally:
        shutil.rmtree(made)


def main() -> int:
    """Print a line for each attack; return 1 if one exceeds its limits."""
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    options.add_argument("names", nargs="*", help="parts of names; all where none is given")
    names = options.parse_args().names or [""]
    is_over = False
    print(f"{'attack':46} {'gap':>8} {'grown':>9} {'read in':>8}  said")
    with _folder() as root:
        (root / "config").mkdir()
        # An empty project first, so that no attack is charged for imports.
        ATTACKS["settings: none"] = settings("")
        trio.run(measured, "settings: none", written("settings: none", root))
        for name in [each for each in ATTACKS if any(part in each for part in names)]:
            if name == "settings: none":
                continue
            folder = written(name, root)
            gap, grown, took, said = trio.run(measured, name, folder)
            shutil.rmtree(folder)
            over = gap > LONGEST_GAP or grown > MOST_BYTES
            is_over = is_over or over
            figures = f"{gap * 1000:5.1f} ms {grown / (1 << 20):6.1f} MB {took:6.2f} s"
            print(f"{name:46} {figures}  {'OVER ' if over else ''}{said[-90:]}", flush=True)
    return int(is_over)


if __name__ == "__main__":
    sys.exit(main())
