"""Every feature, for clients and servers of both generations, with SDK peers at both ends.

What is translated how is the table "Both generations" in docs/protocol.md.
"""

import json
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
import trio
from mcp import Client, StdioServerParameters
from mcp.client.session import ClientRequestContext

from support import forked_scripts
from whole_daemon import SHIM, Home

GENERATION_SERVER = Path(__file__).parent / "generation_server.py"
PATIENCE = 30.0
STATELESS = "2026-07-28"
GENERATIONS = {"handshake": "legacy", "stateless": STATELESS}

# The SDK warns of what the newer revision drops, and that is what the older one is tested for.
pytestmark = pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")


@pytest.fixture(scope="module")
def daemon() -> Iterator[Home]:
    folder = Path(tempfile.mkdtemp(prefix="capd"))
    folder.chmod(0o700)
    home = Home(folder, is_shipped=False, is_forked=True)
    home.leave_out_model()
    # One process a server for all of its tests: starting one takes a second.
    home.env["CAPD_LINGER"] = "60"
    # By itself a list of the stateless generation does not change.
    home.env["CAPD_SURFACE"] = "dynamic"
    sites = []
    for generation in GENERATIONS:
        argv = forked_scripts.server_command(str(GENERATION_SERVER))
        home.capability(f"{generation}-stdio", [*argv, "stdio", generation, home.tag])
        site = subprocess.Popen([*argv, "http", generation, home.tag], stdout=subprocess.PIPE)
        sites.append(site)
        assert site.stdout is not None
        by_url(home, f"{generation}-http", site.stdout.readline().decode().strip())
    try:
        home.start()
        yield home
    finally:
        for site in sites:
            site.kill()
            site.communicate()
        home.close()
        shutil.rmtree(folder, ignore_errors=True)


def by_url(home: Home, name: str, url: str) -> None:
    """Define a capability on a server by its URL."""
    home.capability(name, ["unused"])
    provider = home.folder / "tap/capabilities" / name / "default.toml"
    provider.write_text(
        f'[[mcp.servers]]\nname = "{name}"\ntype = "http"\nurl = {json.dumps(url)}\n'
    )


@pytest.fixture(params=GENERATIONS)
def client_generation(request: pytest.FixtureRequest) -> str:
    generation: str = request.param
    return generation


