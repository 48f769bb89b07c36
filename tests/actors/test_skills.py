"""Skills are listed as prompts in every session, and activate what they declare when used."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from trio.testing import MockClock

from .fakes import Json
from .test_calls import Library, library
from .world import Client, World, world


def skill(made: World, name: str, capabilities: str = "", text: str = "Do it.") -> Path:
    file = made.folder / "tap" / "skills" / name / "SKILL.md"
    file.parent.mkdir(parents=True, exist_ok=True)
    head = f"name: {name}\ndescription: About {name}.\ncapabilities: {capabilities}\n"
    file.write_text(f"---\n{head}---\n{text}\n")
    return file


@asynccontextmanager
async def started(folder: Path, cap: int = 4) -> AsyncIterator[World]:
    """Start a world with two skills."""
    async with world(folder, cap=cap) as made:
        skill(made, "plain")
        skill(made, "review", "alpha beta")
        await made.start()
        yield made


async def text_of(client: Client, name: str) -> str:
    result = await client.result("prompts/get", name=name)
    (message,) = result["messages"]
    assert message["role"] == "user"
    text: str = message["content"]["text"]
    return text


async def entries(client: Client) -> list[Json]:
    prompts: list[Json] = (await client.result("prompts/list"))["prompts"]
    return prompts


async def active(made: World) -> list[str]:
    (session,) = await made.sessions()
    return [entry.id.name for entry in session.active]


def prompt_changes(client: Client) -> int:
    method = "notifications/prompts/list_changed"
    return sum(each.get("method") == method for each in client.heard)


async def test_every_session_is_shown_every_skill(tmp_path: Path) -> None:
    async with started(tmp_path) as made:
        one, two = await made.session("one"), await made.session("two")

        listed = [await entries(client) for client in (one, two, one)]

        expected = [
            {"name": name, "title": name, "description": f"About {name}."}
            for name in ("plain", "review")
        ]
        assert listed == [expected] * 3


async def test_skills_come_before_the_prompts_of_servers(tmp_path: Path) -> None:
    async with started(tmp_path) as made:
        client = await made.session("s")
        await library(made, client, "books", Library("plain"))

        names = [each["name"] for each in await entries(client)]

        assert names == ["plain", "review", "books__plain"]
        assert await client.result("prompts/get", name="books__plain") == {"by": ["plain"]}


async def test_a_skill_without_capabilities_is_its_text(tmp_path: Path) -> None:
    async with started(tmp_path) as made:
        client = await made.session("s")

        result = await client.result("prompts/get", name="plain")

        message = {"role": "user", "content": {"type": "text", "text": "Do it."}}
        assert result == {"description": "About plain.", "messages": [message]}
        assert (await active(made), client.list_changes) == ([], 0)


async def test_using_a_skill_switches_on_what_it_declares(tmp_path: Path) -> None:
    async with started(tmp_path) as made:
        client = await made.session("s")

        text = await text_of(client, "review")

        assert text == (
            "Do it.\n\n---\ncapd has switched on what this skill declares:\n"
            "- Capability 'alpha' is on. Tools now available: alpha__echo, alpha__die.\n"
            "- Capability 'beta' is on. Tools now available: beta__echo, beta__die."
        )
        assert await client.tools() == [
            *("capability", "tool_search", "tool_call"),
            *("alpha__echo", "alpha__die"),
            *("beta__echo", "beta__die"),
        ]


async def test_what_fails_is_told_in_the_text_and_costs_nothing_else(tmp_path: Path) -> None:
    async with started(tmp_path) as made:
        made.machine.scripts["alpha"].exits_at_start = 3
        skill(made, "review", "alpha gone beta")
        await made.reload()
        client = await made.session("s")

        text = await text_of(client, "review")

        told = text.splitlines()
        assert told[:4] == [
            "Do it.",
            "",
            "---",
            "capd could not switch on all that this skill declares; the rest works:",
        ]
        assert told[4].startswith("- Server 'alpha' cannot be used: ")
        assert "- Capability 'gone' cannot be used: no tap has a capability 'gone'." in text
        assert "- Capability 'beta' is on." in text
        assert await active(made) == ["beta"]


async def test_what_is_on_is_touched_and_what_a_skill_evicts_is_told(tmp_path: Path) -> None:
    async with started(tmp_path, cap=2) as made:
        skill(made, "review", "gamma alpha")
        made.capability("gamma", "gamma")
        await made.reload()
        client = await made.session("s")
        for name in ("alpha", "beta"):
            await client.capability("enable", name)

        text = await text_of(client, "review")

        first, second = text.splitlines()[-2:]
        assert first.endswith("Switched off to make room: beta.")
        assert second.startswith("- Capability 'alpha' is already on.")
        assert await active(made) == ["alpha", "gamma"]


async def test_a_skill_does_not_drive_out_its_own(tmp_path: Path) -> None:
    async with started(tmp_path, cap=1) as made:
        client = await made.session("s")

        text = await text_of(client, "review")

        assert text.splitlines()[-1] == (
            "- Capability 'beta' was left off: this skill's other capabilities fill the 1 places "
            "of this session."
        )
        assert await active(made) == ["alpha"]


async def test_a_server_that_takes_too_long_is_told_and_the_text_comes(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with started(tmp_path) as made:
        made.machine.scripts["alpha"].start_delay = 50.0
        client = await made.session("s")

        text = await text_of(client, "review")

        told = text.splitlines()[-2:]
        assert all("is not on yet: it took too long" in line for line in told)
        assert await active(made) == []
        assert await made.leases() == {}


async def test_a_changed_skill_is_told_to_every_session_and_read_as_it_is(tmp_path: Path) -> None:
    async with started(tmp_path) as made:
        client = await made.session("s")
        await made.reload()
        before = prompt_changes(client)
        skill(made, "plain", text="Do it well.")
        skill(made, "third")

        await made.reload()

        names = [each["name"] for each in await entries(client)]
        assert (before, prompt_changes(client)) == (0, 1)
        assert names == ["plain", "review", "third"]
        assert await text_of(client, "plain") == "Do it well."


async def test_a_skill_whose_file_went_is_refused_with_the_reason(tmp_path: Path) -> None:
    async with started(tmp_path) as made:
        client = await made.session("s")
        file = skill(made, "plain")
        file.unlink()

        answer = await client.ask("prompts/get", name="plain")

        reason = f"mine has a skill 'plain', and {file} cannot be read"
        text = f"Skill 'plain' cannot be used: {reason}."
        assert answer["error"] == {"code": 4003, "message": text}


async def test_a_model_uses_a_skill_by_its_name(tmp_path: Path) -> None:
    async with started(tmp_path) as made:
        client = await made.session("s")

        said = [await client.capability("enable", f"skill:{name}") for name in ("review", "plin")]

        assert said[0][0].startswith("Do it.\n\n---\ncapd has switched on")
        assert said[1] == (
            "Skill 'plin' cannot be used: no tap has a skill 'plin'. Near names: plain.",
            True,
        )
        assert await active(made) == ["alpha", "beta"]


async def test_the_registry_lost_shows_no_skill_and_breaks_no_list(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with started(tmp_path) as made:
        client = await made.session("s")
        await library(made, client, "books", Library("p"))
        made.scopes["registry"].cancel()

        names = [each["name"] for each in await entries(client)]

        assert names == ["books__p"]


async def test_discover_names_no_skill_where_no_finder_answers(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with started(tmp_path) as made:
        client = await made.session("s")
        await made.until_routing()
        made.scopes["finder"].cancel()

        said, is_error = await client.capability("discover", intent="alpha things")

        assert (said.splitlines()[0], is_error) == ("Capabilities for 'alpha things':", False)
        assert "Skills" not in said
