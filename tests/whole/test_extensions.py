"""Protocol extensions through a real daemon, with SDK peers at both ends."""

import contextlib
import json
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import mcp_types as types
import pytest
import trio
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.extension import advertise
from pydantic import ConfigDict

from capd_client.mcp_host import McpHost
from support import forked_scripts
from whole_daemon import SHIM, Home, home_of_its_own, wait_for

SERVER = Path(__file__).with_name("extension_server.py")
PATIENCE = 60.0
APPS, TASKS = "io.modelcontextprotocol/ui", "io.modelcontextprotocol/tasks"
SHARED = "ui://board/main"
CHANGED = "notifications/tasks"
SUBSCRIPTION_ID = "io.modelcontextprotocol/subscriptionId"
TaskMethod = Literal["tasks/get", "tasks/update", "tasks/cancel"]
MODES = {"handshake": "legacy", "stateless": "2026-07-28"}
HOST = [advertise(APPS, {"mimeTypes": ["text/html;profile=mcp-app"]}), advertise(TASKS)]

pytestmark = pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")


class Loose(types.Result):
    """A result with every member that the server wrote."""

    model_config = ConfigDict(extra="allow")

    def members(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


class TaskRequest(types.Request[dict[str, Any], TaskMethod]):
    """A request on a task."""

    method: TaskMethod
    params: dict[str, Any]


class DiscoverRequest(types.Request[dict[str, Any], Literal["server/discover"]]):
    """What the SDK's client asks by itself alone where it does not know the version."""

    method: Literal["server/discover"] = "server/discover"
    params: dict[str, Any]


class CallRequest(types.Request[dict[str, Any], Literal["tools/call"]]):
    """A call of a tool whose result may be a task."""

    method: Literal["tools/call"] = "tools/call"
    params: dict[str, Any]


class Talk:
    """A host with apps and tasks that has some servers switched on."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def call(self, tool: str, meta: dict[str, Any] | None = None, /, **arguments: str) -> str:
        params: types.RequestParamsMeta | None = None
        if meta is not None:
            params = meta  # type: ignore[assignment]
        result = await self.client.call_tool(tool, arguments, meta=params)
        assert isinstance(result.content[0], types.TextContent)
        text = result.content[0].text
        assert not result.is_error, text
        return text

    async def page(self, uri: str) -> str:
        """Return an app's page."""
        contents = (await self.client.read_resource(uri)).contents[0]
        assert isinstance(contents, types.TextResourceContents)
        return contents.text

    async def refused(
        self, tool: str, meta: dict[str, Any] | None = None, /, **arguments: Any
    ) -> str:
        """Return why a call is refused."""
        params: types.RequestParamsMeta | None = meta  # type: ignore[assignment]
        result = await self.client.call_tool(tool, arguments, meta=params)
        assert result.is_error
        assert isinstance(result.content[0], types.TextContent)
        return result.content[0].text

    async def ask(self, method: str, task: str, **more: Any) -> dict[str, Any]:
        request = TaskRequest.model_validate({"method": method, "params": {"taskId": task, **more}})
        return (await self.client.session.send_request(request, Loose)).members()

    async def start(self, name: str) -> dict[str, Any]:
        """Call a tool; return its result unchanged."""
        request = CallRequest(params={"name": name, "arguments": {}})
        return (await self.client.session.send_request(request, Loose)).members()


def enabling(name: str) -> dict[str, str]:
    return {"action": "enable", "name": name}


class Listener(McpHost):
    """A stateless client with tasks, and the messages of its streams."""

    def __init__(self, home: Home, session: str) -> None:
        super().__init__(
            [sys.executable, "-I", "-S", str(SHIM), home.socket],
            env={**home.env, "CAPD_CLIENT": "host", "CAPD_SESSION": session},
            cwd=str(home.folder),
        )
        self.extensions: dict[str, Any] = {TASKS: {}}
        self._asked = 0

    def begin(self, id_: str, method: str, params: dict[str, Any]) -> None:
        meta = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "host", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {"extensions": self.extensions},
        }
        params = {**params, "_meta": meta}
        self._write({"jsonrpc": "2.0", "id": id_, "method": method, "params": params})

    def ended(self, id_: str) -> dict[str, Any]:
        while (message := self._next("an answer", PATIENCE)).get("id") != id_:
            self._notifications.append(message)
        return message

    def request(self, method: str, **params: Any) -> dict[str, Any]:
        self._asked += 1
        self.begin(f"r{self._asked}", method, params)
        return dict(self.ended(f"r{self._asked}")["result"])

    def task(self, tool: str) -> str:
        return str(self.request("tools/call", name=tool, arguments={})["taskId"])

    def listen(self, id_: str, tasks: list[str]) -> list[str]:
        """Open a stream; return the tasks that it will report."""
        self.begin(id_, "subscriptions/listen", {"notifications": {"taskIds": tasks}})
        told = self.wait_for("notifications/subscriptions/acknowledged", PATIENCE)["params"]
        assert told["_meta"][SUBSCRIPTION_ID] == id_
        return list(told["notifications"].get("taskIds", []))

    def changed(self, status: str) -> dict[str, Any]:
        """Return the notification of the next task that reaches `status`."""
        while (told := self.wait_for(CHANGED, PATIENCE)["params"])["status"] != status:
            assert told["status"] == "input_required"
        return dict(told)

    def was_told_of(self, task: str) -> bool:
        # What came before the answer was written before it.
        self.request("tools/list")
        told = [each for each in self._notifications if each.get("method") == CHANGED]
        return task in [each["params"]["taskId"] for each in told]


