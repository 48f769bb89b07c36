"""When two definitions are the same server, and which sessions share an instance."""

import msgspec
import pytest

from capd.core.servers.identity import InstanceKey, instance_keys, server_identity
from capd.core.servers.sandbox import SandboxRequest
from capd_protos.types import OAuthClient, ServerName, ServerSpec, SessionKey, TapName

PEPPER = b"p" * 32
ONE, TWO = SessionKey("one"), SessionKey("two")
BASE = ServerSpec(
    ServerName("db"),
    "stdio",
    TapName("tap"),
    command="npx",
    args=("-y", "db@1.0.0"),
    env={"MODE": "ro"},
    headers={"X-Team": "a"},
    scope="shared",
)
SECRET = msgspec.structs.replace(BASE, env={"TOKEN": "{{ENV:TOKEN}}"})


def key_of(
    server: ServerSpec,
    session: SessionKey = ONE,
    project: str = "/src/a",
    token: str | None = None,
    pepper: bytes = PEPPER,
) -> InstanceKey:
    values = {} if token is None else {"TOKEN": token}
    return instance_keys(server, project, session, values, pepper)[server.scope]


@pytest.mark.parametrize("scope", ["shared", "project"])
def test_a_session_over_a_bridge_shares_with_those_of_its_own_bridge_alone(scope: str) -> None:
    def key(session: SessionKey, bridge: str) -> InstanceKey:
        return instance_keys(BASE, "", session, {}, PEPPER, bridge=bridge)[scope]

    assert key(ONE, "box") == key(TWO, "box")
    assert len({key(ONE, ""), key(ONE, "box"), key(ONE, "other")}) == 3


@pytest.mark.parametrize("scope", ["shared", "project", "session"])
def test_a_server_over_there_is_shared_within_one_folder_of_one_bridge(scope: str) -> None:
    there = msgspec.structs.replace(BASE, where="project")

    def key(bridge: str, folder: str, session: SessionKey = ONE) -> InstanceKey:
        keys = instance_keys(there, "", session, {}, PEPPER, bridge=bridge, far_folder=folder)
        return keys[scope]

    assert (key("box", "/a") == key("box", "/a", TWO)) is (scope != "session")
    assert len({key("box", "/a"), key("box", "/b"), key("other", "/a"), key("", "/a")}) == 4


@pytest.mark.parametrize(
    "change",
    [
        {"transport": "http"},
        {"command": "uvx"},
        {"sandbox": "strict"},
        {"where": "project"},
        {"args": ("db@1.0.0", "-y")},
        {"args": ("-y db@1.0.0",)},
        {"args": ("-y", "db@1.0.1")},
        {"url": "http://localhost:1/mcp"},
        {"env": {"MODE": "rw"}},
        {"env": {"MODES": "ro"}},
        {"env": {}},
        {"headers": {"X-Team": "b"}},
        {"headers": {"X-Teams": "a"}},
        {"env": {"X-Team": "a"}, "headers": {"MODE": "ro"}},
        {"scope": "project"},
        {"scope": "session"},
        {"oauth": OAuthClient("capd")},
        {"oauth": OAuthClient("capd", "{{ENV:S}}")},
    ],
    ids=str,
)
def test_whatever_makes_a_server_behave_otherwise_makes_it_another_one(
    change: dict[str, object],
) -> None:
    other = msgspec.structs.replace(BASE, **change)

    got = server_identity(other)

    assert got != server_identity(BASE)


@pytest.mark.parametrize(
    "change",
    [
        {"name": "database"},
        {"tap": "other"},
        {"tools": ("query",)},
        {"timeout": 9.0},
        {"lazy": False},
        {"description": "text"},
    ],
    ids=str,
)
def test_what_is_said_about_a_server_does_not_make_it_another_one(
    change: dict[str, object],
) -> None:
    other = msgspec.structs.replace(BASE, **change)

    got = server_identity(other)

    assert got == server_identity(BASE)
    assert key_of(other) == key_of(BASE)
    assert len({key_of(other), key_of(BASE)}) == 1


def test_the_order_of_environment_and_headers_does_not_matter() -> None:
    env = {"A": "1", "B": "2"}
    one = msgspec.structs.replace(BASE, env=env, headers=env)
    backwards = dict(reversed(env.items()))

    got = server_identity(msgspec.structs.replace(BASE, env=backwards, headers=backwards))

    assert got == server_identity(one)


@pytest.mark.parametrize(
    ("scope", "other_session", "other_project"),
    [("shared", True, True), ("project", True, False), ("session", False, True)],
)
def test_an_instance_is_shared_within_its_scope_only(
    scope: str, *, other_session: bool, other_project: bool
) -> None:
    server = msgspec.structs.replace(BASE, scope=scope)

    got = key_of(server)

    assert (got == key_of(server, session=TWO)) is other_session
    assert (got == key_of(server, project="/src/b")) is other_project


@pytest.mark.parametrize("folder", ["{{CWD}}", "{{PROJECT}}"])
def test_a_shared_server_whose_definition_names_a_folder_is_one_for_each_project(
    folder: str,
) -> None:
    server = msgspec.structs.replace(BASE, args=(f"--path={folder}",))

    got = key_of(server, project="/src/a")

    assert got == key_of(server, project="/src/a", session=TWO)
    assert got != key_of(server, project="/src/b")


@pytest.mark.parametrize("scope", ["shared", "project", "session"])
def test_different_secrets_never_share_an_instance(scope: str) -> None:
    server = msgspec.structs.replace(SECRET, scope=scope)

    keys = {key_of(server, token=token) for token in ("x", "y", "", "X", "x ")}

    assert len(keys) == 5


def test_equal_secrets_share_an_instance_across_sessions() -> None:
    got = key_of(SECRET, session=ONE, token="x")

    assert got == key_of(SECRET, session=TWO, token="x")


def test_a_value_that_no_placeholder_asks_for_separates_nothing() -> None:
    got = key_of(BASE, token="x")

    assert got == key_of(BASE, token="y")
    assert got.credentials == ""


def test_values_that_run_together_alike_are_told_apart() -> None:
    server = msgspec.structs.replace(BASE, env={"A": "{{ENV:A}}", "B": "{{ENV:B}}"})

    got = [
        instance_keys(server, "/", ONE, values, PEPPER)[server.scope].credentials
        for values in ({"A": "xy", "B": "z"}, {"A": "x", "B": "yz"}, {"A": "z", "B": "xy"})
    ]

    assert len(set(got)) == 3


def test_the_digest_of_secrets_is_of_this_run_alone_and_shows_none_of_them() -> None:
    got = key_of(SECRET, token="hunter22")

    assert got.credentials != key_of(SECRET, token="hunter22", pepper=b"q" * 32).credentials
    assert "hunter22" not in repr(got)


def test_who_is_confined_otherwise_is_another_instance() -> None:
    keys = {
        instance_keys(BASE, "/src/a", ONE, {}, PEPPER, sandbox_request=sandbox_request)[BASE.scope]
        for sandbox_request in (
            SandboxRequest(),
            SandboxRequest(masks=("ssh",)),
            SandboxRequest("strict"),
        )
    }

    assert len(keys) == 3


def test_two_accounts_never_share_an_instance() -> None:
    usual, work = (
        instance_keys(BASE, "/src/a", ONE, {}, PEPPER, account=account)[BASE.scope]
        for account in ("", "work")
    )

    assert usual != work
    assert usual == key_of(BASE)
