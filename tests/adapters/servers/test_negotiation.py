"""Which protocol generation is tried first with a server, and which answers are accepted."""

from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from capd.adapters.servers.negotiation import PROBE_GRACE, HandshakeError, negotiate
from capd.core.servers.generation_memory import PROBE_PATIENCE, SURE_PATIENCE
from capd_protos.types import ClientFacts
from line_server import EVERYTHING, INFO, Json, LineServer, serving

TIMEOUT = 60.0
INITIALIZED: Json = {
    "protocolVersion": "2025-06-18",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "old", "version": "1"},
    "instructions": "old ways",
}
DISCOVERED: Json = {
    "supportedVersions": ["2030-01-01", "2026-07-28"],
    "capabilities": {"prompts": {}},
    "instructions": "stateless ways",
}
UNKNOWN: Json = {"error": {"code": -32601, "message": "Method not found"}}
SILENCE = None


class Met:
    """A negotiation that runs in its own task."""

    def __init__(
        self,
        server: LineServer,
        *,
        wants_stateless: bool,
        probe_patience: float = PROBE_PATIENCE,
    ) -> None:
        self.errors: list[str] = []
        self.ended_at = -1.0
        self._server = server
        self._wants_stateless = wants_stateless
        self._probe_patience = probe_patience
        self._started_at = trio.current_time()

    async def run(self) -> None:
        client = ClientFacts("2025-11-25", INFO, EVERYTHING)
        try:
            await negotiate(
                self._server.server_connection,
                client,
                wants_stateless=self._wants_stateless,
                timeout=TIMEOUT,
                probe_patience=self._probe_patience,
            )
        except HandshakeError as error:
            self.errors.append(str(error))
        self.ended_at = trio.current_time() - self._started_at


async def met(wants_stateless: bool, discovered: Any, initialized: Any) -> tuple[LineServer, Met]:
    """Return the result of a negotiation with a server that answers like this."""
    async with serving() as (server, nursery):
        server.answer("server/discover", discovered)
        server.answer("initialize", initialized)
        negotiation = Met(server, wants_stateless=wants_stateless)
        nursery.start_soon(negotiation.run)
        await wait_all_tasks_blocked()
        with trio.move_on_after(2 * TIMEOUT):
            while negotiation.ended_at < 0:
                await trio.sleep(0.5)
        return server, negotiation


def methods(server: LineServer) -> list[str]:
    return [message["method"] for message in server.told]


def facts(server: LineServer) -> tuple[bool, str, list[str], str]:
    server_connection = server.server_connection
    return (
        server_connection.is_stateless,
        server_connection.protocol_version,
        list(server_connection.capabilities),
        server_connection.instructions,
    )


HANDSHAKE = (False, "2025-06-18", ["tools"], "old ways")
STATELESS = (True, "2026-07-28", ["prompts"], "stateless ways")
NOTHING: tuple[bool, str, list[str], str] = (False, "", [], "")


@pytest.mark.parametrize(
    ("wants_stateless", "discovered", "initialized", "told", "expected"),
    [
        (True, DISCOVERED, INITIALIZED, ["server/discover"], STATELESS),
        (
            False,
            DISCOVERED,
            INITIALIZED,
            ["initialize", "notifications/initialized"],
            HANDSHAKE,
        ),
        (
            True,
            UNKNOWN,
            INITIALIZED,
            ["server/discover", "initialize", "notifications/initialized"],
            HANDSHAKE,
        ),
        (
            True,
            {**DISCOVERED, "supportedVersions": ["2025-11-25"]},
            INITIALIZED,
            ["server/discover", "initialize", "notifications/initialized"],
            HANDSHAKE,
        ),
        (
            True,
            {"supportedVersions": "all"},
            INITIALIZED,
            ["server/discover", "initialize", "notifications/initialized"],
            HANDSHAKE,
        ),
        (False, DISCOVERED, UNKNOWN, ["initialize", "server/discover"], STATELESS),
    ],
)
@pytest.mark.usefixtures("autojump_clock")
async def test_the_first_generation_that_both_know_is_spoken(
    wants_stateless: bool,
    discovered: Json,
    initialized: Json,
    told: list[str],
    expected: tuple[bool, str, list[str], str],
) -> None:
    server, negotiation = await met(wants_stateless, discovered, initialized)

    assert negotiation.errors == []
    assert (methods(server), facts(server)) == (told, expected)


