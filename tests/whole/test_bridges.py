"""The far side of a bridge has sessions and nothing else, whatever it sends; no sshd is needed.

Each attack is made with the bridge's own credential, by a program that speaks the wire itself. An
honest session of this machine answers after each.
"""

import contextlib
import json
import os
import re
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from capd_client.control import Control, ControlError
from capd_client.mcp_host import McpHost
from capd_protos.socket import METHODS
from support.bridges import Bridge, Far, bridged_capability, configured
from whole_daemon import Home, home_of_its_own, wait_for

TOKEN = "host-token-7f3a"
CONFIG = """
[policy]
ask_timeout = 1
[surface]
mode = "dynamic"
[results]
limit = 4000
[bridges.box]
capabilities = ["shared", "asked"]
ask = ["asked:mark"]
[bridges.other]
capabilities = ["shared"]
[bridges.single]
allow = ["shared:echo"]
[bridges.nothing]
[bridges.flood]
capabilities = ["shared"]
[bridges.left]
capabilities = ["shared"]
[bridges.revoked]
capabilities = ["shared"]
[profiles.work]
clients = ["far-*", "test-*"]
secrets = "work"
"""

HOLDER = """
import sys, time
from capd_client.control import Control
control = Control(sys.argv[1])
print(control.call("bridge_open", {"name": "other"})["credential"], flush=True)
time.sleep(600)
"""


@dataclass
class World:
    """A daemon with a bridge, and a local session."""

    home: Home
    bridge: Bridge
    honest: McpHost
    journal: Path

    def entry(self, key: str) -> dict[str, Any]:
        [found] = [e for e in self.home.ask("sessions")["sessions"] if e["key"] == key]
        return dict(found)

    def session_keys(self) -> list[str]:
        return [each["key"] for each in self.home.ask("sessions")["sessions"]]

    def far(self, key: str, **capabilities: Any) -> Far:
        """Connect a far session with `shared` on."""
        far = self.bridge.session(key, **capabilities)
        assert not far.call("capability", action="enable", name="shared")["isError"]
        return far


@pytest.fixture(scope="module")
def made() -> Iterator[World]:
    with home_of_its_own(is_shipped=False, is_forked=True) as home:
        home.leave_out_model()
        journal = home.folder / "journal"
        journal.touch()
        for name in ("shared", "asked", "private"):
            bridged_capability(home, name, journal, sys.executable)
        configured(home, CONFIG)
        secrets = home.folder / "config" / "secrets.env"
        secrets.write_text(f"API_TOKEN={TOKEN}\nWORK__API_TOKEN=work-token\n")
        secrets.chmod(0o600)
        home.start()
        wait_for(lambda: len(home.ask("caps")["capabilities"]) == 3)
        honest = home.shim("local")
        for name in ("shared", "private"):
            assert home.ask("enable", session="local", name=name)["ok"]
        bridge = Bridge(home)
        yield World(home, bridge, honest, journal)
        bridge.close()
        honest.leave()


@pytest.fixture
def world(made: World) -> Iterator[World]:
    """The world; its local session must still work after the test."""
    yield made
    said = made.honest.call("shared__echo", {"text": "still here"})
    assert "still here" in said["content"][0]["text"]


def text_of(result: Any) -> str:
    return str(result["content"][0]["text"])


# What works


def test_a_session_over_a_bridge_uses_what_its_bridge_permits(world: World) -> None:
    with world.far("works") as far:
        assert "hello" in far.said("shared__echo", text="hello")
        # A profile that fits every client here is not one of the bridge's.
        assert far.said("shared__token") == TOKEN
        entry = world.entry("bridge:box:works")
        assert (entry["bridge"], entry["profile"], entry["pid"]) == ("box", "", 0)


def test_a_bridge_is_listed_in_the_status_without_its_credential(world: World) -> None:
    with world.far("listed"):
        status = world.home.ask("status")

        [entry] = [each for each in status["bridges"] if each["name"] == "box"]
        assert (entry["kind"], entry["target"], entry["pid"]) == ("socket", "a test", os.getpid())
        assert entry["sessions"] >= 1
        assert world.bridge.credential not in json.dumps(status)


