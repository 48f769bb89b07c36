"""The levels of the index that sessions get, and the file that the index is read from."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio
import yaml
from trio.testing import MockClock, wait_all_tasks_blocked

from capd.actor_clients.index import IndexClient
from capd.actors.index import index as index_actor
from capd.actors.session.index import MOST_PROJECTS
from capd.adapters.tokens.token_counts import count
from capd.core.sessions.client_traits import ClientTraits
from capd.core.sessions.policy import PolicyRules
from capd.core.sessions.session_rules import SessionRules
from capd.runtime.bus import AskTimeoutError
from capd_protos import finder
from capd_protos.index import IndexEntry
from capd_protos.types import (
    CapabilityId,
    CapabilityName,
    CapabilitySpec,
    SessionKey,
    TapName,
    WireName,
)

from .test_single_tools import known
from .world import Client, World, running_world

TRIGGERS = 'triggers = ["read the file", "read a page of it", "open it"]\n'


class Real:
    """The tokenizer itself, in this process."""

    async def counted(self, texts: list[bytes]) -> dict[bytes, int]:
        await trio.lowlevel.checkpoint()
        return {text: count(text) for text in texts}


def describe(world: World, name: str, triggers: str = "", **members: str) -> None:
    """Write a capability's triggers and description to the tap."""
    folder = world.folder / "tap/capabilities" / name
    if triggers:
        (folder / "config.toml").write_text(triggers)
    for member, value in members.items():
        file = next(each for each in folder.glob("*.toml") if each.name != "config.toml")
        file.write_text(f"# {member.capitalize()}: {value}\n{file.read_text()}")


Entries = dict[str, IndexEntry]


async def indexed(world: World, is_so: Callable[[Entries], bool] = bool) -> None:
    """Wait until the index has the expected state."""
    while True:
        reply = await IndexClient(world.bus).entries(timeout=1000.0)
        if is_so({e.id.name: e for e in reply.entries}):
            return
        await trio.sleep(0.02)


async def instructions(client: Client) -> str:
    result = await client.result("initialize", protocolVersion="2025-11-25")
    return str(result["instructions"])


def file_of(world: World) -> Any:
    return yaml.safe_load((world.folder / "capability-index.yaml").read_text())


async def test_the_instructions_name_what_is_installed_by_verb_within_150_tokens(
    tmp_path: Path,
) -> None:
    async with running_world(tmp_path, counts=Real(), pieces=Real()) as world:
        describe(world, "alpha", TRIGGERS)
        for number in range(80):
            world.capability(f"capability-{number}", "beta")
        await world.reload()
        await indexed(world, lambda has: "capability-79" in has and has["alpha"].verb == "read")

        client = await world.session("s", cwd="")

        told = await instructions(client)
        index = told[told.index("Installed (verb: capabilities):") :]
        assert "\nread: alpha" in index
        assert count(index) <= 150
        assert count(told) <= 400
        (entry,) = await world.sessions()
        assert entry.index_listed > 20
        assert entry.index_tokens == count(index)
        assert (await instructions(client)) == told


class Held(Real):
    """The tokenizer, once it may answer."""

    def __init__(self) -> None:
        self.was_asked = trio.Event()
        self.may_answer = trio.Event()

    async def counted(self, texts: list[bytes]) -> dict[bytes, int]:
        self.was_asked.set()
        await self.may_answer.wait()
        return await super().counted(texts)


async def test_nobody_waits_for_counts_that_would_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("capd.actors.index.index.LEARN_PATIENCE", math.inf)
    async with running_world(tmp_path, counts=Held(), pieces=Held()) as world:
        reply = await IndexClient(world.bus).entries(timeout=60.0)

        assert {each.id.name for each in reply.entries} >= {"alpha", "beta"}