async def test_a_server_that_is_silent_before_its_handshake_is_asked_for_one_after_a_while(
    autojump_clock: MockClock,
) -> None:
    server, negotiation = await met(True, SILENCE, INITIALIZED)

    assert facts(server) == HANDSHAKE
    assert PROBE_PATIENCE <= negotiation.ended_at < PROBE_PATIENCE + 1
    # What is not answered is not cancelled either: some end at a cancelled first request.
    assert "notifications/cancelled" not in methods(server)


async def test_a_slow_answer_to_discover_still_counts_before_the_handshakes(
    autojump_clock: MockClock,
) -> None:
    async with serving() as (server, nursery):
        negotiation = Met(server, wants_stateless=True)
        nursery.start_soon(negotiation.run)
        await trio.sleep(PROBE_PATIENCE + 1)
        discover, initialize = server.told
        await server.say(
            {"id": discover["id"], "result": DISCOVERED},
            {"id": initialize["id"], "result": INITIALIZED},
        )

        assert (negotiation.errors, facts(server)) == ([], STATELESS)
        assert "notifications/initialized" not in methods(server)


@pytest.mark.parametrize(
    ("behind", "expected"), [(PROBE_GRACE / 2, STATELESS), (PROBE_GRACE * 2, HANDSHAKE)]
)
async def test_an_answer_to_discover_counts_shortly_behind_the_handshake(
    autojump_clock: MockClock, behind: float, expected: tuple[bool, str, list[str], str]
) -> None:
    async with serving() as (server, nursery):
        negotiation = Met(server, wants_stateless=True)
        nursery.start_soon(negotiation.run)
        await trio.sleep(PROBE_PATIENCE + 1)
        discover, initialize = server.told
        await server.say({"id": initialize["id"], "result": INITIALIZED})
        await trio.sleep(behind)
        await server.say({"id": discover["id"], "result": DISCOVERED})

        assert (negotiation.errors, facts(server)) == ([], expected)
        assert ("notifications/initialized" in methods(server)) is (expected == HANDSHAKE)


async def test_a_server_that_is_sure_to_answer_gets_no_handshake_before_it_does(
    autojump_clock: MockClock,
) -> None:
    async with serving() as (server, nursery):
        negotiation = Met(server, wants_stateless=True, probe_patience=SURE_PATIENCE)
        nursery.start_soon(negotiation.run)
        await trio.sleep(SURE_PATIENCE - 1)
        [discover] = server.told
        await server.say({"id": discover["id"], "result": DISCOVERED})

        assert (negotiation.errors, facts(server)) == ([], STATELESS)
        assert methods(server) == ["server/discover"]


def refused(*supported: object) -> Json:
    """Return the refusal of a version that names others."""
    data = {"supported": list(supported), "requested": "x"}
    return {"error": {"code": -32022, "message": "Unsupported protocol version", "data": data}}


# What is wanted, the answers to discover and to initialize, how often one is repeated, the facts.
REFUSALS: list[tuple[bool, list[Json], list[Json], int, tuple[bool, str, list[str], str]]] = [
    (True, [refused("1", "2026-07-28"), DISCOVERED], [INITIALIZED], 1, STATELESS),
    (True, [refused("2025-11-25")], [INITIALIZED], 0, HANDSHAKE),
    (True, [refused(7)], [INITIALIZED], 0, HANDSHAKE),
    (True, [refused("2026-07-28")], [INITIALIZED], 1, HANDSHAKE),
    (False, [UNKNOWN], [refused("2024-11-05", "2025-06-18"), INITIALIZED], 1, HANDSHAKE),
    (False, [DISCOVERED], [refused("2026-07-28")], 0, STATELESS),
]


