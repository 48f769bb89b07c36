"""What is recorded of a session, and what `why` and `metrics` report of it."""

from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families
from trio.testing import MockClock

from capd_protos.ledger import ActivationNote, DecisionNote, Note, SessionNote

from .fakes import Json
from .world import World, running_world

NEEDS_KEY = 'env = { KEY = "{{ENV:KEY}}" }'


def noted(world: World, kind: type[Note]) -> list[Note]:
    return [note for note in world.journal.take() if isinstance(note, kind)]


def acts(world: World) -> list[tuple[str, str, str]]:
    notes = [note for note in world.journal.take() if isinstance(note, ActivationNote)]
    return [(note.name, note.action, note.why) for note in notes]


def samples(text: str) -> dict[str, float]:
    """Return every sample by its name and labels, as a Prometheus server reads it."""
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = ",".join(f"{key}={value}" for key, value in sorted(sample.labels.items()))
            found[f"{sample.name}{{{labels}}}"] = sample.value
    return found


async def test_a_decision_is_noted_with_all_that_it_rests_on_and_without_its_text(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        client = await world.session("s")
        world.journal.take()

        await client.result("capd/turn", text="alpha things please")

        (note,) = noted(world, DecisionNote)
        assert isinstance(note, DecisionNote)
        assert (note.session, note.outcome, note.name) == ("s", "activate", "mine/alpha")
        assert note.top[0][0] == "mine/alpha"
        assert note.threshold > 0
        assert "alpha things" not in repr(note)


async def test_a_session_is_noted_when_it_starts_and_when_it_is_over(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        client = await world.session("s")

        await client.send({"capd": "goodbye"})
        await client.is_closed.wait()
        while await world.sessions():
            pass

        notes = [note for note in noted(world, SessionNote) if isinstance(note, SessionNote)]
        assert [(n.session, n.client, n.project, n.action) for n in notes] == [
            ("s", "editor", str(world.project), "started"),
            ("s", "editor", str(world.project), "ended"),
        ]


async def test_activations_are_noted_with_who_wanted_them_and_what_they_made_room_for(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path, cap=1) as world:
        client, control = await world.session("s"), await world.controller()
        world.journal.take()

        await client.result("capd/turn", text="alpha things please")
        await client.capability("enable", "beta")
        await control.result("disable", session="s", name="beta")

        assert acts(world) == [
            ("mine/alpha", "on", "turn"),
            ("mine/beta", "on", "model"),
            ("mine/alpha", "evicted", "room for mine/beta"),
            ("mine/beta", "off", "program"),
        ]


async def test_what_could_not_be_switched_on_is_noted_by_the_first_line_of_its_reason(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        world.capability("gamma", "gamma", keys=NEEDS_KEY)
        await world.reload()
        client = await world.session("s")
        world.journal.take()

        await client.capability("enable", "gamma")
        await client.capability("enable", "a name that is my own words")

        (failed,) = acts(world)
        assert failed[:2] == ("mine/gamma", "failed")
        assert failed[2].startswith("Capability 'gamma' needs KEY, and there is no value for it.")


async def test_why_tells_from_memory_where_nothing_is_kept_and_says_so(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        client, control = await world.session("s"), await world.controller()
        await client.result("capd/turn", text="what a day that was")
        await client.result("capd/turn", text="alpha things please")

        told = await control.result("why", session="s")
        last = await control.result("why", limit=1)
        nobodys = await control.result("why", session="other")

        assert (told["schema"], told["source"]) == (1, "memory")
        assert told["problem"].startswith("nothing is recorded: [ledger] enabled is false")
        assert [each["outcome"] for each in told["decisions"]] == ["activate", "abstain"]
        assert last["decisions"] == told["decisions"][:1]
        assert nobodys["decisions"] == []
        abstained: Json = told["decisions"][1]
        assert abstained["reason"] == "below_threshold"
        assert abstained["why"].startswith("the best, ")
        best = abstained["top"][0]["name"]
        assert abstained["next"][0] == f"if {best} was meant: capd enable {best} --session s"
        assert abstained["next"][1].startswith("or say one of its triggers, such as ")


async def test_a_limit_that_is_none_is_refused_with_what_is_wrong(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        control = await world.controller()

        answers = [await control.ask("why", limit=limit) for limit in (0, 10**9, "x")]

        assert [answer["error"]["code"] for answer in answers] == [-32602] * 3
        assert all("limit" in answer["error"]["message"] for answer in answers)


async def test_metrics_are_read_by_prometheus_own_parser(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        client, control = await world.session("s"), await world.controller()
        await client.result("capd/turn", text="alpha things please")
        await client.result("capd/turn", text="no")

        found = samples((await control.result("metrics"))["text"])

        assert found["capd_build_info{version=0}"] == 1
        assert found["capd_decisions_total{outcome=activate,reason=}"] == 1
        assert found["capd_decisions_total{outcome=abstain,reason=too_short}"] == 1
        assert found["capd_decision_duration_seconds_bucket{le=+Inf}"] == 2
        assert found["capd_decision_duration_seconds_count{}"] == 2
        assert found["capd_activations_total{action=on}"] == 1
        assert found["capd_sessions_total{action=started,client=editor}"] == 1
        assert found["capd_open_sessions{client=editor}"] == 1
        assert found["capd_instances{state=ready}"] == 1
        assert found["capd_instance_restarts{server=alpha}"] == 0


async def test_the_status_says_how_the_ledger_is(autojump_clock: MockClock, tmp_path: Path) -> None:
    async with running_world(tmp_path) as world:
        control = await world.controller()

        status = await control.result("status")

        assert status["ledger"] == {
            "enabled": False,
            "path": "",
            "size_bytes": 0,
            "rows": {},
            "waiting": 0,
            "dropped": 0,
            "problem": "",
        }
        assert status["daemon"]["degraded"] == []


async def test_why_names_what_was_left_out_for_want_of_a_secret_and_how_to_give_it(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        world.capability("gamma", "gamma", keys=NEEDS_KEY)
        await world.reload()
        await world.until_routing()
        client, control = await world.session("s"), await world.controller()
        await client.result("capd/turn", text="nothing that is known here")

        (decision,) = (await control.result("why"))["decisions"]

        assert decision["left_out"]["missing_secrets"] >= 1
        assert "mine/gamma was left out for want of KEY: capd secret set KEY" in decision["next"]


async def test_a_capability_that_would_have_won_is_named_with_its_key_once_a_conversation(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        world.capability("gamma", "gamma", keys=NEEDS_KEY)
        await world.reload()
        await world.until_routing()
        client, control = await world.session("s"), await world.controller()

        first, second = [
            await client.result("capd/turn", text="gamma things please") for _ in range(2)
        ]

        assert (first["outcome"], first["reason"]) == ("abstain", "missing_secrets")
        assert first["unusable"] == [
            {"name": "gamma", "reason": "missing_secrets", "keys": ["KEY"], "programs": []}
        ]
        assert "capd secret set KEY" in first["context"]
        assert "capd secret set KEY" not in second["context"]
        (decision, _) = (await control.result("why"))["decisions"]
        assert decision["why"].startswith("it would have been mine/gamma, which lacks a key")
        assert decision["next"] == ["if mine/gamma was meant, it needs KEY: capd secret set KEY"]
        (mine, *_) = (await control.result("status"))["taps"]
        assert (mine["routable"], mine["usable"]) == (4, 3)
