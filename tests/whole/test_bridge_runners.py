"""What a hostile far side can do as the runner of its bridge, and in the place of its servers.

The test is the runner and every server over there. An honest session of this machine answers after
each test.
"""

import contextlib
import json
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from capd_client.mcp_host import McpHost
from support.bridges import (
    Bridge,
    Far,
    FarEnd,
    Runner,
    answered,
    bridged_capability,
    start_with_token,
)
from whole_daemon import Home, home_of_its_own, wait_for

TOKEN = "host-token-44f0"
CONFIG = """
[surface]
mode = "dynamic"
[bridges.box]
capabilities = ["there", "secret", "moved"]
starts = ["there", "mine/secret", "other/moved"]
[bridges.other]
capabilities = ["there"]
starts = ["*"]
[bridges.revoked]
capabilities = ["there"]
starts = ["*"]
[bridges.sends]
capabilities = ["secret"]
starts = ["*"]
secrets = true
"""


@dataclass
class World:
    """A daemon with a bridge, and a local session."""

    home: Home
    honest: McpHost

    def server(self, key: str) -> dict[str, Any]:
        """Return the far server that a session has, or requested last."""
        servers = self.home.ask("servers")["servers"]
        found = [each for each in servers if each["project"] == f"/home/dev/{key}"]
        return dict(found[0]) if found else {}


@pytest.fixture(scope="module")
def made() -> Iterator[World]:
    with home_of_its_own(is_shipped=False, is_forked=True) as home:
        home.leave_out_model()
        bridged_capability(home, "shared", home.folder / "journal", sys.executable)
        for name, env in (
            ("there", 'env = { MODE = "ro" }'),
            ("secret", 'env = { API_TOKEN = "{{ENV:API_TOKEN}}" }'),
            ("moved", ""),
        ):
            home.capability(name, ["mcp-far", "--in", "{{PROJECT}}"])
            definition = home.folder / "tap" / "capabilities" / name / "default.toml"
            definition.write_text(f'{definition.read_text()}where = "project"\n{env}\n')
        start_with_token(home, CONFIG, TOKEN, capabilities=4)
        honest = home.shim("local")
        assert home.ask("enable", session="local", name="shared")["ok"]
        yield World(home, honest)
        honest.leave()


@pytest.fixture
def world(made: World) -> Iterator[World]:
    """The world; its local session must still work after the test."""
    yield made
    said = made.honest.call("shared__echo", {"text": "still here"})
    assert "still here" in said["content"][0]["text"]


@pytest.fixture
def bridge(world: World) -> Iterator[Bridge]:
    with Bridge(world.home) as opened:
        yield opened


@contextlib.contextmanager
def runner(bridge: Bridge, act: Any) -> Iterator[Runner]:
    made = Runner(bridge.path, bridge.credential, act)
    try:
        yield made
    finally:
        made.close()


def echoing(end: FarEnd) -> None:
    end.serve(lambda end, request: answered(end, request, "from there"))


@contextlib.contextmanager
def session(bridge: Bridge, key: str, folder: str = "/home/dev/") -> Iterator[Far]:
    """Open a far session in a folder; by default in one of its own."""
    folder = f"{folder}{key}" if folder == "/home/dev/" else folder
    with bridge.far() as far:
        welcome = far.hello(session=key, credential=bridge.credential, cwd=folder)
        assert welcome["capd"] == "welcome", welcome
        far.initialize()
        yield far


def enabled(far: Far, name: str = "there") -> str:
    """Switch a capability on; return the error text if that fails."""
    answer = far.call("capability", action="enable", name=name)
    return str(answer["content"][0]["text"]) if answer["isError"] else ""


# What it gets


def test_a_runner_gets_the_command_line_and_nothing_else(world: World, bridge: Bridge) -> None:
    with runner(bridge, echoing) as there, session(bridge, "order") as far:
        assert enabled(far) == ""

        assert far.said("there__echo") == "from there"
        assert there.orders == [
            {
                "argv": ["mcp-far", "--in", "/home/dev/order"],
                "env": {"MODE": "ro"},
                "cwd": "/home/dev/order",
            }
        ]