def servers(home: Home, *names: str, options: Sequence[str] = ()) -> None:
    """Define capabilities with a server of extensions each."""
    home.env["CAPD_SURFACE"] = "dynamic"
    for name in names:
        home.capability(
            name,
            forked_scripts.server_command(str(SERVER), name, str(home.folder), *options, home.tag),
        )


@pytest.fixture(scope="module")
def running() -> Iterator[dict[str, Home]]:
    """A daemon for each generation of clients, with all servers, which go on between tests.

    A server of the SDK takes a second to import it. Each test has a session of its own.
    """
    with ExitStack() as stack:
        made = {
            mode: stack.enter_context(home_of_its_own(is_shipped=False, is_forked=True))
            for mode in MODES
        }
        for home in made.values():
            home.leave_out_model()
            home.env["CAPD_LINGER"] = "600"
            servers(home, "one", "two")
            servers(home, "left", "right", options=[f"page={SHARED}"])
            servers(home, "red", "blue", options=["task=t-1"])
            home.start()
        yield made


@asynccontextmanager
async def host(
    home: Home, *on: str, mode: str = "stateless", session: str = ""
) -> AsyncIterator[Talk]:
    shim = StdioServerParameters(
        command=sys.executable,
        args=["-I", "-S", str(SHIM), home.socket],
        env={**home.env, "CAPD_CLIENT": "sdk", **({"CAPD_SESSION": session} if session else {})},
        cwd=str(home.folder),
    )
    with trio.fail_after(PATIENCE):
        async with Client(shim, mode=MODES[mode], cache=None, extensions=HOST) as client:
            talk = Talk(client)
            for name in on:
                await talk.call("capability", action="enable", name=name)
            yield talk


APP_SAVED = b"\xa4apps\x92\x81"
"""The member `apps` of a session's record, in MessagePack, with one tool that was called."""


def restart(home: Home, saved: bytes) -> None:
    """Replace the daemon once `saved` is on disk; the clients are not told."""
    records = home.folder / "state" / "sessions"
    wait_for(lambda: any(saved in each.read_bytes() for each in records.glob("*.session")))
    home.processes[-1].kill()
    home.processes[-1].wait()
    home.start()


# What is negotiated


