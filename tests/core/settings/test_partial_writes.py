"""A settings file that may be half written is not used yet."""

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capd.core.settings.partial_writes import STABLE_SECONDS, StabilityTimer, is_doubtful

DENY = {"policy": {"deny": ["shell:*", "git:push"]}, "servers": {"linger": 5}}


@pytest.mark.parametrize(
    ("after", "text", "expected"),
    [
        ({}, "", True),
        ({}, None, True),
        ({"policy": {"deny": ["shell:*"]}, "servers": {"linger": 5}}, "x\n", True),
        ({"policy": {"deny": ["shell:*", "git:push"]}}, "x\n", True),
        ({"policy": [], "servers": {"linger": 5}}, "x\n", True),
        ({"policy": {"deny": "shell"}, "servers": {"linger": 5}}, "x\n", True),
        (DENY, "x", False),
        ({**DENY, "servers": {"linger": 50}}, "x", True),
        (DENY, "x\n", False),
        ({**DENY, "servers": {"linger": 50}}, "x\n", False),
        ({**DENY, "more": {}}, "x\r\n", False),
        (
            {"policy": {"deny": ["git:push", "a", "shell:*"]}, "servers": {"linger": 5}},
            "x\n",
            False,
        ),
    ],
)
def test_what_lacks_something_or_is_cut_is_doubtful(
    after: dict[str, Any], text: str | None, expected: bool
) -> None:
    assert is_doubtful(DENY, after, text) is expected


def test_where_nothing_was_everything_counts() -> None:
    assert not is_doubtful({}, {}, None)
    assert not is_doubtful({}, {"a": 1}, "a = 1")


@given(st.lists(st.tuples(st.sampled_from(["a", "b", None]), st.floats(-5, 5)), min_size=1))
def test_a_state_counts_only_after_it_was_the_same_for_so_long(
    seen: list[tuple[str | None, float]],
) -> None:
    settling = StabilityTimer()
    now, since = 100.0, 100.0
    last: tuple[str | None] = ("nothing",)
    for text, step in seen:
        now += step
        if (text,) != last or now < since:
            since, last = now, (text,)

        wait = settling.wait(text, now)

        assert wait == pytest.approx(max(0.0, since + STABLE_SECONDS - now))


def test_what_the_disk_says_has_stood_still_counts_at_once() -> None:
    assert StabilityTimer().wait("", 100.0, still_for=STABLE_SECONDS) == 0.0
    assert StabilityTimer().wait("", 100.0, still_for=0.5) == pytest.approx(STABLE_SECONDS - 0.5)


LINES = st.sampled_from(
    [
        "[policy]",
        'deny = ["shell:*",',
        '  "git:push"]',
        'allow = ["git:*"]',
        "[servers]",
        "linger = 50",
        "",
        "# x",
    ]
)


@given(st.lists(LINES, max_size=8), st.lists(LINES, max_size=8), st.data())
def test_the_first_part_of_a_save_never_forbids_less_at_once(
    old: list[str], new: list[str], data: st.DataObject
) -> None:
    before, text = "\n".join([*old, ""]), "\n".join([*new, ""])
    try:
        tables, whole = tomllib.loads(before), tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return
    part = text[: data.draw(st.integers(0, len(text)))]
    try:
        seen = tomllib.loads(part)
    except tomllib.TOMLDecodeError:
        return

    if not is_doubtful(tables, seen, part):
        for key in ("deny", "allow"):
            kept = set(tables.get("policy", {}).get(key, ()))
            kept &= set(whole.get("policy", {}).get(key, ()))
            assert kept <= set(seen.get("policy", {}).get(key, ()))


def test_what_did_not_change_is_never_doubtful_though_its_last_line_has_no_end() -> None:
    state = {"listen_http": {"port": 64}}

    assert not is_doubtful(state, dict(state), "[listen_http]\nport = 64")
    assert is_doubtful(state, {"listen_http": {"port": 6}}, "[listen_http]\nport = 6")
