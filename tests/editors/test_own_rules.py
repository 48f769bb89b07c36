"""Real clients with a user's rules: approvals, accounts by folder, edited tools."""

import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from capd_client.control import ControlError
from registry_server import registry_server
from whole.test_profiles import SECRETS
from whole.test_profiles import SERVER as ACCOUNT
from whole.test_registry_servers import NAME, publish
from whole.test_tool_edits import SERVER as TRACKER
from whole_daemon import wait_for

from .agents import CODEX, GEMINI
from .lab import Dialogue, Lab, Terminal, settle_claude
from .test_claude import DIALOGUE, results, user_says

pytestmark = pytest.mark.clients

APPS = Path(__file__).parents[1] / "whole/extension_server.py"
SAY = "hello, what do you think of the weather over there?"
ASKED = '[policy]\nask = ["tracker:delete_*"]\nask_timeout = 100\n'
CLIENTS = ("claude", "gemini")
Given = Callable[[Lab], list[str]]


@pytest.fixture(params=CLIENTS)
def given(request: pytest.FixtureRequest, claude: Path) -> Given:
    """Return what installs a client in a lab, and returns its command."""

    def install(lab: Lab) -> list[str]:
        if request.param == "claude":
            lab.add_claude(claude)
            command = ["claude", "--output-format", "json", "--allowedTools", "mcp__capd", "-p"]
        else:
            command = GEMINI.give(lab)
        lab.install(request.param)
        return command

    return install


@pytest.fixture
def lab(start_lab: Callable[..., Lab]) -> Lab:
    made = start_lab([{"text": "nothing yet"}])
    made.set_mode("dynamic")
    return made


def settings(lab: Lab, text: str) -> None:
    with (lab.home.folder / "config/config.toml").open("a") as file:
        file.write(text)


def through_capd(name: str, **arguments: Any) -> list[dict[str, Any]]:
    """Return the script of a model that calls one tool by its name, and says that it has."""
    called = {"name": name, "arguments": arguments}
    return [{"tool": "tool_call$", "args": called}, {"text": "seen"}]


def start_with_known(lab: Lab, tool: str) -> None:
    """Start the daemon, and have it know the tools of a capability, as after earlier use."""
    lab.home.start()
    make_known(lab, tool)


def make_known(lab: Lab, tool: str) -> None:
    with lab.home.shim("warming"):
        capability = tool.partition("__")[0]
        wait_for(lambda: lab.home.ask("enable", name=capability, session="warming")["ok"])
        wait_until_known(lab, tool)


def wait_until_known(lab: Lab, tool: str, **arguments: str) -> None:
    """Wait until a session in which a tool is off calls it by its name."""

    def is_called() -> bool:
        with contextlib.suppress(ControlError):
            called = lab.home.ask("call", session="another", name=tool, arguments=arguments)
            return bool(called["outcome"] == "result")
        return False

    with lab.home.shim("another"):
        wait_for(is_called)


def last_said(lab: Lab) -> str:
    return json.dumps(lab.model.bodies()[-1])


@pytest.mark.parametrize("answer", ["--once", "--refuse"])
def test_a_call_that_the_user_wants_to_be_asked_about_waits_for_the_answer(
    lab: Lab, given: Given, answer: str
) -> None:
    give_tracker(lab)
    settings(lab, ASKED)
    first, *_, end = through_capd("tracker__delete_note", text="the plan")
    second, *_ = through_capd("tracker__delete_note", text="another plan")
    lab.model.go_on([first, second, end])
    start_with_known(lab, "tracker__list_notes")
    command = given(lab)
    asked: list[tuple[str, str, int]] = []

    def waiting() -> list[dict[str, Any]]:
        assert not client.done(), client.result()
        questions: list[dict[str, Any]] = lab.home.ask("approvals")["waiting"]
        return questions

    with ThreadPoolExecutor(1) as pool:
        client = pool.submit(lab.run, *command, SAY)
        for _ in range(2):
            [each] = wait_for(waiting)
            asked.append((each["tool"], each["arguments"], len(lab.model.bodies())))
            lab.home.at_terminal("approve", str(each["number"]), answer, typed="")
        client.result()

    # Each was asked about, and the model had no result before its answer.
    assert asked == [
        ("delete_note", '{"text":"the plan"}', 1),
        ("delete_note", '{"text":"another plan"}', 2),
    ]
    assert last_said(lab).count("was not sent") == (2 if answer == "--refuse" else 0)
    assert last_said(lab).count("got ") == (2 if answer == "--once" else 0)


