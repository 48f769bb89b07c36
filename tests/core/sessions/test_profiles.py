"""Which profile a session has, and what the profile changes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capd.core.sessions.git_checkout import (
    NO_CHECKOUT,
    GitCheckout,
    branch_of,
    remotes_of,
    shown_remote,
)
from capd.core.sessions.policy import PolicyRules
from capd.core.sessions.profiles import (
    Profile,
    ProfileChoice,
    SessionFacts,
    choose,
    namespaced,
    values_of,
    with_profile,
)
from capd.core.sessions.session_rules import SessionRules

WORK = Profile("work", folders=("/people/ada/job", "/srv"), secrets="work")
RELEASE = Profile("release", remotes=("github.com/acme/*",), branches=("release/*", "main"))
PHONE = Profile("phone", clients=("zed*",))
BY_NAME = Profile("by-name", on=("git",))
ALL = {each.name: each for each in (RELEASE, WORK, PHONE, BY_NAME)}
ACME = GitCheckout("release/1", ("github.com/acme/app", "gitlab.com/me/app"))


@pytest.mark.parametrize(
    ("facts", "name", "why"),
    [
        (SessionFacts(), "", "no profile fits"),
        (SessionFacts(("vim",), "/people/ada/other", NO_CHECKOUT), "", "no profile fits"),
        (SessionFacts((), "/people/ada/job"), "work", "folder /people/ada/job"),
        (SessionFacts((), "/people/ada/job/app/x"), "work", "folder /people/ada/job/app/x"),
        (SessionFacts((), "/people/ada/jobshop"), "", "no profile fits"),
        (SessionFacts((), "/srv"), "work", "folder /srv"),
        (
            SessionFacts((), "/people/ada/job", ACME),
            "release",
            "remote github.com/acme/app, gitlab.com/me/app, branch release/1",
        ),
        (
            SessionFacts((), "/x", GitCheckout("topic", ("github.com/acme/app",))),
            "",
            "no profile fits",
        ),
        (
            SessionFacts((), "/x", GitCheckout("main", ("github.com/other/app",))),
            "",
            "no profile fits",
        ),
        (SessionFacts(("Zed 2",), "/x"), "phone", "client Zed 2"),
        (SessionFacts(("Zed 2",), "/srv/a"), "work", "folder /srv/a"),
    ],
)
def test_the_first_profile_whose_conditions_all_fit_is_chosen(
    facts: SessionFacts, name: str, why: str
) -> None:
    chosen = choose(ALL, facts)

    assert (chosen.name, chosen.why, chosen.problem) == (name, why, "")


@pytest.mark.parametrize(
    ("by_hand", "variable", "inherited", "name", "why"),
    [
        ("by-name", "work", "phone", "by-name", "chosen by hand"),
        ("", "by-name", "phone", "by-name", "CAPD_PROFILE"),
        ("", "", "phone", "phone", "the session that started this one"),
        ("", "", "", "work", "folder /srv"),
    ],
)
def test_a_name_comes_before_conditions(
    by_hand: str, variable: str, inherited: str, name: str, why: str
) -> None:
    facts = SessionFacts((), "/srv")

    chosen = choose(ALL, facts, by_hand=by_hand, variable=variable, inherited=inherited)

    assert (chosen.name, chosen.why) == (name, why)


@pytest.mark.parametrize(
    ("profiles", "name", "problem"),
    [
        (ALL, "wrok", "there is no profile 'wrok'; did you mean work?"),
        (
            ALL,
            "qqqqq",
            "there is no profile 'qqqqq'; there are: release, work, phone, by-name",
        ),
        ({}, "work", "there is no profile 'work'; config.toml has no [profiles.NAME]"),
    ],
)
def test_a_name_that_is_no_profile_chooses_none_and_says_why(
    profiles: dict[str, Profile], name: str, problem: str
) -> None:
    # Conditions fit, but its user meant another one.
    assert choose(profiles, SessionFacts((), "/srv"), variable=name) == ProfileChoice(
        None, "CAPD_PROFILE", problem
    )


def test_a_profile_adds_a_table_of_policy_and_pins() -> None:
    table = PolicyRules("[profiles.work.policy]", allow=("git:*",), ask=("git:push",))
    own = PolicyRules("[policy]", deny=("git:reset",))
    rules = SessionRules(everyone=own, pins=("a",))

    changed = with_profile(rules, Profile("work", pins=("b",), policy=table))

    assert changed.pins == ("a", "b")
    assert changed.policy(["zed"], "/x").tables == (own, table)
    assert with_profile(rules, None) is rules


TABLES = st.builds(
    PolicyRules,
    st.just("[profiles.x.policy]"),
    st.lists(st.sampled_from(["git:*", "*:push", "a:b"]), max_size=2).map(tuple),
    st.lists(st.sampled_from(["git:push", "*", "a:*"]), max_size=2).map(tuple),
    st.lists(st.sampled_from(["git:push", "*"]), max_size=2).map(tuple),
)
NAMES = [("git", "push"), ("git", "log"), ("a", "b"), ("c", "push")]


@given(own=TABLES, table=TABLES)
def test_no_profile_permits_what_is_denied_without_it(own: PolicyRules, table: PolicyRules) -> None:
    rules = SessionRules(everyone=own)
    before = rules.policy([], "/x")

    after = with_profile(rules, Profile("x", policy=table)).policy([], "/x")

    for server, tool in NAMES:
        assert before.restriction(server, tool) is None or after.restriction(server, tool)
        if before.ask_rule(server, tool, "read-only"):
            assert after.ask_rule(server, tool, "read-only")


def test_a_namespace_has_its_own_values() -> None:
    values = {"TOKEN": "a", "WORK__TOKEN": "b", "WORK__EMPTY": "", "HOME__TOKEN": "c"}

    assert namespaced("TOKEN", "work") == "WORK__TOKEN"
    assert values_of(values, "work") == {"TOKEN": "b"}
    assert values_of(values, "other") == {}


@pytest.mark.parametrize(
    ("head", "branch"),
    [
        ("ref: refs/heads/main\n", "main"),
        ("ref: refs/heads/feature/a b\n", "feature/a b"),
        ("ref: refs/remotes/x\n", ""),
        ("9c1e0000\n", ""),
        ("", ""),
        (f"ref: refs/heads/{'x' * 300}", ""),
    ],
)
def test_a_branch_is_what_head_names(head: str, branch: str) -> None:
    assert branch_of(head) == branch


@pytest.mark.parametrize(
    ("url", "remote"),
    [
        ("https://github.com/acme/app.git", "github.com/acme/app"),
        ("https://me:token@GitHub.com/acme/app", "github.com/acme/app"),
        ("git@github.com:acme/app.git", "github.com/acme/app"),
        ("ssh://git@host:2222/a/b.git", "host/a/b"),
        ("/srv/git/app.git", ""),
        ("../app", ""),
        ("file:///srv/app", ""),
    ],
)
def test_a_remote_is_its_host_and_path_however_it_is_reached(url: str, remote: str) -> None:
    assert shown_remote(url) == remote


def test_remotes_are_read_with_origin_first() -> None:
    config = """
[core]
    url = https://not.a.remote/x
[remote "fork"]
    url = git@github.com:me/app.git
[remote "origin"]
    fetch = +refs/heads/*:refs/remotes/origin/*
    URL = "https://github.com/acme/app"
[broken
    url = https://no.where/x
"""

    assert remotes_of(config) == ("github.com/acme/app", "github.com/me/app")


@given(st.text(max_size=500))
def test_whatever_the_files_say_is_bounded(text: str) -> None:
    assert len(remotes_of(f'[remote "x"]\nurl = {text}\n')) <= 16
    assert len(branch_of(text)) <= 256
