"""The keys of sessions over a bridge, and which capabilities they may use."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capd.core.sessions.bridges import (
    BridgeRules,
    far_folder,
    is_name,
    session_key,
    shown_path,
    with_bridge,
)
from capd.core.sessions.policy import Policy, PolicyRules
from capd.core.sessions.session_rules import SessionRules
from capd_protos.types import CapabilityId, CapabilityName, TapName

NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}", fullmatch=True)
KEYS = st.text("abz019._:-", min_size=1, max_size=60) | st.builds(
    "bridge:{}:{}".format, NAMES, st.text("ab:.", max_size=9)
)


def capability(name: str, tap: str = "mine") -> CapabilityId:
    return CapabilityId(TapName(tap), CapabilityName(name))


def policy(**tables: PolicyRules) -> Policy:
    """Return the policy of a session over the bridge `box`."""
    bridges = {name: BridgeRules(table) for name, table in tables.items()}
    return with_bridge(SessionRules(), "box", bridges).policy(["far"], "")


# What runs on the far side


@pytest.mark.parametrize(
    ("starts", "tap", "may"),
    [
        ((), "mine", False),
        ((), "own", True),
        ((), "project:/home/me/own", False),
        (("git",), "mine", True),
        (("git*",), "mine", True),
        (("mine/git",), "mine", True),
        (("other/git",), "mine", False),
        (("other/*",), "mine", False),
        (("it",), "mine", False),
        (("*",), "mine", True),
    ],
)
def test_a_server_of_a_tap_runs_there_where_the_user_names_it(
    starts: tuple[str, ...], tap: str, may: bool
) -> None:
    assert BridgeRules(starts=starts).may_start(tap, "git") is may


# Names and keys


@pytest.mark.parametrize("name", ["box", "dev.box-2", "A" * 40, "9"])
def test_an_ordinary_word_is_a_name(name: str) -> None:
    assert is_name(name)


@pytest.mark.parametrize(
    "name", ["", "a:b", "../x", "a/b", ".x", "-x", "a b", "A" * 41, "é", "x\n"]
)
def test_what_could_be_a_path_or_an_option_is_no_name(name: str) -> None:
    assert not is_name(name)


@given(NAMES, KEYS)
def test_a_key_is_in_the_namespace_of_its_bridge_and_stays_the_same(name: str, key: str) -> None:
    whole = session_key(name, key)

    assert whole.startswith(f"bridge:{name}:")
    assert session_key(name, whole) == whole


@given(NAMES, NAMES, KEYS, KEYS)
def test_two_bridges_have_no_key_in_common(one: str, two: str, key: str, other: str) -> None:
    is_same = session_key(one, key) == session_key(two, other)

    assert not is_same or one == two


def test_a_path_of_the_far_side_is_shown_on_one_short_line() -> None:
    assert shown_path("/a\n\x1b[31mb/é") == "/a??[31mb/?"
    assert len(shown_path("/" * 5000)) == 200


@pytest.mark.parametrize("path", ["", "shop", "/a\nb", "/a\x1b[31m", "/\u202ex", "/" * 1025])
def test_what_is_no_path_is_no_folder_of_the_far_side(path: str) -> None:
    assert far_folder(path) == ""


@pytest.mark.parametrize("path", ["/", "/home/dev/shop", "/home/dev/caf\u00e9 two", "/etc/.."])
def test_a_folder_of_the_far_side_is_taken_as_it_is(path: str) -> None:
    assert far_folder(path) == path


# Rules


def test_a_bridge_without_a_table_permits_nothing() -> None:
    found = policy()

    restriction = found.restriction("git", "log")
    assert restriction is not None
    assert restriction.reason == "denied by policy: rule '*' in [bridges.box]"
    assert found.restrict_server("git") is not None


def test_a_bridge_whose_table_names_nothing_permits_nothing() -> None:
    found = policy(box=PolicyRules("", deny=("x:*",), ask=("*:destructive",)))

    assert found.restrict_server("git") is not None


def test_a_bridge_permits_what_it_allows_and_no_more() -> None:
    found = policy(box=PolicyRules("", allow=("git:*",), deny=("git:push",)))

    assert found.restriction("git", "log") is None
    assert found.restriction("git", "push") is not None
    assert found.restriction("github", "log") is not None


@pytest.mark.parametrize(
    ("patterns", "permitted"),
    [
        (("git",), True),
        (("mine/git",), True),
        (("g*",), True),
        (("theirs/git",), False),
        (("GIT",), False),
        ((), False),
    ],
)
def test_a_bridge_permits_the_capabilities_that_it_names(
    patterns: tuple[str, ...], permitted: bool
) -> None:
    found = policy(box=PolicyRules("", capabilities=patterns))

    assert (found.restrict_capability(capability("git")) is None) is permitted
    assert found.restriction("git", "log") is None


def test_the_table_of_another_bridge_permits_nothing_here() -> None:
    found = policy(other=PolicyRules("", allow=("*",)))

    assert found.restrict_server("git") is not None


def test_the_users_own_policy_narrows_what_a_bridge_permits() -> None:
    rules = SessionRules(everyone=PolicyRules("[policy]", deny=("git:push",)))
    bridges = {"box": BridgeRules(PolicyRules("", allow=("git:*",)))}

    found = with_bridge(rules, "box", bridges).policy(["far"], "")

    assert found.restriction("git", "push") is not None


def test_what_happens_over_a_bridge_teaches_nothing_and_runs_no_scripts() -> None:
    rules = with_bridge(SessionRules(lists_scripts=True), "box", {})

    assert (rules.learns, rules.has_scripts, rules.lists_scripts) == (False, False, False)
