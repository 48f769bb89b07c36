"""Which process is at a connection, also while the process tree changes."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    rule,
    run_state_machine_as_test,
)

from capd.core.servers.ancestry import (
    INIT,
    Chain,
    End,
    Missing,
    PeerFacts,
    Process,
    Verdict,
    judge,
    walk,
)
from support.examples import examples

DAEMON = 2


def chain(*pids: int, end: End = "top", born: str = "") -> Chain:
    """Return a chain of processes; `born` makes others of the same numbers."""
    parents = (*pids[1:], 0)[: len(pids)]
    links = (Process(pid, f"{pid}{born}", up) for pid, up in zip(pids, parents, strict=True))
    return Chain(tuple(links), end)


SHELL = chain(50, 40, INIT)
BELOW = chain(50, 40, end="daemon")
BLIND = chain(50, 40, end="no_descriptors")


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        # An editor from a terminal, and one whose parents are gone.
        (PeerFacts(50, False, (SHELL, SHELL)), "person"),
        (PeerFacts(50, False, (chain(50, INIT), chain(50, INIT))), "person"),
        # The first process of a container, and one that was put into it from outside.
        (PeerFacts(1, False, (chain(INIT), chain(INIT))), "person"),
        (PeerFacts(50, False, (chain(50), chain(50))), "person"),
        # In a namespace that cannot be seen into.
        (PeerFacts(0, False, (chain(), chain())), "outside"),
        # Its connection is somebody else's by now.
        (PeerFacts(50, True, (SHELL, SHELL)), "gone"),
        (PeerFacts(50, True, (BELOW, BELOW)), "gone"),
        # Of capd's.
        (PeerFacts(50, False, (BELOW, BELOW)), "descendant"),
        (PeerFacts(50, False, (BELOW, SHELL)), "descendant"),
        (PeerFacts(50, False, (SHELL, BELOW)), "descendant"),
        (PeerFacts(50, False, (SHELL, SHELL), is_marked=True), "descendant"),
        (PeerFacts(50, False, (chain(50, end="gone"), BELOW)), "descendant"),
        # The daemon has no descriptor to look with.
        (PeerFacts(50, False, (BLIND, BLIND)), "no_descriptors"),
        (PeerFacts(50, False, (SHELL, BLIND)), "no_descriptors"),
        (PeerFacts(50, False, (BLIND, BELOW)), "descendant"),
        (PeerFacts(50, True, (BLIND, BLIND)), "no_descriptors"),
        (PeerFacts(50, False, (BLIND, BLIND), is_marked=True), "descendant"),
        # Something ended between two looks, or was never to be seen.
        (PeerFacts(50, False, (chain(50, end="gone"), SHELL)), "unknown"),
        (PeerFacts(50, False, (SHELL, chain(50, end="gone"))), "unknown"),
        (PeerFacts(50, False, (chain(50, 40, end="gone"), chain(50, 40, end="gone"))), "unknown"),
        (
            PeerFacts(50, False, (chain(50, 40, end="hidden"), chain(50, 40, end="hidden"))),
            "unknown",
        ),
        (
            PeerFacts(50, False, (chain(50, 40, end="too_deep"), chain(50, 40, end="too_deep"))),
            "unknown",
        ),
        (PeerFacts(50, False, (SHELL, chain(50, INIT))), "unknown"),
        (PeerFacts(50, False, (SHELL, chain(50, 40, INIT, born="again"))), "unknown"),
    ],
)
def test_the_verdict_on_what_was_read(facts: PeerFacts, expected: Verdict) -> None:
    assert judge(facts) == expected


@pytest.mark.parametrize(
    ("parents", "expected"),
    [
        (
            {9: 8, 8: 1, 1: 0},
            Chain((Process(9, "", 8), Process(8, "", 1), Process(1, "", 0)), "top"),
        ),
        ({9: 0}, Chain((Process(9, "", 0),), "top")),
        ({9: 8, 8: DAEMON}, Chain((Process(9, "", 8), Process(8, "", DAEMON)), "daemon")),
        ({9: 8}, Chain((Process(9, "", 8),), "gone")),
        # What cannot be, and would never end.
        ({9: 9}, Chain((Process(9, "", 9),) * 3, "too_deep")),
    ],
)
def test_parents_are_followed_to_where_they_end(parents: dict[int, int], expected: Chain) -> None:
    def look(pid: int) -> Process | Missing:
        return Process(pid, "", parents[pid]) if pid in parents else "gone"

    assert read_at_once(9, look, most=3) == expected


def test_the_daemon_itself_is_below_the_daemon() -> None:
    assert read_at_once(DAEMON, lambda _pid: "gone") == Chain((), "daemon")


def read_at_once(pid: int, look: Callable[[int], Process | Missing], most: int = 512) -> Chain:
    steps = walk(pid, DAEMON, most)
    try:
        asked = next(steps)
        while True:
            asked = steps.send(look(asked))
    except StopIteration as done:
        chain: Chain = done.value
        return chain


@dataclass
class Running:
    """A process of the simulated system."""

    birth: int
    """Names it for ever; its number does not."""
    parent: int
    is_servers: bool
    is_subreaper: bool = False


Change = tuple[Any, ...]
"""The name of a method of the machine, and its arguments."""

numbers = st.integers(4, 12)
parents = st.sampled_from([INIT, 3, *range(4, 13)])
NEXT = 0
"""Stands for the process that will be looked at next."""
targets = st.one_of(st.just(NEXT), numbers)
changes = st.one_of(
    st.tuples(st.just("end"), targets),
    st.tuples(st.just("replace"), targets, st.sampled_from([INIT, 3, 8])),
)
SCRIPTS = st.lists(st.lists(changes, max_size=1), max_size=16)
"""What happens before the first look, and after each, until both readings are over."""


class TreeMachine(RuleBasedStateMachine):
    """A system with few numbers for its processes, which end and fork between any two looks."""

    @initialize(daemons_parent=st.sampled_from([INIT, 3]))
    def boot(self, daemons_parent: int) -> None:
        self.births = 100
        self.running = {
            INIT: Running(1, 0, False, True),
            # The manager of a user's session, which adopts orphans as well.
            3: Running(3, INIT, False, True),
            DAEMON: Running(2, daemons_parent, False, True),
            # A server's guard with a chain of forks, and an editor of the user's.
            4: Running(4, DAEMON, True, True),
            **{pid: Running(pid, pid - 1, True) for pid in range(5, 9)},
            9: Running(9, 3, False),
        }

    @rule(parent=parents, number=numbers, adopts=st.booleans())
    def start(self, parent: int, number: int, adopts: bool) -> None:
        """Start a process under a number that is free, and was perhaps another's."""
        if number in self.running or parent not in self.running:
            return
        is_servers = parent == DAEMON or self.running[parent].is_servers
        self.births += 1
        self.running[number] = Running(self.births, parent, is_servers, adopts)

    @rule(pid=numbers)
    def end(self, pid: int) -> None:
        """End a process; the nearest one above that adopts gets its children."""
        if pid not in self.running or pid in (INIT, DAEMON):
            return
        heir = self.running[pid].parent
        while not self.running[heir].is_subreaper:
            heir = self.running[heir].parent
        for process in self.running.values():
            if process.parent == pid:
                process.parent = heir
        del self.running[pid]

    @rule(pid=numbers, parent=parents)
    def replace(self, pid: int, parent: int) -> None:
        """End a process, and have another started under its number."""
        self.end(pid)
        self.start(parent, pid, False)

    @rule(pid=st.sampled_from([8, 8, 8, 7, 9, 10]), script=SCRIPTS)
    def judge_while_it_changes(self, pid: int, script: list[list[Change]]) -> None:
        """Read the chain of a process that has connected."""
        peer = self.running.get(pid)
        if peer is None:
            return
        changes = iter(script)

        def happen(following: int) -> None:
            for name, target, *more in next(changes, ()):
                getattr(self, name)(target or following, *more)

        def look(asked: int) -> Process | Missing:
            seen = self.seen(asked)
            happen(seen.parent if isinstance(seen, Process) else pid)
            return seen

        happen(pid)

        first, second = read_at_once(pid, look), read_at_once(pid, look)
        now = self.running.get(pid)
        is_gone = now is None or now.birth != peer.birth

        verdict = judge(PeerFacts(pid, is_gone, (first, second)))

        assert not (peer.is_servers and verdict == "person")
        if not any(script):
            assert verdict == ("descendant" if peer.is_servers else "person")

    def seen(self, pid: int) -> Process | Missing:
        found = self.running.get(pid)
        return "gone" if found is None else Process(pid, str(found.birth), found.parent)


def test_no_process_of_a_server_is_ever_taken_for_a_persons() -> None:
    run_state_machine_as_test(
        TreeMachine,
        settings=settings(max_examples=examples(800), stateful_step_count=4, deadline=None),
    )
