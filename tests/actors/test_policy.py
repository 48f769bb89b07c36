"""What policy denies is neither listed nor named, and a call is refused with the rule's name."""

import json
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from capd.core.sessions.domains import Domains
from capd.core.sessions.policy import PolicyRules
from capd.core.sessions.session_rules import SessionRules

from .fakes import Json, Script, tool
from .test_single_tools import known, selected
from .world import OWN, Client, World, running_world

RULE = "denied by policy: rule '{}' in [policy]"


def denying(*rules: str) -> SessionRules:
    # A few tools would be listed as they are, with no tool that says what is withheld.
    return SessionRules(everyone=PolicyRules("[policy]", deny=rules), mode="dynamic")


class Library:
    """A server of prompts, resources and templates, and the requests it got."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def answers(self, method: str, _: Json) -> Json:
        match method:
            case "prompts/list":
                return {"result": {"prompts": [{"name": "ask"}, {"name": "drop"}]}}
            case "resources/list":
                uris = ["x://open/a", "x://secret/a"]
                return {"result": {"resources": [{"uri": uri, "name": "r"} for uri in uris]}}
            case "resources/templates/list":
                templates = ["x://open/{id}", "x://secret/{id}"]
                listed = [{"uriTemplate": each, "name": "t"} for each in templates]
                return {"result": {"resourceTemplates": listed}}
            case _:
                self.asked.append(method)
                return {"result": {}}

    def script(self) -> Script:
        offers: Json = {
            "tools": {},
            "prompts": {},
            "resources": {"subscribe": True},
            "completions": {},
        }
        return Script(tools=[tool("same")], offers=offers, answers=self.answers)


async def with_library(world: World, client: Client, name: str) -> Library:
    """Switch a server on that has a library."""
    library = Library()
    world.machine.scripts[name] = library.script()
    world.capability(name, name)
    await world.reload()
    said, is_error = await client.capability("enable", name)
    assert not is_error, said
    return library


async def refusal(client: Client, method: str, **params: Any) -> tuple[int, str]:
    error = (await client.ask(method, **params))["error"]
    return error["code"], error["message"]


async def test_a_denied_prompt_is_not_listed_and_refused(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path, rules=denying("books:d*")) as world:
        client = await world.session("s")
        library = await with_library(world, client, "books")

        listed = [each["name"] for each in (await client.result("prompts/list"))["prompts"]]
        got = await refusal(client, "prompts/get", name="books__drop")
        completed = await refusal(
            client,
            "completion/complete",
            ref={"type": "ref/prompt", "name": "books__drop"},
            argument={"name": "a", "value": ""},
        )

        why = f"Prompt books__drop cannot be used: {RULE.format('books:d*')}."
        assert listed == ["books__ask"]
        assert [got, completed] == [(4003, why)] * 2
        assert library.asked == []


async def test_a_denied_resource_is_not_listed_and_refused(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path, rules=denying("books:x://secret/*")) as world:
        client = await world.session("s")
        library = await with_library(world, client, "books")
        reference = {"type": "ref/resource", "uri": "x://secret/{id}"}

        resources = (await client.result("resources/list"))["resources"]
        templates = (await client.result("resources/templates/list"))["resourceTemplates"]
        refused = [
            await refusal(client, "resources/read", uri="x://secret/a"),
            await refusal(client, "resources/read", uri="x://s%65cret/b"),
            await refusal(client, "resources/subscribe", uri="x://secret/a"),
            await refusal(
                client, "completion/complete", ref=reference, argument={"name": "id", "value": ""}
            ),
        ]

        assert [each["uri"] for each in resources] == ["x://open/a"]
        assert [each["uriTemplate"] for each in templates] == ["x://open/{id}"]
        why = f"cannot be read: {RULE.format('books:x://secret/*')}."
        uris = ["x://secret/a", "x://s%65cret/b", "x://secret/a", "x://secret/{id}"]
        assert refused == [(4003, f"Resource {uri} {why}") for uri in uris]
        assert library.asked == []


async def test_a_resource_that_is_denied_at_one_server_comes_from_another_one(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path, rules=denying("books:x:*")) as world:
        client = await world.session("s")
        books = await with_library(world, client, "books")
        notes = await with_library(world, client, "notes")

        listed = (await client.result("resources/list"))["resources"]
        await client.result("resources/read", uri="x://secret/a")

        assert [each["uri"] for each in listed] == ["x://open/a", "x://secret/a"]
        assert (books.asked, notes.asked) == ([], ["resources/read"])


async def test_a_server_that_is_denied_as_a_whole_never_starts(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path, rules=denying("alpha:*")) as world:
        client = await world.session("s")

        both = await client.capability("enable", "both")
        alone = await client.capability("enable", "alpha")

        said = "Capability 'both' is on. Tools now available: beta__echo, beta__die."
        assert both == (f"{said} Not started, for policy denies all of it: alpha.", False)
        assert alone == (
            f"Capability 'alpha' cannot be switched on: {RULE.format('alpha:*')}.",
            True,
        )
        assert await world.leases() == {"beta": ["s"]}
        assert [entry.name for entry in await world.servers()] == ["beta"]


async def test_a_capability_whose_tools_turn_out_to_be_denied_leaves_all_as_it_was(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path, rules=denying("alpha:[de]*")) as world:
        client = await world.session("s")

        refused = await client.capability("enable", "alpha")

        why = RULE.format("alpha:[de]*")
        assert refused == (f"Capability 'alpha' cannot be switched on: {why}.", True)
        assert await world.leases() == {}
        assert await client.tools() == OWN
        assert [entry.active for entry in await world.sessions()] == [[]]


@pytest.mark.parametrize("rule", ["alpha:*", "alpha:[de]*"])
async def test_a_capability_of_which_nothing_is_left_is_never_named(
    autojump_clock: MockClock, tmp_path: Path, rule: str
) -> None:
    async with running_world(tmp_path, rules=denying(rule)) as world:
        await known(world, "alpha", "beta")
        await world.until_routing()
        client = await world.session("s")

        listed, _ = await client.capability("list")
        found, _ = await client.capability("discover", intent="alpha things")
        near, _ = await client.capability("enable", "alphaa")
        taken = await client.result("capd/turn", text="alpha things please")
        searched, _ = await client.call("tool_search", query="alpha")

        assert [line for line in listed.splitlines() if "alpha:" in line] == []
        assert "- both:" in listed
        assert "1 more are denied by policy." in listed
        assert "alpha:" not in found
        assert near == (
            "Capability 'alphaa' cannot be used: no tap has a capability 'alphaa'. "
            "Use action list to see all."
        )
        assert (taken["name"], taken["problem"], taken["changed"]["added"]) == ("", "", [])
        assert "alpha" not in {*taken["suggested"], *(each["name"] for each in taken["top"])}
        assert "alpha__" not in searched
        assert RULE.format(rule) in searched


async def test_a_server_that_was_never_asked_is_not_named_where_it_is_denied(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path, rules=denying("beta:*")) as world:
        await known(world, "alpha")
        client = await world.session("s")

        missed, _ = await client.call("tool_search", query="zzz")

        assert "Nothing among the 2 known tools" in missed
        assert "beta" not in missed


async def test_where_nobody_can_say_what_is_denied_nothing_is_named(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path, rules=denying("alpha:*")) as world:
        await world.until_routing()
        client = await world.session("s")
        world.scopes["finder"].cancel()
        await trio.sleep(0.1)

        listed = await client.capability("list")
        taken = await client.result("capd/turn", text="beta things please")

        assert listed[1] is True
        assert "finder does not answer" in listed[0]
        assert (taken["outcome"], taken["name"]) == ("abstain", "")


async def test_a_session_without_rules_asks_nobody(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        client = await world.session("s")
        world.scopes["finder"].cancel()
        await trio.sleep(0.1)

        listed, is_error = await client.capability("list")

        assert (is_error, "- alpha:" in listed) == (False, True)


async def test_an_eager_server_that_is_denied_is_not_started(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path, rules=denying("gamma:*")) as world:
        world.capability("gamma", "gamma", keys="lazy = false")
        world.capability("delta", "delta", keys="lazy = false")
        await world.reload()
        while len(world.finder._sets.users.known._eager) < 2:
            await trio.sleep(0.05)
        client = await world.session("s")
        await trio.sleep(1)

        listed = await client.tools()

        assert listed == [*OWN, "delta__echo", "delta__die"]
        assert await world.leases() == {"delta": ["s"]}


async def test_a_subscription_that_is_denied_by_now_is_not_renewed(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        client = await world.session("s", client={"name": "editor", "pid": 1})
        await with_library(world, client, "books")
        for uri in ("x://open/a", "x://secret/a"):
            await client.result("resources/subscribe", uri=uri)
        (entry,) = world.host._sessions.values()
        entry.session.view.rules = denying("books:x://secret/*")

        entry.session.view.has_listed = False
        await client.result("initialize", protocolVersion="2025-06-18")

        assert entry.session.activation.leases.subscribed.servers
        assert sorted(entry.session.connection.subscriptions) == ["x://open/a"]


async def test_a_tool_that_is_for_another_domain_is_told_and_not_called(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path, rules=denying()) as world:
        config = tmp_path / "tap/capabilities/alpha/config.toml"
        config.write_text(f'{config.read_text()}domains = ["writer"]\n')
        folder = tmp_path / "tap/capabilities/both"
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()
        await world.reload()
        await known(world, "alpha", "beta")
        world.host.services.settings._domains = Domains({"editor": "developer"}, {})
        client = await world.session("s")

        found, _ = await client.call("tool_search", query="echo")
        direct = await client.call("alpha__echo")
        through = await client.call("tool_call", name="alpha__echo")
        inside = await client.call("beta__echo", a=1)

        why = "for writer; this session's domain is 'developer'"
        assert "## beta__echo" in found
        assert f"alpha__echo ({why})" in found
        assert await selected(client, "alpha__echo") == f"alpha__echo is withheld: {why}."
        assert direct == through == (f"alpha__echo cannot be called: {why}.", True)
        assert inside == (json.dumps({"a": 1}), False)
