"""Real Claude Code and Codex on another host and in a container, over a bridge.

Over there they have git on the files that are there, by a server with `where = "project"`, and a
tracker whose server and token stay here.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support.bridges import configured
from support.far_containers import ContainerBridge
from support.far_hosts import NEEDS_SSH, SshBridge, cmdline, memory_has
from whole_daemon import Home, home_of_its_own, wait_for

from .agents import CODEX
from .far_places import PLACES, FarPlace
from .lab import SUBJECTS, Dialogue, Model, installed

pytestmark = [
    pytest.mark.clients,
    pytest.mark.skipif(os.getuid() != 0, reason="it takes root to make another network"),
    *NEEDS_SSH,
]

Json = dict[str, Any]

TRACKER = Path(__file__).parents[1] / "whole" / "bridged_server.py"
CONFIG = """
[servers]
linger = 1
[surface]
mode = "dynamic"
[bridges.far]
capabilities = ["git", "tracker"]
starts = ["git"]
[bridges.box]
capabilities = ["git", "tracker"]
starts = ["git"]
"""
PRESET = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "ANTHROPIC_API_KEY": "fake"}
CLAUDE = [
    *("claude", "-p", "--input-format", "stream-json", "--output-format", "stream-json"),
    *("--verbose", "--allowedTools", "mcp__capd"),
]
PROMPT = "what changed, and is there a ticket of it?"


@dataclass
class World:
    """A daemon here, a far place, and the model of the agents there."""

    home: Home
    place: FarPlace
    model: Model
    token: bytes
    journal: Path

    @property
    def env(self) -> Mapping[str, str]:
        return {**PRESET, "ANTHROPIC_BASE_URL": self.model.url}

    def go_on(self) -> None:
        """Let the server finish the held call."""
        self.journal.with_name("go").touch()

    def is_held(self) -> bool:
        return self.journal.exists() and "held" in self.journal.read_text()

    def running(self) -> list[str]:
        """Return the running servers, on this machine or on the far side."""
        servers = self.home.ask("servers")["servers"]
        return sorted(each["name"] for each in servers if each["state"] == "ready")


def calls(project: str) -> list[Json]:
    """Return a model's script: git's log on the far side, then a call that is held."""
    log = {"repo_path": project, "max_count": 3}
    enabling = [
        {"tool": "capability$", "args": {"action": "enable", "name": name}}
        for name in ("git", "tracker")
    ]
    return [
        *enabling,
        called("git__git_log", log),
        called("tracker__hold", {"text": "held"}),
        {"text": "three commits"},
    ]


def called(tool: str, arguments: Json) -> Json:
    """Return a call of a tool, listed or not."""
    by_name = {"name": tool, "arguments": arguments}
    listed = {"tool": f"{tool}$", "args": arguments}
    return {"either": [listed, {"tool": "capd.*tool_call$", "args": by_name}]}


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, claude: Path) -> Iterator[FarPlace]:
    codex = sorted(installed(CODEX.package).parent.glob(CODEX.program))
    if not codex:
        pytest.skip("npm has no Codex for this machine")
    folder = Path(tempfile.mkdtemp(prefix="far"))
    folder.chmod(0o755)
    made = PLACES[request.param](folder, {"claude": claude, "codex": codex[0]})
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def world(place: FarPlace, shared_fixtures: Path, tmp_path: Path) -> Iterator[World]:
    token = f"token-{uuid.uuid4().hex}"
    program = shared_fixtures / "fixtures" / "fake_llm.py"
    with home_of_its_own(is_shipped=False) as home, contextlib.ExitStack() as stack:
        home.env["HOME"] = os.environ["HOME"]
        journal = home.folder / "journal"
        git = ["mcp-server-git", "--repository", "{{PROJECT}}"]
        define(home, "git", git, 'where = "project"')
        tracker = [sys.executable, "-I", str(TRACKER), str(journal), "tracker", home.tag]
        define(home, "tracker", tracker, 'env = { API_TOKEN = "{{ENV:API_TOKEN}}" }')
        configured(home, CONFIG)
        secrets = home.folder / "config" / "secrets.env"
        secrets.write_text(f"API_TOKEN={token}\n")
        secrets.chmod(0o600)
        home.start()
        wait_for(lambda: len(home.ask("caps")["capabilities"]) == 2)
        model = Model(program, tmp_path / "model", calls(place.project), place.inside)
        stack.callback(model.close)
        yield World(home, place, model, token.encode(), journal)
        print(home.log()[-3000:])


def define(home: Home, name: str, command: list[str], words: str) -> None:
    home.capability(name, command)
    definition = home.folder / "tap" / "capabilities" / name / "default.toml"
    definition.write_text(f"{definition.read_text()}{words}\n")


@contextlib.contextmanager
def bridged(world: World, *options: str) -> Iterator[SshBridge | ContainerBridge]:
    """Open a bridge for the block; check that it leaves nothing on the far side."""
    bridge = world.place.open(world.home, *options)
    try:
        yield bridge
    finally:
        if bridge.process.poll() is None:
            bridge.end()
        print(bridge.output.read_text())
    wait_for(lambda: world.place.left() == [])


def has_text(path: Path, wanted: bytes) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return wanted in path.read_bytes()
    return False


def assert_token_stays_here(world: World) -> None:
    """Search every far file, environment and memory for the tracker's token."""
    place = world.place
    credential = (place.seen_folder / "credential").read_bytes()
    there = place.pids()
    # The search finds what is there: the bridge's own credential, and here the token.
    assert place.seen_folder / "credential" in [
        each for each in place.files() if has_text(each, credential)
    ]
    assert [pid for pid in there if memory_has(pid, credential)] != []
    [tracker] = [each for each in world.home.servers() if each["name"] == "tracker"]
    assert memory_has(tracker["pid"], world.token)

    # If both users are the same, capd's own folder is found too.
    found = [each for each in place.files() if has_text(each, world.token)]
    assert [each for each in found if not each.is_relative_to(world.home.folder)] == []
    assert [pid for pid in there if memory_has(pid, world.token)] == []


