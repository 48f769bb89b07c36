"""Messages activate nothing where the user or the session has switched routing off."""

from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from capd.actors.registry.catalog_vectors import WARM_UP_AFTER
from capd.core.sessions.policy import PolicyRules
from capd.core.sessions.routing_switch import RoutingSwitch
from capd.core.sessions.session_rules import SessionRules
from capd.core.tools.curation import CurationRules
from capd_protos.embedder import EmbedderNeeded

from .test_single_tools import known
from .world import LINGER, running_world, world

OFF = "Messages of this session switch nothing on; `capd routing on` has them do it again."
ON = "Messages of this session switch capabilities on by themselves."


async def test_routing_is_off_for_a_client_until_its_session_says_otherwise(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    rules = SessionRules(routing=RoutingSwitch(clients={"editor": False}))
    async with running_world(tmp_path, rules=rules) as world:
        await world.until_routing()
        client = await world.session("s")
        control = await world.controller()

        before = await client.result("capd/turn", text="alpha things please")
        said = await control.result("routing", enabled=True, session="s")
        after = await client.result("capd/turn", text="alpha things please")

        assert (before["outcome"], before["reason"]) == ("abstain", "disabled")
        assert (said["session"], said["ok"], said["text"]) == ("s", True, ON)
        assert (after["outcome"], after["name"]) == ("activate", "alpha")


async def test_a_session_that_was_switched_off_stays_off_when_its_key_comes_back(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        await world.until_routing()
        client = await world.session("s")
        control = await world.controller()
        said = await control.result("routing", enabled=False)
        await client.send({"capd": "goodbye"})
        await client.is_closed.wait()
        await trio.sleep(LINGER * 3)

        again = await world.session("s")
        taken = await again.result("capd/turn", text="alpha things please")

        assert said["text"] == OFF
        assert (taken["outcome"], taken["reason"]) == ("abstain", "disabled")


@pytest.mark.parametrize("is_on", [True, False])
async def test_a_session_loads_the_model_if_its_messages_may_need_it(
    autojump_clock: MockClock, tmp_path: Path, *, is_on: bool
) -> None:
    curation = CurationRules(scorer="keyword")
    rules = SessionRules(routing=RoutingSwitch(is_on=is_on), curation=curation)
    async with world(tmp_path, rules=rules) as made:
        await made.start()

        await made.session("s")
        await trio.sleep(2 * WARM_UP_AFTER)

        assert (EmbedderNeeded() in made.bus.events) is is_on


async def test_a_search_for_a_session_finds_what_that_session_may_use(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    rules = SessionRules(everyone=PolicyRules("[policy]", deny=("alpha:*",)))
    async with running_world(tmp_path, rules=rules) as world:
        await known(world, "alpha", "beta")
        await world.session("s")
        control = await world.controller()

        everyone = await control.result("search", query="echo")
        session = await control.result("search", query="echo", session="s")
        unknown = await control.ask("search", query="echo", session="t")

        names = sorted(hit["name"] for hit in everyone["hits"])
        assert names == ["alpha__echo", "beta__echo"]
        assert [hit["name"] for hit in session["hits"]] == ["beta__echo"]
        assert "rule 'alpha:*' in [policy]" in session["text"]
        assert unknown["error"]["code"] == 4004
