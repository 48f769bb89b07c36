"""A project's own capabilities: who gets them, and what stays out while it is untrusted."""

import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio
import trio.testing

from capd.actors.registry.catalog_vectors import CatalogVectors
from capd.actors.registry.project_catalogs import ProjectCatalogs
from capd.actors.registry.project_trust import ProjectTrust
from capd.adapters.routing_files import read_profile
from capd.adapters.trust.project_taps import read_project
from capd.adapters.trust.trust_file import TrustFile
from capd.core.taps.catalog import Catalog
from capd_protos import registry
from capd_protos.types import TapName
from hung_reads import HungReads

from .fakes import RecordingBus, Script, tool
from .world import REGISTRY, REGISTRY_REPLIES, World, running_world


def define(world: World, name: str, server: str = "", more: str = "") -> None:
    server = server or name
    folder = world.project / ".capd" / "capabilities" / name
    folder.mkdir(parents=True, exist_ok=True)
    triggers = json.dumps([f"{name} {word}" for word in ("one", "two", "three")])
    folder.joinpath("config.toml").write_text(f"triggers = {triggers}\n")
    folder.joinpath("default.toml").write_text(
        f'[[mcp.servers]]\nname = "{server}"\ncommand = "{server}"\n{more}\n'
    )
    world.machine.scripts.setdefault(server, Script(tools=[tool("echo")]))