def test_the_credential_is_in_no_file_and_no_log(world: World) -> None:
    with world.far("searched"):
        found = [
            path
            for path in world.home.folder.rglob("*")
            if path.is_file() and world.bridge.credential.encode() in path.read_bytes()
        ]

        assert found == []


def test_the_socket_of_a_bridge_is_for_its_user_alone(world: World) -> None:
    socket_file, folder = Path(world.bridge.path), Path(world.bridge.path).parent

    assert stat.S_IMODE(socket_file.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_session_that_is_connected_is_not_taken_over_without_its_token(world: World) -> None:
    with world.bridge.session("taken") as first, world.bridge.far() as second:
        refused = second.hello(session="taken", credential=world.bridge.credential)

        assert refused["code"] == "session_in_use"
        assert first.ask("ping")["result"] == {}


def test_a_session_that_lost_its_connection_is_resumed_with_its_active_set(world: World) -> None:
    with world.bridge.far() as first:
        welcome = first.hello(session="cut", credential=world.bridge.credential)
        first.initialize()
        first.call("capability", action="enable", name="shared")

    with world.bridge.far() as second:
        again = second.hello(
            session=welcome["session"], resume=welcome["resume"], credential=world.bridge.credential
        )
        second.initialize()
        said = second.said("shared__echo", text="again")

    assert (again["session"], again["resumed"]) == ("bridge:box:cut", True)
    assert "again" in said


def test_open_bridges_and_those_that_are_not_are_listed(world: World) -> None:
    shown = world.home.capd("bridge", "list")

    assert shown.stdout.startswith("box  socket to a test, ")
    assert "Configured, and not open: flood, left, nothing, other, revoked, single" in shown.stdout


# 1 to 4: who connects


@pytest.mark.parametrize("role", ["control", "admin", "", None, 7])
def test_no_hello_of_a_far_side_gets_another_role(world: World, role: object) -> None:
    with world.bridge.far() as far:
        answer = far.hello(role=role, credential=world.bridge.credential)

        assert answer["code"] in {"bridge_refused", "bad_hello"}
        assert far.read() == {}


@pytest.mark.parametrize("method", [*METHODS, "capd/control", "shutdown"])
def test_no_control_method_is_answered_on_a_bridge(world: World, method: str) -> None:
    with world.bridge.session() as far:
        answer = far.ask(method, {"session": "local", "name": "private", "project": "/"})

    assert answer["error"]["code"] == -32601


@pytest.mark.parametrize("wrong", ["", "x", "\u00e9" * 43, "A" * 43, "A" * 60_000])
def test_a_wrong_credential_opens_nothing(world: World, wrong: str) -> None:
    with world.bridge.far() as far:
        assert far.hello(credential=wrong)["code"] == "bridge_refused"
        assert far.read() == {}


def test_a_part_of_the_credential_opens_nothing(world: World) -> None:
    with world.bridge.far() as far:
        assert far.hello(credential=world.bridge.credential[:-1])["code"] == "bridge_refused"


@pytest.mark.parametrize("role", ["mcp", "control"])
def test_the_credential_opens_nothing_at_the_users_own_socket(world: World, role: str) -> None:
    with Far(world.home.socket) as far:
        answer = far.hello(role=role, credential=world.bridge.credential)

        assert answer["code"] == "bridge_refused"


def test_a_server_that_capd_started_is_refused_at_the_socket_of_a_bridge(world: World) -> None:
    # The rule is that of the user's socket (tests/reliability/test_socket_peers.py); here that it
    # is asked at all: this process is a person's, and is let in.
    with world.bridge.far() as far:
        assert far.hello(credential=world.bridge.credential)["capd"] == "welcome"


# 5 to 9: other sessions


def test_the_key_of_a_session_of_this_machine_is_another_one_over_a_bridge(world: World) -> None:
    with world.bridge.far() as far:
        welcome = far.hello(session="local", credential=world.bridge.credential)
        far.initialize()

        assert (welcome["session"], welcome["resumed"]) == ("bridge:box:local", False)
        assert not any(name.startswith("private") for name in far.tools())


def test_a_stolen_token_resumes_no_session_of_this_machine(world: World) -> None:
    with Far(world.home.socket) as local:
        welcome = local.hello(session="robbed")
        with world.bridge.far() as far:
            stolen = far.hello(
                session="robbed", resume=welcome["resume"], credential=world.bridge.credential
            )

        assert (stolen["session"], stolen["resumed"]) == ("bridge:box:robbed", False)
        assert local.ask("ping")["result"] == {}


def test_a_session_of_another_bridge_is_out_of_reach(world: World) -> None:
    with Bridge(world.home, "other") as other:
        with other.far() as theirs, world.bridge.far() as far:
            welcome = theirs.hello(session="theirs", credential=other.credential)
            answer = far.hello(
                session="bridge:other:theirs",
                resume=welcome["resume"],
                credential=world.bridge.credential,
            )

            assert answer["session"] == "bridge:box:bridge:other:theirs"
            assert not answer["resumed"]
            assert theirs.ask("ping")["result"] == {}
        with other.far() as far:
            assert far.hello(credential=world.bridge.credential)["code"] == "bridge_refused"


def test_a_parent_of_this_machine_gives_a_far_session_nothing(world: World) -> None:
    with world.bridge.far() as far:
        far.hello(session="child", parent="local", credential=world.bridge.credential)
        far.initialize()

        assert world.entry("bridge:box:child")["active"] == []
        assert not any(name.startswith(("private", "shared")) for name in far.tools())


def test_stored_results_of_a_session_of_this_machine_are_not_read(world: World) -> None:
    short = text_of(world.honest.call("shared__long", {"text": "secret "}))
    handle = re.search(r"\br[0-9a-z]{6,}\b|capd://[^\s\"']+", short)
    assert handle is not None, short
    name = handle.group().rpartition("/")[2]

    with world.far("reader") as far:
        by_tool = far.call("result_read", handle=name)
        by_uri = far.ask("resources/read", {"uri": f"capd://results/{name}"})

    assert by_tool["isError"]
    assert "secret" not in text_of(by_tool)
    # What another server says of such a URI is its own business.
    assert "secret" not in json.dumps(by_uri)


@pytest.mark.parametrize("uri", ["capd://results/x", "capd://status", "note://own", "file:///etc"])
def test_resources_of_others_are_not_read(world: World, uri: str) -> None:
    # Nothing is on in this session; `note://own` is a resource of the honest session's servers.
    with world.bridge.session() as far:
        assert "error" in far.ask("resources/read", {"uri": uri})
        assert far.ask("resources/list")["result"]["resources"] == []


def test_a_far_session_shares_no_process_with_a_session_of_this_machine(world: World) -> None:
    here = text_of(world.honest.call("shared__echo", {"text": "x"}))

    with world.far("alone") as far, world.far("beside") as beside:
        there, too = far.said("shared__echo", text="x"), beside.said("shared__echo", text="x")

    assert here != there
    assert there == too


# 10 to 14: claims of a hello


@pytest.mark.parametrize(
    "key", ["../../../x", "a/b", "x\u0000y", "a b", "\n", "k" * 128, "é", "/etc/passwd"]
)
def test_a_key_that_is_a_path_or_too_long_is_refused(world: World, key: str) -> None:
    with world.bridge.far() as far:
        assert far.hello(session=key, credential=world.bridge.credential)["code"] == "bad_hello"


def test_paths_of_the_far_side_are_never_those_of_this_machine(world: World) -> None:
    project = world.home.folder / "project"
    (project / ".capd" / "capabilities" / "local").mkdir(parents=True, exist_ok=True)
    (project / ".capd.toml").write_text('domain = "read"\n')

    with world.bridge.far() as far:
        far.hello(
            session="paths",
            cwd=str(project),
            project=str(project),
            credential=world.bridge.credential,
        )
        far.initialize()
        entry = world.entry("bridge:box:paths")

    assert (entry["project"], entry["far_project"]) == ("", str(project))
    assert str(project) not in json.dumps(world.home.ask("config"))


def test_a_far_side_chooses_no_profile(world: World) -> None:
    with world.bridge.far() as far:
        far.hello(session="chooser", profile="work", credential=world.bridge.credential)
        far.initialize()
        far.call("capability", action="enable", name="shared")

        assert world.entry("bridge:box:chooser")["profile"] == ""
        assert far.said("shared__token") == TOKEN


def test_a_prompt_hook_of_this_machine_is_never_linked_to_a_far_session(world: World) -> None:
    claimed = {"name": "claude-code", "pid": os.getpid(), "session": "conversation-1"}

    with world.bridge.far() as far:
        far.hello(session="thief", client=claimed, credential=world.bridge.credential)
        linked = ""
        with contextlib.suppress(ControlError):
            linked = world.home.ask(
                "hook", text="my secret", client="claude-code", client_session="conversation-1"
            )["session"]

    assert not linked.startswith("bridge:")


def test_no_name_of_a_client_evades_the_rules_of_its_bridge(world: World) -> None:
    for name in ("test-editor", "capd", "local", "box", "*"):
        with world.bridge.far() as far:
            far.hello(client={"name": name}, credential=world.bridge.credential)
            far.initialize()

            assert far.call("capability", action="enable", name="private")["isError"]


# 15 to 17: what its bridge does not permit


def test_a_capability_that_the_bridge_does_not_name_is_not_reached_in_any_way(world: World) -> None:
    with world.far("reaching") as far:
        found = [
            far.call("capability", action="enable", name="private"),
            far.call("capability", action="enable", name="mine/private"),
            far.call("private__echo", text="x"),
            far.call("tool_call", name="private__echo", arguments={"text": "x"}),
        ]
        listed = far.said("capability", action="list")
        searched = far.said("tool_search", query="select:private__echo")

    assert all(each["isError"] for each in found)
    assert "private" not in listed
    assert "pid" not in searched
    assert "private__echo(" not in searched


def test_a_bridge_that_permits_one_tool_permits_no_other(world: World) -> None:
    with Bridge(world.home, "single") as bridge, bridge.session("one") as far:
        assert "x" in far.said("tool_call", name="shared__echo", arguments={"text": "x"})
        assert far.call("tool_call", name="shared__token", arguments={})["isError"]
        assert far.call("tool_call", name="private__echo", arguments={})["isError"]


def test_a_bridge_whose_table_is_empty_permits_nothing(world: World) -> None:
    with Bridge(world.home, "nothing") as bridge, bridge.session("none") as far:
        assert far.call("capability", action="enable", name="shared")["isError"]
        assert far.call("shared__echo", text="x")["isError"]


def test_no_bridge_is_opened_without_a_table_or_twice(world: World) -> None:
    for name in ("unheard-of", "../box", "box"):
        with pytest.raises(ControlError):
            Bridge(world.home, name)


def test_a_far_side_runs_no_script_here(world: World) -> None:
    with world.far("script") as far:
        called = far.call("tool_call", name="script_run", arguments={"code": "print(1)"})

    assert called["isError"]
    assert "1\n" not in text_of(called)


# 18 to 21: floods and pieces


def test_an_oversized_hello_and_an_oversized_line_cost_their_connection_alone(world: World) -> None:
    with world.bridge.far() as far:
        assert far.hello(cwd="x" * 70_000, credential=world.bridge.credential)["capd"] == "refused"
    with world.bridge.session("large") as far:
        far.send(b'{"jsonrpc":"2.0","id":1,"method":"ping","x":"' + b"x" * (9 << 20) + b'"}\n')

        assert far.read()["error"]["code"] == -32600
        assert far.ask("ping")["result"] == {}


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /mcp HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\x00\xff\xfe\n",
        b"[" * 50_000 + b"\n",
        b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}\n',
        b'{"capd":"env","env":{"A":"b"}}\n',
    ],
)
def test_what_is_no_hello_is_refused(world: World, sent: bytes) -> None:
    with world.bridge.far() as far:
        far.send(sent)

        assert far.read()["code"] == "bad_hello"


