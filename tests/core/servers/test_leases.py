"""Lease rules under every order of events (a rule-based state machine)."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from capd.core.servers.leases import Effect, Leases, Start, State, Stop
from capd_protos.types import SessionKey
from support.examples import examples

KEYS = ("git", "db")
SESSIONS = tuple(SessionKey(name) for name in ("one", "two", "three"))
ONE, TWO, _ = SESSIONS

keys = st.sampled_from(KEYS)
sessions = st.sampled_from(SESSIONS)


class LeaseMachine(RuleBasedStateMachine):
    """Leases beside a model of processes that obey late and in any order."""

    leases: Leases[str]

    @initialize(linger=st.sampled_from([0.0, 0.5, 30.0]))
    def start(self, linger: float) -> None:
        self.leases = Leases(linger)
        self.linger = linger
        self.now = 1000.0
        self.processes: dict[str, str] = {}
        self.holders: dict[str, list[SessionKey]] = {key: [] for key in KEYS}
        self.unheld_at: dict[str, float] = {}

    @rule(key=keys, session=sessions)
    def acquire(self, key: str, session: SessionKey) -> None:
        if session not in self.holders[key]:
            self.holders[key].append(session)
        self.unheld_at.pop(key, None)
        expected = [] if key in self.processes else [Start(key)]

        effects = self.leases.acquire(key, session)

        assert effects == expected
        self.carry_out(effects)

    @rule(key=keys, session=sessions)
    def release(self, key: str, session: SessionKey) -> None:
        expected = self.release_in_model(key, session)

        effects = self.leases.release(key, session, self.now)

        assert effects == expected
        self.carry_out(effects)

    @rule(session=sessions)
    def session_ends(self, session: SessionKey) -> None:
        expected = {stop for key in KEYS for stop in self.release_in_model(key, session)}

        effects = self.leases.release_session(session, self.now)

        assert len(effects) == len(set(effects))
        assert set(effects) == expected
        self.carry_out(effects)

    @rule(seconds=st.sampled_from([0.0, 0.25, 0.5, 29.75, 30.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        over = {key for key, at in self.unheld_at.items() if at + self.linger <= self.now}

        effects = self.leases.due(self.now)

        assert len(effects) == len(over)
        assert set(effects) == {Stop(key) for key in over}
        self.carry_out(effects)
        assert self.leases.due(self.now) == []

    @rule(key=keys)
    def process_serves(self, key: str) -> None:
        if self.processes.get(key) == "starting":
            self.processes[key] = "up"

        self.leases.ready(key)

    @rule(key=keys)
    def start_fails(self, key: str) -> None:
        if self.processes.get(key) not in {"starting", "ending"}:
            return
        del self.processes[key]
        had = self.holders[key]
        self.holders[key] = []

        assert self.leases.failed(key) == had

    @rule(key=keys)
    def process_dies(self, key: str) -> None:
        if self.processes.get(key) not in {"up", "ending"}:
            return
        was_ending = self.processes.pop(key) == "ending"
        self.unheld_at.pop(key, None)
        # One that was being ended and is held again is started for who waits.
        expected = [Start(key)] if was_ending and self.holders[key] else []

        effects = self.leases.died(key)

        assert effects == expected
        self.carry_out(effects)

    @rule(key=keys)
    def process_ends(self, key: str) -> None:
        if self.processes.get(key) != "ending":
            return
        del self.processes[key]
        expected = [Start(key)] if self.holders[key] else []

        effects = self.leases.stopped(key)

        assert effects == expected
        self.carry_out(effects)

    @invariant()
    def nobody_is_lost_and_every_state_follows_from_the_process_and_its_holders(self) -> None:
        held = {"starting": State.STARTING, "up": State.READY, "ending": State.STOPPING}
        unheld = {"up": State.LINGERING, "ending": State.STOPPING}
        for key in KEYS:
            process = self.processes.get(key, "")
            expected: State | None
            if self.holders[key]:
                expected = held.get(process, State.DOWN)
            else:
                assert process != "starting", "a start that nobody waits for goes on"
                expected = unheld.get(process)
            assert self.leases.state(key) == expected
            assert self.leases.holders(key) == tuple(self.holders[key])

    @rule(key=keys)
    def linger_is_cut_short(self, key: str) -> None:
        expected = [Stop(key)] if key in self.unheld_at else []

        effects = self.leases.end_unheld(key)

        assert effects == expected
        self.carry_out(effects)

    @rule(key=keys)
    def it_is_given_up(self, key: str) -> None:
        holders = list(self.holders[key])
        expected = [effect for each in holders for effect in self.release_in_model(key, each)]
        expected += [Stop(key)] if key in self.unheld_at else []

        effects = self.leases.give_up(key, self.now)

        assert effects == expected
        self.carry_out(effects)

    @rule(key=keys)
    def it_is_restarted(self, key: str) -> None:
        runs = self.processes.get(key) in {"starting", "up"}

        effects = self.leases.restart(key)

        assert effects == ([Stop(key)] if runs else [])
        if runs:
            self.processes[key] = "ending"
            self.unheld_at.pop(key, None)

    @invariant()
    def the_next_due_time_is_the_earliest_linger_that_ends(self) -> None:
        ends = [at + self.linger for at in self.unheld_at.values()]

        assert self.leases.next_due() == min(ends, default=None)

    def teardown(self) -> None:
        if not hasattr(self, "leases"):
            return
        for session in SESSIONS:
            self.session_ends(session)
        self.time_passes(self.linger)
        for key in KEYS:
            self.process_ends(key)

        assert (self.leases.keys(), self.processes) == ((), {})

    def release_in_model(self, key: str, session: SessionKey) -> list[Effect[str]]:
        if session not in self.holders[key]:
            return []
        self.holders[key].remove(session)
        if not self.holders[key] and self.processes.get(key) == "up":
            self.unheld_at[key] = self.now
        if not self.holders[key] and self.processes.get(key) == "starting":
            return [Stop(key)]
        return []

    def carry_out(self, effects: list[Effect[str]]) -> None:
        for effect in effects:
            if isinstance(effect, Start):
                assert effect.key not in self.processes, "started while a process is there"
                self.processes[effect.key] = "starting"
            else:
                assert not self.holders[effect.key], "stopped while somebody holds it"
                assert self.processes[effect.key] in {"starting", "up"}, "stopped twice"
                self.processes[effect.key] = "ending"
                self.unheld_at.pop(effect.key, None)


def test_no_order_of_events_loses_a_holder_or_starts_or_stops_an_instance_wrongly() -> None:
    run_state_machine_as_test(
        LeaseMachine,
        settings=settings(max_examples=examples(150), deadline=None, stateful_step_count=30),
    )


def ready_leases(linger: float = 30.0) -> Leases[str]:
    leases: Leases[str] = Leases(linger)
    leases.acquire("git", ONE)
    leases.ready("git")
    return leases


@pytest.mark.parametrize(
    ("now", "effects"), [(129.9, []), (130.0, [Stop("git")]), (500.0, [Stop("git")])]
)
def test_an_unheld_server_lingers_and_is_then_ended(now: float, effects: list[Stop[str]]) -> None:
    leases = ready_leases(linger=30.0)
    leases.release("git", ONE, now=100.0)

    got = leases.due(now)

    assert got == effects


def test_a_server_that_is_held_again_while_it_lingers_is_not_ended() -> None:
    leases = ready_leases()
    leases.release("git", ONE, now=100.0)
    leases.acquire("git", TWO)

    got = leases.due(1000.0)

    assert (got, leases.state("git"), leases.next_due()) == ([], State.READY, None)


def test_a_server_that_is_held_again_while_it_ends_is_started_after_its_end() -> None:
    leases = ready_leases(linger=0.0)
    leases.release("git", ONE, now=100.0)
    leases.due(100.0)
    leases.acquire("git", TWO)

    got = leases.stopped("git")

    assert (got, leases.state("git"), leases.holders("git")) == (
        [Start("git")],
        State.STARTING,
        (TWO,),
    )


def test_a_server_that_died_keeps_its_holders_and_is_started_by_the_next_acquire() -> None:
    leases = ready_leases()
    leases.died("git")

    got = leases.acquire("git", TWO)

    assert (got, leases.holders("git")) == ([Start("git")], (ONE, TWO))


def test_a_start_that_failed_is_held_by_nobody_and_names_who_waited() -> None:
    leases: Leases[str] = Leases(30.0)
    leases.acquire("git", ONE)
    leases.acquire("git", TWO)

    got = leases.failed("git")

    assert (got, leases.state("git"), leases.keys()) == ([ONE, TWO], None, ())


def test_what_is_not_there_changes_nothing() -> None:
    leases: Leases[str] = Leases(30.0)

    leases.ready("git")
    leases.died("git")
    effects = [*leases.release("git", ONE, 0.0), *leases.stopped("git")]

    assert (effects, leases.failed("git"), leases.holders("git"), leases.keys()) == ([], [], (), ())
