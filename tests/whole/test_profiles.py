"""Which profile a session has, so which accounts it uses, and what changes it."""

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from capd_client.control import Control, ControlError
from capd_client.mcp_host import McpHost
from whole_daemon import Home, wait_for

SERVER = """
import json, os, sys
for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request:
        continue
    said = [{"type": "text", "text": f"{os.environ['TOKEN']} {os.getpid()}"}]
    results = {
        "initialize": {
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "account", "version": "1"},
        },
        "tools/list": {"tools": [{"name": "who", "inputSchema": {"type": "object"}}]},
        "tools/call": {"content": said},
    }
    result = results.get(request["method"], {})
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)
"""
SECRETS = "ACCOUNT_TOKEN=of-nobody\nWORK__ACCOUNT_TOKEN=of-work\nHOME__ACCOUNT_TOKEN=of-home\n"


class Machine:
    """A home with a server that reports its token, and project folders."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.config = home.folder / "config"
        self.work, self.private = home.folder / "work", home.folder / "private"
        self.open: list[McpHost] = []
        self.work.mkdir()
        self.private.mkdir()
        home.capability("account", [sys.executable, "-I", "-c", SERVER, home.tag])
        definition = home.folder / "tap/capabilities/account/default.toml"
        definition.write_text(
            definition.read_text() + 'env = { TOKEN = "{{ENV:ACCOUNT_TOKEN}}" }\n'
        )
        secrets = self.config / "secrets.env"
        secrets.write_text(SECRETS)
        secrets.chmod(0o600)

    def settings(self, text: str) -> None:
        (self.config / "config.toml").write_text(text)

    def checkout(self, folder: Path, branch: str, remote: str = "") -> None:
        git = folder / ".git"
        git.mkdir(exist_ok=True)
        (git / "HEAD").write_text(f"ref: refs/heads/{branch}\n")
        (git / "config").write_text(f'[remote "origin"]\n\turl = {remote}\n')

    def editor(self, session: str, folder: Path) -> McpHost:
        """Connect an editor in `folder`; the server's capability is on in it."""
        editor = self.home.shim(session, folder)
        self.open.append(editor)

        def enabled() -> bool:
            with contextlib.suppress(ControlError):
                return bool(self.home.ask("enable", session=session, name="account")["ok"])
            return False

        wait_for(enabled)
        return editor

    def profile(self, session: str) -> str:
        sessions = self.home.ask("sessions")["sessions"]
        [found] = [each["profile"] for each in sessions if each["key"] == session]
        return str(found)


@pytest.fixture
def machine(home: Home) -> Iterator[Machine]:
    made = Machine(home)
    yield made
    for editor in made.open:
        editor.leave()


def who(editor: McpHost) -> tuple[str, int]:
    """Return the token that the server got, and its process."""
    token, pid = editor.call("account__who", {})["content"][0]["text"].split()
    return token, int(pid)


def turn(machine: Machine, session: str) -> None:
    machine.home.ask("turn", session=session, text="thanks")


def test_two_folders_use_two_accounts_of_one_server(machine: Machine) -> None:
    machine.settings(
        f'[profiles.work]\nfolders = ["{machine.work}"]\nsecrets = "work"\n'
        f'[profiles.home]\nfolders = ["{machine.private}"]\nsecrets = "home"\n'
    )
    machine.home.start()
    work = machine.editor("w", machine.work)
    private = machine.editor("p", machine.private)
    elsewhere = machine.editor("e", machine.home.folder)

    told = [who(each) for each in (work, private, elsewhere)]

    assert [token for token, _ in told] == ["of-work", "of-home", "of-nobody"]
    assert len({pid for _, pid in told}) == 3
    assert [machine.profile(each) for each in ("w", "p", "e")] == ["work", "home", ""]
    lines = machine.home.capd("status", "--line").stdout.splitlines()
    assert [line.rpartition(" ")[2] for line in sorted(lines)] == ["(account)", "[home]", "[work]"]


def test_a_change_of_branch_moves_the_profile_at_the_next_turn(machine: Machine) -> None:
    machine.settings(
        '[profiles.home]\nbranches = ["mine/*"]\nsecrets = "home"\n'
        '[profiles.work]\nremotes = ["git.example/acme/*"]\nsecrets = "work"\n'
        '[profiles.work.policy]\ndeny = ["account:never"]\n'
    )
    machine.checkout(machine.work, "main", "git@git.example:acme/app.git")
    machine.home.start()
    editor = machine.editor("w", machine.work / "")
    first = who(editor)

    machine.checkout(machine.work, "mine/x", "git@git.example:acme/app.git")
    before_the_turn = who(editor)
    turn(machine, "w")
    after_it = who(editor)
    machine.checkout(machine.work, "main", "git@git.example:acme/app.git")
    turn(machine, "w")
    back = who(editor)

    assert (first[0], after_it[0], back[0]) == ("of-work", "of-home", "of-work")
    assert before_the_turn == first
    assert machine.profile("w") == "work"


