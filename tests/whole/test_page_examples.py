"""The worked examples of pages, as they stand there: each is run on a whole daemon.

Those of `find.md` and `tools.md` are run by the tests of their subjects.
"""

import contextlib
import json
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence

from mcp_types import TextContent

from documents import pages
from whole_daemon import Home, wait_for

from . import test_client_skills as skills
from . import test_extensions as extensions
from .test_approval import Editor
from .test_logins import led_to
from .test_profiles import SERVER as ACCOUNT
from .test_remote_servers import remote, site

TOOLS = """
import json, sys
names = sys.argv[1].split(",")
for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request:
        continue
    tools = [{"name": each, "inputSchema": {"type": "object"},
              "annotations": {"destructiveHint": True}} for each in names]
    results = {
        "initialize": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                       "serverInfo": {"name": "tools", "version": "1"}},
        "tools/list": {"tools": tools},
        "tools/call": {"content": [{"type": "text", "text": "called"}]},
    }
    result = results.get(request["method"], {})
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)
"""


def blocks(page: str, heading: str) -> list[list[str]]:
    """Return the blocks of one section of a page, each with its lines."""
    text = (pages.DOCS / page).read_text("utf-8")
    _, found, rest = f"\n{text}".partition(f"\n{heading}\n")
    assert found, f"{page} has no {heading!r}"
    level = heading.partition(" ")[0]
    section = re.split(rf"^#{{1,{len(level)}}} ", rest, flags=re.MULTILINE)[0]
    made: list[list[str]] = [[]]
    for line in section.splitlines():
        if line.startswith("    "):
            made[-1].append(line[4:])
        elif line.strip():
            made.append([])
        elif made[-1]:
            made[-1].append("")
    return [shown for each in made if (shown := "\n".join(each).strip("\n").split("\n")) != [""]]


def settings(home: Home, *texts: str) -> None:
    file = home.folder / "config/config.toml"
    file.parent.mkdir(exist_ok=True)
    file.write_text("\n".join(texts))


def tools_server(home: Home, name: str, *tools: str) -> None:
    home.capability(name, [sys.executable, "-I", "-c", TOOLS, ",".join(tools), home.tag])


def enabled(home: Home, session: str, name: str) -> bool:
    return bool(home.ask("enable", session=session, name=name)["ok"])


def test_the_profiles_of_the_page_choose_the_account_and_ask(home: Home) -> None:
    configured, stored_and_shown = blocks("profiles.md", "## Example")
    assert list(tomllib.loads("\n".join(configured))["profiles"]) == ["release", "acme"]
    # The page has the command that stores the secret in its text.
    assert "capd secret set ACME__GITHUB_TOKEN" in (pages.DOCS / "profiles.md").read_text()
    settings(home, *configured)
    home.capability("github", [sys.executable, "-I", "-c", ACCOUNT, home.tag])
    definition = home.folder / "tap/capabilities/github/default.toml"
    secret = 'env = { TOKEN = "{{ENV:GITHUB_TOKEN}}" }'
    definition.write_text(f"{definition.read_text()}{secret}\n")
    secrets = home.folder / "config/secrets.env"
    secrets.write_text("GITHUB_TOKEN=of-nobody\nACME__GITHUB_TOKEN=of-acme\n")
    secrets.chmod(0o600)
    checkout = home.folder / "app"
    (checkout / ".git").mkdir(parents=True)
    (checkout / ".git/config").write_text(
        '[remote "origin"]\n\turl = git@github.com:acme/app.git\n'
    )
    (checkout / ".git/HEAD").write_text("ref: refs/heads/main\n")
    home.start()
    editor = home.shim("zed-1", checkout)
    wait_for(lambda: enabled(home, "zed-1", "github"))

    command, *shown = stored_and_shown
    said = home.capd(*shlex.split(command.removeprefix("$ capd "))).stdout.splitlines()
    token = editor.call("github__who", {})["content"][0]["text"].split()[0]
    (checkout / ".git/HEAD").write_text("ref: refs/heads/release/1\n")
    home.ask("turn", session="zed-1", text="thanks")
    home.ask("reload")
    call = {"name": "github__who", "arguments": {}}
    editor._write({"jsonrpc": "2.0", "id": "asked", "method": "tools/call", "params": call})
    [asked] = wait_for(lambda: home.ask("approvals")["waiting"])
    editor.leave()

    assert said == shown
    assert token == "of-acme"
    assert asked["rule"] == "github:*"


def test_the_question_of_the_approval_page_is_asked_and_answered(home: Home) -> None:
    configured, transcript = blocks("approval.md", "## Example")
    settings(home, *configured)
    tools_server(home, "pg", "drop_table")
    home.env["CAPD_CLIENT"] = "zed"
    home.start()
    with Editor(home, can_ask=False) as editor:
        wait_for(lambda: enabled(home, "one", "pg"))
        call = {"name": "pg__drop_table", "arguments": {"table": "users"}}
        editor._write({"jsonrpc": "2.0", "id": "asked", "method": "tools/call", "params": call})
        wait_for(lambda: home.ask("approvals")["waiting"])

        said = home.at_terminal("approve", typed="r\n").stdout

    command, *shown = transcript
    assert command == "$ capd approve"
    assert like(said) == like("\n".join(shown))


