"""A trusted definition stays trusted until a person decides otherwise."""

from collections.abc import Mapping

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from capd.core.definitions import baseline as rules
from capd.core.definitions.baseline import (
    Baseline,
    ComparedList,
    Instances,
    Rule,
    ToolChange,
    TrustedTool,
)
from capd.core.definitions.canonical import digest
from capd_protos.types import InstanceId, ServerIdentity, ServerName, ServerSpec, TapName, ToolName
from support.examples import examples

NOTIFY, QUARANTINE = Rule(), Rule(is_quarantine=True)
FRESH = Baseline(ServerIdentity("9c1e"), ServerName("git"))
LOG, DIFF = ToolName("log"), ToolName("diff")


def listing(**tools: str) -> dict[ToolName, bytes]:
    return {ToolName(name): text.encode() for name, text in tools.items()}


def known(text: str) -> TrustedTool:
    return TrustedTool((digest(text.encode()),), text.encode())


def change(kind: str, text: str, at: float = 2.0, *, is_rejected: bool = False) -> ToolChange:
    return ToolChange(kind, digest(text.encode()), text.encode(), at, is_rejected)


def met(rule_: Rule = NOTIFY, standing: str = "", **tools: str) -> Baseline:
    first = msgspec.structs.replace(FRESH, standing=standing)
    return rules.compared(first, listing(**tools), rule_, 1.0).baseline


def after(before: Baseline, rule_: Rule = NOTIFY, at: float = 2.0, **tools: str) -> ComparedList:
    return rules.compared(before, listing(**tools), rule_, at)


def withheld(baseline: Baseline, rule_: Rule = NOTIFY) -> list[ToolName]:
    return list(rules.withheld(baseline, rule_))


def test_what_is_listed_first_is_trusted() -> None:
    got = rules.compared(FRESH, listing(log="a", diff="b"), NOTIFY, 1.0)

    trusted = {LOG: known("a"), DIFF: known("b")}
    assert got == ComparedList(msgspec.structs.replace(FRESH, known=trusted))


def test_what_is_listed_first_in_quarantine_is_withheld() -> None:
    got = rules.compared(FRESH, listing(log="a"), QUARANTINE, 2.0)

    changes = {LOG: change("added", "a")}
    assert got == ComparedList(msgspec.structs.replace(FRESH, changes=changes), changes)
    assert withheld(got.baseline, QUARANTINE) == [LOG]


def test_the_same_list_again_is_no_news() -> None:
    before = met(log="a")

    got = after(before, log="a")

    assert got == ComparedList(before)


def test_what_changes_comes_and_goes_is_news_once_and_changes_nothing_that_is_trusted() -> None:
    before = met(log="a", diff="b")

    got = after(before, log="x", show="c")
    again = after(got.baseline, at=3.0, log="x", show="c")

    assert got.news == {
        LOG: change("changed", "x"),
        ToolName("show"): change("added", "c"),
        DIFF: ToolChange("removed", digest(b"b"), b"", 2.0),
    }
    assert got.baseline.known == before.known
    assert again == ComparedList(got.baseline)


def test_what_is_listed_as_it_was_trusted_is_no_change_any_more() -> None:
    before = met(log="a")
    other = after(before, log="x").baseline

    got = after(other, log="a")

    assert got == ComparedList(before)


@pytest.mark.parametrize(
    ("rule_", "standing", "expected"),
    [
        (NOTIFY, "", []),
        (NOTIFY, "pinned", [LOG]),
        (NOTIFY, "project", [LOG, ToolName("show")]),
        (QUARANTINE, "", [LOG, ToolName("show")]),
    ],
)
def test_who_withholds_what_changed_and_what_came(
    rule_: Rule, standing: str, expected: list[ToolName]
) -> None:
    before = met(standing=standing, log="a", diff="b")

    got = after(before, rule_, log="x", show="c").baseline

    assert withheld(got, rule_) == expected