def test_capd_profile_and_the_variable_name_one(machine: Machine) -> None:
    machine.settings(
        f'[profiles.work]\nfolders = ["{machine.work}"]\nsecrets = "work"\n'
        '[profiles.home]\nsecrets = "home"\n'
    )
    machine.home.start()
    by_variable = dict(machine.home.env)
    machine.home.env["CAPD_PROFILE"] = "home"
    named = machine.editor("n", machine.work)
    machine.home.env["CAPD_PROFILE"] = "hmoe"
    wrong = machine.editor("x", machine.work)
    machine.home.env = by_variable
    editor = machine.editor("w", machine.work)
    first = who(editor)[0]

    no_terminal = machine.home.capd("profile", "use", "home", "--session", "w")
    used = machine.home.at_terminal("profile", "use", "home", "--session", "w", typed="")
    by_hand = who(editor)[0]
    listed = machine.home.capd("profile").stdout
    machine.home.at_terminal("profile", "use", "--auto", "--session", "w", typed="")

    assert (who(named)[0], who(wrong)[0]) == ("of-home", "of-nobody")
    assert (first, by_hand, who(editor)[0]) == ("of-work", "of-home", "of-work")
    assert no_terminal.returncode == 1
    assert "this takes a person at a terminal: run capd profile use in one" in no_terminal.stderr
    assert "w: profile home (chosen by hand)" in used.stdout
    assert f"work: in {machine.work}" in listed
    assert "home: chosen by its name alone" in listed
    assert "session w has home (chosen by hand)" in listed
    assert "no profile 'hmoe'; did you mean home?" in " ".join(listed.split())


def test_a_session_that_another_one_started_has_its_profile(machine: Machine) -> None:
    machine.settings('[profiles.home]\nsecrets = "home"\n')
    machine.home.start()
    machine.home.env["CAPD_PROFILE"] = "home"
    machine.editor("parent", machine.work)
    del machine.home.env["CAPD_PROFILE"]
    machine.home.env["CAPD_PARENT_SESSION"] = "parent"

    child = machine.editor("child", machine.private)

    assert who(child)[0] == "of-home"
    assert machine.profile("child") == "home"


def test_a_profile_switches_its_capabilities_on_and_narrows_what_may_be_used(
    machine: Machine,
) -> None:
    machine.home.plain("alpha")
    machine.settings(
        f'[profiles.work]\nfolders = ["{machine.work}"]\non = ["alpha"]\n'
        '[profiles.work.policy]\ndeny = ["alpha:shout"]\n'
    )
    machine.home.start()
    editor = machine.editor("w", machine.work)

    def on() -> list[str]:
        [session] = machine.home.ask("sessions")["sessions"]
        return [each["name"] for each in session["active"]]

    wait_for(lambda: "alpha" in on())
    denied = editor.call("alpha__shout", {"text": "x"})

    assert denied["isError"]
    assert "rule 'alpha:shout' in [profiles.work.policy]" in denied["content"][0]["text"]
    assert not editor.call("alpha__echo", {"text": "x"}).get("isError")


def test_a_project_s_own_file_defines_and_chooses_no_profile(machine: Machine) -> None:
    machine.settings('[profiles.work]\nsecrets = "work"\n')
    (machine.private / ".capd.toml").write_text(
        'profile = "work"\n[profiles.mine]\nfolders = ["/"]\nsecrets = "work"\n'
    )
    machine.home.start()
    editor = machine.editor("p", machine.private)

    left_out = machine.home.ask("status")["daemon"]["project_files"][str(machine.private)]

    assert who(editor)[0] == "of-nobody"
    assert ["it could choose your accounts" in line for line in left_out] == [True, True]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[profiles.work]\nfolders = '/x'", "line 2, `profiles.NAME.folders`: Expected `array`"),
        ("[profiles.work]\nsecrets = 'a b'", "line 2, `profiles.NAME.secrets`: Expected `str`"),
        ("[profiles.work]\nfolder = []", "unknown key `profiles.work.folder` is read over"),
        ("[profiles]\nwork = 1", "`profiles.NAME`: Expected `object`, got `int`"),
    ],
)
def test_a_wrong_key_of_a_profile_is_named_with_its_line(
    machine: Machine, text: str, why: str
) -> None:
    machine.settings(text + "\n")
    machine.home.start()

    problems = machine.home.ask("status")["daemon"]["degraded"]

    assert [each for each in problems if why in each], problems


@pytest.mark.parametrize(
    ("typed", "why"),
    [
        (["use"], "name a profile, or have it chosen with --auto"),
        (["use", "work", "--auto"], "name a profile, or have it chosen with --auto"),
        (["fly"], "No such command 'fly'"),
    ],
)
def test_a_wrong_command_says_what_is_right(running_home: Home, typed: list[str], why: str) -> None:
    done = running_home.capd("profile", *typed)

    assert done.returncode == 2
    assert why in done.stderr


