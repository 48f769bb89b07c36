"""What a person agrees to by trusting a project, and what ends the agreement."""

from typing import Any

import msgspec
import pytest

from capd.core.trust.named_files import MOST_NAMES, named_files
from capd.core.trust.startable import (
    CHANGED,
    TRUSTED,
    UNTRUSTED,
    Agreement,
    Startable,
    agreements_after,
)
from capd_protos.types import OAuthClient, ServerName, ServerSpec, TapName

PROJECT = "/src/app"
SERVER = ServerSpec(
    ServerName("db"),
    "stdio",
    TapName("project:/src/app"),
    command="node",
    args=("server.js",),
    env={"A": "1"},
    project=PROJECT,
)
STARTABLE = Startable(SERVER, PROJECT, {"server.js": "aa"})


def agreed(*startables: Startable) -> dict[str, Agreement]:
    return {each.digest: each.agreement() for each in startables}


def test_what_was_agreed_to_is_trusted_and_nothing_else_is() -> None:
    assert STARTABLE.state({}) == UNTRUSTED
    assert STARTABLE.state(agreed(STARTABLE)) == TRUSTED


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"command": "deno"}, "command line"),
        ({"args": ("server.js", "-x")}, "command line"),
        ({"args": ("server.js -x",)}, "command line"),
        ({"env": {"A": "2"}}, "environment"),
        ({"env": {}}, "environment"),
        ({"url": "http://h"}, "url"),
        ({"headers": {"H": "v"}}, "headers"),
        ({"scope": "session"}, "other settings"),
        ({"lazy": False}, "other settings"),
        ({"transport": "http"}, "other settings"),
        ({"tools": ("x",)}, "other settings"),
        ({"oauth": OAuthClient("x")}, "other settings"),
    ],
)
def test_whatever_changes_in_a_definition_asks_again(change: dict[str, Any], part: str) -> None:
    kept = agreed(STARTABLE)
    changed = Startable(msgspec.structs.replace(SERVER, **change), PROJECT, {"server.js": "aa"})

    assert (changed.state(kept), changed.changes(kept)) == (CHANGED, [part])


@pytest.mark.parametrize(
    ("files", "parts"),
    [
        ({"server.js": "bb"}, ["file server.js"]),
        ({}, ["file server.js"]),
        ({"server.js": "aa", "more.js": "cc"}, ["file more.js"]),
    ],
)
def test_whatever_changes_in_a_file_that_it_names_asks_again(
    files: dict[str, str], parts: list[str]
) -> None:
    kept = agreed(STARTABLE)
    changed = Startable(SERVER, PROJECT, files)

    assert (changed.state(kept), changed.changes(kept)) == (CHANGED, parts)


def test_an_agreement_is_for_its_project_alone() -> None:
    elsewhere = Startable(SERVER, "/src/copy", {"server.js": "aa"})

    assert elsewhere.digest != STARTABLE.digest


def test_nobody_can_agree_to_what_cannot_be_looked_at() -> None:
    unreadable = Startable(SERVER, PROJECT, {"server.js": "aa"}, "server.js cannot be read")

    assert unreadable.state(agreed(STARTABLE)) == CHANGED
    assert agreements_after([unreadable], {}, [unreadable.digest]) == {}


def test_an_older_state_that_comes_back_asks_again() -> None:
    newer = Startable(SERVER, PROJECT, {"server.js": "bb"})

    kept = agreements_after([newer], agreed(STARTABLE), [newer.digest])

    assert kept == agreed(newer)
    assert STARTABLE.state(kept) == CHANGED


def test_agreeing_to_one_server_leaves_the_agreement_to_another() -> None:
    other = Startable(msgspec.structs.replace(SERVER, name=ServerName("web")), PROJECT)

    kept = agreements_after([STARTABLE, other], agreed(STARTABLE), [other.digest])

    assert kept == agreed(STARTABLE, other)