@pytest.mark.parametrize("mode", MODES)
async def test_a_servers_extensions_reach_the_client_and_the_clients_the_server(
    running: dict[str, Home], mode: str
) -> None:
    async with host(running[mode], "one", mode=mode) as talk:
        heard = json.loads(await talk.call("one__heard"))
        offered = talk.client.server_capabilities.extensions

    assert heard[APPS] == {"mimeTypes": ["text/html;profile=mcp-app"]}
    # The SDK's client of one stateless version asks for no capabilities.
    assert (offered or {}).keys() >= ({APPS, TASKS} if mode == "handshake" else set())


async def test_the_extensions_of_running_servers_are_named_with_their_settings(
    running: dict[str, Home],
) -> None:
    async with host(running["stateless"], "one", "two") as talk:
        told = await talk.client.session.send_request(DiscoverRequest(params={}), Loose)

    extensions = told.members()["capabilities"]["extensions"]
    assert {name: extensions[name] for name in extensions if name.startswith("example")} == {
        "example.one/greeting": {"of": "one"},
        "example.two/greeting": {"of": "two"},
    }
    assert extensions.keys() >= {APPS, TASKS}


# Apps


@pytest.mark.parametrize("mode", MODES)
async def test_an_apps_call_by_bare_name_reaches_its_own_server(
    running: dict[str, Home], mode: str
) -> None:
    async with host(running[mode], "one", "two", mode=mode) as talk:
        # A host may fetch pages ahead: only that of a tool that was called is shown.
        pages = [await talk.page(f"ui://{name}/main") for name in ("one", "two")]
        await talk.call("two__show")

        said = await talk.call("refresh", word="now")

    assert pages == [f"<!doctype html><title>{name}</title>" for name in ("one", "two")]
    assert said == "two refreshes now"


@pytest.mark.parametrize("mode", MODES)
async def test_two_open_apps_with_one_tool_name_each_reach_their_own_where_the_call_says_whose(
    running: dict[str, Home], mode: str
) -> None:
    async with host(running[mode], "one", "two", mode=mode) as talk:
        for name in ("one", "two"):
            await talk.call(f"{name}__show")

        refusal = await talk.refused("refresh")
        named = [
            await talk.call("refresh", {"ui": {"resourceUri": f"ui://{name}/main"}})
            for name in ("one", "two", "one")
        ]
        own = [await talk.call(f"{name}__refresh") for name in ("one", "two")]

    assert "does not say whose app makes it. It was not sent." in refusal
    assert "one__refresh or two__refresh" in refusal
    assert named == ["one refreshes", "two refreshes", "one refreshes"]
    assert own == ["one refreshes", "two refreshes"]


async def test_a_call_that_names_an_app_reaches_no_other_server(running: dict[str, Home]) -> None:
    async with host(running["stateless"], "one", "two") as talk:
        await talk.call("two__show")

        with pytest.raises(MCPError, match="no server with the app ui://three/main has a tool"):
            await talk.call("refresh", {"ui": {"resourceUri": "ui://three/main"}})


async def test_a_page_that_two_servers_have_is_that_of_the_tool_that_was_called(
    running: dict[str, Home],
) -> None:
    pages = []
    async with host(running["stateless"], "left", "right") as talk:
        for name in ("right", "left"):
            await talk.call(f"{name}__show")
            pages.append(await talk.page(SHARED))

    assert pages == [f"<!doctype html><title>{name}</title>" for name in ("right", "left")]


async def test_a_tool_for_apps_alone_is_not_called_for_a_model(running: dict[str, Home]) -> None:
    async with host(running["stateless"], "one") as talk:
        listed = {tool.name: tool.meta for tool in (await talk.client.list_tools()).tools}

        refusal = await talk.refused("tool_call", name="one__refresh", arguments="{}")

    assert listed["one__refresh"] == {"ui": {"resourceUri": "ui://one/main", "visibility": ["app"]}}
    assert "is for the app of its server alone" in refusal


