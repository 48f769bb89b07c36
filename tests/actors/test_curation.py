"""Per-turn curation: single tools are listed or described, and calls are recorded."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
import trio.testing
from trio.testing import MockClock

from capd.core.servers.identity import server_identity
from capd.core.sessions.client_traits import ClientTraits
from capd.core.sessions.domains import Domains
from capd.core.sessions.policy import PolicyRules
from capd.core.sessions.session_rules import SessionRules
from capd.core.tools.curation import CurationRules
from capd_protos import ledger
from capd_protos.codec import MsgpackCodec
from capd_protos.types import ActorName, ServerName, ServerSpec, TapName

from .fakes import FakeProcess, Json, Script, text, tool
from .test_single_tools import known
from .world import OWN, Client, World, running_world

LEDGER = ActorName("ledger")
REQUESTS: MsgpackCodec[ledger.Request] = MsgpackCodec(ledger.Request)
RENDER = "files render the quarterly invoice as a pdf document"
NEVER = SessionRules(
    table={"editor": ClientTraits(names=("editor",), relists="never", is_relists_set=True)}
)


def offered(*names: str) -> Script:
    what = {
        "render": "Render the quarterly invoice as a PDF document.",
        "sign": "Sign the quarterly invoice as a PDF document.",
        "stamp": "Stamp the quarterly invoice as a PDF document.",
        "print": "Print the quarterly invoice as a PDF document.",
        "play": "Play a song from a list.",
        "water": "Switch the sprinklers of a garden on.",
        "book": "Book a flight between two airports.",
        "weigh": "Weigh a parcel before it is sent.",
        "paint": "Paint a wall in another colour.",
        "sail": "Sail a boat across the lake.",
    }
    return Script(tools=[tool(name, what[name]) for name in names])


class FakeLedger:
    """A ledger with scripted counts, or without an answer; it counts the requests."""

    def __init__(self, world: World) -> None:
        self.uses: list[ledger.Use] = []
        self.is_silent = False
        self.asked = 0
        self._bus = world.bus

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        async with self._bus.mailbox(LEDGER, REQUESTS) as mailbox:
            task_status.started()
            async for incoming in mailbox:
                async with incoming:
                    if not isinstance(incoming.request, ledger.CountUses):
                        # The index asks as well, for what was used over all.
                        await incoming.reply(ledger.LedgerRefused("nothing is recorded"))
                        continue
                    self.asked += 1
                    if self.is_silent:
                        await trio.sleep_forever()
                    await incoming.reply(ledger.UsesCounted(self.uses))


@asynccontextmanager
async def searching_world(
    folder: Path,
    *names: str,
    rules: SessionRules | None = None,
    domain: str = "",
    uses: tuple[tuple[str, str, int], ...] = (),
) -> AsyncIterator[tuple[World, FakeLedger]]:
    """A world that knows two servers' tools, none of them running."""
    async with running_world(folder, rules=rules) as world:
        world.machine.scripts["files"] = offered(*(names or ("render",)))
        world.machine.scripts["odds"] = offered("play", "water", "book", "weigh", "paint", "sail")
        world.capability("store", "files")
        world.capability("rest", "odds")
        if domain:
            config = folder / "tap" / "capabilities" / "store" / "config.toml"
            config.write_text(f'{config.read_text()}domains = ["{domain}"]\n')
        await world.reload()
        await world.until_routing()
        await known(world, "files", "odds")
        while not world.finder._sets.users.index.has_vectors:
            await trio.sleep(0.05)
        world.scopes["ledger"].cancel()
        await trio.testing.wait_all_tasks_blocked()
        books = FakeLedger(world)
        books.uses = [ledger.Use(identity(server), name, n, 1.0) for server, name, n in uses]
        await world.nursery.start(books.run)
        yield world, books


def identity(server: str) -> str:
    spec = ServerSpec(ServerName(server), "stdio", TapName("mine"), command=server)
    return server_identity(spec)


async def turn(client: Client, said: str = RENDER) -> Json:
    return await client.result("capd/turn", text=said)


def rules(**settings: Any) -> SessionRules:
    return SessionRules(curation=CurationRules(**settings))


# Dynamic mode