def give_tracker(lab: Lab) -> None:
    # Gemini CLI takes no text that is a list in JSON (docs/design/clients.md, finding 16).
    worded = TRACKER.replace("said = json.dumps(", "said = 'got ' + json.dumps(")
    lab.home.capability("tracker", [sys.executable, "-I", "-c", worded, lab.home.tag])


def test_a_person_answers_each_call_in_the_dialog_of_claude_code(lab: Lab, claude: Path) -> None:
    give_tracker(lab)
    settings(lab, ASKED)
    texts = ("one", "two", "three")
    steps = [through_capd("tracker__delete_note", text=each)[0] for each in texts]
    lab.model.go_on([*steps, {"text": "all three tried"}])
    lab.add_claude(claude)
    settle_claude(lab)
    start_with_known(lab, "tracker__list_notes")
    lab.install("claude")
    with contextlib.closing(Terminal(lab, "claude", "--allowedTools", "mcp__capd")) as terminal:
        terminal.say(SAY)
        first = terminal.answer('"text":"one"', {"❯ ✔ Allow it": "Enter", "❯ Accept": "Enter"})
        decline = {"❯ ✔ Allow it": "Enter", "❯ Accept": "Down", "❯ Decline": "Enter"}
        terminal.answer('"text":"two"', decline)
        terminal.answer('"text":"three"', {"❯": "Escape"})
        [left] = wait_for(lambda: lab.home.ask("approvals")["waiting"])
        lab.home.at_terminal("approve", str(left["number"]), "--once", typed="")
        terminal.wait("all three tried")

    assert "capd: Claude Code wants to call delete_note of the server tracker." in first
    assert "You are asked because of the rule 'tracker:delete_*' in [policy]." in first
    told = [results(each) for each in lab.model.bodies()[1:]]
    sent = [json.dumps(json.dumps({"text": each}))[1:-1] for each in texts]
    assert [each in told[-1] for each in sent] == [True, False, True], told[-1]
    assert "was declined in Claude Code" in told[1]
    assert [each.count("got ") for each in told] == [1, 1, 2]


def test_codex_declines_by_itself_and_its_model_is_told_so(lab: Lab) -> None:
    give_tracker(lab)
    settings(lab, ASKED)
    lab.model.go_on(through_capd("tracker__delete_note", text="the plan"))
    start_with_known(lab, "tracker__list_notes")
    command = [*CODEX.give(lab), "-m", "gpt-4.1"]
    lab.install("codex", "--trust-hooks")

    lab.run(*command, SAY)

    declined = "it was declined in Codex CLI, by the user or by their settings"
    assert declined in last_said(lab)
    assert "got " not in last_said(lab)


def test_two_folders_use_two_accounts_without_a_word_from_the_user(lab: Lab, given: Given) -> None:
    here, there = lab.project, lab.project.parent / "quay"
    there.mkdir()
    give_account(lab)
    settings(
        lab,
        f'[profiles.work]\nfolders = ["{here}"]\nsecrets = "work"\n'
        f'[profiles.home]\nfolders = ["{there}"]\nsecrets = "home"\n',
    )
    start_with_known(lab, "account__who")
    command = given(lab)
    told: list[str] = []

    for folder in (here, there):
        lab.model.go_on(through_capd("account__who"))
        lab.project = folder
        lab.run(*command, SAY)
        told.append(last_said(lab))

    assert ["of-work" in each for each in told] == [True, False]
    assert ["of-home" in each for each in told] == [False, True]


BRANCHES = (
    '[profiles.home]\nbranches = ["mine/*"]\nsecrets = "home"\n'
    '[profiles.work]\nfolders = ["/"]\nsecrets = "work"\n'
)


def give_account(lab: Lab) -> None:
    """Define the server that says which token it got, and store three."""
    lab.home.capability("account", [sys.executable, "-I", "-c", ACCOUNT, lab.home.tag])
    definition = lab.home.folder / "tap/capabilities/account/default.toml"
    definition.write_text(definition.read_text() + 'env = { TOKEN = "{{ENV:ACCOUNT_TOKEN}}" }\n')
    secrets = lab.home.folder / "config/secrets.env"
    secrets.write_text(SECRETS)
    secrets.chmod(0o600)


