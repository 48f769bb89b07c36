"""Which keys a project's settings file may set, and which are refused."""

import tomllib

import pytest

from capd.core.settings.layers import UnusableError
from capd.core.settings.project_keys import (
    LONGEST_TEXT,
    MOST_RULES,
    PROJECT_KEYS,
    Permitted,
    check_bounds,
    limit_to_user,
    permitted,
)


def test_what_narrows_or_tunes_the_projects_own_sessions_counts() -> None:
    text = """
domain = "devops"
[surface]
mode = "stable"
pins = ["git:*"]
[policy]
deny = ["shell:*"]
[sessions]
tools = 3
[curation]
k = 5
"""

    got = permitted(tomllib.loads(text), text)

    assert got == Permitted(tomllib.loads(text), ())


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('[[mcp.servers]]\ncommand = "sh"', "`mcp` is left out: it starts commands"),
        ('[mcpServers.x]\ncommand = "sh"', "`mcpServers` is left out: it starts commands"),
        ('hooks = ["sh"]', "`hooks` is left out: it starts commands"),
        ("[trust]\nall = true", "`trust` is left out: a project cannot vouch for itself"),
        ('trusted_hints = ["*"]', "`trusted_hints` is left out: a project cannot vouch"),
        ("auto_approve = true", "`auto_approve` is left out: a project cannot vouch"),
        ('[sandbox]\nlevel = "off"', "`sandbox` is left out: it could weaken the sandbox"),
        ('env_passthrough = ["*"]', "`env_passthrough` is left out: it could lead to your secrets"),
        ('[secrets]\nfile = "/x"', "`secrets` is left out: it could lead to your secrets"),
        ("[listen_http]\nenabled = true", "`listen_http` is left out: it opens a way in"),
        ('socket = "/tmp/s"', "`socket` is left out: it opens a way in"),
        ('[taps]\npath = "/x"', "`taps` is left out: it names files of others"),
        ('[policy.clients."*"]\nallow = ["*"]', "`policy.clients` is left out: it could weaken"),
        ('[clients."*"]\ndomain = "x"', "`clients` is left out: it is about other sessions"),
        ('[projects."/"]\ndomain = "x"', "`projects` is left out: it is about other projects"),
        ("[servers]\nlinger = 9", "`servers` is left out: servers are shared by projects"),
        ('[surface]\nunchecked_servers = ["*"]', "`surface.unchecked_servers` is left out: it is"),
        ('model = "x"', "`model` is left out: it holds for all projects"),
        ("colour = 3", "`colour` is left out: it is none that a project's file may set"),
    ],
)
def test_a_key_that_is_not_a_projects_is_left_out_and_the_rest_counts(
    text: str, reason: str
) -> None:
    whole = f'domain = "devops"\n{text}\n'

    got = permitted(tomllib.loads(whole), whole)

    assert got.tables == {"domain": "devops"}
    assert [note for note in got.notes if reason in note and note.startswith("line ")] != []
    assert len(got.notes) == 1


def test_limits_go_downwards_alone() -> None:
    project = {"sessions": {"capabilities": 9, "tools": 3}, "surface": {"mode": "stable"}}

    got = limit_to_user(project, {"sessions": {"capabilities": 4, "tools": 24}})

    assert got == Permitted(
        {"sessions": {"tools": 3}, "surface": {"mode": "stable"}},
        ("`sessions.capabilities` = 9 is left out: yours is 4, and lower",),
    )


def test_no_key_of_a_project_starts_a_command_or_opens_anything() -> None:
    tables = {path[0] for path in PROJECT_KEYS}

    assert tables == {"domain", "surface", "routing", "sessions", "policy", "curation"}


@pytest.mark.parametrize(
    ("user", "allowed"),
    [
        ("stable", {"stable"}),
        ("auto", {"stable", "auto"}),
        ("dynamic", {"stable", "auto", "dynamic"}),
        ("pass-through", {"stable", "auto", "dynamic", "pass-through"}),
    ],
)
def test_a_mode_lists_no_more_than_the_users(user: str, allowed: set[str]) -> None:
    modes = ("stable", "auto", "dynamic", "pass-through")

    kept = {m for m in modes if limit_to_user(surface(m), surface(user)).tables == surface(m)}

    assert kept == allowed


def surface(mode: str) -> dict[str, dict[str, str]]:
    return {"surface": {"mode": mode}}


def test_what_is_on_may_be_switched_off_and_never_on() -> None:
    on, off = {"routing": {"files": True}}, {"routing": {"files": False}}

    assert limit_to_user(off, on) == Permitted(off, ())
    assert limit_to_user(on, off) == Permitted(
        {"routing": {}}, ("`routing.files` = true is left out: yours is false, and lower",)
    )


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        (
            f"[policy]\ndeny = {['x'] * (MOST_RULES + 1)}\n",
            "line 2, `policy.deny`: it has 65 entries, and 64 at most count",
        ),
        (
            f'[surface]\npins = ["{"x" * (LONGEST_TEXT + 1)}"]\n',
            "line 2, `surface.pins`: a text in it has more than 128 characters",
        ),
        (
            f'domain = "{"x" * (LONGEST_TEXT + 1)}"\n',
            "line 1, `domain`: a text in it has more than 128 characters",
        ),
    ],
)
def test_a_file_with_too_much_is_not_used(text: str, wrong: str) -> None:
    with pytest.raises(UnusableError) as raised:
        check_bounds(tomllib.loads(text), text)

    assert str(raised.value) == wrong


def test_ten_thousand_keys_that_nobody_reads_give_a_few_lines() -> None:
    text = "".join(f"key{n} = 1\n" for n in range(10_000))

    notes = permitted(tomllib.loads(text), text).notes

    assert len(notes) == 21
    assert notes[-1] == "more of its keys are left out for the like reasons"
