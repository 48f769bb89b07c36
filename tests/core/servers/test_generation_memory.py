"""A server's known generation decides how it is started and who shares it."""

import msgspec
import pytest

from capd.core.servers.generation_memory import (
    MOST_SERVERS,
    PROBE_PATIENCE,
    SURE_PATIENCE,
    GenerationMemory,
)
from capd.core.servers.identity import server_identity
from capd_protos.types import ServerIdentity, ServerName, ServerSpec, TapName

SERVER = ServerSpec(ServerName("s"), "stdio", TapName("t"), command="s")
IDENTITY = server_identity(SERVER)

# What was tried first and what came of it, and then for a handshake and a stateless client:
# whether stateless is tried first, and who shares.
SEEN = {
    "nothing": ([], (False, "project"), (True, "project")),
    "a handshake that proves nothing": ([(False, False)], (False, "project"), (True, "project")),
    "both": ([(True, True)], (False, "project"), (True, "shared")),
    "both, and a handshake later": (
        [(True, True), (False, False)],
        (False, "project"),
        (True, "shared"),
    ),
    "stateless alone": ([(False, True)], (True, "shared"), (True, "shared")),
    "stateless alone, met again": (
        [(False, True), (True, True)],
        (True, "shared"),
        (True, "shared"),
    ),
    "a handshake alone": ([(True, False)], (False, "project"), (False, "project")),
    "another version of it": (
        [(False, True), (True, False)],
        (False, "project"),
        (False, "project"),
    ),
}


@pytest.mark.parametrize("seen", SEEN)
def test_a_start_follows_what_was_seen(seen: str) -> None:
    meetings, *expected = SEEN[seen]
    memory = GenerationMemory()
    for tried, stateless in meetings:
        memory.note_start(IDENTITY, tried_stateless=tried, is_stateless=stateless)

    got = [
        (
            memory.is_tried_stateless(IDENTITY, by_stateless=client, has_failed=False),
            memory.scope(SERVER, IDENTITY, by_stateless=client),
        )
        for client in (False, True)
    ]

    assert got == expected


def test_a_server_of_which_nothing_is_known_is_not_probed_after_a_failure() -> None:
    memory = GenerationMemory()

    assert not memory.is_tried_stateless(IDENTITY, by_stateless=True, has_failed=True)


@pytest.mark.parametrize(
    ("said", "scope"),
    [
        ({"scope": "project", "is_scope_fixed": True}, "project"),
        ({"scope": "session", "is_scope_fixed": True}, "session"),
        ({"scope": "session"}, "session"),
        ({"scope": "session", "transport": "http"}, "shared"),
        ({"scope": "session", "transport": "http", "is_scope_fixed": True}, "session"),
    ],
)
def test_what_a_definition_or_a_servers_state_fixes_stays(
    said: dict[str, object], scope: str
) -> None:
    memory = GenerationMemory()
    memory.note_start(IDENTITY, tried_stateless=False, is_stateless=True)

    got = memory.scope(msgspec.structs.replace(SERVER, **said), IDENTITY, by_stateless=True)

    assert got == scope


@pytest.mark.parametrize(
    ("written", "scope"),
    [("stateless", "shared"), ("both", "shared"), ("handshake", "project"), ("x", "project")],
)
def test_what_was_written_down_counts_until_the_server_is_met_otherwise(
    written: str, scope: str
) -> None:
    memory = GenerationMemory()
    memory.restore({IDENTITY: written})
    before = memory.scope(SERVER, IDENTITY, by_stateless=True)

    memory.note_start(IDENTITY, tried_stateless=True, is_stateless=False)

    after = memory.scope(SERVER, IDENTITY, by_stateless=True)
    assert (before, after, memory.written()) == (scope, "project", {})


def test_of_too_many_the_ones_that_were_met_last_are_written_down() -> None:
    memory = GenerationMemory()
    names = [ServerIdentity(str(number)) for number in range(MOST_SERVERS + 1)]
    for name in (*names, names[0]):
        memory.note_start(name, tried_stateless=True, is_stateless=True)

    got = memory.written()

    assert list(got) == [*names[2:], names[0]]


@pytest.mark.parametrize(
    ("meetings", "transport", "expected"),
    [
        ([], "stdio", PROBE_PATIENCE),
        ([(True, False)], "stdio", PROBE_PATIENCE),
        ([(False, False)], "stdio", PROBE_PATIENCE),
        ([(True, True)], "stdio", SURE_PATIENCE),
        ([(False, True)], "stdio", SURE_PATIENCE),
        # Another version of it, that answers nothing before its handshake.
        ([(True, True), (True, False)], "stdio", PROBE_PATIENCE),
        ([], "http", SURE_PATIENCE),
        ([], "sse", PROBE_PATIENCE),
    ],
)
def test_a_probe_is_waited_for_where_its_answer_is_sure_to_come(
    meetings: list[tuple[bool, bool]], transport: str, expected: float
) -> None:
    memory = GenerationMemory()
    for tried, stateless in meetings:
        memory.note_start(IDENTITY, tried_stateless=tried, is_stateless=stateless)

    assert memory.probe_patience(IDENTITY, transport) == expected