async def test_a_tool_that_fits_joins_at_the_end_and_the_same_message_changes_nothing_more(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with searching_world(tmp_path) as (world, _):
        client = await world.session("s")
        await client.capability("enable", "alpha")
        await client.tools()

        first = await turn(client)
        listed = await client.result("tools/list")
        second = await turn(client)

        assert first["changed"] == {"added": ["files__render"], "removed": []}
        assert [each["name"] for each in listed["tools"]][-1] == "files__render"
        assert second["changed"] == {"added": [], "removed": []}
        assert await client.result("tools/list") == listed
        assert client.list_changes == 2
        assert [spec.argv[0] for spec in world.machine.specs] == ["alpha"]


async def test_tools_are_compared_with_the_part_of_a_long_message_that_decides(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    before = (
        "Yesterday was long, and the people upstairs were loud until well past midnight again. "
    )
    wanted = "alpha things please, and render the quarterly invoice as a pdf document."
    after = " Tomorrow will be better, or so my neighbour says, who has never been right so far."
    async with searching_world(tmp_path) as (world, _):
        client = await world.session("s")

        taken = await turn(client, before * 3 + wanted + after * 3)

        assert "alpha__echo" in taken["changed"]["added"]
        assert world.embedder.texts[-1] == wanted


@pytest.mark.parametrize("said", ["thanks", "thanks, that works", "please go on", "ok do it now"])
async def test_a_message_that_asks_for_nothing_changes_nothing(
    autojump_clock: MockClock, tmp_path: Path, said: str
) -> None:
    async with searching_world(tmp_path) as (world, _):
        client = await world.session("s")

        taken = await turn(client, said)

        assert (taken["changed"], taken["tools"]) == ({"added": [], "removed": []}, [])
        assert client.list_changes == 0


async def test_at_most_so_many_join_a_turn_as_are_set(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    four = ("render", "sign", "stamp", "print")
    async with searching_world(tmp_path, *four, rules=rules(new_per_turn=2)) as (world, _):
        client = await world.session("s")

        taken = await turn(client, "files the quarterly invoice as a pdf document")

        assert len(taken["changed"]["added"]) == 2
        assert client.list_changes == 1


async def test_what_a_capability_brings_and_what_fits_beside_it_is_one_change(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with searching_world(tmp_path) as (world, _):
        world.machine.scripts["alpha-files"] = offered("render")
        world.machine.scripts["alpha"] = offered("sign")
        world.capability("office", "alpha-files")
        await world.reload()
        await world.until_routing()
        await known(world, "alpha-files", "alpha")
        while not world.finder._sets.users.index.has_vectors:
            await trio.sleep(0.05)
        client = await world.session("s")

        taken = await turn(client, "alpha one: for the quarterly invoice as a pdf document")

        assert taken["name"] == "alpha"
        assert taken["changed"]["added"] == ["alpha__sign", "alpha_files__render"]
        assert (client.list_changes, taken["tools"]) == (1, [])


async def test_what_is_used_of_late_comes_before_what_fits_as_well(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    twins = ("sign", "stamp")
    said = "files for the quarterly invoice as a pdf document"
    for name, uses in (("sign", ()), ("stamp", (("files", "stamp", 1),))):
        folder = tmp_path / name
        folder.mkdir()
        async with searching_world(folder, *twins, rules=rules(new_per_turn=1), uses=uses) as (
            world,
            _,
        ):
            client = await world.session("s")

            taken = await turn(client, said)

            assert taken["changed"]["added"] == [f"files__{name}"]


async def test_a_denied_tool_never_joins(autojump_clock: MockClock, tmp_path: Path) -> None:
    denied = SessionRules(everyone=PolicyRules("[policy]", deny=("files:*",)))
    async with searching_world(tmp_path, rules=denied) as (world, _):
        client = await world.session("s")

        taken = await turn(client)

        assert (taken["changed"]["added"], taken["tools"]) == ([], [])


async def test_a_tool_of_another_domain_never_joins(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with searching_world(tmp_path, domain="writer") as (world, _):
        world.host.services.settings._domains = Domains(clients={"editor": "developer"})
        client = await world.session("s")

        taken = await turn(client)

        assert (taken["changed"]["added"], taken["tools"]) == ([], [])


@pytest.mark.parametrize("settings", [{"new_per_turn": 0}, {"k": 0}])
async def test_nothing_joins_where_nothing_may(
    autojump_clock: MockClock, tmp_path: Path, settings: Json
) -> None:
    async with searching_world(tmp_path, rules=rules(**settings)) as (world, books):
        client = await world.session("s")

        taken = await turn(client)

        assert (taken["changed"]["added"], taken["tools"], books.asked) == ([], [], 0)


async def test_with_off_everything_is_listed_from_the_start(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with searching_world(tmp_path, rules=rules(kind="off")) as (world, _):
        client = await world.session("s")

        listed = await client.tools()
        taken = await turn(client)

        assert "files__render" in listed
        assert len([name for name in listed if name not in OWN]) == 7
        assert taken["changed"] == {"added": [], "removed": []}


async def test_the_published_scorer_brings_what_has_the_words_in_its_description(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with searching_world(tmp_path, rules=rules(scorer="keyword")) as (world, _):
        client = await world.session("s")
        # Words are looked for in a thread, which the clock does not see.
        autojump_clock.autojump_threshold = 1.0

        taken = await turn(client)

        assert taken["changed"]["added"] == ["files__render"]


# Where the list does not follow


async def test_a_client_that_never_lists_again_is_told_once_and_by_the_way_that_works(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with searching_world(tmp_path, rules=NEVER) as (world, _):
        client = await world.session("s")

        first = await turn(client)
        second = await turn(client)
        called = {"name": "files__render", "arguments": {"a": 1}}
        answer = await client.result("tools/call", name="tool_call", arguments=called)

        assert first["tools"] == ["files__render"]
        assert first["context"].startswith(
            "For this message, by tool_call(name, arguments):\n- files__render("
        )
        assert (second["tools"], second["context"]) == ([], "")
        assert answer == text('{"a": 1}')
        assert client.list_changes == 0


async def test_another_conversation_is_told_by_which_way_what_fits_is_called(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with searching_world(tmp_path, rules=NEVER) as (world, _):
        client = await world.session("s")

        said = [
            (await client.call("capd_turn", prompt=f"{RENDER} {number}", session_id=id_))[0]
            for number, id_ in enumerate(("c-1", "c-1", "c-2", "c-1"))
        ]

        assert ["files__render" in text for text in said] == [True, False, True, False]


async def test_a_full_list_gets_no_longer_and_what_fits_is_told(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    full = SessionRules(table={"editor": ClientTraits(names=("editor",), tool_limit=3)})
    async with searching_world(tmp_path, rules=full) as (world, _):
        client = await world.session("s")

        taken = await turn(client)

        assert (taken["changed"]["added"], taken["tools"]) == ([], ["files__render"])
        assert await client.tools() == OWN


# The ledger


async def test_a_turn_is_taken_without_a_ledger_that_does_not_answer_and_leaves_it_alone(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with searching_world(tmp_path) as (world, books):
        books.is_silent = True
        first, second = await world.session("a"), await world.session("b")

        began_at = trio.current_time()
        taken = [await turn(client) for client in (first, second)]

        assert [each["changed"]["added"] for each in taken] == [["files__render"]] * 2
        assert books.asked == 1
        assert trio.current_time() - began_at < 1


async def test_turns_that_come_together_ask_the_ledger_once(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with searching_world(tmp_path) as (world, books):
        client = await world.session("s")

        for _ in range(3):
            await turn(client)

        assert books.asked == 1


def notes(world: World) -> list[tuple[Any, ...]]:
    found = world.host.services.journal.take()
    return [
        (n.session, n.client, n.server, n.tool, n.capabilities, n.outcome, n.bytes_in, n.bytes_out)
        for n in found
        if isinstance(n, ledger.CallNote)
    ]


async def test_every_way_of_a_call_leaves_one_note_with_its_outcome(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:

        async def answered(process: FakeProcess, message: Json) -> None:
            if message["params"]["name"] == "die":
                process.exit(9)
                return
            said = {**text("done"), **message["params"].get("arguments", {})}
            await process.reply(message, said)

        world.machine.scripts["alpha"].call = answered
        client = await world.session("s")
        await client.capability("enable", "alpha")
        done, failed = (len(msgspec.json.encode(text("done"))) + extra for extra in (0, 15))

        await client.call("alpha__echo")
        await client.call("alpha__echo", isError=True)
        await client.call("tool_call", name="alpha__echo", arguments={})
        await client.call("alpha__die")

        mine = ["mine/alpha"]
        found = notes(world)
        assert [each[:6] for each in found] == [
            ("s", "editor", "alpha", "echo", mine, "result"),
            ("s", "editor", "alpha", "echo", mine, "error"),
            ("s", "editor", "alpha", "echo", mine, "result"),
            ("s", "editor", "alpha", "die", mine, "outcome_unknown"),
        ]
        assert [each[6] for each in found] == [2, 17, 2, 2]
        assert all(
            size >= least
            for size, least in zip([e[7] for e in found], [done, failed, done, 0], strict=True)
        )


async def test_a_call_that_could_not_be_sent_and_a_refused_one_are_noted_as_that(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    denied = SessionRules(everyone=PolicyRules("[policy]", deny=("odds:*",)))
    async with searching_world(tmp_path, rules=denied) as (world, _):
        world.machine.scripts["files"].exits_at_start = 3
        client = await world.session("s")

        await client.call("files__render")
        await client.call("tool_call", name="odds__play")

        assert [each[2:6] for each in notes(world)] == [
            ("files", "render", [], "not_sent"),
            ("odds", "play", [], "refused"),
        ]


async def test_listing_searching_and_turns_leave_no_note_of_a_call(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with searching_world(tmp_path) as (world, _):
        client = await world.session("s")

        await client.tools()
        await client.call("tool_search", query="render an invoice")
        await turn(client)
        await client.ask("tools/call", name="no_such_tool_anywhere")

        assert notes(world) == []