async def test_a_map_that_may_be_larger_than_its_room_waits_for_the_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("capd.actors.index.index.LEARN_PATIENCE", math.inf)
    pieces = Held()
    replies: list[Any] = []
    async with running_world(tmp_path, counts=Real(), pieces=pieces) as world:
        for number in range(80):
            world.capability(f"quixotic-{number}", "beta")
        await world.reload()
        while not world.index._read or len(world.index._read[""].entries) < 80:
            await trio.sleep(0.02)

        async def ask() -> None:
            replies.append(await IndexClient(world.bus).entries(timeout=60.0))

        world.nursery.start_soon(ask)
        await pieces.was_asked.wait()
        await wait_all_tasks_blocked(0.05)
        before = list(replies)
        pieces.may_answer.set()
        while not replies:
            await trio.sleep(0.02)

        assert before == []


async def test_what_is_on_and_what_policy_denies_is_not_on_the_map(
    tmp_path: Path,
) -> None:
    rules = SessionRules(everyone=PolicyRules("[policy]", deny=("beta:*",)))
    async with running_world(tmp_path, counts=Real(), pieces=Real(), rules=rules) as world:
        world.capability("gamma", "gamma")
        await world.reload()
        await indexed(world, lambda has: "gamma" in has)
        client = await world.session("s", cwd="")
        first = await instructions(client)
        await client.capability("enable", "alpha")

        second = await instructions(client)

        assert ("alpha" in first, "gamma" in first, "beta" in first) == (True, True, False)
        assert ("alpha" in second, "gamma" in second, "beta" in second) == (False, True, False)


async def test_what_policy_denies_a_client_by_its_own_name_is_not_in_its_first_instructions(
    tmp_path: Path,
) -> None:
    codex = PolicyRules('[policy.clients."codex*"]', deny=("beta:*",))
    rules = SessionRules(clients=(("codex*", codex),))
    async with running_world(tmp_path, counts=Real(), pieces=Real(), rules=rules) as world:
        await indexed(world, lambda has: "beta" in has)
        client = await world.connected()
        await client.hello(session="s", cwd="")
        world.nursery.start_soon(client.listen)

        told = await client.result(
            "initialize",
            protocolVersion="2025-11-25",
            clientInfo={"name": "codex-mcp-client", "version": "1"},
        )

        index = told["instructions"].partition("Installed (")[2]
        assert ("alpha" in index, "beta" in index) == (True, False)


async def test_nothing_is_named_until_it_is_known_what_policy_denies_and_a_turn_asks_again(
    tmp_path: Path,
) -> None:
    table = {"editor": ClientTraits(names=("editor",), reads_instructions=False)}
    rules = SessionRules(everyone=PolicyRules("[policy]", deny=("beta:*",)), table=table)
    async with running_world(tmp_path, counts=Real(), pieces=Real(), rules=rules) as world:
        world.capability("gamma", "gamma")
        await world.reload()
        await indexed(world, lambda has: "gamma" in has)
        client = await world.session("s", cwd="")
        session = world.host._sessions[SessionKey("s")].session
        both = PolicyRules("[policy]", deny=("alpha:*", "beta:*"))
        session.on_rules(replace(rules, everyone=both))
        before = session.index.map()

        said = (await client.call("capd_turn", prompt="nothing to do"))[0]

        index = said.partition("Installed (")[2]
        assert before == ""
        assert ("gamma" in index, "alpha" in index, "beta" in index) == (True, False, False)


async def test_a_client_that_hands_on_no_instructions_is_told_once_by_its_hook(
    tmp_path: Path,
) -> None:
    table = {"editor": ClientTraits(names=("editor",), reads_instructions=False)}
    async with running_world(
        tmp_path, counts=Real(), pieces=Real(), rules=SessionRules(table=table)
    ) as world:
        await indexed(world)
        client = await world.session("s", cwd="")

        # What the command line asks reaches no model.
        await client.result("capd/turn", text="nothing to do")
        prompts = ("nothing at all", "nothing yet")
        said = [(await client.call("capd_turn", prompt=prompt))[0] for prompt in prompts]

        assert "Installed (verb: capabilities):" in said[0]
        assert said[1] == "{}"