def test_no_value_of_a_definition_is_kept() -> None:
    secret = Startable(
        msgspec.structs.replace(SERVER, env={"A": "hunter2"}, args=("--k=hunter2",)), PROJECT
    )

    assert "hunter2" not in repr(secret.agreement())


@pytest.mark.parametrize(
    ("command", "args", "env", "expected"),
    [
        ("./run.sh", (), {}, "./run.sh"),
        ("node", ("dist/server.js",), {}, "dist/server.js"),
        ("node", ("dist/server",), {}, "dist/server.js"),
        ("node", ("dist",), {}, "dist/index.js"),
        ("node", ("--require=./hook.js", "x"), {}, "./hook.js"),
        ("node", ("--import", "file:///src/app/x.mjs"), {}, "/src/app/x.mjs"),
        ("node", ("{{PROJECT}}/x.js",), {}, "/src/app/x.js"),
        ("node", ("{{CWD}}/x.js",), {}, "/src/app/x.js"),
        ("sh", ("-c", "cd . && ./a.sh; exec './b.sh'|tee x"), {}, "./b.sh"),
        ("sh", ("-c", "cd .&&./a.sh"), {}, "./a.sh"),
        ("node", ("x",), {"NODE_OPTIONS": "--require ./evil.js"}, "./evil.js"),
        ("x", (), {"LD_PRELOAD": "/a.so:/src/app/evil.so"}, "/src/app/evil.so"),
        ("tool", (), {"PATH": "/bin:{{PROJECT}}/bin"}, "/src/app/bin/tool"),
        ("python", ("-m", "app.server"), {}, "app/server.py"),
        ("python", ("-m", "app"), {}, "app/__main__.py"),
        ("python", ("-mapp.server",), {}, "app/server.py"),
        ("python", ("-Im", "app.server"), {}, "app/server.py"),
        ("python", ("-m", "app.tools.server"), {}, "app/__init__.py"),
        ("python", ("-m", "app.tools.server"), {}, "app/tools/__init__.py"),
        ("uv", ("run", "--module", "app"), {}, "app.py"),
        ("sh", ("-c", "exec python -u -m app.server"), {}, "app/server.py"),
        ("node", ("-r./hook.js", "x"), {}, "./hook.js"),
        ("java", ("@server.args",), {}, "server.args"),
        ("python", ("my script.py",), {}, "my script.py"),
        ("python", ("--file=my script.py",), {}, "my script.py"),
        ("npm", ("start",), {}, "package.json"),
        ("/usr/bin/make", ("serve",), {}, "Makefile"),
        ("env", ("A=1", "uv", "run", "x"), {}, "pyproject.toml"),
        ("sh", ("-c", "npm run serve"), {}, "package.json"),
    ],
)
def test_a_file_that_a_definition_names_is_found_in_whatever_form(
    command: str, args: tuple[str, ...], env: dict[str, str], expected: str
) -> None:
    server = msgspec.structs.replace(SERVER, command=command, args=args, env=env)

    assert expected in named_files(server, PROJECT)


def test_a_nul_is_in_no_path() -> None:
    args, env = ("-m", "c\0d"), {"PATH": "/bin:/e\0f", "X": "g\0h"}
    odd = msgspec.structs.replace(SERVER, command="a\0b", args=args, env=env)

    found = named_files(odd, PROJECT)

    assert [name for name in found if "\0" in name] == []


@pytest.mark.parametrize("args", [("-m", "a." * 40_000), ("@-r" * 40_000,), ("-m" * 40_000,)])
def test_a_long_word_has_few_names(args: tuple[str, ...]) -> None:
    server = msgspec.structs.replace(SERVER, args=args)

    assert len(named_files(server, PROJECT)) < 200


def test_a_definition_with_more_names_than_can_be_looked_up_says_so() -> None:
    server = msgspec.structs.replace(SERVER, args=(" ".join(map(str, range(9999))), "evil.js"))

    assert len(named_files(server, PROJECT)) > MOST_NAMES