def test_half_hellos_keep_no_other_connection_out(world: World) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(60):
            half = stack.enter_context(world.bridge.far())
            with contextlib.suppress(OSError):
                half.send(b'{"capd":"hello","protocol":1,"ro')
        with world.bridge.session("after-halves") as far:
            assert far.ask("ping")["result"] == {}


def test_a_flood_of_sessions_ends_at_the_bound_of_the_bridge(world: World) -> None:
    # A bridge of its own: what it leaves counts for 30 s.
    with Bridge(world.home, "flood") as bridge, contextlib.ExitStack() as stack:
        codes = []
        for n in range(80):
            far = stack.enter_context(bridge.far())
            answer = far.hello(session=f"flood-{n}", credential=bridge.credential)
            codes.append(answer.get("code", "welcome"))
        # Still within the flood, the user's own socket answers.
        with Far(world.home.socket) as local:
            assert local.hello(session="beside-the-flood")["capd"] == "welcome"

    assert "overloaded" in codes
    assert codes.count("welcome") <= 64


def test_sessions_that_are_left_again_and_again_are_bounded(world: World) -> None:
    with Bridge(world.home, "left") as bridge:
        codes = []
        for n in range(140):
            with bridge.far() as far:
                answer = far.hello(session=f"left-{n}", credential=bridge.credential)
                codes.append(answer.get("code", "welcome"))

    assert set(codes) <= {"welcome", "overloaded"}
    over = [key for key in world.session_keys() if key.startswith("bridge:left:")]
    assert len(over) <= 128