def test_what_another_instance_lists_stays_to_be_decided_on() -> None:
    other = after(met(standing="pinned", log="a"), log="x", show="c").baseline
    elsewhere = {LOG: [b"x"], ToolName("show"): [b"c"]}

    got = rules.compared(other, listing(log="a"), NOTIFY, 3.0, elsewhere)

    assert got == ComparedList(other)
    assert rules.withheld_of({LOG: digest(b"a")}, got.baseline, NOTIFY) == {}
    assert rules.withheld_of({LOG: digest(b"x")}, got.baseline, NOTIFY) == {
        LOG: change("changed", "x")
    }


def test_what_another_instance_lists_is_not_removed() -> None:
    before = met(log="a", diff="b")

    got = rules.compared(before, listing(log="a"), NOTIFY, 2.0, {DIFF: [b""]})

    assert got == ComparedList(before)


def test_what_a_person_accepts_is_trusted_beside_what_was() -> None:
    changed = after(met(log="a"), QUARANTINE, log="x").baseline

    got = rules.accepted(changed, {LOG: digest(b"x")})

    trusted = {LOG: TrustedTool((digest(b"x"), digest(b"a")), b"x")}
    assert got == msgspec.structs.replace(FRESH, known=trusted)
    assert after(got, QUARANTINE, log="a") == ComparedList(got)


def test_a_person_decides_on_what_they_saw_and_on_nothing_else() -> None:
    seen = after(met(log="a"), log="x").baseline
    by_then = after(seen, log="y").baseline

    got = rules.accepted(by_then, {LOG: digest(b"x"), DIFF: digest(b"b")})

    assert got == by_then


def test_what_a_person_rejects_is_withheld_in_every_mode_and_stays_rejected() -> None:
    changed = after(met(log="a"), log="x", show="c").baseline

    got = rules.rejected(changed, {LOG: digest(b"x"), ToolName("show"): digest(b"c")})

    back = after(after(got, log="a").baseline, log="x", show="c").baseline
    assert withheld(got) == [LOG, ToolName("show")]
    assert withheld(back) == [LOG, ToolName("show")]


def test_what_was_rejected_can_be_accepted_later() -> None:
    changed = after(met(log="a"), log="x").baseline
    rejected = rules.rejected(changed, {LOG: digest(b"x")})

    got = rules.accepted(rejected, {LOG: digest(b"x")})

    assert withheld(after(got, QUARANTINE, log="x").baseline, QUARANTINE) == []


def test_accepting_that_a_tool_went_forgets_it() -> None:
    gone = after(met(log="a", diff="b"), log="a").baseline

    got = rules.accepted(gone, {DIFF: digest(b"b")})

    assert got == met(log="a")


@pytest.mark.parametrize(
    ("rule_", "standing", "expected"),
    [
        (NOTIFY, "", []),
        (NOTIFY, "pinned", [LOG]),
        (NOTIFY, "project", [LOG]),
        (QUARANTINE, "", [LOG]),
    ],
)
def test_a_lost_baseline_trusts_nothing_again_where_changes_are_withheld(
    rule_: Rule, standing: str, expected: list[ToolName]
) -> None:
    lost = msgspec.structs.replace(FRESH, standing=standing, is_lost=True)

    got = after(lost, rule_, log="a").baseline

    assert withheld(got, rule_) == expected
    assert withheld(after(got, rule_, log="a").baseline, rule_) == expected
    assert got.is_lost == bool(expected)


def test_a_lost_baseline_is_found_again_when_a_person_has_accepted_everything() -> None:
    lost = msgspec.structs.replace(FRESH, standing="pinned", is_lost=True)
    listed = after(lost, log="a", diff="b").baseline

    one = rules.accepted(listed, {LOG: digest(b"a")})
    both = rules.accepted(one, {DIFF: digest(b"b")})

    assert (one.is_lost, withheld(one)) == (True, [DIFF])
    assert (both.is_lost, withheld(both)) == (False, [])


def test_a_server_that_lists_nothing_is_not_met_yet() -> None:
    got = after(FRESH)

    assert got == ComparedList(FRESH)