@pytest.fixture(params=["handshake-stdio", "stateless-stdio", "handshake-http", "stateless-http"])
def server(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


class Talk:
    """A client with an active server, and a journal of its messages."""

    def __init__(self, server: str) -> None:
        self.client: Client
        self.heard: list[Any] = []
        self.logged: list[tuple[str, object]] = []
        self.asked: list[Any] = []
        self._server = server

    def name(self, own: str) -> str:
        return f"{self._server}__{own}".replace("-", "_")

    async def call(self, tool: str, said: str = "", **more: Any) -> str:
        result = await self.client.call_tool(self.name(tool), {"text": said}, **more)
        assert isinstance(result.content[0], types.TextContent)
        assert not result.is_error, result.content[0].text
        return result.content[0].text

    async def until_heard(self, kind: type) -> Any:
        while True:
            for each in self.heard:
                if isinstance(each, kind):
                    return each
            await trio.sleep(0.005)

    # What the SDK calls

    async def hear(self, message: Any) -> None:
        self.heard.append(message)

    async def log(self, params: types.LoggingMessageNotificationParams) -> None:
        self.logged.append((params.level, params.data))

    async def elicited(
        self, context: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult:
        del context
        self.asked.append(params)
        is_form = isinstance(params, types.ElicitRequestFormParams)
        return types.ElicitResult(action="accept", content={"name": "Ada"} if is_form else None)

    async def sampled(
        self, context: ClientRequestContext, params: types.CreateMessageRequestParams
    ) -> types.CreateMessageResult:
        del context
        self.asked.append(params)
        said = types.TextContent(text="hi from the model")
        return types.CreateMessageResult(role="assistant", model="m", content=said)

    async def roots(self, context: ClientRequestContext) -> types.ListRootsResult:
        del context
        roots = [types.Root.model_validate({"uri": f"file:///src/{name}"}) for name in ("a", "b")]
        return types.ListRootsResult(roots=roots)


@asynccontextmanager
async def talking(home: Home, generation: str, server: str, **more: Any) -> AsyncIterator[Talk]:
    talk = Talk(server)
    shim = StdioServerParameters(
        command=sys.executable,
        args=["-I", "-S", str(SHIM), home.socket],
        env={**home.env, "CAPD_CLIENT": "sdk"},
        cwd=str(home.folder),
    )
    with trio.fail_after(PATIENCE):
        async with Client(
            shim,
            mode=GENERATIONS[generation],
            cache=None,
            message_handler=talk.hear,
            logging_callback=talk.log,
            elicitation_callback=talk.elicited,
            sampling_callback=talk.sampled,
            list_roots_callback=talk.roots,
            **more,
        ) as client:
            talk.client = client
            enabled = await client.call_tool("capability", {"action": "enable", "name": server})
            assert not enabled.is_error, enabled.content
            yield talk


async def test_a_call_is_answered(daemon: Home, client_generation: str, server: str) -> None:
    async with talking(daemon, client_generation, server) as talk:
        said = await talk.call("echo", "gr\u00fc\u00dfe \U0001f642")

    assert said == "gr\u00fc\u00dfe \U0001f642"


async def test_structured_content_that_is_a_list_reaches_every_client(
    daemon: Home, client_generation: str
) -> None:
    server = "stateless-stdio"
    async with talking(daemon, client_generation, server) as talk:
        listed = {tool.name: tool for tool in (await talk.client.list_tools()).tools}
        result = await talk.client.call_tool(talk.name("list"), {})

    assert not result.is_error
    schema = listed[talk.name("list")].output_schema
    if client_generation == "handshake":
        # Such a client takes only objects, and refuses a whole list because of another schema.
        assert schema is None
        assert result.structured_content == {"result": [1, 2]}
    else:
        assert schema == {"type": "array", "items": {"type": "integer"}}
        assert result.structured_content == [1, 2]


async def test_progress_arrives_under_the_clients_own_token(
    daemon: Home, client_generation: str, server: str
) -> None:
    steps: list[tuple[float, float | None, str | None]] = []

    async def progressed(done: float, total: float | None, said: str | None) -> None:
        steps.append((done, total, said))

    async with talking(daemon, client_generation, server) as talk:
        await talk.call("count", "now", progress_callback=progressed)

    assert steps == [(1, 3, "now"), (2, 3, "now"), (3, 3, "now")]


async def test_a_cancelled_call_is_cancelled_at_the_server(
    daemon: Home, client_generation: str, server: str
) -> None:
    nonce, ended = uuid.uuid4().hex, ""
    begun = trio.Event()

    async def progressed(*_: object) -> None:
        begun.set()

    async with talking(daemon, client_generation, server) as talk, trio.open_nursery() as nursery:

        async def hang() -> None:
            await talk.call("hang", nonce, progress_callback=progressed)

        nursery.start_soon(hang)
        await begun.wait()

        nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            ended = await talk.call("ended", nonce)

    assert ended == "True"


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        ("form", "accept {'name': 'Ada'}"),
        ("url", "accept None"),
        ("sample", "hi from the model"),
        ("roots", "file:///src/a file:///src/b"),
    ],
)
async def test_what_a_server_asks_in_a_call_is_answered_by_its_client(
    daemon: Home, client_generation: str, server: str, what: str, expected: str
) -> None:
    async with talking(daemon, client_generation, server) as talk:
        answer = await talk.call("ask", what)

    assert answer == expected
    if what == "url":
        assert [params.url for params in talk.asked] == ["https://example.org/go"]


async def test_resources_are_listed_and_read(
    daemon: Home, client_generation: str, server: str
) -> None:
    async with talking(daemon, client_generation, server) as talk:
        resources = (await talk.client.list_resources()).resources
        templates = (await talk.client.list_resource_templates()).resource_templates
        listed = await talk.client.read_resource("note://one")
        made = await talk.client.read_resource("note://two")

    assert [str(each.uri) for each in resources] == ["note://one"]
    assert [each.uri_template for each in templates] == ["note://{name}"]
    texts = [getattr(read.contents[0], "text", "") for read in (listed, made)]
    assert texts == ["what note://one says", "what note://two says"]