def like(text: str) -> list[str]:
    """Return the lines of a question without its variable parts.

    On a terminal, what was typed ahead is shown in front of the question.
    """
    plain = re.sub(r"\x1b\[\w", "", text).replace("[r]: r\n", "[r]:\n")
    lines = [line.strip() for line in plain.splitlines() if line.strip() not in ("", "r")]
    given = [r"^\d+(?=  |:)", r"(?<=called by     ).*", r"(?<=session       ).*", r"\d+(?= s$)"]
    for each in given:
        lines = [re.sub(each, "*", line) for line in lines]
    return lines


def matches(shown: Sequence[str], said: Sequence[str]) -> bool:
    """Tell whether output matches a page, where `…` stands for more text."""
    pattern = "\n".join(re.escape(line).replace("…", ".*") for line in shown)
    # That of the page is not on this machine.
    pattern = pattern.replace(re.escape("https://tracker.example"), "http://[^/]+")
    return re.fullmatch(pattern, "\n".join(said)) is not None


@contextlib.contextmanager
def tracker(home: Home) -> Iterator[None]:
    with site("login") as base:
        remote(home, "tracker", f"{base}/mcp")
        home.start()
        yield


def test_the_pasted_login_of_the_page_goes_as_it_is_shown(home: Home) -> None:
    [[command, *shown]] = blocks("logins.md", "## Without a browser here")
    with tracker(home):
        said = pasted(home, *shlex.split(command.removeprefix("$ capd ")))

    assert command == "$ capd login tracker --paste"
    assert matches([line for line in shown if not line.startswith("> ")], said), said


def pasted(home: Home, *typed: str) -> list[str]:
    """Log in by a pasted address; return all lines that the command printed."""
    lines: list[str] = []
    with subprocess.Popen(
        [sys.executable, "-P", "-u", "-m", "capd_client.entry", *typed],
        env=home.env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        while not lines or not lines[-1].endswith("Paste that address here."):
            line = process.stdout.readline()
            assert line, lines
            lines.append(line.removesuffix("\n"))
        address = next(line.strip() for line in lines if line.strip().startswith("http"))
        process.stdin.write(f"{led_to(address)}\n")
        process.stdin.flush()
        lines += [line.removeprefix("> ").removesuffix("\n") for line in process.stdout]
    assert process.returncode == 0, lines
    return lines


def test_the_skill_of_the_page_brings_what_it_names(home: Home) -> None:
    [[path, _, *text], *_] = blocks("skills.md", "## Skills of your client")
    machine = skills.Machine(home)
    file = machine.user / path.removeprefix("~/")
    file.parent.mkdir(parents=True)
    file.write_text("\n".join([*text, ""]))
    tools_server(home, "git", "git_log", "git_status")
    home.plain("files-edit")
    home.start()
    with machine.editor("earlier"):
        wait_for(lambda: enabled(home, "earlier", "git"))
        wait_for(lambda: "git__git_log" in json.dumps(home.ask("search", query="git log")))
    with machine.editor() as editor:
        skills.use(editor, "tidy")

        assert machine.active() == ["files-edit", "git__git_log", "git__git_status"]


CALL = re.compile(r"--> tools/call  (?P<params>\{.*\})  +(?P<end>\S.*)")


async def test_the_apps_of_the_protocol_page_reach_their_own(home: Home) -> None:
    lines = [line for block in blocks("protocol.md", "### Apps") for line in block]
    shown = [found.groupdict() for line in lines if (found := CALL.fullmatch(line))]
    assert len(shown) == len(lines)
    extensions.servers(home, "board", "chart")
    home.start()
    ends: list[str] = []
    async with extensions.host(home, "board", "chart") as talk:
        await talk.call("board__show")
        for each in shown:
            params = json.loads(each["params"])
            result = await talk.client.call_tool(params["name"], {}, meta=params.get("_meta"))
            [text] = result.content
            reached = text.text.split()[0] if isinstance(text, TextContent) else ""
            ends.append("is not sent" if result.is_error else f"reaches {reached}")

    assert ends == [each["end"] for each in shown]


def test_the_stream_of_the_protocol_page_tells_of_the_task_that_its_server_tells_of(
    home: Home,
) -> None:
    [lines] = blocks("protocol.md", "### Tasks")
    said = [line.split("  ", 1) for line in lines]
    shown = [(method, json.loads(re.sub(r",[^,]*\.\.\.}", "}", text))) for method, text in said]
    extensions.servers(home, "one", options=["task=t-1"])
    extensions.servers(home, "two", options=["task=t-2", "silent=1"])
    home.start()
    with extensions.Listener(home, "s") as client:
        for name in ("one", "two"):
            client.request("tools/call", name="capability", arguments=extensions.enabling(name))
            client.task(f"{name}__build")

        agreed = client.listen("stream", shown[0][1]["notifications"]["taskIds"])
        client.request("tasks/update", taskId="t-1", inputResponses={"word": "go"})
        told = client.changed("completed")

    assert {"taskIds": agreed} == shown[1][1]["notifications"]
    assert told["taskId"] == shown[-1][1]["taskId"]
    assert told["status"] == shown[-1][1]["status"]