def by_hand(world: World, name: str) -> None:
    """Set, as a person does, that a capability is never switched on by itself."""
    file = world.folder / "capability-index.yaml"
    head, entry, rest = file.read_text().partition(name)
    file.write_text(head + entry + rest.replace("automatic: true", "automatic: false", 1))


async def test_what_a_person_set_counts_for_a_session_however_many_projects_come_after(
    tmp_path: Path,
) -> None:
    async with running_world(tmp_path, counts=Real(), pieces=Real()) as world:
        await indexed(world)
        await IndexClient(world.bus).write(timeout=1000.0)
        by_hand(world, "mine/alpha")
        await world.reload()
        await indexed(world, lambda has: not has["alpha"].is_automatic)
        await world.session("s", cwd=str(world.project))
        session = world.host._sessions[SessionKey("s")].session
        restrictions = session.index.restrictions()

        for number in range(MOST_PROJECTS + 2):
            await world.host.services.index.load(str(tmp_path / f"project-{number}"), "capability")

        assert [(each.id.name, each.is_automatic) for each in restrictions] == [("alpha", False)]
        assert session.index.restrictions() == restrictions


async def test_a_suggestion_ends_in_the_exact_call_of_the_client(
    tmp_path: Path,
) -> None:
    table = {"editor": ClientTraits(names=("editor",), prefix="mcp__capd__")}
    async with running_world(
        tmp_path, counts=Real(), pieces=Real(), rules=SessionRules(table=table)
    ) as world:
        describe(world, "alpha", description="Reads files of any kind")
        (world.folder / "capability-index.yaml").write_text(
            "capabilities:\n  mine/alpha:\n    activation:\n      automatic: false\n"
        )
        await known(world, "alpha")
        await world.reload()
        await indexed(world, lambda has: not has["alpha"].is_automatic)
        # Counts what the tools take, which sessions have half a minute later.
        await (await world.controller()).result("index", asks_servers=False)
        words = ' DO Reads files of any kind. "alpha one" or "alpha two".'
        while world.pieces.costs.unknown([words]):
            await trio.sleep(0.02)
        client = await world.session("s", cwd="")
        control = await world.controller()
        await world.until_routing()

        turn = await control.result("turn", session="s", text="alpha one please")

        assert turn["outcome"] == "suggest"
        assert turn["reason"] == "set_by_user"
        assert turn["suggestion"] == (
            "Installed, off: alpha. DO Reads files of any kind. "
            'USE_WHEN "alpha one" or "alpha two". '
            'NEXT mcp__capd__capability {"action":"enable","name":"alpha"} '
            "COST 2 tools, 34 tokens"
        )
        assert count(turn["suggestion"]) <= 60
        assert await client.tools() == ["capability", "tool_search", "tool_call"]


async def test_a_budget_brings_nothing_that_a_person_keeps_from_coming_on(tmp_path: Path) -> None:
    async with running_world(tmp_path, counts=Real(), pieces=Real()) as world:
        (world.folder / "capability-index.yaml").write_text(
            "capabilities:\n  mine/alpha:\n    activation:\n      automatic: false\n"
        )
        await known(world, "alpha")
        await world.reload()
        await indexed(world, lambda has: not has["alpha"].is_automatic)
        await world.session("s", cwd="")
        control = await world.controller()
        await world.until_routing()

        turn = await control.result("turn", text="alpha one", session="s", budget=5000)

        assert (turn["outcome"], turn["reason"]) == ("suggest", "set_by_user")
        assert turn["changed"]["added"] == []