async def test_a_subscriber_hears_of_its_resource_and_of_no_other(
    daemon: Home, client_generation: str, server: str
) -> None:
    async with talking(daemon, client_generation, server) as talk:
        uris = await updates_heard(talk, client_generation)

    assert uris == ["note://mine"]


async def updates_heard(talk: Talk, generation: str) -> list[str]:
    if generation == "stateless":
        async with talk.client.listen(resource_subscriptions=["note://mine"]) as changes:
            await talk.call("touch", "note://other")
            await talk.call("touch", "note://mine")
            change = await anext(aiter(changes))
            return [str(getattr(change, "uri", change))]
    await talk.client.subscribe_resource("note://mine")
    await talk.call("touch", "note://other")
    await talk.call("touch", "note://mine")
    await talk.until_heard(types.ResourceUpdatedNotification)
    return [
        str(each.params.uri)
        for each in talk.heard
        if isinstance(each, types.ResourceUpdatedNotification)
    ]


async def test_prompts_are_listed_and_got_also_one_that_is_named_like_a_tool(
    daemon: Home, client_generation: str, server: str
) -> None:
    async with talking(daemon, client_generation, server) as talk:
        names = [prompt.name for prompt in (await talk.client.list_prompts()).prompts]
        got = await talk.client.get_prompt(names[0], {"name": "Ada"})
        same = await talk.client.get_prompt(names[1])

    texts = [getattr(each.messages[0].content, "text", "") for each in (got, same)]
    assert (len(names), texts) == (2, ["greet Ada", "echo"])


async def test_arguments_are_completed(daemon: Home, client_generation: str, server: str) -> None:
    async with talking(daemon, client_generation, server) as talk:
        name = (await talk.client.list_prompts()).prompts[0].name
        argument = {"name": "name", "value": "A"}
        prompt = await talk.client.complete(types.PromptReference(name=name), argument)
        template = types.ResourceTemplateReference(uri="note://{name}")
        resource = await talk.client.complete(template, argument)

    assert prompt.completion.values == ["greet Aa", "greet Ab"]
    assert resource.completion.values == ["note://{name} Aa", "note://{name} Ab"]


async def test_a_client_hears_the_log_from_its_level_on(
    daemon: Home, client_generation: str, server: str
) -> None:
    level: dict[str, Any] = {"log_level": "warning"} if client_generation == "stateless" else {}
    async with talking(daemon, client_generation, server, **level) as talk:
        if client_generation == "handshake":
            await talk.client.set_logging_level("warning")
        await talk.call("log", "careful")
        while not talk.logged:
            await trio.sleep(0.005)

    assert talk.logged == [("warning", "careful")]


LISTED: dict[str, Callable[[Client], Awaitable[Any]]] = {
    "tools": lambda client: client.list_tools(),
    "prompts": lambda client: client.list_prompts(),
    "resources": lambda client: client.list_resources(),
}
CHANGED: dict[str, type] = {
    "tools": types.ToolListChangedNotification,
    "prompts": types.PromptListChangedNotification,
    "resources": types.ResourceListChangedNotification,
}


@pytest.mark.parametrize("what", LISTED)
async def test_a_client_hears_that_a_servers_list_changed(
    daemon: Home, client_generation: str, server: str, what: str
) -> None:
    async with talking(daemon, client_generation, server) as talk:
        await LISTED[what](talk.client)
        talk.heard.clear()
        heard = await change_heard(talk, client_generation, what)

    assert heard


async def change_heard(talk: Talk, generation: str, what: str) -> bool:
    if generation == "handshake":
        await talk.call("change", what)
        return await talk.until_heard(CHANGED[what]) is not None
    wanted: dict[str, Any] = {f"{what}_list_changed": True}
    async with talk.client.listen(**wanted) as changes:
        await talk.call("change", what)
        change = await anext(aiter(changes))
    return type(change).__name__ == f"{what.capitalize()}ListChanged"
