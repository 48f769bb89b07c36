"""Sessions: who may open one, how one outlives its connection, and that it releases everything."""

import errno
import os
import sys
import tempfile
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from capd.actors.session.host import SessionHost
from capd.actors.session.services import session_services
from capd.core.sessions.session_rules import SessionRules
from capd_protos import curator
from capd_protos.types import SessionKey

from .fakes import Script, tool
from .world import CURATOR, CURATOR_REPLIES, LINGER, OWN, Client, World, running_world, world

ECHO = [*OWN, "alpha__echo", "alpha__die"]

# A client of another process: says hello, switches alpha on, and goes without a word.
GOES_AWAY = """
import json, socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
f = s.makefile("rw")
def say(**m):
    print(json.dumps(m), file=f, flush=True)
    return json.loads(f.readline())
say(capd="hello", protocol=1, role="mcp", client={"name": "dies"}, session="x", cwd=sys.argv[2])
arguments = {"action": "enable", "name": "alpha"}
say(jsonrpc="2.0", id=1, method="tools/call", params={"name": "capability", "arguments": arguments})
"""


async def opened(world: World, **members: object) -> Client:
    """Return a client that has sent a hello, whether or not it was accepted."""
    client = await world.connected()
    await client.hello(cwd=str(world.project), **members)
    return client


async def test_a_goodbye_releases_at_once(autojump_clock: MockClock, tmp_path: Path) -> None:
    async with running_world(tmp_path) as world:
        client = await world.session("s")
        await client.capability("enable", "alpha")

        await client.send({"capd": "goodbye"})
        await client.is_closed.wait()
        await trio.sleep(0.1)

        assert (await world.leases(), await world.sessions()) == ({}, [])
        ended = [e for e in world.bus.events if isinstance(e, curator.SessionEnded)]
        assert ended == [curator.SessionEnded(SessionKey("s"))]
        await trio.sleep(LINGER + 1)
        assert world.machine.alive == []


