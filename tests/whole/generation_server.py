"""An MCP server of the SDK that speaks one generation alone and offers every feature.

generation_server.py stdio|http handshake|stateless TAG...

What it asks of a client it asks in its generation's way: by a request, or by a result that is none
yet. Over HTTP it prints its address.
"""

import socket
import sys
from typing import Any

import anyio
import mcp_types as types
import uvicorn
from mcp.server import NotificationOptions, Server, ServerRequestContext
from mcp.server.context import CallNext, HandlerResult
from mcp.server.runner import modern_on_request, serve_loop
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp.shared.exceptions import MCPError
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.subscriptions import (
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    ToolsListChanged,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

Context = ServerRequestContext[Any]

STATE = 'half-way \u2713 "\\/\u0000\u2028\U0001f600'
FORM: dict[str, Any] = {"type": "object", "properties": {"name": {"type": "string"}}}
QUESTIONS: dict[str, types.InputRequest] = {
    "form": types.ElicitRequest(
        params=types.ElicitRequestFormParams(message="who?", requested_schema=FORM)
    ),
    "url": types.ElicitRequest(
        params=types.ElicitRequestURLParams(
            message="go there", url="https://example.org/go", elicitation_id="e-1"
        )
    ),
    "sample": types.CreateMessageRequest(
        params=types.CreateMessageRequestParams(
            messages=[types.SamplingMessage(role="user", content=types.TextContent(text="say hi"))],
            max_tokens=10,
        )
    ),
    "roots": types.ListRootsRequest(),
}
ANSWERS: dict[str, Any] = {
    "form": types.ElicitResult,
    "url": types.ElicitResult,
    "sample": types.CreateMessageResult,
    "roots": types.ListRootsResult,
}
TOOLS = ["echo", "count", "hang", "ended", "ask", "log", "change", "touch"]
LIST_OF_NUMBERS: dict[str, Any] = {"type": "array", "items": {"type": "integer"}}
ONE = "note://one"


def text(said: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=said)])


def summary(answer: Any) -> str:
    """Return the parts of a client's answer that a test compares."""
    if isinstance(answer, types.ElicitResult):
        return f"{answer.action} {answer.content}"
    if isinstance(answer, types.CreateMessageResult):
        assert isinstance(answer.content, types.TextContent)
        return answer.content.text
    assert isinstance(answer, types.ListRootsResult)
    return " ".join(str(root.uri) for root in answer.roots)