async def test_an_open_app_goes_on_after_a_restart_of_the_daemon(home: Home) -> None:
    servers(home, "one", "two")
    home.start()
    async with host(home, "one", "two", session="kept") as talk:
        await talk.call("two__show")
        await trio.to_thread.run_sync(restart, home, APP_SAVED)

        said = await talk.call("refresh")

    assert said == "two refreshes"


# Tasks


async def test_a_task_is_asked_for_answered_and_cancelled_at_its_own_server(
    running: dict[str, Home],
) -> None:
    async with host(running["stateless"], "one", "two") as talk:
        begun = [await talk.start(f"{name}__build") for name in ("one", "two", "one")]
        first, second, third = (each["taskId"] for each in begun)

        waiting = await talk.ask("tasks/get", second)
        await talk.ask("tasks/update", second, inputResponses={"word": "go"})
        done = await talk.ask("tasks/get", second)
        await talk.ask("tasks/cancel", third)
        others = [(await talk.ask("tasks/get", each))["status"] for each in (first, third)]

    assert [each["resultType"] for each in begun] == ["task"] * 3
    assert waiting["status"] == "input_required"
    assert (done["status"], done["result"]["content"][0]["text"]) == ("completed", "two heard go")
    assert others == ["input_required", "cancelled"]


async def test_a_task_is_found_after_a_restart_of_the_daemon(home: Home) -> None:
    servers(home, "one", "two")
    home.start()
    async with host(home, "one", "two", session="kept") as talk:
        task = (await talk.start("two__build"))["taskId"]
        await trio.to_thread.run_sync(restart, home, task.encode())

        await talk.ask("tasks/update", task, inputResponses={"word": "again"})
        done = await talk.ask("tasks/get", task)

    assert done["result"]["content"][0]["text"] == "two heard again"


async def test_a_task_of_nobody_and_one_of_another_session_are_not_asked_for(
    running: dict[str, Home],
) -> None:
    async with host(running["stateless"], "one", session="a") as talk:
        task = (await talk.start("one__build"))["taskId"]
    async with host(running["stateless"], "one", session="b") as other:
        for each in (task, "never", ""):
            with pytest.raises(MCPError, match="no server of this session has given a task"):
                await other.ask("tasks/get", each)


async def test_a_task_id_that_two_servers_gave_is_asked_of_neither(
    running: dict[str, Home],
) -> None:
    async with host(running["stateless"], "red", "blue") as talk:
        await talk.start("red__build")
        before = await talk.ask("tasks/get", "t-1")
        await talk.start("blue__build")

        with pytest.raises(MCPError, match="red and blue have each given a task 't-1'"):
            await talk.ask("tasks/update", "t-1", inputResponses={"word": "secret"})

    assert before["status"] == "input_required"


@pytest.fixture
def listener(home: Home) -> Iterator[Callable[..., Listener]]:
    with contextlib.ExitStack() as leaving:

        def connect(*on: str, session: str = "kept") -> Listener:
            made = leaving.enter_context(Listener(home, session))
            for name in on:
                made.request("tools/call", name="capability", arguments=enabling(name))
            return made

        yield connect


def test_a_stream_tells_of_the_tasks_that_it_listens_for(
    home: Home, listener: Callable[..., Listener]
) -> None:
    servers(home, "one", "two")
    home.start()
    client = listener("one", "two")
    first, second, third = (client.task(f"{name}__build") for name in ("one", "two", "one"))

    agreed = client.listen("stream", [first, second, "never"])
    for task in (third, second, first):
        client.request("tasks/update", taskId=task, inputResponses={"word": "go"})
    told = [client.changed("completed") for _ in range(2)]

    assert agreed == [first, second]
    assert {each["taskId"]: each["status"] for each in told} == {
        first: "completed",
        second: "completed",
    }
    done = {each["taskId"]: each["result"]["content"][0]["text"] for each in told}
    assert done == {first: "one heard go", second: "two heard go"}
    assert [each["_meta"][SUBSCRIPTION_ID] for each in told] == ["stream"] * 2
    assert client.request("tasks/get", taskId=third)["status"] == "completed"
    assert not client.was_told_of(third)


