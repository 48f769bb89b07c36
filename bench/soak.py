"""Whether the daemon's memory stays the same while sessions come, call and go for a long time.

    python bench/soak.py [--minutes 30] [--warm 5]          sessions come and go, one at a time
    python bench/soak.py --rounds 20 [--sessions 1000]      rounds of many sessions, ended together

The first prints the resident memory each minute. It passes if, from minute `--warm` on, no figure
is more than 5 % above the one of that minute. The second prints the memory after each round. It
passes if the last figure is no more than 5 % above the one after a fifth of the rounds. The same
follows as a line of JSON, and the exit code says whether it passed. MB are 10^6 bytes.
"""

import argparse
import json
import random
import sys
import tempfile
import time
from pathlib import Path

# This replaces the folder of this file, which would hide a package of the same name.
sys.path[0] = str(Path(__file__).parents[1] / "tests")

from capd.adapters.platform import rss_bytes  # noqa: E402 - its path
from reliability.world import Session, World  # noqa: E402 - its path
from whole_daemon import Home, wait_for  # noqa: E402 - its path

GROWTH = 1.05
AT_ONCE = 10
SETTLED = 4.0
"""Seconds in which the daemon gives back what ended sessions have left."""
WORDS = "find open issues about flaky tests, look at the commits since, write a note for the team"


class Soak:
    """A daemon with two servers, and sessions on it."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.opened = 0
        world = World(home, [])
        world.honest("first")
        world.honest("second", "echo,other")
        self._pid = home.start().pid
        self._random = random.Random(0)

    def megabytes(self) -> float:
        """Return the daemon's resident memory in MB."""
        return round((rss_bytes(self._pid) or 0) / 1e6, 1)

    def descriptors(self) -> int:
        """Return how many descriptors the daemon has."""
        return sum(1 for _ in Path(f"/proc/{self._pid}/fd").iterdir())

    def session(self) -> Session:
        """Open a session."""
        self.opened += 1
        return Session(self.home.socket, f"soak-{self.opened}", self.home.folder)

    def use(self, session: Session) -> None:
        """Do what a client does.

        Switch a capability on, list the tools and call one; at random, also search, send a message,
        or switch the capability off again.
        """
        name = self._random.choice(("first", "second"))
        self.home.ask("enable", session=session.key, name=name)
        session.tools()
        session.said(f"{name}__echo", "x" * self._random.choice((1, 100, 50_000)))
        kind = self._random.randrange(4)
        if kind == 0:
            session.call("tool_search", {"query": "echo"})
        elif kind == 1:
            self.home.ask("turn", session=session.key, text=f"{WORDS} {self.opened}")
        elif kind == 2:
            self.home.ask("disable", session=session.key, name=name)

    def end(self, sessions: list[Session]) -> None:
        """End sessions, and wait until the daemon has none."""
        for session in sessions:
            session.leave()
        wait_for(lambda: not self.home.ask("sessions")["sessions"], 120)


def steady(soak: Soak, minutes: float, warm: float) -> tuple[list[float], bool]:
    """Keep opening and ending a few sessions at once, for `minutes`.

    Returns:
        The MB after each minute, and whether it passes.
    """
    found: list[float] = []
    began_at = time.monotonic()
    while len(found) < minutes:
        while time.monotonic() - began_at < 60 * (len(found) + 1):
            sessions = [soak.session() for _ in range(AT_ONCE)]
            for session in sessions:
                soak.use(session)
            soak.end(sessions)
        found.append(soak.megabytes())
        print(
            f"minute {len(found):3}: {found[-1]:7.1f} MB, {soak.descriptors()} descriptors,"
            f" {soak.opened} sessions",
            flush=True,
        )
    rest = found[max(0, int(warm) - 1) :]
    return found, max(rest) <= rest[0] * GROWTH


def rounds(soak: Soak, count: int, sessions: int) -> tuple[list[float], bool]:
    """Open many sessions and end them, `count` times.

    Returns:
        The MB after each round, and whether it passes.
    """
    found: list[float] = []
    for number in range(count):
        opened = [soak.session() for _ in range(sessions)]
        for session in opened[::50]:
            soak.use(session)
        highest = soak.megabytes()
        soak.end(opened)
        time.sleep(SETTLED)
        found.append(soak.megabytes())
        print(
            f"round {number + 1:3}: {highest:7.1f} MB open, {found[-1]:7.1f} MB after,"
            f" {soak.descriptors()} descriptors",
            flush=True,
        )
    first = found[count // 5]
    return found, found[-1] <= first * GROWTH


def main(arguments: argparse.Namespace) -> int:
    """Run one of the two, print the figures, and return 0 if it passes, else 1."""
    with tempfile.TemporaryDirectory(prefix="capd") as folder:
        Path(folder).chmod(0o700)
        home = Home(Path(folder))
        try:
            soak = Soak(home)
            if arguments.rounds:
                found, holds = rounds(soak, arguments.rounds, arguments.sessions)
            else:
                found, holds = steady(soak, arguments.minutes, arguments.warm)
        finally:
            home.close()
    print("holds" if holds else "does not hold")
    print(json.dumps({"megabytes": found, "sessions": soak.opened, "holds": holds}))
    return 0 if holds else 1


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--minutes", type=float, default=30)
    options.add_argument("--warm", type=float, default=5)
    options.add_argument("--rounds", type=int, default=0)
    options.add_argument("--sessions", type=int, default=1000)
    sys.exit(main(options.parse_args()))