def test_a_secret_reaches_a_runner_only_where_its_bridge_says_so(
    world: World, bridge: Bridge
) -> None:
    with runner(bridge, echoing) as there, session(bridge, "no-secret") as far:
        why = enabled(far, "secret")

        assert "API_TOKEN" in why
        assert "set secrets = true in [bridges.box] of config.toml" in why
        assert there.orders == []

    with (
        Bridge(world.home, "sends") as sends,
        runner(sends, echoing) as there,
        session(sends, "secret") as far,
    ):
        assert enabled(far, "secret") == ""

        assert [each["env"] for each in there.orders] == [{"API_TOKEN": TOKEN}]


def test_a_tap_moves_no_server_to_the_other_side_without_the_users_word(
    world: World, bridge: Bridge
) -> None:
    with runner(bridge, echoing) as there, session(bridge, "moved") as far:
        why = enabled(far, "moved")

        assert 'add "mine/moved" to starts in [bridges.box] of config.toml' in why
        assert there.orders == []


def test_a_runner_of_one_bridge_gets_no_order_of_another(world: World, bridge: Bridge) -> None:
    with (
        Bridge(world.home, "other") as other,
        runner(bridge, echoing) as there,
        runner(other, lambda end: end.serve(lambda e, r: answered(e, r, "other"))) as elsewhere,
        session(other, "other") as far,
    ):
        assert enabled(far) == ""

        assert far.said("there__echo") == "other"
        assert (there.orders, len(elsewhere.orders)) == ([], 1)


def test_without_a_runner_the_repair_is_named_everywhere(world: World, bridge: Bridge) -> None:
    with session(bridge, "none") as far:
        why = enabled(far)

        assert "nothing can start it on the other side of the bridge box" in why
        assert "end the command that holds the bridge open, and start it again" in why
        assert world.server("none")["last_error"] in why
        shown = " ".join(world.home.capd("status").stdout.split())
        assert "end the command that holds the bridge open, and start it again" in shown
        reason = " ".join(world.home.capd("why", "--session", "bridge:box:none").stdout.split())
        assert "there" in reason


# Who may be one


@pytest.mark.parametrize("wrong", ["", "A" * 43])
def test_a_runner_without_the_credential_is_refused(bridge: Bridge, wrong: str) -> None:
    with bridge.far() as far:
        answer = far.hello(role="runner", credential=wrong)

        assert answer["code"] == "bridge_refused"
        assert far.read() == {}


def test_a_runner_at_another_socket_is_refused(world: World, bridge: Bridge) -> None:
    with Bridge(world.home, "other") as other, other.far() as far:
        assert far.hello(role="runner", credential=bridge.credential)["code"] == "bridge_refused"
    for credential in ("", bridge.credential):
        with Far(world.home.socket) as far:
            answer = far.hello(role="runner", credential=credential)

            assert answer["code"] == "bridge_refused"
            assert far.read() == {}


def test_a_runner_has_no_session_and_no_method(world: World, bridge: Bridge) -> None:
    before = len(world.home.ask("sessions")["sessions"])
    with bridge.far() as far:
        assert far.hello(role="runner", credential=bridge.credential, session="x")["session"] == ""

        for method in ("status", "initialize", "tools/list", "stop"):
            far.write({"jsonrpc": "2.0", "id": 1, "method": method, "params": {}})

        assert len(world.home.ask("sessions")["sessions"]) == before
    # What it wrote is read as an answer to an order, and is none.
    with runner(bridge, echoing), session(bridge, "after") as far:
        assert enabled(far) == ""


def test_connections_of_a_runner_are_bounded(bridge: Bridge) -> None:
    with contextlib.ExitStack() as stack:
        codes = []
        for _ in range(60):
            far = stack.enter_context(bridge.far())
            answer = far.hello(role="runner", credential=bridge.credential)
            codes.append(answer.get("code", "welcome"))

    # Those that wait too many are closed, so that new ones are let in.
    assert set(codes) <= {"welcome", "overloaded"}


# What a server over there can do


def test_a_server_that_forges_ids_answers_nobody_else(world: World, bridge: Bridge) -> None:
    def forging(end: FarEnd, request: dict[str, Any]) -> None:
        for number in (*range(-5, 50), "a", 1 << 63, None, 1.5, True, {}, []):
            if number != request["id"]:
                text = {"type": "text", "text": "forged"}
                end.say({"id": number, "result": {"content": [text]}})
        answered(end, request, "honest")

    with runner(bridge, lambda end: end.serve(forging)), session(bridge, "forger") as far:
        assert enabled(far) == ""

        assert far.said("there__echo") == "honest"
        assert far.said("there__echo") == "honest"


