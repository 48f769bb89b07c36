"""Concurrent starts in one session: every lease is kept, wanted, or released."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from capd.core.sessions.pending_starts import PendingStarts, Verdict, verdict
from capd_protos.types import InstanceId, ServerIdentity

SERVERS = [ServerIdentity("a"), ServerIdentity("b")]


@pytest.mark.parametrize(
    ("is_over", "is_on", "has_changed", "expected"),
    [
        (False, False, False, "commit"),
        (False, False, True, "again"),
        (False, True, False, "on already"),
        (False, True, True, "on already"),
        (True, False, False, "over"),
        (True, False, True, "over"),
        (True, True, False, "over"),
        (True, True, True, "over"),
    ],
)
def test_a_start_is_committed_where_all_is_as_it_was_checked(
    is_over: bool, is_on: bool, has_changed: bool, expected: Verdict
) -> None:
    assert verdict(is_over=is_over, is_on=is_on, has_changed=has_changed) == expected


class Starts(RuleBasedStateMachine):
    """A session that starts, commits, gives up and lets go in any order; servers die meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self.pending = PendingStarts()
        self.under_way: list[tuple[ServerIdentity, InstanceId | None]] = []
        self.held: dict[ServerIdentity, InstanceId] = {}
        self.running: dict[ServerIdentity, InstanceId] = {}
        self.leased: set[InstanceId] = set()
        self.number = 0

    @rule(server=st.sampled_from(SERVERS))
    def begin(self, server: ServerIdentity) -> None:
        self.pending.begin(server)
        self.under_way.append((server, None))

    @precondition(lambda self: self.under_way)
    @rule(data=st.data())
    def acquire(self, data: st.DataObject) -> None:
        at = data.draw(st.integers(0, len(self.under_way) - 1))
        server, _ = self.under_way[at]
        if server not in self.running:
            self.number += 1
            self.running[server] = InstanceId(f"{server}-{self.number}")
        instance = self.running[server]
        self.leased.add(instance)
        self.pending.acquired(server, instance)
        self.under_way[at] = (server, instance)

    @rule(server=st.sampled_from(SERVERS))
    def another_instance_serves(self, server: ServerIdentity) -> None:
        self.running.pop(server, None)

    @precondition(lambda self: self.under_way)
    @rule(data=st.data(), commits=st.booleans())
    def end(self, data: st.DataObject, commits: bool) -> None:
        server, instance = self.under_way.pop(data.draw(st.integers(0, len(self.under_way) - 1)))
        if commits and instance is not None:
            replaced = self.held.get(server)
            self.held[server] = instance
            if replaced is not None and replaced != instance:
                self.let_go_of(server, replaced)
        released = self.pending.end(server, self.held.get(server))
        self.leased -= set(released)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def let_go(self, data: st.DataObject) -> None:
        server = data.draw(st.sampled_from(sorted(self.held)))
        self.let_go_of(server, self.held.pop(server))

    def let_go_of(self, server: ServerIdentity, instance: InstanceId) -> None:
        if not self.pending.set_aside(server, instance):
            self.leased.discard(instance)

    @invariant()
    def what_is_held_is_leased(self) -> None:
        assert set(self.held.values()) <= self.leased

    @invariant()
    def what_a_start_has_is_leased(self) -> None:
        assert {instance for _, instance in self.under_way if instance} <= self.leased

    @invariant()
    def nothing_is_leased_for_nobody(self) -> None:
        wanted = {server for server, _ in self.under_way}
        held = set(self.held.values())
        assert all(each in held or each.split("-")[0] in wanted for each in self.leased)


TestStarts = Starts.TestCase
