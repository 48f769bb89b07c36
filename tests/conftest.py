"""How tests are collected, their clock, and where the files are that repositories share."""

import gc
import os
import select
import signal
import tempfile
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import trio
from trio.testing import MockClock

from capd.embedder_process import import_before_usearch
from support.examples import examples

LONG_TIERS = ("real", "reliability", "clients", "servers")
WHOLE_DAEMONS = Path(__file__).parent / "whole"
LONG_TIMEOUT = 3600
"""Seconds for a test that downloads, or that does something to a daemon for minutes."""


# Before anything imports numpy. A test's matrices are small: with a thread for each core OpenBLAS
# takes five times the processor time for them, and waits for the core that another worker has.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
import_before_usearch()
# readline gives it to the workers of a parallel run, whose output is no terminal.
os.environ.pop("COLUMNS", None)

# CAPD_HYPOTHESIS=quick for a loop of seconds, =deep for a night.
hypothesis.settings.register_profile("default", deadline=None)
hypothesis.settings.register_profile("quick", deadline=None, max_examples=examples(100))
hypothesis.settings.register_profile("deep", deadline=None, max_examples=examples(100))
hypothesis.settings.load_profile(os.environ.get("CAPD_HYPOTHESIS", "default"))


def pytest_configure() -> None:
    """Let an interrupt end what the tests start, however they were started themselves.

    A shell that runs them in the background has them ignore it, and so would every child.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the collector of garbage away from modules and tests, which stay until the end.

    A worker that has collected all tests has half a million objects. The collector visits them
    again and again while they are made, a sixth of the time that it takes to collect tests. Later
    each `gc.collect()` would take half a second for them; parts of the daemon call it in tests, and
    pytest calls it five times at its end.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give the long tiers their own time, and mark what the directory or the fixtures tell.

    Of each file with whole daemons, the first test belongs to `make test`, the others to
    `make test-whole`: so `make test` plays one path of each kind and takes minutes.
    """
    begun: set[Path] = set()
    for item in items:
        if "shared_fixtures" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.shared)
        marks = {mark.name for mark in item.iter_markers()}
        if not marks.isdisjoint(LONG_TIERS):
            item.add_marker(pytest.mark.timeout(LONG_TIMEOUT))
        elif item.path.parent == WHOLE_DAEMONS and "shared" not in marks:
            if item.path in begun:
                item.add_marker(pytest.mark.whole)
            begun.add(item.path)


@pytest.fixture(scope="session")
def shared_fixtures() -> Path:
    """Return the folder that holds `fixtures/`, `spec/` and `data/`, or skip."""
    beside_the_checkout = Path(__file__).resolve().parents[2] / "shared"
    folder = Path(os.environ.get("CAPD_SHARED") or beside_the_checkout)
    if not folder.is_dir():
        pytest.skip(f"no shared folder at {folder}: set CAPD_SHARED")
    return folder


NOBODY = 65534


@pytest.fixture
def closed() -> Iterator[Path]:
    """Return a folder that may not be entered, in one that may be.

    Root may enter every folder, so a test of root's runs as another user.
    """
    user = os.geteuid()
    with tempfile.TemporaryDirectory() as around:
        Path(around).chmod(0o777)
        folder = Path(around, "closed")
        folder.mkdir(mode=0)
        if user == 0:
            os.seteuid(NOBODY)
        try:
            yield folder
        finally:
            os.seteuid(user)
            folder.chmod(0o700)


LONGEST_THREAD = 2.0
"""Seconds after which a thread is taken for one that a test lets hang, if no thread works."""
STILL = 0.01
"""If the process uses at most this many CPU seconds within `LONGEST_THREAD`, no thread works."""


def _wait_for_event(longest: float) -> bool:
    """Return when trio's loop has something to do, or after `longest` seconds; tell which.

    A thread that ends wakes the loop up. What the loop waits with is itself a descriptor that can
    be waited for, and stays readable until the loop asks it.
    """
    context: Any = trio._core._run.GLOBAL_RUN_CONTEXT
    manager = context.runner.io_manager
    queue = getattr(manager, "_epoll", None) or manager._kqueue
    return bool(select.select([queue], [], [], longest)[0])


@pytest.fixture
def autojump_clock(monkeypatch: pytest.MonkeyPatch) -> MockClock:
    """Return a clock that jumps when nothing happens, and a thread at work is something.

    trio's own jumps over it: on a machine that is busy a question's 10,000 s pass while its file
    is read.
    """
    clock = MockClock(autojump_threshold=0)
    jump, in_thread = clock._autojump, trio.to_thread.run_sync
    at_work: set[object] = set()

    async def counted(*arguments: Any, **options: Any) -> Any:
        mark = object()
        at_work.add(mark)
        try:
            return await in_thread(*arguments, **options)
        finally:
            at_work.discard(mark)

    def jump_unless_threads_work() -> None:
        while at_work:
            used = time.process_time()
            if _wait_for_event(LONGEST_THREAD):
                return
            # On a busy machine a thread that works may take much longer than one that hangs.
            if time.process_time() - used <= STILL:
                at_work.clear()
        jump()

    monkeypatch.setattr(trio.to_thread, "run_sync", counted)
    # The class is final, so that its one method is replaced on the object.
    clock._autojump = jump_unless_threads_work  # type: ignore[method-assign]
    return clock
