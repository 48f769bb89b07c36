"""The supervisor runs one process for all its holders, and ends it after the last one."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock, wait_all_tasks_blocked

from capd.actors.supervisor.instance_records import InstanceRecord
from capd.actors.supervisor.starts import Starts, SupervisorSettings
from capd.actors.supervisor.supervisor import Instances, Supervisor
from capd.adapters.clients.session_environment import NothingStored, SessionEnvironments
from capd.adapters.servers.generation_file import GenerationFile
from capd.adapters.servers.http.logins import Logins
from capd.adapters.servers.sandboxing import Sandboxes
from capd.core.protocol.outcomes import OutcomeUnknownError
from capd.core.servers.identity import InstanceKey
from capd.core.servers.leases import Leases
from capd.core.servers.sandbox import SandboxFeatures as Confinable
from capd.core.servers.sandbox_rules import SandboxRules
from capd.runtime.bus import AskFailedError
from capd.runtime.handle_table import HandleTable
from capd_protos import supervisor as messages
from capd_protos.codec import MsgpackCodec
from capd_protos.curator import SessionStarted
from capd_protos.types import ActorName, ClientFacts, InstanceId, ServerSpec, SessionKey
from connection_calls import call_tool

from .fakes import FakeProcess, Json, Machine, RecordingBus, Script, server, text, tool

SUPERVISOR = ActorName("supervisor")
REPLIES: MsgpackCodec[messages.Reply] = MsgpackCodec(messages.Reply)
EVENTS: MsgpackCodec[messages.Event] = MsgpackCodec(messages.Event)
LINGER = 30.0
SECRET = "hunter2-very-secret"


class Stage:
    """A supervisor with its bus, its machine and its callers."""

    def __init__(
        self, bus: RecordingBus, machine: Machine, project: Path, kind: type[Supervisor]
    ) -> None:
        self.bus = bus
        self.machine = machine
        self.project = str(project)
        self.client = ClientFacts()
        self.was_tried = trio.Event()
        token = trio.lowlevel.current_trio_token()

        def tried() -> Confinable:
            token.run_sync_soon(self.was_tried.set)
            return Confinable()

        self.server_connections: Instances = HandleTable()
        self.environments = SessionEnvironments()
        settings = SupervisorSettings(
            linger=LINGER,
            shared_cwd=project,
            environment={"PATH": "/bin", "AWS_SECRET": "not for servers"},
            extra_path="/uvx",
            version="0",
            generations=GenerationFile(project / "eras.json"),
            sandboxes=Sandboxes(SandboxRules(), (), project / "sandbox", tried),
        )
        starts = Starts(settings, Logins(Path("no-logins")), machine.spawn)
        self.actor = kind(bus, self.server_connections, self.environments, settings, starts)
        self.stop = trio.CancelScope()

    async def ask(self, request: messages.Request, timeout: float = 500.0) -> messages.Reply:
        return await self.bus.ask(SUPERVISOR, request, REPLIES, timeout)

    async def acquire(
        self, session: str, spec: ServerSpec | None = None, project: str = ""
    ) -> messages.Reply:
        place = project or self.project
        spec = spec or server()
        return await self.ask(messages.AcquireServer(SessionKey(session), spec, place, self.client))

    async def ready(
        self, session: str, spec: ServerSpec | None = None, project: str = ""
    ) -> messages.ServerReady:
        reply = await self.acquire(session, spec, project)
        assert isinstance(reply, messages.ServerReady), reply
        return reply

    async def refused(
        self, session: str, spec: ServerSpec | None = None, project: str = ""
    ) -> messages.ServerRefused:
        reply = await self.acquire(session, spec, project)
        assert isinstance(reply, messages.ServerRefused), reply
        return reply

    async def release(self, session: str, instance: InstanceId) -> list[SessionKey]:
        reply = await self.ask(messages.ReleaseServer(SessionKey(session), instance))
        assert isinstance(reply, messages.LeasesReleased)
        return reply.held_by

    async def release_session(self, session: str) -> None:
        await self.ask(messages.ReleaseSession(SessionKey(session)))

    async def entries(self) -> list[messages.ServerEntry]:
        reply = await self.ask(messages.ListServers())
        assert isinstance(reply, messages.ServersListed)
        return reply.servers

    async def states(self) -> list[tuple[str, list[SessionKey]]]:
        return [(entry.state, entry.leases) for entry in await self.entries()]

    async def call(self, instance: InstanceId, name: str) -> bytes:
        running = self.server_connections.get(instance)
        assert running is not None
        return await call_tool(running.server_connection, name)


@asynccontextmanager
async def staged(
    project: Path, kind: type[Supervisor] = Supervisor, /, **scripts: Script
) -> AsyncIterator[Stage]:
    async with RecordingBus() as bus, trio.open_nursery() as nursery:
        stage = Stage(bus, Machine(**(scripts or {"alpha": Script()})), project, kind)

        async def run(*, task_status: trio.TaskStatus[None]) -> None:
            with stage.stop:
                await stage.actor.run(task_status=task_status)

        await nursery.start(run)
        yield stage
        nursery.cancel_scope.cancel()
    assert stage.machine.alive == []


async def test_the_first_session_has_the_machine_tried_before_a_server_is_wanted(
    tmp_path: Path,
) -> None:
    async with staged(tmp_path) as stage:
        stage.bus.publish(SessionStarted(SessionKey("s"), "client"))

        with trio.fail_after(60):
            await stage.was_tried.wait()

        assert stage.machine.alive == []


# Sharing


async def test_two_sessions_of_one_project_share_one_process(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with staged(tmp_path) as stage:
        first = await stage.ready("a")
        second = await stage.ready("b")

        assert first == second
        assert [t.name for t in first.tools] == ["echo", "die"]
        assert stage.machine.alive == [first.pid]


@pytest.mark.parametrize(
    ("scope", "is_shared"), [("project", False), ("shared", True), ("session", False)]
)
async def test_another_project_shares_only_what_is_shared_by_all(
    autojump_clock: MockClock, tmp_path: Path, scope: str, is_shared: bool
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    async with staged(tmp_path) as stage:
        first = await stage.ready("a", server(scope=scope))
        second = await stage.ready("b", server(scope=scope), str(other))

        assert (first.pid == second.pid) is is_shared


async def test_a_server_of_one_session_is_not_shared_within_the_project(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with staged(tmp_path) as stage:
        first = await stage.ready("a", server(scope="session"))
        second = await stage.ready("b", server(scope="session"))

        assert first.instance != second.instance
        assert stage.machine.alive == [first.pid, second.pid]


async def test_other_secrets_get_another_process_and_equal_ones_the_same(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    spec = server(env={"TOKEN": "{{ENV:TOKEN}}"}, scope="shared")
    async with staged(tmp_path) as stage:
        for session, value in [("a", "one"), ("b", "two"), ("c", "one")]:
            stage.environments.put(SessionKey(session), {"TOKEN": value})
        pids = [(await stage.ready(session, spec)).pid for session in "abc"]

        assert pids[0] == pids[2] != pids[1]
        assert [spec.env["TOKEN"] for spec in stage.machine.specs] == ["one", "two"]


async def test_a_server_runs_in_its_project_with_known_families_and_what_is_declared(
    autojump_clock: MockClock,
    tmp_path: Path,
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    spec = server(args=("--root", "{{PROJECT}}"), env={"MODE": "x"})
    async with staged(tmp_path) as stage:
        await stage.ready("a", spec, str(other))

        started = stage.machine.specs[0]
        assert started.argv == ("alpha", "--root", str(other))
        assert started.env == {"PATH": "/bin:/uvx", "MODE": "x"}
        assert started.cwd == other


async def test_twenty_at_once_start_one_process(autojump_clock: MockClock, tmp_path: Path) -> None:
    async with staged(tmp_path, alpha=Script(start_delay=5)) as stage:
        replies: list[messages.ServerReady] = []

        async def one(session: str) -> None:
            replies.append(await stage.ready(session))

        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(one, f"s{number}")

        assert len(stage.machine.specs) == 1
        assert {reply.pid for reply in replies} == set(stage.machine.alive)
        assert len((await stage.entries())[0].leases) == 20


# Letting go


async def test_an_unheld_server_lingers_and_is_then_ended(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with staged(tmp_path) as stage:
        held = await stage.ready("a")
        await stage.ready("b")

        assert await stage.release("a", held.instance) == ["b"]
        assert await stage.release("b", held.instance) == []
        await trio.sleep(LINGER - 1)
        assert await stage.states() == [("lingering", [])]
        assert stage.machine.alive == [held.pid]
        await trio.sleep(2)
        assert stage.machine.alive == []
        assert await stage.entries() == []


async def test_a_hold_within_the_linger_keeps_the_process(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with staged(tmp_path) as stage:
        held = await stage.ready("a")
        await stage.release("a", held.instance)
        await trio.sleep(LINGER - 1)

        again = await stage.ready("b")

        await trio.sleep(10 * LINGER)
        assert again == held
        assert stage.machine.alive == [held.pid]


async def test_releasing_twice_takes_no_hold_of_another(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with staged(tmp_path) as stage:
        held = await stage.ready("a")
        await stage.ready("b")
        await stage.release("a", held.instance)

        assert await stage.release("a", held.instance) == ["b"]
        assert await stage.release("a", InstanceId("none")) == []
        assert await stage.states() == [("ready", ["b"])]


async def test_a_session_that_ends_lets_go_of_everything(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with staged(tmp_path, alpha=Script(), beta=Script()) as stage:
        await stage.ready("a", server("alpha"))
        await stage.ready("a", server("beta"))
        kept = await stage.ready("b", server("beta"))

        await stage.release_session("a")

        await trio.sleep(LINGER + 1)
        assert stage.machine.alive == [kept.pid]


async def test_a_hold_by_a_former_run_is_released_as_well(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with staged(tmp_path) as stage:
        former = await stage.ready("a")
        await stage.ready("b")
        stage.machine.processes[0].exit(9)
        await wait_all_tasks_blocked()
        restarted = await stage.ready("b")

        assert restarted.instance != former.instance
        assert await stage.release("a", former.instance) == ["b"]
        await stage.release("b", restarted.instance)
        await trio.sleep(LINGER + 1)
        assert stage.machine.alive == []


async def test_a_run_that_its_holder_replaced_is_not_released_for_it(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with staged(tmp_path) as stage:
        former = await stage.ready("a")
        stage.machine.processes[0].exit(9)
        await wait_all_tasks_blocked()
        await stage.ready("a")

        await stage.release("a", former.instance)

        assert await stage.states() == [("ready", ["a"])]


async def test_a_hold_that_comes_while_the_process_ends_starts_another(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with staged(tmp_path, alpha=Script(stop_delay=2)) as stage:
        first = await stage.ready("a")
        await stage.release("a", first.instance)
        await trio.sleep(LINGER + 1)
        assert await stage.states() == [("stopping", [])]

        second = await stage.ready("b")

        assert second.pid != first.pid
        assert stage.machine.journal == [
            f"start alpha {first.pid}",
            f"gone {first.pid}",
            f"start alpha {second.pid}",
        ]


class Raced(Supervisor):
    """Lets another session acquire an instance at the moment when it is forgotten."""

    def _forget_old(self) -> None:
        gone = list(self._instances.values())
        super()._forget_old()
        for instance in gone:
            key = instance.key
            if key not in self._instances:
                session = SessionKey("b")
                self._instances[key] = InstanceRecord(
                    key, instance.server, instance.project, {}, ClientFacts()
                )
                self._carry_out(self._leases.acquire(key, session))


async def test_who_waits_for_an_instance_that_is_forgotten_is_answered(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with staged(tmp_path, Raced, alpha=Script(start_delay=20)) as stage:
        refusals: list[messages.ServerRefused] = []

        async def acquire() -> None:
            refusals.append(await stage.refused("a"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(acquire)
            await trio.sleep(1)
            await stage.release_session("a")

        assert [refusal.code for refusal in refusals] == ["cannot_start"]
        assert await stage.states() == [("ready", ["b"])]


# Starts that fail


async def test_a_start_that_fails_says_why_and_leaves_no_lease(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    script = Script(exits_at_start=3, stderr=["Traceback", "KeyError: 'TOKEN'"])
    async with staged(tmp_path, alpha=script) as stage:
        refusal = await stage.refused("a")

        assert refusal.code == "cannot_start"
        assert refusal.message == "it exited with code 3 (last on stderr: KeyError: 'TOKEN')"
        assert refusal.stderr == ["Traceback", "KeyError: 'TOKEN'"]
        assert stage.machine.alive == []
        assert await stage.states() == [("backing_off", [])]


async def test_a_command_that_is_nowhere_is_named(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with staged(tmp_path) as stage:
        refusal = await stage.refused("a", server("nowhere"))

        assert (refusal.code, refusal.message) == (
            "cannot_start",
            "nowhere was not found in PATH",
        )


async def test_missing_secrets_are_named_before_anything_is_started(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    spec = server(env={"A": "{{ENV:TOKEN}}"}, args=("{{INPUT:OTHER}}",))
    async with staged(tmp_path) as stage:
        stage.environments.put(SessionKey("a"), {"TOKEN": ""})
        refusal = await stage.refused("a", spec)

        assert refusal.code == "missing_secrets"
        assert "OTHER, TOKEN" in refusal.message
        assert stage.machine.specs == []


@pytest.mark.parametrize("transport", ["carrier-pigeon", "builtin"])
async def test_another_transport_is_refused_without_a_trace(
    autojump_clock: MockClock, tmp_path: Path, transport: str
) -> None:
    async with staged(tmp_path) as stage:
        refusal = await stage.refused("a", server(transport=transport))

        assert refusal.code == "unsupported_transport"
        assert (stage.machine.specs, await stage.entries()) == ([], [])


async def test_a_server_that_is_never_ready_is_given_up_and_ended(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with staged(tmp_path, alpha=Script(is_ready=False)) as stage:
        started_at = trio.current_time()
        refusal = await stage.refused("a")

        assert "90 s" in refusal.message
        assert trio.current_time() - started_at == pytest.approx(90, abs=5)
        assert stage.machine.alive == []


async def test_a_server_that_nobody_has_agreed_to_is_refused_for_that_however_often(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    of_project = server(project=str(tmp_path))
    async with staged(tmp_path) as stage:
        refusals = [await stage.refused("a", of_project) for _ in range(8)]

        # Whoever agrees after that waits for no back-off.
        assert {refusal.code for refusal in refusals} == {"cannot_start"}
        assert "is not trusted" in refusals[-1].message
        assert stage.machine.specs == []


async def test_repeated_failures_are_told_instead_of_tried(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with staged(tmp_path, alpha=Script(exits_at_start=1)) as stage:
        codes = [(await stage.refused("a")).code for _ in range(8)]

        assert codes[0] == "cannot_start"
        assert codes[-1] == "backing_off"
        assert len(stage.machine.specs) < 5
        await trio.sleep(60)
        stage.machine.scripts["alpha"].exits_at_start = None
        assert await stage.ready("a")


async def test_whoever_leaves_while_a_server_starts_ends_it(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with staged(tmp_path, alpha=Script(start_delay=50)) as stage:
        refusals: list[messages.ServerRefused] = []

        async def acquire() -> None:
            refusals.append(await stage.refused("a"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(acquire)
            await trio.sleep(10)
            assert await stage.states() == [("starting", ["a"])]
            await stage.release_session("a")

        assert refusals[0].message == "it was released before it was ready"
        assert stage.machine.alive == []
        assert await stage.entries() == []


async def test_a_second_holder_keeps_a_start_that_the_first_one_left(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with staged(tmp_path, alpha=Script(start_delay=50)) as stage:
        got: dict[str, messages.Reply] = {}

        async def acquire(session: str) -> None:
            got[session] = await stage.acquire(session)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(acquire, "a")
            nursery.start_soon(acquire, "b")
            await trio.sleep(10)
            await stage.release_session("a")

        assert isinstance(got["a"], messages.ServerRefused)
        assert isinstance(got["b"], messages.ServerReady)
        assert await stage.states() == [("ready", ["b"])]


async def test_a_server_that_dies_as_it_gets_ready_leaves_no_lease(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    class Dying(Leases[InstanceKey]):
        """Its servers die in the very turn in which they are ready."""

        def ready(self, key: InstanceKey) -> None:
            super().ready(key)
            self.died(key)

    async with staged(tmp_path) as stage:
        stage.actor._leases = Dying(LINGER)

        await stage.refused("a")

        assert [leases for _, leases in await stage.states()] == [[]]


# Death


async def test_a_call_that_the_server_dies_in_has_an_unknown_outcome_and_the_next_hold_restarts(
    autojump_clock: MockClock,
    tmp_path: Path,
) -> None:
    async with staged(tmp_path) as stage:
        held = await stage.ready("a")

        with pytest.raises(OutcomeUnknownError, match="exited with code 9"):
            await stage.call(held.instance, "die")

        await wait_all_tasks_blocked()
        assert stage.server_connections.get(held.instance) is None
        assert await stage.states() == [("backing_off", ["a"])]
        died_at = trio.current_time()
        again = await stage.ready("a")
        assert again.pid != held.pid
        assert 0.5 <= trio.current_time() - died_at <= 1.0
        entry = (await stage.entries())[0]
        assert (entry.restarts, entry.last_error) == (1, "it exited with code 9")


async def test_every_call_in_flight_is_answered_when_the_server_dies(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async def hold_on(process: FakeProcess, request: Json) -> None:
        del process, request
        await trio.sleep_forever()

    async with staged(tmp_path, alpha=Script(call=hold_on)) as stage:
        held = await stage.ready("a")
        outcomes: list[str] = []

        async def call() -> None:
            with pytest.raises(OutcomeUnknownError) as error:
                await stage.call(held.instance, "echo")
            outcomes.append(error.value.outcome)

        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(call)
            await trio.sleep(1)
            stage.machine.processes[0].exit(9)

        assert outcomes == ["outcome_unknown"] * 10


async def test_an_instance_that_served_for_a_minute_starts_over_with_its_back_off(
    autojump_clock: MockClock,
    tmp_path: Path,
) -> None:
    async with staged(tmp_path) as stage:
        for _ in range(6):
            await stage.ready("a")
            await trio.sleep(61)
            stage.machine.processes[-1].exit(9)
            await wait_all_tasks_blocked()

        died_at = trio.current_time()
        await stage.ready("a")

        assert trio.current_time() - died_at <= 1.0


async def test_events_tell_of_every_start_and_every_end(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with staged(tmp_path) as stage:
        held = await stage.ready("a")
        await stage.release("a", held.instance)
        await trio.sleep(LINGER + 1)

        name, identity, instance = held.name, held.identity, held.instance
        assert stage.bus.events == [
            messages.ServerStarted(name, identity, instance, held.pid),
            messages.ServerExited(name, identity, instance, "unused"),
        ]


async def test_the_status_names_each_state(autojump_clock: MockClock, tmp_path: Path) -> None:
    scripts = {
        "a-starting": Script(start_delay=60),
        "b-ready": Script(),
        "c-lingering": Script(),
        "d-stopping": Script(stop_delay=60),
        "e-backing-off": Script(exits_at_start=1),
        "f-failed": Script(exits_at_start=1),
    }
    async with staged(tmp_path, **scripts) as stage, trio.open_nursery() as nursery:
        await stage.refused("s", server("f-failed"))
        stopping = await stage.ready("s", server("d-stopping"))
        await stage.release("s", stopping.instance)
        await trio.sleep(LINGER + 1)
        await stage.ready("s", server("b-ready"))
        lingering = await stage.ready("s", server("c-lingering"))
        await stage.release("s", lingering.instance)
        nursery.start_soon(stage.acquire, "s", server("a-starting"))
        await stage.refused("s", server("e-backing-off"))

        shown = {entry.name: entry for entry in await stage.entries()}

        assert {name: entry.state for name, entry in shown.items()} == {
            name: name[2:].replace("-", "_") for name in scripts
        }
        assert shown[server("b-ready").name].tools == 2
        assert shown[server("f-failed").name].pid == 0
        nursery.cancel_scope.cancel()


# Tools that change


async def test_a_storm_of_changes_costs_one_list_in_two_seconds(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with staged(tmp_path) as stage:
        held = await stage.ready("a")
        process = stage.machine.processes[0]
        stage.machine.scripts["alpha"].tools = [tool("other")]

        for _ in range(200):
            await process.say({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        await trio.sleep(10)

        assert 2 <= len(process.asked_for("tools/list")) <= 3
        assert stage.bus.events[1:] == [messages.ServerToolsChanged(held.name, held.instance)]
        reply = await stage.ask(messages.ListServerTools(held.instance))
        assert isinstance(reply, messages.ServerTools)
        assert [t.name for t in reply.tools] == ["other"]


async def test_a_list_that_fails_costs_no_server(autojump_clock: MockClock, tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        held = await stage.ready("a")
        process = stage.machine.processes[0]
        stage.machine.scripts["alpha"].tools = "nonsense"  # type: ignore[assignment]
        await process.say({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        await trio.sleep(5)

        assert stage.machine.alive == [held.pid]
        stage.machine.scripts["alpha"].tools = [tool("other")]
        await process.say({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        await trio.sleep(5)
        assert [type(event) for event in stage.bus.events[1:]] == [messages.ServerToolsChanged]


async def test_the_tools_of_an_instance_that_is_gone_are_none(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with staged(tmp_path) as stage:
        reply = await stage.ask(messages.ListServerTools(InstanceId("gone")))

        assert reply == messages.ServerTools([])


# Secrets, and the end


async def test_secrets_are_in_no_message_and_in_no_log(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async def echo_it(process: FakeProcess, request: Json) -> None:
        await process.reply(request, text("fine"))

    spec = server(env={"TOKEN": "{{ENV:TOKEN}}"}, args=("--token", "{{ENV:TOKEN}}"))
    with capture_logs() as logs:
        async with staged(tmp_path, alpha=Script(call=echo_it)) as stage:
            stage.environments.put(SessionKey("a"), {"TOKEN": SECRET})
            held = await stage.ready("a", spec)
            await stage.call(held.instance, "echo")
            stage.machine.processes[0].exit(9)
            await wait_all_tasks_blocked()
            await stage.ready("a", spec)
            await stage.entries()
            await stage.refused("a", server("nowhere", env={"TOKEN": "{{ENV:TOKEN}}"}))
            await stage.release_session("a")

    assert stage.machine.specs[0].argv == ("alpha", "--token", SECRET)
    assert not any(SECRET.encode() in seen for seen in stage.bus.bytes_seen)
    assert len(stage.bus.bytes_seen) > 10
    assert SECRET not in repr(logs)
    assert {"server_started", "server_exited"} <= {entry["event"] for entry in logs}


class Stored(NothingStored):
    """Stored values that a test changes."""

    def __init__(self, **stored: str) -> None:
        self.kept = stored

    def values(self) -> dict[str, str]:
        return self.kept


WITH_TOKEN = server(env={"TOKEN": "{{ENV:TOKEN}}"})


async def test_sessions_with_other_values_of_a_key_get_other_instances(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with staged(tmp_path) as stage:
        stage.environments.stored = Stored(TOKEN="stored")
        stage.environments.put(SessionKey("c"), {"TOKEN": "own"})

        held = [(await stage.ready(name, WITH_TOKEN)).instance for name in "abc"]

        assert (held[0] == held[1], held[1] == held[2]) == (True, False)
        assert [spec.env["TOKEN"] for spec in stage.machine.specs] == ["stored", "own"]


async def test_a_stored_value_that_changes_goes_into_another_instance(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with staged(tmp_path) as stage:
        stage.environments.stored = stored = Stored(TOKEN="before")
        before = await stage.ready("a", WITH_TOKEN)
        stored.kept = {"TOKEN": "after"}

        after = await stage.ready("b", WITH_TOKEN)

        assert before.instance != after.instance
        assert [spec.env["TOKEN"] for spec in stage.machine.specs] == ["before", "after"]


async def test_a_start_that_waits_takes_the_values_that_it_was_asked_with(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with staged(tmp_path, alpha=Script(exits_at_start=1)) as stage:
        stage.environments.put(SessionKey("a"), {"TOKEN": "first"})
        await stage.refused("a", WITH_TOKEN)
        stage.machine.scripts["alpha"].exits_at_start = None
        async with trio.open_nursery() as nursery:
            # It waits for its back-off, and meanwhile the session has another value.
            nursery.start_soon(stage.ready, "a", WITH_TOKEN)
            await wait_all_tasks_blocked()

            stage.environments.put(SessionKey("a"), {"TOKEN": "second"})

        assert [spec.env["TOKEN"] for spec in stage.machine.specs] == ["first", "first"]


async def test_a_supervisor_that_is_stopped_leaves_no_process(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    scripts = {
        "alpha": Script(),
        "beta": Script(start_delay=1000),
        "gamma": Script(stop_delay=2),
    }
    async with staged(tmp_path, **scripts) as stage:
        await stage.ready("a", server("alpha"))
        await stage.ready("a", server("gamma"))

        async def acquire() -> None:
            with pytest.raises(AskFailedError, match="stopping"):
                await stage.acquire("a", server("beta"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(acquire)
            await trio.sleep(0.5)
            assert len(stage.machine.alive) == 3
            stage.stop.cancel()

        await trio.sleep(5)
        assert stage.machine.alive == []


async def test_an_installer_that_cannot_run_at_all_is_an_answer(tmp_path: Path) -> None:
    script = tmp_path / "tool.sh"
    script.write_text("exit 0\n")
    async with staged(tmp_path) as stage:
        stage.actor._settings.environment["PATH"] = "/nowhere"  # type: ignore[index]
        reply = await stage.ask(messages.InstallDependencies({"org/tool": str(script)}))

        assert isinstance(reply, messages.DependenciesFailed)
        assert reply.dependency == "org/tool"
        assert "sh was not found" in reply.message


@pytest.mark.parametrize(("generations", "asked"), [(("stateless",), 3), (("handshake",), 1)])
async def test_a_list_is_read_again_after_an_hour_whatever_its_server_says(
    autojump_clock: MockClock, tmp_path: Path, generations: tuple[str, ...], asked: int
) -> None:
    says = {"ttlMs": 10**12, "cacheScope": "public"}
    async with staged(tmp_path, alpha=Script(generations=generations, list_says=says)) as stage:
        held = await stage.ready("a")
        stage.machine.scripts["alpha"].tools = [tool("other")]

        await trio.sleep(2 * 3600 + 60)

        process = stage.machine.processes[-1]
        reply = await stage.ask(messages.ListServerTools(held.instance))
        assert isinstance(reply, messages.ServerTools)
        expected = ["other"] if asked > 1 else ["echo", "die"]
        assert (len(process.asked_for("tools/list")), [t.name for t in reply.tools]) == (
            asked,
            expected,
        )


async def test_a_list_is_read_again_after_a_restart_whatever_its_server_said(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    says = {"ttlMs": 10**12, "cacheScope": "public"}
    async with staged(tmp_path, alpha=Script(generations=("stateless",), list_says=says)) as stage:
        await stage.ready("a")
        stage.machine.scripts["alpha"].tools = [tool("other")]
        stage.machine.processes[-1].exit(9)
        await trio.sleep(1)

        again = await stage.ready("a")

        assert [t.name for t in again.tools] == ["other"]


async def test_a_session_that_comes_while_a_server_dies_gets_the_next_one(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with staged(tmp_path, alpha=Script(stop_delay=1)) as stage:
        first = await stage.ready("a")
        process = stage.machine.processes[-1]
        # Its output has ended, and it takes a second to be gone.
        process._outbox.close()
        await wait_all_tasks_blocked()
        await trio.sleep(1.5)

        second = await stage.ready("a")

        assert first.instance != second.instance
        link = stage.server_connections.get(second.instance)
        assert link is not None
        assert link.server_connection.is_alive
