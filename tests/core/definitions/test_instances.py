"""Instances of one server may list different tools; each change is reported once."""

import pytest

from capd.core.definitions import baseline as rules
from capd.core.definitions.baseline import Instances, ToolChange
from capd_protos.types import InstanceId, ToolName

LOG, DIFF = ToolName("log"), ToolName("diff")
ONE, TWO, THREE = InstanceId("git-1"), InstanceId("git-2"), InstanceId("git-3")


def test_what_is_listed_elsewhere_is_what_the_others_that_run_list_last() -> None:
    instances = Instances()
    instances.lists(ONE, {LOG: b"a"}, [])
    instances.lists(TWO, {LOG: b"x"}, [LOG])
    instances.lists(TWO, {LOG: b"b", DIFF: b"c"}, [LOG])

    got = instances.elsewhere(THREE, [ONE, TWO, THREE])

    assert got == {LOG: [b"", b"b"], DIFF: [b""]}
    assert instances.elsewhere(ONE, [ONE]) == {}


def test_what_was_told_is_told_again_only_after_a_person_has_decided() -> None:
    instances = Instances()
    news = {LOG: ToolChange("changed", "a"), DIFF: ToolChange("added", "b")}
    first = instances.unreported(news)
    again = instances.unreported(news)
    instances.decided([LOG])

    got = instances.unreported(news)

    assert (first, again, got) == (news, {}, {LOG: ToolChange("changed", "a")})


def test_what_was_told_longest_ago_is_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "MOST_REPORTED", 1)
    instances = Instances()
    instances.unreported({LOG: ToolChange("changed", "a")})
    instances.unreported({LOG: ToolChange("changed", "b")})

    got = instances.unreported({LOG: ToolChange("changed", "a")})

    assert got == {LOG: ToolChange("changed", "a")}