def test_a_stream_goes_on_telling_of_its_tasks_after_a_restart_of_the_daemon(
    home: Home, listener: Callable[..., Listener]
) -> None:
    servers(home, "one")
    home.start()
    client = listener("one")
    task = client.task("one__build")
    agreed = client.listen("stream", [task])
    restart(home, task.encode())

    # The stream may not be open yet when this comes: then it begins with the task's new state.
    client.request("tasks/update", taskId=task, inputResponses={"word": "again"})
    told = client.changed("completed")

    assert agreed == [task]
    assert told["result"]["content"][0]["text"] == "one heard again"
    assert told["_meta"][SUBSCRIPTION_ID] == "stream"


def test_a_task_of_another_session_is_not_listened_for(
    home: Home, listener: Callable[..., Listener]
) -> None:
    servers(home, "one")
    home.start()
    client, other = listener("one", session="a"), listener("one", session="b")
    task = client.task("one__build")

    agreed = other.listen("stream", [task])
    client.request("tasks/update", taskId=task, inputResponses={"word": "go"})

    assert agreed == []
    assert not other.was_told_of(task)


def test_a_server_that_tells_of_no_tasks_is_promised_for_none(
    home: Home, listener: Callable[..., Listener]
) -> None:
    servers(home, "one", options=["silent=1"])
    home.start()
    client = listener("one")
    task = client.task("one__build")

    agreed = client.listen("stream", [task])

    assert agreed == []
    assert client.request("tasks/get", taskId=task)["status"] == "input_required"


def test_a_client_without_tasks_cannot_listen_for_them(
    home: Home, listener: Callable[..., Listener]
) -> None:
    servers(home, "one")
    home.start()
    client = listener("one")
    task = client.task("one__build")
    client.extensions = {}

    client.begin("stream", "subscriptions/listen", {"notifications": {"taskIds": [task]}})

    error = client.ended("stream")["error"]
    assert (error["code"], error["data"]) == (
        -32021,
        {"requiredCapabilities": {"extensions": {TASKS: {}}}},
    )


async def test_a_script_gets_results_and_no_tasks(running: dict[str, Home]) -> None:
    async with host(running["stateless"], "one") as talk:
        said = await talk.call("script_run", code="await one.build()")

    assert "one built it at once" in said


# Icons


@pytest.mark.parametrize("mode", MODES)
async def test_icons_are_passed_on(running: dict[str, Home], mode: str) -> None:
    async with host(running[mode], "one", mode=mode) as talk:
        client = talk.client
        tools = {each.name: each.icons for each in (await client.list_tools()).tools}
        prompts = (await client.list_prompts()).prompts
        notes = (await client.list_resources()).resources
        templates = (await client.list_resource_templates()).resource_templates

    lists = [
        tools["one__show"],
        next(each.icons for each in prompts if each.name.endswith("greet")),
        next(each.icons for each in notes if str(each.uri) == "note://one"),
        templates[0].icons,
    ]
    assert [each and each[0].sizes for each in lists] == [["48x48"]] * 4


async def test_a_tool_for_apps_alone_is_not_called_for_a_model_where_its_server_is_off(
    home: Home,
) -> None:
    servers(home, "one")
    home.start()
    async with host(home, "one"):
        wait_for(lambda: "one__refresh" in json.dumps(home.ask("search", query="refresh")))
    async with host(home) as talk:
        refusal = await talk.refused("tool_call", name="one__refresh", arguments="{}")
        again = await talk.refused("tool_call", name="one__refresh", arguments="{}")

    assert "is for the app of its server alone" in refusal
    assert "is for the app of its server alone" in again