# 22 to 26: what a session sends


def test_values_of_the_far_side_are_neither_asked_for_nor_taken(world: World) -> None:
    with world.bridge.far() as far:
        welcome = far.hello(session="env", credential=world.bridge.credential)
        far.write({"capd": "env", "env": {"API_TOKEN": "theirs", "PATH": "/tmp"}})
        far.initialize()
        far.call("capability", action="enable", name="shared")

        assert welcome["want_env"] == []
        assert far.said("shared__token") == TOKEN


def test_roots_of_the_far_side_reach_no_server(world: World) -> None:
    with world.far("roots", roots={"listChanged": True}) as far:
        far.answers = {"roots/list": {"roots": [{"uri": "file:///etc", "name": "etc"}]}}

        assert far.said("shared__roots") == '"none offered"'
        assert [each["method"] for each in far.asked] == []


def test_a_far_side_approves_nothing(world: World) -> None:
    with world.bridge.session("approver", elicitation={}) as far:
        far.answers = {"elicitation/create": {"action": "accept", "content": {"answer": "always"}}}
        far.call("capability", action="enable", name="asked")

        called = far.call("asked__mark", text="approved by nobody")

    assert called["isError"]
    assert far.asked == []
    assert "approved by nobody" not in world.journal.read_text()


# 27 and 28: after its end