def test_a_profile_that_is_none_is_refused(machine: Machine) -> None:
    machine.settings('[profiles.work]\nsecrets = "work"\n')
    machine.home.start()
    machine.editor("w", machine.work)

    done = machine.home.at_terminal("profile", "use", "wrok", "--session", "w", typed="")

    assert done.returncode == 1
    assert "there is no profile 'wrok'; did you mean work?" in done.stdout
    assert machine.profile("w") == ""


def test_a_wrong_param_is_named(home: Home) -> None:
    home.start()

    with Control(home.socket) as control, pytest.raises(ControlError) as error:
        control.call("profile_use", {"name": 1})

    assert "Expected `str`, got `int` - at `$.name`" in str(error.value)


@pytest.mark.model
def test_a_profile_keeps_capabilities_off(machine: Machine) -> None:
    machine.home.plain("alpha")
    machine.settings(
        f'[profiles.work]\nfolders = ["{machine.work}"]\noff = ["account"]\n'
        '[profiles.quiet]\noff = ["mine/alpha"]\n'
    )
    machine.home.start()
    editor = machine.home.shim("w", machine.work)
    machine.open.append(editor)
    wait_for(lambda: machine.home.ask("caps")["capabilities"])
    alpha = machine.home.ask("enable", session="w", name="alpha")

    refused = machine.home.ask("enable", session="w", name="account")
    by_message = machine.home.ask("turn", session="w", text="use account now")
    by_model = editor.call("capability", {"action": "enable", "name": "account"})
    listed = editor.call("capability", {"action": "list"})["content"][0]["text"]
    before = active(machine, "w")
    machine.home.at_terminal("profile", "use", "quiet", "--session", "w", typed="")
    after = active(machine, "w")
    account = machine.home.ask("enable", session="w", name="account")

    assert alpha["ok"]
    assert not refused["ok"]
    assert "the profile work keeps it off" in refused["text"]
    assert "account" not in str(by_message["changed"])
    assert "the profile work keeps it off" in by_model["content"][0]["text"]
    assert "account" not in listed
    assert (before, after) == (["alpha"], [])
    assert account["ok"]


def test_a_tool_of_a_capability_that_is_off_is_neither_found_nor_called(machine: Machine) -> None:
    machine.settings(
        f'[surface]\nmode = "stable"\n[profiles.work]\nfolders = ["{machine.work}"]\n'
        'off = ["account"]\n'
    )
    machine.home.start()
    machine.home.ask("index")
    editor = machine.home.shim("w", machine.work)
    elsewhere = machine.home.shim("e", machine.private)
    machine.open += [editor, elsewhere]

    def found(by: McpHost) -> str:
        return str(by.call("tool_search", {"query": "account who"})["content"][0]["text"])

    wait_for(lambda: "account__who" in found(elsewhere))
    here = found(editor)
    called = editor.call("account__who", {})

    assert "account__who" not in here
    assert called["isError"]
    assert "the profile work keeps it off" in called["content"][0]["text"]


def test_servers_are_confined_at_least_as_their_sessions_profile_says(machine: Machine) -> None:
    machine.settings(
        '[sandbox]\nlevel = "off"\n'
        f'[profiles.work]\nfolders = ["{machine.work}"]\nsandbox = "guard"\n'
    )
    machine.home.start()
    work = machine.editor("w", machine.work)
    elsewhere = machine.editor("e", machine.private)
    first, other = who(work)[1], who(elsewhere)[1]

    levels = {each["pid"]: each["sandbox"].partition(",")[0] for each in machine.home.servers()}
    machine.home.at_terminal("profile", "use", "work", "--session", "e", typed="")
    moved = who(elsewhere)[1]
    then = {each["pid"]: each["sandbox"].partition(",")[0] for each in machine.home.servers()}

    assert first != other
    assert (levels[first], levels[other]) == ("guard", "off")
    assert then[moved] == "guard"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('sandbox = "tight"', "`profiles.NAME.sandbox`: Invalid enum value"),
        ("off = 3", "`profiles.NAME.off`: Expected `array`"),
        ('of = ["x"]', "profiles.work.of"),
    ],
)
def test_a_bad_key_of_a_profile_is_a_finding(machine: Machine, text: str, reason: str) -> None:
    machine.settings(f"[profiles.work]\n{text}\n")

    checked = machine.home.capd("check").stdout

    assert reason in checked


def active(machine: Machine, session: str) -> list[str]:
    sessions = machine.home.ask("sessions")["sessions"]
    [found] = [each["active"] for each in sessions if each["key"] == session]
    return [each["name"] if isinstance(each, dict) else str(each) for each in found]