async def test_the_file_is_written_by_the_command_and_not_touched_without_a_change(
    tmp_path: Path,
) -> None:
    async with running_world(tmp_path, counts=Real(), pieces=Real()) as world:
        await known(world, "alpha")
        await indexed(world)
        control = await world.controller()

        first = await control.result("index", asks_servers=False)
        second = await control.result("index", asks_servers=False)

        assert (first["servers"], first["index"]["changed"]) == ([], 3)
        assert (second["index"]["changed"], second["index"]["unchanged"]) == (0, True)
        entry = file_of(world)["capabilities"]["mine/alpha"]
        assert entry["elements"]["tools"] == ["alpha__echo", "alpha__die"]
        assert entry["next"] == 'capability {"action":"enable","name":"alpha"}'
        assert file_of(world)["sources"][0]["tap"] == "mine"


async def test_who_asks_while_the_catalog_is_read_again_gets_what_was_read_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_world(tmp_path, counts=Real(), pieces=Real()) as world:
        await known(world, "alpha")
        # The finder's last hint: after it, nothing has the catalog read again.
        await indexed(world, lambda has: bool(has) and has["alpha"].tools is not None)
        control = await world.controller()
        while not (await control.result("index", asks_servers=False))["index"]["unchanged"]:
            await trio.sleep(0.02)
        asked, ask = trio.Event(), world.index._ask_finder

        async def never(*_: object, **__: object) -> None:
            asked.set()
            await trio.sleep_forever()

        monkeypatch.setattr(world.index, "_ask_finder", never)
        # Not by a reload: the finder's own hint, which follows it, may come before the request.
        world.index._changed.set()
        await asked.wait()

        again = await control.result("index", asks_servers=False)

        assert again["index"]["unchanged"]
        monkeypatch.setattr(world.index, "_ask_finder", ask)