@contextlib.contextmanager
def conversation(lab: Lab, client: str) -> Iterator[Callable[[str], object]]:
    """Return what takes a turn of one conversation, which ends with the given text of the model."""
    if client == "gemini":
        program = GEMINI.give(lab)[0]
        lab.install("gemini")
        with contextlib.closing(Terminal(lab, program, "--approval-mode", "yolo")) as terminal:

            def typed(end: str) -> None:
                # A question mark that is typed fast opens its help.
                text = f"{SAY.removesuffix('?')} {end.split()[-3]}"
                terminal.say(text, "Type your message", before="* ")
                terminal.wait(end)

            yield typed
        return
    lab.install("claude")
    with contextlib.closing(Dialogue(lab, *DIALOGUE)) as dialogue:

        def said(end: str) -> None:
            # The same words soon after would be the same turn.
            dialogue.say(user_says(f"{SAY} {end}"))
            assert dialogue.hear("result")["result"] == end

        yield said


@pytest.mark.parametrize("client", CLIENTS)
def test_a_change_of_branch_moves_the_next_turn_to_another_account(
    lab: Lab, claude: Path, client: str
) -> None:
    give_account(lab)
    settings(lab, BRANCHES)
    lab.add_claude(claude)
    start_with_known(lab, "account__who")
    call, _ = through_capd("account__who")
    told: list[str] = []

    with conversation(lab, client) as take_turn:
        for branch in ("main", "mine/boats", "main"):
            (lab.project / ".git/HEAD").write_text(f"ref: refs/heads/{branch}\n")
            end = f"turn on {branch} {len(told)} is over"
            # A step counts the results of the whole conversation.
            lab.model.go_on([*[{"text": "unused"}] * len(told), call, {"text": end}])
            take_turn(end)
            told.append(last_said(lab))

    assert [each.count("of-work") for each in told] == [1, 1, 2]
    assert [each.count("of-home") for each in told] == [0, 1, 1]


def test_a_tool_with_an_app_answers_a_model_whose_client_shows_none(lab: Lab, given: Given) -> None:
    home = lab.home
    command = [sys.executable, "-W", "ignore", str(APPS), "board", str(home.folder), home.tag]
    home.capability("board", command)
    start_with_known(lab, "board__show")
    shown, end = through_capd("board__show")
    apart, _ = through_capd("board__refresh", word="now")
    lab.model.go_on([shown, apart, end])
    client = given(lab)

    lab.run(*client, SAY)

    assert "board shows" in last_said(lab)
    assert "is for the app of its server alone" in last_said(lab)
    assert "refreshes now" not in last_said(lab)


def test_a_tool_is_called_by_the_name_that_its_user_gave_it(lab: Lab, given: Given) -> None:
    give_tracker(lab)
    start_with_known(lab, "tracker__list_notes")
    edited = lab.home.capd(
        *("tool", "edit", "tracker:add_note", "--name", "remember"),
        *("--preset", "project=acme", "--hide", "tags"),
    )
    assert edited.returncode == 0, edited.stderr
    lab.model.go_on(through_capd("tracker__remember", text="the plan"))
    command = given(lab)

    lab.run(*command, SAY)

    said = last_said(lab)
    assert "add_note" in said
    assert "acme" in said


def test_a_server_of_a_registry_is_called_after_one_command(lab: Lab, given: Given) -> None:
    with registry_server() as registry:
        settings(lab, f'[registry]\nurls = ["{registry.url}"]\n')
        lab.home.env |= registry.environment
        for name in ("UV_INDEX", "UV_EXTRA_INDEX_URL", "UV_INDEX_URL"):
            lab.home.env.pop(name, None)
        publish(registry)
        lab.home.start()
        added = lab.home.capd("add", NAME, "--yes")
        assert added.returncode == 0, added.stderr
        lab.model.go_on(through_capd("echo__shout", text="ahoy"))
        command = given(lab)

        lab.run(*command, SAY)

    assert "AHOY" in last_said(lab)