def test_a_server_that_floods_costs_nobody_else(world: World, bridge: Bridge) -> None:
    is_over = threading.Event()

    def flooding(end: FarEnd, request: dict[str, Any]) -> None:
        notice = {"level": "error", "data": "x" * 30_000}
        with contextlib.suppress(OSError):
            while not is_over.is_set():
                end.send(b"e", b"x" * 65536)
                end.say({"method": "notifications/message", "params": notice})
                end.send(b"o", b"junk " * 100)

    with runner(bridge, lambda end: end.serve(flooding)), session(bridge, "flood") as far:
        assert enabled(far) == ""
        far.write({"jsonrpc": "2.0", "id": 900, "method": "tools/call", "params": CALL})

        for number in range(20):
            said = world.honest.call("shared__echo", {"text": f"{number}"})
            assert str(number) in said["content"][0]["text"]
        is_over.set()


CALL = {"name": "there__echo", "arguments": {}}


def test_a_server_that_ends_in_a_call_has_an_unknown_outcome(world: World, bridge: Bridge) -> None:
    with (
        runner(bridge, lambda end: end.serve(lambda end, _: end.send(b"x", b"3"))),
        session(bridge, "ends") as far,
    ):
        assert enabled(far) == ""

        answer = far.ask("tools/call", CALL)

        assert "exited with code 3" in json.dumps(answer)


@pytest.mark.parametrize("sent", [b"HTTP/1.1 200 OK\r\n\r\n", b"o\xff\xff\xff\xff", b"\0" * 64])
def test_a_server_that_breaks_the_frames_is_ended(
    world: World, bridge: Bridge, sent: bytes
) -> None:
    key = f"frames-{sent[0]}"
    with (
        runner(bridge, lambda end: end.serve(lambda end, _: end._far.send(sent))),
        session(bridge, key) as far,
    ):
        assert enabled(far) == ""

        assert "its runner broke the rules" in json.dumps(far.ask("tools/call", CALL))


def test_a_server_that_never_answers_ends_with_its_session(world: World, bridge: Bridge) -> None:
    ended = threading.Event()

    def silent(end: FarEnd) -> None:
        end.send(b"s")
        for _ in end.lines():
            continue
        ended.set()

    with runner(bridge, silent), session(bridge, "silent") as far:
        request = {"name": "capability", "arguments": {"action": "enable", "name": "there"}}
        far.write({"jsonrpc": "2.0", "id": 901, "method": "tools/call", "params": request})
        wait_for(lambda: world.server("silent").get("state") == "starting")

        bridge.close()

        assert ended.wait(60)


def test_a_server_over_there_asks_no_session_of_this_machine(world: World, bridge: Bridge) -> None:
    asked: list[dict[str, Any]] = []

    def asking(end: FarEnd, request: dict[str, Any]) -> None:
        end.say({"id": "q", "method": "sampling/createMessage", "params": {"messages": []}})
        end.say({"id": "r", "method": "roots/list"})
        for line in end.lines():
            if "method" not in line:
                asked.append(line)
            if len(asked) == 2:
                break
        answered(end, request, "done")

    with runner(bridge, lambda end: end.serve(asking)), session(bridge, "asker") as far:
        assert enabled(far) == ""

        assert far.said("there__echo") == "done"
        by_id = {each["id"]: each for each in asked}
        assert "error" in by_id["q"]
        root = {"uri": "file:///home/dev/asker", "name": "asker"}
        assert by_id["r"]["result"] == {"roots": [root]}


def test_a_revoked_bridge_closes_its_runner_and_its_servers(world: World) -> None:
    ended = threading.Event()

    def watched(end: FarEnd) -> None:
        with contextlib.suppress(OSError):
            echoing(end)
        ended.set()

    with (
        Bridge(world.home, "revoked") as revoked,
        runner(revoked, watched) as there,
        session(revoked, "revoked") as far,
    ):
        assert enabled(far) == ""

        world.home.ask("bridge_revoke", name="revoked")

        assert ended.wait(60)
        wait_for(lambda: not there._thread.is_alive())


def test_a_revoked_bridge_closes_a_runner_that_waits_for_an_order(world: World) -> None:
    with Bridge(world.home, "revoked") as revoked, revoked.far() as idle:
        assert idle.hello(role="runner", credential=revoked.credential)["capd"] == "welcome"

        world.home.ask("bridge_revoke", name="revoked")

        assert idle.read() == {}