def test_nothing_of_a_revoked_bridge_counts_any_more(world: World) -> None:
    with Bridge(world.home, "revoked") as bridge, bridge.far() as far:
        welcome = far.hello(session="gone", credential=bridge.credential)
        far.initialize()
        far.call("capability", action="enable", name="shared")

        world.home.ask("bridge_revoke", name="revoked")

        while far.read():
            """What was on its way."""
        assert "bridge:revoked:gone" not in world.session_keys()
        wait_for(lambda: not Path(bridge.path).exists())
        with pytest.raises(FileNotFoundError):
            Far(bridge.path)
    with Bridge(world.home, "revoked") as again:
        with again.far() as replayed:
            assert replayed.hello(credential=bridge.credential)["code"] == "bridge_refused"
        with again.far() as later:
            resumes = {"session": "gone", "resume": welcome["resume"]}
            answer = later.hello(**resumes, credential=again.credential)

            assert (answer["session"], answer["resumed"]) == ("bridge:revoked:gone", False)


def test_a_bridge_ends_with_the_command_that_holds_it(world: World) -> None:
    held = subprocess.Popen(
        [sys.executable, "-c", HOLDER, world.home.socket], stdout=subprocess.PIPE, text=True
    )
    assert held.stdout is not None
    credential = held.stdout.readline().strip()
    path = str(Path(world.bridge.path).with_name("other.sock"))
    with Far(path) as far:
        assert far.hello(session="left", credential=credential)["capd"] == "welcome"

        held.kill()
        held.wait()

        while far.read():
            """What was on its way."""
    held.stdout.close()
    wait_for(lambda: not Path(path).exists())
    assert [each["name"] for each in world.home.ask("bridges")["bridges"]] == ["box"]


def test_sockets_that_a_killed_daemon_left_are_removed_by_the_next(home: Home) -> None:
    configured(home, "[bridges.box]\n")
    first = home.start()
    with Control(home.socket) as control:
        left = Path(control.call("bridge_open", {"name": "box"})["socket"])
        first.kill()
        first.wait()
    assert left.exists()

    home.start()

    assert not left.exists()