async def agree(world: World, *names: str) -> registry.Reply:
    trust = TrustFile(world.tap_list.with_name("trust.json"))
    startables = read_project(str(world.project), trust).startables
    digests = [each.digest for each in startables if each.server.name in names]
    request = registry.GrantTrust(str(world.project), digests)
    return await world.bus.ask(REGISTRY, request, REGISTRY_REPLIES, float("inf"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


async def test_a_project_is_routed_to_in_its_own_sessions_alone(folder: Path) -> None:
    async with running_world(folder) as world:
        define(world, "gamma")
        other = folder / "other"
        other.mkdir()
        inside, outside = await world.session("in"), await world.session("out", cwd=str(other))
        await agree(world, "gamma")

        taken = await inside.result("capd/turn", text="gamma things please")
        while taken["reason"] == "model_not_ready":
            await trio.sleep(0.01)
            taken = await inside.result("capd/turn", text="gamma things please")
        elsewhere = await outside.result("capd/turn", text="gamma things please")

        assert (taken["outcome"], taken["name"]) == ("activate", "gamma")
        assert elsewhere["name"] != "gamma", elsewhere
        assert "gamma" not in json.dumps(elsewhere["top"])


async def test_agreeing_to_one_server_switches_on_what_rests_on_it_alone(folder: Path) -> None:
    async with running_world(folder) as world:
        define(world, "gamma")
        define(world, "delta")
        client = await world.session("s")

        await agree(world, "gamma")

        listed, _ = await client.capability("list")
        refused, _ = await client.capability("enable", "delta")
        assert "gamma" in listed
        assert "delta" not in listed
        assert f"untrusted: see what it would start with capd trust {world.project}" in refused


async def test_what_is_another_by_now_than_what_was_shown_is_not_agreed_to(folder: Path) -> None:
    async with running_world(folder) as world:
        define(world, "gamma")
        shown = await world.bus.ask(
            REGISTRY, registry.ListStartables(str(world.project)), REGISTRY_REPLIES, float("inf")
        )
        assert isinstance(shown, registry.StartablesListed)

        define(world, "gamma", more='args = ["--evil"]')
        request = registry.GrantTrust(str(world.project), [shown.servers[0].digest])
        answered = await world.bus.ask(REGISTRY, request, REGISTRY_REPLIES, float("inf"))

        assert answered == registry.RegistryRefused(
            "changed", "servers changed since they were shown (1): look at them again"
        )
        assert not world.tap_list.with_name("trust.json").exists()


async def test_keys_that_a_project_asks_for_are_asked_of_its_sessions_alone(folder: Path) -> None:
    async with running_world(folder) as world:
        define(world, "gamma", more='env = { KEY = "{{ENV:PROJECTS_KEY}}" }')
        other = folder / "other"
        other.mkdir()
        inside, outside = await world.session("in"), await world.session("out", cwd=str(other))
        before = inside.welcome["want_env"]

        await agree(world, "gamma")

        later = await world.session("later")
        elsewhere = await world.session("elsewhere", cwd=str(other))
        assert "PROJECTS_KEY" not in before
        assert "PROJECTS_KEY" in later.welcome["want_env"]
        assert "PROJECTS_KEY" not in elsewhere.welcome["want_env"]
        assert "PROJECTS_KEY" not in json.dumps(outside.heard)


async def test_files_of_a_project_that_cannot_be_read_are_told_and_cost_nobody(
    folder: Path,
) -> None:
    async with running_world(folder) as world:
        capabilities = world.project / ".capd" / "capabilities"
        for number in range(300):
            (capabilities / str(number)).mkdir(parents=True)

        client = await world.session("s")

        described = await world.described()
        told = {tap.name: tap.error for tap in described.taps if tap.error}
        assert list(told) == [TapName(f"project:{world.project}")]
        assert "has more than 256 entries" in told[TapName(f"project:{world.project}")]
        text, is_error = await client.capability("enable", "alpha")
        assert not is_error, text


@pytest.mark.parametrize("by", ["link", "project/"])
async def test_a_project_that_was_reached_by_another_name_is_known_by_its_own(
    folder: Path, by: str
) -> None:
    (folder / "link").symlink_to("project")
    async with running_world(folder) as world:
        define(world, "gamma")
        await agree(world, "gamma")
    async with running_world(folder) as world:
        real = str(world.project.resolve())
        met = registry.DescribeRegistry(f"{folder}/{by}")
        await world.bus.ask(REGISTRY, met, REGISTRY_REPLIES, float("inf"))

        resolve = registry.ResolveCapability(f"project:{real}/gamma", real)
        resolved = await world.bus.ask(REGISTRY, resolve, REGISTRY_REPLIES, float("inf"))

        assert isinstance(resolved, registry.CapabilityResolved), resolved


@pytest.fixture
def reads() -> Iterator[HungReads]:
    made = HungReads()
    yield made
    made.answer()


@asynccontextmanager
async def catalogs(
    folder: Path,
    reads: HungReads,
    nursery: trio.Nursery,
    on_change: Callable[[str, Catalog], None] | None = None,
) -> AsyncIterator[ProjectCatalogs]:
    """Run catalogs; their files are followed if there is an `on_change`."""
    async with RecordingBus() as bus:
        made = ProjectCatalogs(
            TrustFile(folder / "trust.json"),
            Catalog,
            lambda name: CatalogVectors(bus, folder / name, read_profile()),
            on_change or (lambda _project, _catalog: None),
            reads,
        )
        nursery.start_soon(partial(made.run, is_watching=on_change is not None))
        await trio.testing.wait_all_tasks_blocked()
        yield made
        nursery.cancel_scope.cancel()


async def test_a_project_that_stops_answering_stays_as_it_was_for_a_reload(
    folder: Path, reads: HungReads
) -> None:
    async with running_world(folder) as world:
        define(world, "gamma")
        await agree(world, "gamma")
        project = str(world.project.resolve())
    async with trio.open_nursery() as nursery, catalogs(folder, reads, nursery) as known:
        await known.load(project)
        reads.hung.add(project)

        await known.reload()

        assert [str(each.id.name) for each in known.catalog(project).winners] == ["gamma"]


async def test_what_was_agreed_to_can_be_taken_back_while_a_project_does_not_answer(
    folder: Path, reads: HungReads
) -> None:
    async with running_world(folder) as world:
        define(world, "gamma")
        await agree(world, "gamma")
        project = str(world.project.resolve())
    async with trio.open_nursery() as nursery, catalogs(folder, reads, nursery) as known:
        await known.load(project)
        reads.hung.add(project)
        known.trust.write({})

        await known.reload()

        assert list(known.catalog(project).winners) == []


async def test_a_project_that_does_not_answer_keeps_no_other_from_being_met(
    folder: Path, reads: HungReads
) -> None:
    async with trio.open_nursery() as nursery, catalogs(folder, reads, nursery) as known:
        reads.hung.add("/mnt/far")

        met = [await known.load("/mnt/far"), await known.load(str(folder))]

        assert met == ["", str(folder.resolve())]


async def test_projects_are_followed_while_the_folder_of_one_cannot_be_looked_at(
    folder: Path, reads: HungReads
) -> None:
    near, far = folder / "near", folder / ("long" * 100)
    near.mkdir()
    changed = trio.Event()
    async with (
        trio.open_nursery() as nursery,
        catalogs(folder, reads, nursery, lambda _project, _catalog: changed.set()) as known,
    ):
        await known.load(str(far))
        await known.load(str(near))

        capability = near / ".capd/capabilities/gamma"
        capability.mkdir(parents=True)
        (capability / "config.toml").write_text('triggers = ["gamma one", "gamma two"]\n')
        await changed.wait()


async def test_a_projects_catalog_costs_the_model_nothing_that_everybody_has(
    folder: Path,
) -> None:
    async with running_world(folder) as world:
        define(world, "gamma")
        client = await world.session("s")
        await agree(world, "gamma")

        said = "gamma things please"
        taken = await client.result("capd/turn", text=said)
        while taken["reason"] == "model_not_ready":
            await trio.sleep(0.01)
            taken = await client.result("capd/turn", text=said)

        embedded = Counter(text for text in world.embedder.texts if text != said)
        assert embedded["gamma one"] == 1
        assert set(embedded.values()) == {1}


TRUST_CHANGES = [registry.RevokeTrust("/src"), registry.GrantTrust("/src", [])]


@pytest.mark.parametrize("asked", TRUST_CHANGES)
async def test_trust_that_cannot_be_written_is_refused_with_the_reason(
    reads: HungReads, asked: registry.RevokeTrust | registry.GrantTrust
) -> None:
    # Nobody, not even root, can create a file there.
    folder = Path("/proc/self")
    async with trio.open_nursery() as nursery, catalogs(folder, reads, nursery) as known:
        refused = await ProjectTrust(known, list).reply(asked)

    said = f"nothing has changed: {folder / 'trust.json'} cannot be written: No such file"
    assert isinstance(refused, registry.RegistryRefused)
    assert refused.message.startswith(said)


@pytest.mark.parametrize("asked", TRUST_CHANGES)
async def test_trust_that_cannot_be_read_is_not_changed_and_the_reason_is_said(
    closed: Path, reads: HungReads, asked: registry.RevokeTrust | registry.GrantTrust
) -> None:
    async with trio.open_nursery() as nursery, catalogs(closed, reads, nursery) as known:
        refused = await ProjectTrust(known, list).reply(asked)

    said = f"nothing has changed: {closed / 'trust.json'} cannot be read: Permission denied."
    assert isinstance(refused, registry.RegistryRefused)
    assert refused.message.startswith(said)