def test_memory_is_bounded_and_what_is_gone_is_forgotten_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rules, "MOST_TOOLS", 2)
    monkeypatch.setattr(rules, "MOST_TEXT_BYTES", 3)
    baseline = met(gone="aa", log="bb")
    changed = after(baseline, log="bb", diff="cc").baseline

    got = rules.accepted(changed, {DIFF: digest(b"cc")})

    assert list(got.known) == [LOG, DIFF]
    assert [each.text for each in got.known.values()] == [b"", b"cc"]
    assert after(got, QUARANTINE, log="bb", diff="cc").baseline == got


@pytest.mark.parametrize(
    ("server", "standing"),
    [
        (("npx", "-y", "a@1.2.3"), "pinned"),
        (("uvx", "a==1.2.3"), "pinned"),
        (("npx", "-y", "a"), ""),
        (("python", "server.py"), ""),
    ],
)
def test_a_pinned_version_is_to_stay_what_it_was(server: tuple[str, ...], standing: str) -> None:
    spec = ServerSpec(ServerName("a"), "stdio", TapName("t"), command=server[0], args=server[1:])

    got = rules.standing_of(spec)

    assert got == standing
    assert rules.standing_of(msgspec.structs.replace(spec, project="/src/app")) == "project"


TEXTS = st.sampled_from(["a", "b", "c"])
LISTS: st.SearchStrategy[Mapping[str, str]] = st.dictionaries(
    st.sampled_from(["log", "diff", "show"]), TEXTS
)
INSTANCES = st.sampled_from([InstanceId("git-1"), InstanceId("git-2")])


class Quarantine(RuleBasedStateMachine):
    """In quarantine, only what a person has accepted may ever be used.

    Two instances list; whatever either of them has withheld can be decided on while both run.
    """

    def __init__(self) -> None:
        super().__init__()
        self.baseline = FRESH
        self.listed: dict[InstanceId, dict[ToolName, bytes]] = {}
        self.barred: dict[InstanceId, set[ToolName]] = {}
        self.instances = Instances()
        self.accepted: set[tuple[ToolName, bytes]] = set()

    def vet(self, instance: InstanceId) -> None:
        listed = self.listed[instance]
        digests = {name: digest(text) for name, text in listed.items()}
        elsewhere = self.instances.elsewhere(instance, list(self.listed))
        self.baseline = rules.compared(self.baseline, listed, QUARANTINE, 1.0, elsewhere).baseline
        self.instances.lists(instance, listed, self.baseline.changes)
        self.barred[instance] = set(rules.withheld_of(digests, self.baseline, QUARANTINE))

    @rule(instance=INSTANCES, tools=LISTS)
    def lists(self, instance: InstanceId, tools: Mapping[str, str]) -> None:
        self.listed[instance] = listing(**tools)
        self.vet(instance)

    @rule(instance=INSTANCES)
    def ends(self, instance: InstanceId) -> None:
        self.listed.pop(instance, None)
        self.barred.pop(instance, None)

    @rule(name=st.sampled_from([LOG, DIFF]), text=TEXTS, is_accepted=st.booleans())
    def is_decided_on(self, name: ToolName, text: str, is_accepted: bool) -> None:
        decide = rules.accepted if is_accepted else rules.rejected
        digests = {name: digest(text.encode())}
        if not rules.decided_on(self.baseline, digests):
            return
        is_removal = self.baseline.changes[name].kind == "removed"
        self.baseline = decide(self.baseline, digests)
        if is_removal and is_accepted:
            self.accepted = {each for each in self.accepted if each[0] != name}
        elif is_accepted:
            self.accepted.add((name, text.encode()))
        for instance in self.listed:
            self.vet(instance)

    @invariant()
    def only_the_accepted_is_usable(self) -> None:
        for instance, listed in self.listed.items():
            barred = self.barred[instance]
            assert {each for each in listed.items() if each[0] not in barred} <= self.accepted

    @invariant()
    def what_is_withheld_can_be_decided_on(self) -> None:
        undecided = set(rules.withheld(self.baseline, QUARANTINE))
        assert set().union(*self.barred.values()) <= undecided


Quarantine.TestCase.settings = settings(
    max_examples=examples(50), stateful_step_count=30, deadline=None
)
TestQuarantine = Quarantine.TestCase