async def test_a_lost_socket_of_a_living_process_keeps_the_session_for_its_token(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        client = await world.session("s")
        await client.capability("enable", "alpha")
        await client.stream.aclose()
        await trio.sleep(20)
        assert [entry.is_connected for entry in await world.sessions()] == [False]

        again = await world.session("s", resume=client.welcome["resume"])

        assert (again.welcome["session"], again.welcome["resumed"]) == ("s", True)
        assert again.welcome["resume"] != client.welcome["resume"]
        assert await again.tools() == ECHO
        await trio.sleep(100)
        assert await again.call("alpha__echo") == ("{}", False)
        assert len(world.machine.specs) == 1


async def test_a_lost_session_holds_nothing_after_thirty_seconds_and_finds_its_set_later(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        client = await world.session("s")
        await client.capability("enable", "alpha")
        await client.stream.aclose()

        await trio.sleep(31)

        assert (await world.leases(), await world.sessions()) == ({}, [])
        later = await world.session("s")
        assert later.welcome["resumed"] is True
        assert await later.tools() == ECHO


async def test_a_client_whose_process_is_gone_leaves_nothing(tmp_path: Path) -> None:
    async with running_world(tmp_path) as world:
        arguments = [str(world.socket), str(world.project)]
        with trio.fail_after(30):
            await trio.run_process([sys.executable, "-c", GOES_AWAY, *arguments])
            while await world.sessions() or await world.leases():
                await trio.sleep(0.02)

        assert [script.argv for script in world.machine.specs] == [("alpha",)]


@pytest.mark.parametrize(
    ("token", "code"),
    [("", "session_in_use"), ("wrong", "resume_refused"), ("käse", "resume_refused")],
)
async def test_a_session_that_is_not_over_is_only_for_its_token(
    autojump_clock: MockClock, tmp_path: Path, token: str, code: str
) -> None:
    async with running_world(tmp_path) as world:
        client = await world.session("s")

        thief = await opened(world, session="s", resume=token)

        assert (thief.welcome["capd"], thief.welcome["code"]) == ("refused", code)
        assert await client.tools() == OWN


async def test_an_old_token_is_worth_nothing(autojump_clock: MockClock, tmp_path: Path) -> None:
    async with running_world(tmp_path) as world:
        first = await world.session("s")
        second = await world.session("s", resume=first.welcome["resume"])

        third = await opened(world, session="s", resume=first.welcome["resume"])

        assert third.welcome["code"] == "resume_refused"
        assert await second.tools() == OWN


async def test_a_resume_closes_the_connection_before_it(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        first = await world.session("s")
        await first.capability("enable", "alpha")

        second = await world.session("s", resume=first.welcome["resume"])
        await first.is_closed.wait()

        assert first.heard[-1] == {
            "capd": "closing",
            "reason": "resumed elsewhere",
            "reconnect": False,
        }
        await trio.sleep(100)
        assert await second.tools() == ECHO
        assert await world.leases() == {"alpha": ["s"]}


async def test_of_two_resumes_with_one_token_one_wins(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        client = await world.session("s")
        await client.stream.aclose()
        answers: list[str] = []

        async def resume() -> None:
            other = await opened(world, session="s", resume=client.welcome["resume"])
            answers.append(other.welcome["capd"])

        async with trio.open_nursery() as nursery:
            nursery.start_soon(resume)
            nursery.start_soon(resume)

        assert sorted(answers) == ["refused", "welcome"]
        assert len(await world.sessions()) == 1


@pytest.mark.parametrize("key", ["a b", "ä", "x" * 129, "../x", "\n"])
async def test_a_key_is_of_few_characters(
    autojump_clock: MockClock, tmp_path: Path, key: str
) -> None:
    async with running_world(tmp_path) as world:
        client = await opened(world, session=key)

        assert client.welcome["code"] == "bad_hello"
        assert await world.sessions() == []


async def test_a_client_without_a_key_gets_one_that_names_it(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        clients = [await world.session(client={"name": "Ze d/\x1b[31m"}) for _ in range(3)]
        keys = {client.welcome["session"] for client in clients}

        assert len(keys) == 3
        assert all(key.startswith("Ze-d-31m-") for key in keys)


async def test_two_sessions_do_not_see_each_others_surface(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        first, second = await world.session("a"), await world.session("b")
        await first.capability("enable", "alpha")

        assert await second.tools() == OWN
        assert second.list_changes == 0


async def test_a_reload_asks_every_client_for_new_keys(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        client = await world.session("s")
        world.capability("keyed", "keyed", keys='env = { T = "{{ENV:TOKEN}}" }')

        await world.reload()
        await trio.sleep(1)

        assert client.heard == [{"capd": "want_env", "keys": ["TOKEN"]}]


async def test_a_connection_that_nobody_hands_over_is_refused(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        reply = await world.bus.ask(
            CURATOR,
            curator.ListTools(SessionKey("nobody")),
            CURATOR_REPLIES,
            5.0,
        )

        assert isinstance(reply, curator.CuratorRefused)
        assert reply.code == "session_unknown"


async def test_hello_is_answered_overloaded_where_no_curator_answers(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with world(tmp_path) as made:
        await made.start()
        made.scopes["curator"].cancel()
        await trio.sleep(0.1)

        client = await opened(made)

        assert client.welcome["code"] == "overloaded"


# A client that says hello as another user, and prints what it is given.
SAYS_HELLO = """
import socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
try:
    s.sendall(sys.argv[2].encode() + b"\\n")
    print(repr(s.recv(100)))
except (BrokenPipeError, ConnectionResetError):
    print(repr(b""))
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be somebody else")
async def test_another_user_gets_not_one_byte() -> None:
    hello = '{"capd":"hello","protocol":1,"role":"control","client":{"name":"x"}}'
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        # What keeps others out first are the modes; here only the check of the peer is left.
        folder.chmod(0o711)
        async with running_world(folder) as world:
            world.socket.chmod(0o666)
            command = ["setpriv", "--reuid", "65534", "--clear-groups", "/usr/bin/env", "python3"]
            arguments = ["-I", "-c", SAYS_HELLO, str(world.socket), hello]
            with trio.fail_after(30):
                done = await trio.run_process(
                    [*command, *arguments], capture_stdout=True, cwd="/", env={"PATH": os.defpath}
                )

    assert done.stdout == b"b''\n"


async def restarted_host(world: World, rules: SessionRules | None = None) -> None:
    """End the curators as a kill would, and start others on the same records."""
    await trio.sleep(1)
    world.scopes["curator"].cancel()
    await trio.sleep(1)
    world.host = SessionHost(
        session_services(world.bus, world.instances, world.environments, rules=rules),
        world.connections,
        world.kept,
        version="0",
    )
    await world.nursery.start(world._kept, "curator", world.host)


async def test_a_session_outlives_the_daemon_with_its_tools_and_starts_servers_on_first_need(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        client = await world.session("s")
        await client.capability("enable", "alpha")
        await restarted_host(world)

        again = await world.session("s", resume=client.welcome["resume"])

        assert again.welcome["resumed"] is True
        assert await again.tools() == ECHO
        assert len(world.machine.specs) == 1
        assert await again.call("alpha__echo") == ("{}", False)


async def test_a_session_is_not_opened_empty_while_its_record_cannot_be_read(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        client = await world.session("s")
        await client.capability("enable", "alpha")
        await restarted_host(world)
        token = client.welcome["resume"]
        world.kept.error = OSError(errno.EMFILE, os.strerror(errno.EMFILE))

        refused = await opened(world, session="s", resume=token)

        world.kept.error = None
        assert (refused.welcome["code"], refused.welcome["message"]) == (
            "overloaded",
            "the record of session s cannot be read: Too many open files",
        )
        assert (await world.session("s", resume=token)).welcome["resumed"] is True


async def test_a_session_keeps_its_mode_over_the_daemons_end_whatever_became_known_since(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        large = [tool(f"tool_{number}", "x" * 2000) for number in range(10)]
        world.machine.scripts["alpha"] = Script(tools=large)
        client = await world.session("s")
        await client.capability("enable", "alpha")
        while not world.finder._sets.users.known.sources:
            await trio.sleep(0.05)
        await world.session("later")
        before = {entry.key: entry.mode for entry in await world.sessions()}
        await restarted_host(world)

        await world.session("s", resume=client.welcome["resume"])
        await world.session("later")

        assert before == {"s": "dynamic", "later": "stable"}
        assert {entry.key: entry.mode for entry in await world.sessions()} == before


async def test_a_session_that_was_written_down_is_not_given_to_an_older_token(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        client = await world.session("s")
        await client.capability("enable", "alpha")
        await restarted_host(world)

        guessed = await opened(world, session="s", resume="guessed")

        assert guessed.welcome["code"] == "resume_refused"
        assert await world.sessions() == []


async def test_a_key_that_comes_back_after_a_goodbye_finds_its_set(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        client = await world.session("s")
        await client.capability("enable", "alpha")
        await client.send({"capd": "goodbye"})
        await client.is_closed.wait()
        await trio.sleep(LINGER * 3)

        again = await world.session("s")

        assert (again.welcome["resumed"], await again.tools()) == (True, ECHO)
        assert world.machine.alive == []
        assert await again.call("alpha__echo") == ("{}", False)


async def test_what_a_session_switched_off_stays_off(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        client = await world.session("s")
        await client.capability("enable", "alpha")
        await trio.sleep(1)
        await client.capability("disable", "alpha")
        await restarted_host(world)

        again = await world.session("s", resume=client.welcome["resume"])

        assert await again.tools() == OWN


class Failing:
    """A curator host that fails on demand, as a bug would make it fail."""

    def __init__(self, host: SessionHost) -> None:
        self._host = host
        self.bug = trio.Event()
        self.is_gone = trio.Event()

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        async def fail() -> None:
            await self.bug.wait()
            raise RuntimeError("a bug")

        run_in = self._host._openings.run_in

        def planted(nursery: trio.Nursery) -> None:
            run_in(nursery)
            nursery.start_soon(fail)

        # In the host's own nursery: its parts have boundaries of their own.
        self._host._openings.run_in = planted  # type: ignore[method-assign]
        try:
            await self._host.run(task_status=task_status)
        except* RuntimeError:
            self.is_gone.set()


async def test_what_a_host_that_failed_held_is_released(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with world(tmp_path) as made:
        failing = Failing(made.host)
        made.host = failing  # type: ignore[assignment]  # it runs in the host's place
        await made.start()
        client = await made.session("s")
        await client.capability("enable", "alpha")
        before = await made.leases()

        failing.bug.set()
        await failing.is_gone.wait()

        assert (before, await made.leases()) == ({"alpha": ["s"]}, {})


async def test_a_use_is_written_down(autojump_clock: MockClock, tmp_path: Path) -> None:
    async with running_world(tmp_path) as world:
        client = await world.session("s")
        await client.capability("enable", "alpha")
        await trio.sleep(1)
        before = used_at(world)

        await client.call("alpha__echo", x="1")

        await trio.sleep(1)
        assert used_at(world) > before


def used_at(world: World) -> float:
    return world.kept.records[SessionKey("s")].activations[0].last_used_at