class GenerationServer:
    """The features, whichever generation they are asked in."""

    def __init__(self, generation: str) -> None:
        self.is_stateless = generation == "stateless"
        self.extra_tools: list[str] = []
        self.ended: list[str] = []
        self.bus = InMemorySubscriptionBus()
        listening: dict[str, Any] = {
            "on_subscribe_resource": self.nothing,
            "on_unsubscribe_resource": self.nothing,
            "on_set_logging_level": self.nothing,
        }
        if self.is_stateless:
            listening = {"on_subscriptions_listen": ListenHandler(self.bus)}
        self.server: Server[Any] = Server(
            "generation",
            version="1",
            on_list_tools=self.tools,
            on_call_tool=self.call,
            on_list_prompts=self.prompts,
            on_get_prompt=self.prompt,
            on_list_resources=self.resources,
            on_list_resource_templates=self.templates,
            on_read_resource=self.read,
            on_completion=self.complete,
            **listening,
        )
        self.server.middleware.append(self.only_one_generation)

    async def only_one_generation(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        is_handshakes = ctx.method == "initialize" or (
            ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS
        )
        if ctx.request_id is not None and is_handshakes == self.is_stateless:
            raise MCPError(types.METHOD_NOT_FOUND, "another generation")
        return await call_next(ctx)

    async def nothing(self, _ctx: Context, _params: Any) -> types.EmptyResult:
        return types.EmptyResult()

    async def tools(self, _ctx: Context, _params: Any) -> types.ListToolsResult:
        schema: dict[str, Any] = {"type": "object", "properties": {"text": {"type": "string"}}}
        tools = [
            types.Tool(name=name, description=name, input_schema=schema)
            for name in [*TOOLS, *self.extra_tools]
        ]
        # In the handshake generation, output is always an object.
        if self.is_stateless:
            tools.append(
                types.Tool(name="list", input_schema=schema, output_schema=LIST_OF_NUMBERS)
            )
        return types.ListToolsResult(tools=tools)

    async def prompts(self, _ctx: Context, _params: Any) -> types.ListPromptsResult:
        return types.ListPromptsResult(
            prompts=[
                types.Prompt(name="greet", arguments=[types.PromptArgument(name="name")]),
                types.Prompt(name="echo", description="A prompt that is named like a tool."),
            ]
        )

    async def prompt(
        self, _ctx: Context, params: types.GetPromptRequestParams
    ) -> types.GetPromptResult:
        said = f"{params.name} {(params.arguments or {}).get('name', '')}".strip()
        message = types.PromptMessage(role="user", content=types.TextContent(text=said))
        return types.GetPromptResult(messages=[message])

    async def resources(self, _ctx: Context, _params: Any) -> types.ListResourcesResult:
        return types.ListResourcesResult(resources=[types.Resource(name="one", uri=ONE)])

    async def templates(self, _ctx: Context, _params: Any) -> types.ListResourceTemplatesResult:
        template = types.ResourceTemplate(name="any", uri_template="note://{name}")
        return types.ListResourceTemplatesResult(resource_templates=[template])

    async def read(
        self, _ctx: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        uri = str(params.uri)
        return types.ReadResourceResult(
            contents=[types.TextResourceContents(uri=uri, text=f"what {uri} says")]
        )

    async def complete(
        self, _ctx: Context, params: types.CompleteRequestParams
    ) -> types.CompleteResult:
        of = params.ref.name if isinstance(params.ref, types.PromptReference) else params.ref.uri
        values = [f"{of} {params.argument.value}a", f"{of} {params.argument.value}b"]
        return types.CompleteResult(completion=types.Completion(values=values))

    async def call(
        self, ctx: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        said = str((params.arguments or {}).get("text", ""))
        match params.name:
            case "ask":
                return await self.ask(ctx, params, said)
            case "count":
                for step in (1, 2, 3):
                    await self.progress(ctx, step, 3, said)
            case "hang":
                await self.progress(ctx, 0, 1, "begun")
                try:
                    await anyio.sleep_forever()
                finally:
                    self.ended.append(said)
            case "ended":
                with anyio.move_on_after(10):
                    while said not in self.ended:
                        await anyio.sleep(0.01)
                return text(str(said in self.ended))
            case "list":
                return types.CallToolResult(content=[], structured_content=[1, 2])
            case "log":
                for level in ("info", "warning"):
                    await self.log(ctx, level, said)
            case "change":
                await self.change(ctx, said)
            case "touch":
                await self.tell(ctx, ResourceUpdated(said))
        return text(said)

    async def progress(self, ctx: Context, done: float, total: float, said: str) -> None:
        token = (ctx.meta or {}).get("progress_token")
        if token is not None:
            params = types.ProgressNotificationParams(
                progress_token=token, progress=done, total=total, message=said
            )
            await ctx.session.send_notification(
                types.ProgressNotification(params=params), ctx.request_id
            )

    async def log(self, ctx: Context, level: Any, said: str) -> None:
        await ctx.session.send_log_message(level, said, related_request_id=ctx.request_id)

    async def change(self, ctx: Context, what: str) -> None:
        if what == "tools":
            self.extra_tools.append(f"extra_{len(self.extra_tools)}")
        events: dict[str, ServerEvent] = {
            "tools": ToolsListChanged(),
            "prompts": PromptsListChanged(),
            "resources": ResourcesListChanged(),
        }
        await self.tell(ctx, events[what])

    async def tell(self, ctx: Context, event: ServerEvent) -> None:
        if self.is_stateless:
            await self.bus.publish(event)
            return
        match event:
            case ToolsListChanged():
                await ctx.session.send_tool_list_changed()
            case PromptsListChanged():
                await ctx.session.send_prompt_list_changed()
            case ResourcesListChanged():
                await ctx.session.send_resource_list_changed()
            case ResourceUpdated(uri=uri):
                await ctx.session.send_resource_updated(uri)

    async def ask(
        self, ctx: Context, params: types.CallToolRequestParams, what: str
    ) -> types.CallToolResult | types.InputRequiredResult:
        question = QUESTIONS[what]
        if not self.is_stateless:
            answer = await ctx.session.send_request(question, ANSWERS[what])
            return text(summary(answer))
        if params.input_responses is None:
            return types.InputRequiredResult(input_requests={"it": question}, request_state=STATE)
        assert params.request_state == STATE, params.request_state
        return text(summary(params.input_responses["it"]))

    async def serve(self) -> None:
        async with stdio_server() as (read, write):
            if self.is_stateless:
                dispatcher: JSONRPCDispatcher[Any] = JSONRPCDispatcher(read, write)

                async def ignore(dctx: Any, method: str, params: Any) -> None:
                    return None

                await dispatcher.run(modern_on_request(self.server, {}), ignore)
            else:
                options = self.server.create_initialization_options(
                    NotificationOptions(
                        prompts_changed=True, resources_changed=True, tools_changed=True
                    )
                )
                await serve_loop(self.server, read, write, lifespan_state={}, init_options=options)


def main() -> None:
    transport, generation = sys.argv[1:3]
    if transport == "stdio":
        anyio.run(GenerationServer(generation).serve, backend="trio")
        return
    listener = socket.create_server(("127.0.0.1", 0))
    print(f"http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)
    app = GenerationServer(generation).server.streamable_http_app()
    config = uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=1)
    uvicorn.Server(config).run(sockets=[listener])


main()
