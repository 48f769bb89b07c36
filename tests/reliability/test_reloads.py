"""Settings and definitions that become bad and good again fail no call."""

import itertools
import random
import signal
import threading
from collections.abc import Callable, Iterator

import pytest

from whole_daemon import wait_for

from .world import Session, World, outcome, text_of

pytestmark = pytest.mark.reliability

RELOADS = 100
CALLERS = 4
GOOD_CONFIG = "[servers]\nlinger = {n}\n[results]\nlimit = 4000\n"
BAD_CONFIGS = (
    "[servers\nlinger = 1\n",
    '[servers]\nlinger = "for ever"\n',
    "[servers]\nlinger = -1\n",
    "[servers]\nlinger = 1\nlinger = 2\n",
    "\0\0\0",
    "a = " + "[" * 3000,
)
BAD_PROVIDERS = ("[[mcp.servers]\n", "[[mcp.servers]]\nname = 5\n", "mcp = 1\n", "\x01")


class Files:
    """The files of a user, who edits them with and without errors."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.config = world.home.folder / "config" / "config.toml"
        self.provider = world.home.folder / "tap/capabilities/edited/default.toml"
        self.good = self.provider.read_text()

    def write(self, rng: random.Random, *, is_good: bool) -> None:
        """Leave both files good, or both bad."""
        config = GOOD_CONFIG.format(n=rng.randint(1, 60)) if is_good else rng.choice(BAD_CONFIGS)
        self.config.write_text(config)
        self.provider.write_text(self.good if is_good else rng.choice(BAD_PROVIDERS))

    def told(self) -> tuple[list[str], list[str]]:
        """Return what the status says of the configuration, and of the tap."""
        status = self.world.home.ask("status")
        (tap,) = (each for each in status["taps"] if each["name"] == "mine")
        return status["daemon"]["degraded"], [each["path"] for each in tap["findings"]]

    def is_taken(self, *, is_good: bool) -> bool:
        degraded, findings = self.told()
        return (not degraded and not findings) if is_good else bool(degraded and findings)


class Caller(threading.Thread):
    """A session that calls, and calls again."""

    def __init__(self, session: Session, tool: str, is_over: Callable[[], bool]) -> None:
        super().__init__()
        self.session = session
        self.wrong: list[str] = []
        self.right: list[int] = []
        self._tool, self._is_over = tool, is_over

    def run(self) -> None:
        for n in itertools.count():
            if self._is_over():
                return
            said = f"{self.session.key} {n}"
            answer = self.session.call(self._tool, {"x": said})
            if outcome(answer) == "result" and text_of(answer).endswith(f" {said}"):
                # The how many-eth call of its server it was.
                self.right.append(int(text_of(answer).split()[2]))
            else:
                self.wrong.append(str(answer))


@pytest.fixture
def calling(world: World) -> Iterator[tuple[World, list[Caller]]]:
    # One server that nobody edits, and one whose file goes bad while it runs.
    world.honest("steady", scope="shared")
    world.honest("edited", scope="shared")
    world.start()
    over = threading.Event()
    callers = [
        Caller(world.session(f"{name}-{n}", name), f"{name}__echo", over.is_set)
        for n in range(CALLERS // 2)
        for name in ("steady", "edited")
    ]
    for caller in callers:
        caller.start()
    yield world, callers
    over.set()
    for caller in callers:
        caller.join()
    assert [caller.wrong for caller in callers] == [[]] * CALLERS
    for name in ("steady", "edited"):
        numbers = [n for c in callers if c.session.key.startswith(name) for n in c.right]
        # Every call reached the one process that there was, once.
        assert sorted(numbers) == list(range(1, len(numbers) + 1))


def test_a_hundred_good_and_bad_reloads_in_turns_lose_no_call(
    calling: tuple[World, list[Caller]],
) -> None:
    world, callers = calling
    files, rng = Files(world), random.Random(10)
    pids = {name: world.pid(name) for name in ("steady", "edited")}
    assert world.process is not None
    for number in range(RELOADS):
        is_good = bool(number % 2)
        files.write(rng, is_good=is_good)
        before = [len(caller.right) for caller in callers]

        if number % 4 < 2:
            world.process.send_signal(signal.SIGHUP)
        else:
            world.home.ask("reload")

        wait_for(lambda: files.is_taken(is_good=is_good))  # noqa: B023 - called at once
        for caller, least in zip(callers, before, strict=True):
            wait_for(lambda: len(caller.right) > least)  # noqa: B023 - called at once
    assert {name: world.pid(name) for name in pids} == pids


def test_a_bad_file_is_told_with_its_line_and_the_last_good_one_counts(world: World) -> None:
    world.start()
    file = world.home.folder / "config" / "config.toml"
    file.write_text("[surface]\nmode = 'stable'\n[results]\nlimit = 7\n")
    world.home.ask("reload")
    file.write_text("[surface]\nmode = 'stable'\n[results]\nlimit = 'long'\n")

    world.home.ask("reload")

    (told,) = world.home.ask("status")["daemon"]["degraded"]
    values = {each["key"]: each["value"] for each in world.home.ask("config")["values"]}
    assert told.startswith(f"{file} is not used: ")
    assert "line 4" in told
    assert "results.limit" in told
    assert values["results.limit"] == 7
    assert world.home.capd("status").returncode == 4