def assert_no_control(world: World) -> None:
    """Request the control role from the far side, with the bridge's credential."""
    credential = (world.place.seen_folder / "credential").read_text()
    with world.place.connect() as far:
        answer = far.hello(role="control", credential=credential)

    assert answer["code"] == "bridge_refused"


@contextlib.contextmanager
def claude_there(world: World) -> Iterator[Dialogue]:
    """Start Claude Code on the far side; it runs until its input ends."""
    command = world.place.command(CLAUDE, world.env)
    with contextlib.closing(Dialogue(None, *command)) as dialogue:
        yield dialogue


def say(dialogue: Dialogue) -> None:
    dialogue.say({"type": "user", "message": {"role": "user", "content": PROMPT}})


def results(model: Model) -> str:
    """Return the last request, in which all results are."""
    return json.dumps(model.bodies()[-1])


def test_claude_code_has_git_on_the_files_there_and_a_server_here(world: World) -> None:
    with bridged(world, "--install", "claude-code"), claude_there(world) as claude:
        say(claude)
        wait_for(world.is_held)

        assert_token_stays_here(world)
        assert_no_control(world)
        world.go_on()
        assert claude.hear("result")["result"] == "three commits"

        asked = results(world.model)
        assert all(subject in asked for subject in SUBJECTS), asked[-3000:]
        assert world.running() == ["git", "tracker"]


def test_codex_has_git_on_the_files_there_and_a_server_here(world: World) -> None:
    with bridged(world):
        added = ["codex", "mcp", "add", "capd", "--", "python3", world.place.shim]
        subprocess.run(world.place.command(added, {}), check=True, stdin=subprocess.DEVNULL)
        provider = f'{{name="scripted",base_url="{world.model.url}/v1",wire_api="responses"}}'
        settings = {
            "model_provider": '"scripted"',
            "model_providers.scripted": provider,
            "mcp_servers.capd.default_tools_approval_mode": '"approve"',
        }
        options = [word for each in settings.items() for word in ("-c", "=".join(each))]
        command = ["codex", "exec", "--skip-git-repo-check", "--json", "-m", "gpt-4.1", *options]
        with subprocess.Popen(
            world.place.command([*command, PROMPT], {}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        ) as codex:
            wait_for(world.is_held)

            assert_token_stays_here(world)
            assert_no_control(world)
            world.go_on()
            assert "three commits" in codex.communicate(timeout=120)[0]

        asked = results(world.model)
        assert all(subject in asked for subject in SUBJECTS), asked[-3000:]


def test_a_conversation_goes_on_after_its_connection_was_cut(world: World) -> None:
    world.go_on()
    with bridged(world, "--install", "claude-code") as bridge, claude_there(world) as claude:
        say(claude)
        claude.hear("result")
        [before] = [each["pid"] for each in world.home.servers() if each["name"] == "tracker"]
        [session] = world.home.ask("sessions")["sessions"]

        world.place.cut(bridge)
        wait_for(lambda: "cut:" in bridge.output.read_text())
        world.place.mend()
        wait_for(lambda: "up again" in bridge.output.read_text())

        def is_there() -> bool:
            [now] = world.home.ask("sessions")["sessions"]
            return bool(now["key"] == session["key"] and now["connected"])

        wait_for(is_there)
        log = {"repo_path": world.place.project, "max_count": 1}
        again = [called("git__git_log", log), called("tracker__echo", {"text": "afterwards"})]
        world.model.go_on([*calls(world.place.project)[:-1], *again, {"text": "goes on"}])
        say(claude)
        assert claude.hear("result")["result"] == "goes on"
        # The same process, and nothing was switched on again.
        assert f"{before} afterwards" in results(world.model)
        [now] = world.home.ask("sessions")["sessions"]
        assert [each["name"] for each in now["active"]] == ["git", "tracker"]


@pytest.mark.parametrize("end", ["the bridge here", "its holder there", "the client there"])
def test_an_end_of_either_side_leaves_nothing_on_the_other(world: World, end: str) -> None:
    world.go_on()
    with bridged(world, "--install", "claude-code") as bridge:
        with claude_there(world) as claude:
            say(claude)
            claude.hear("result")
            assert world.running() == ["git", "tracker"]

            if end == "the bridge here":
                assert bridge.end() == 0
            elif end == "its holder there":
                holder = [pid for pid in world.place.pids() if b"\0hold" in cmdline(pid)]
                os.kill(holder[-1], signal.SIGTERM)
                assert bridge.process.wait(60) == 1
            if end != "the client there":
                # The client has its shim, until it ends itself.
                wait_for(lambda: world.place.left(has_clients=True) == [])
        wait_for(lambda: world.running() == [])
        if end != "the client there":
            wait_for(lambda: world.place.left() == [])
            assert world.home.ask("bridges")["bridges"] == []
            # Of Claude's configuration only the entry was the bridge's.
            configured_there = Path(world.place.seen_folder.parents[3], ".claude.json")
            assert "capd" not in json.loads(configured_there.read_text()).get("mcpServers", {})