async def test_a_catalog_that_could_not_be_read_again_is_read_a_moment_later(
    autojump_clock: MockClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_world(tmp_path, counts=Real(), pieces=Real()) as world:
        await indexed(world)
        # More often than a reload is told of.
        failures, ask = iter(range(5)), world.index._ask_finder

        async def asked(project: str, *, counts: bool = False) -> finder.CapabilitiesDescribed:
            if next(failures, None) is not None:
                raise AskTimeoutError("the finder is busy")
            return await ask(project, counts=counts)

        monkeypatch.setattr(world.index, "_ask_finder", asked)
        world.capability("gamma", "gamma")

        await world.reload()

        with trio.fail_after(60):
            await indexed(world, lambda has: "gamma" in has)


async def test_a_broken_file_is_left_alone_and_said_in_the_status(
    tmp_path: Path,
) -> None:
    async with running_world(tmp_path) as world:
        (world.folder / "capability-index.yaml").write_text("a: [")
        await world.reload()
        while not world.index._problem:
            await trio.sleep(0.02)
        control = await world.controller()

        answer = await control.ask("index", asks_servers=False)
        status = await control.result("status")

        assert "correct it, or move it away" in answer["error"]["message"]
        assert any("is not YAML" in each for each in status["daemon"]["degraded"])
        assert (world.folder / "capability-index.yaml").read_text() == "a: ["


class Model:
    """The far end of a client that offers sampling."""

    def __init__(self, client: Client, answer: str) -> None:
        self._client = client
        self._answer = answer
        self.asked: list[dict[str, Any]] = []

    async def serve(self) -> None:
        seen = 0
        while True:
            for message in self._client.heard[seen:]:
                seen += 1
                if message.get("method") == "sampling/createMessage":
                    self.asked.append(message["params"])
                    content = {"type": "text", "text": self._answer}
                    result = {"role": "assistant", "model": "m", "content": content}
                    answer = {"jsonrpc": "2.0", "id": message["id"], "result": result}
                    await self._client.send(answer)
            await trio.sleep(0.05)


async def sampling_session(world: World, capabilities: dict[str, Any]) -> Client:
    client = await world.connected()
    await client.hello(session="s", cwd="")
    world.nursery.start_soon(client.listen)
    await client.result("initialize", protocolVersion="2025-11-25", capabilities=capabilities)
    await client.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
    return client


async def test_the_clients_model_proposes_words_and_only_accepted_ones_are_written(
    tmp_path: Path,
) -> None:
    async with running_world(tmp_path, counts=Real(), pieces=Real()) as world:
        describe(world, "alpha", TRIGGERS)
        await world.reload()
        await indexed(world, lambda has: has["alpha"].verb == "read")
        better = {"mine/alpha": {"verb": "view", "do": "Views files", "use_when": ["see it"]}}
        client = await sampling_session(world, {"sampling": {}})
        model = Model(client, f"Here: {json.dumps({**better, 'mine/none': {'do': 'x'}})}")
        world.nursery.start_soon(model.serve)
        control = await world.controller()

        found = await control.result("index_propose", session="s")
        assert not (world.folder / "capability-index.yaml").exists()
        (proposal,) = found["proposals"]
        words = {"name": proposal["name"], **proposal["after"]}
        await control.result("index_accept", words=[words])
        await control.result("index", asks_servers=False)

        assert (found["asked"], proposal["before"]["verb"]) == (3, "read")
        assert "mine/beta" in model.asked[0]["messages"][0]["content"]["text"]
        entry = file_of(world)["capabilities"]["mine/alpha"]
        assert {key: entry[key] for key in better["mine/alpha"]} == better["mine/alpha"]


@pytest.mark.parametrize("capabilities", [{}, {"roots": {}}])
async def test_a_client_without_sampling_is_not_asked(
    tmp_path: Path, capabilities: dict[str, Any]
) -> None:
    async with running_world(tmp_path) as world:
        await indexed(world)
        client = await sampling_session(world, capabilities)
        control = await world.controller()

        answer = await control.ask("index_propose", session="s")

        assert answer["error"]["message"] == "editor offers no sampling (MCP)"
        assert [each for each in client.heard if each.get("method", "").startswith("samp")] == []


async def test_an_answer_that_is_none_changes_nothing(
    tmp_path: Path,
) -> None:
    async with running_world(tmp_path) as world:
        await indexed(world)
        client = await sampling_session(world, {"sampling": {}})
        world.nursery.start_soon(Model(client, "I cannot do that.").serve)
        control = await world.controller()

        answer = await control.ask("index_propose", session="s")

        assert answer["error"]["message"] == (
            "the client's model did not answer with a JSON object; nothing was changed"
        )


async def test_sessions_that_ask_at_once_wait_for_one_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_world(tmp_path) as world:
        await indexed(world)
        asked, ask = [], world.index._ask_finder

        async def noted(project: str, *, counts: bool = False) -> finder.CapabilitiesDescribed:
            asked.append(project)
            return await ask(project, counts=counts)

        monkeypatch.setattr(world.index, "_ask_finder", noted)
        replies = []

        async def one() -> None:
            replies.append(await IndexClient(world.bus).entries("/project", timeout=1000.0))

        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(one)

        # Twice if the catalog is just being read again.
        assert asked.count("/project") in {1, 2}
        assert len(replies) == 5
        assert all(each == replies[0] for each in replies)


def test_of_a_large_catalog_only_the_first_entries_are_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ids = [CapabilityId(TapName("mine"), CapabilityName(name)) for name in ("one", "two", "three")]
    read = index_actor._Read(
        [
            finder.CapabilityTools(CapabilitySpec(id_, ""), [WireName(f"{id_.name}__tool")])
            for id_ in ids
        ],
        entries=[IndexEntry(id_, "Read", f"Reads {id_.name}.") for id_ in reversed(ids)],
    )
    monkeypatch.setattr(index_actor, "MOST_COUNTED", 2)

    texts = " ".join(index_actor._texts_of({"": read}, {}))

    assert ("Reads two." in texts, "Reads three." in texts) == (True, True)
    assert "two__tool" in texts
    assert "one" not in texts