def test_the_credential_of_a_revoked_bridge_starts_no_runner_of_the_next(world: World) -> None:
    with Bridge(world.home, "revoked") as revoked:
        world.home.ask("bridge_revoke", name="revoked")
        wait_for(lambda: not Path(revoked.path).exists())

        with Bridge(world.home, "revoked") as again, again.far() as far:
            assert again.path == revoked.path
            answer = far.hello(role="runner", credential=revoked.credential)

            assert answer["code"] == "bridge_refused"


def test_a_second_runner_takes_no_server_that_another_has(world: World, bridge: Bridge) -> None:
    def other(end: FarEnd) -> None:
        end.serve(lambda end, request: answered(end, request, "the second"))

    with runner(bridge, echoing) as first, session(bridge, "seconds") as far:
        assert enabled(far) == ""

        with runner(bridge, other) as second:
            assert far.said("there__echo") == "from there"
            assert (len(first.orders), second.orders) == (1, [])


def test_a_server_that_answers_for_another_answers_nobody(world: World, bridge: Bridge) -> None:
    # Each of the two servers of this runner answers the other's request, on its own connection.
    waiting: dict[str, Any] = {}
    both = threading.Event()

    def crossing(end: FarEnd) -> None:
        def called(end: FarEnd, request: dict[str, Any]) -> None:
            mine = str(request["params"]["arguments"]["of"])
            waiting[mine] = request["id"]
            if len(waiting) == 2:
                both.set()
            assert both.wait(60)
            for number in waiting.values():
                if number != request["id"]:
                    answered(end, {"id": number}, f"of {mine}")
            answered(end, request, f"of {mine}")

        end.serve(called)

    with runner(bridge, crossing), session(bridge, "one") as one, session(bridge, "two") as two:
        assert (enabled(one), enabled(two)) == ("", "")
        said: list[str] = []
        thread = threading.Thread(target=lambda: said.append(one.said("there__echo", of="one")))
        thread.start()

        assert two.said("there__echo", of="two") == "of two"
        thread.join()
        assert said == ["of one"]


LINKS = (
    *("file:///home/me/.ssh/id_ed25519", "file:///home/dev/../../etc/passwd"),
    *("capd://results/x", "capd://status", "file://localhost/etc/passwd", "../../x"),
)


@pytest.mark.parametrize("uri", LINKS)
def test_a_link_of_a_server_there_is_passed_on_and_never_read_here(
    world: World, bridge: Bridge, uri: str
) -> None:
    def linking(end: FarEnd, request: dict[str, Any]) -> None:
        link = {"type": "resource_link", "uri": uri, "name": "x"}
        end.say({"id": request["id"], "result": {"content": [link]}})

    with (
        runner(bridge, lambda end: end.serve(linking)),
        session(bridge, f"link-{LINKS.index(uri)}") as far,
    ):
        assert enabled(far) == ""

        assert far.call("there__echo")["content"][0]["uri"] == uri
        read = far.ask("resources/read", {"uri": uri})
        assert "error" in read or read["result"].get("contents", []) == []


TRICKS = {
    "above": "/home/dev/../../root",
    "proc": "/proc/self/root",
    "shell": "/home/dev/$(id)",
    "placeholder": "/{{ENV:API_TOKEN}}",
    "slashes": "//x/./y",
}


@pytest.mark.parametrize("trick", TRICKS)
def test_a_trick_in_a_path_is_a_name_there_and_nothing_here(
    world: World, bridge: Bridge, trick: str
) -> None:
    folder = TRICKS[trick]
    with runner(bridge, echoing) as there, session(bridge, f"trick-{trick}", folder) as far:
        assert enabled(far) == ""

        [order] = there.orders
        assert (order["cwd"], order["argv"]) == (folder, ["mcp-far", "--in", folder])
        assert TOKEN not in json.dumps(there.orders)


@pytest.mark.parametrize("folder", ["", "relative", "/a\nb", "/" + "x" * 5000])
def test_a_session_without_a_usable_folder_is_told_so(
    world: World, bridge: Bridge, folder: str
) -> None:
    with runner(bridge, echoing) as there, session(bridge, f"at-{len(folder)}", folder) as far:
        assert "start the client in the project's folder" in enabled(far)
        assert there.orders == []