@pytest.mark.parametrize("case", REFUSALS)
async def test_a_version_that_a_refusal_names_is_asked_for_once(
    autojump_clock: MockClock, case: Any
) -> None:
    wants_stateless, discovered, initialized, times, expected = case
    async with serving() as (server, nursery):
        server.answer("server/discover", *discovered)
        server.answer("initialize", *initialized)
        negotiation = Met(server, wants_stateless=wants_stateless)
        nursery.start_soon(negotiation.run)
        await trio.sleep(2 * TIMEOUT)

    asked = [message["method"] for message in server.told if "id" in message]
    repeated = len(asked) - len(set(asked))
    assert (negotiation.errors, repeated, facts(server)) == ([], times, expected)


async def test_the_version_that_is_asked_for_again_is_the_newest_that_both_know(
    autojump_clock: MockClock,
) -> None:
    async with serving() as (server, nursery):
        server.answer("initialize", refused("2024-11-05", "2025-06-18", "1"), INITIALIZED)
        nursery.start_soon(Met(server, wants_stateless=False).run)
        await trio.sleep(TIMEOUT)

    versions = [each["params"]["protocolVersion"] for each in server.asked("initialize")]
    assert versions == ["2025-11-25", "2025-06-18"]


@pytest.mark.parametrize("wants_stateless", [False, True])
async def test_a_server_that_knows_neither_generation_is_refused_with_what_it_said(
    autojump_clock: MockClock, wants_stateless: bool
) -> None:
    server, negotiation = await met(wants_stateless, UNKNOWN, UNKNOWN)

    assert negotiation.errors == [
        'alpha answered initialize with error {"code": -32601, "message": "Method not found"}'
    ]
    assert facts(server) == NOTHING


async def test_the_version_before_the_first_published_one_is_read(
    autojump_clock: MockClock,
) -> None:
    """The TypeScript SDK's clients accept 2024-10-07, too: such a server works directly."""
    server, negotiation = await met(
        False, UNKNOWN, {**INITIALIZED, "protocolVersion": "2024-10-07"}
    )

    assert negotiation.errors == []
    assert facts(server) == (False, "2024-10-07", ["tools"], "old ways")


async def test_a_version_that_nobody_knows_is_refused_by_name(autojump_clock: MockClock) -> None:
    server, negotiation = await met(False, DISCOVERED, {**INITIALIZED, "protocolVersion": "9"})

    assert negotiation.errors == [
        (
            "alpha speaks protocol '9', none of 2024-10-07, 2024-11-05, 2025-03-26, 2025-06-18, "
            "2025-11-25: update the server"
        )
    ]
    assert facts(server) == NOTHING


async def test_a_server_that_never_answers_is_given_up(autojump_clock: MockClock) -> None:
    _, negotiation = await met(True, SILENCE, SILENCE)

    assert len(negotiation.errors) == 1
    assert negotiation.ended_at <= TIMEOUT + PROBE_PATIENCE + 1


async def test_a_server_meets_the_client_that_has_it_started(autojump_clock: MockClock) -> None:
    server, _ = await met(True, UNKNOWN, INITIALIZED)

    discover, initialize, _ = server.told
    client: Json = {"name": "editor", "version": "1"}
    capabilities: Json = {"sampling": {}, "roots": {}, "elicitation": {"form": {}, "url": {}}}
    assert discover["params"]["_meta"] == {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": client,
        "io.modelcontextprotocol/clientCapabilities": capabilities,
    }
    assert initialize["params"] == {
        "protocolVersion": "2025-11-25",
        "capabilities": capabilities,
        "clientInfo": client,
    }


@pytest.mark.parametrize("wants_stateless", [False, True])
async def test_instructions_that_are_null_are_none(
    autojump_clock: MockClock, *, wants_stateless: bool
) -> None:
    null = {"instructions": None}

    server, negotiation = await met(
        wants_stateless, {**DISCOVERED, **null}, {**INITIALIZED, **null}
    )

    assert (negotiation.errors, server.server_connection.instructions) == ([], "")
