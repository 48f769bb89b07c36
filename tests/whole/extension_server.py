"""An MCP server of the SDK with extensions: apps, tasks, and one that nobody else has.

extension_server.py NAME FOLDER [task=ID] [page=URI] [silent=1]

Its tasks are files in FOLDER, so another process of it knows them. With an ID every task gets this
one. It tells of their changes to whoever listens for them, unless it is silent. Its tools, prompts
and resources have icons.
"""

import json
import sys
import uuid
from pathlib import Path
from typing import Any, Literal

import anyio
from anyio.streams.memory import MemoryObjectSendStream
from mcp.server.apps import Apps
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.extension import Extension, MethodBinding
from mcp.server.mcpserver import Context, MCPServer
from mcp_types import (
    CallToolRequestParams,
    Icon,
    Notification,
    RequestParams,
    SubscriptionsAcknowledgedNotification,
    SubscriptionsAcknowledgedNotificationParams,
    SubscriptionsListenRequestParams,
    SubscriptionsListenResult,
)
from pydantic import Field

NAME, FOLDER = sys.argv[1], Path(sys.argv[2])
OPTIONS = dict(each.split("=", 1) for each in sys.argv[3:] if "=" in each)
FIXED_ID = OPTIONS.get("task", "")
TASKS = "io.modelcontextprotocol/tasks"
PAGE = OPTIONS.get("page", f"ui://{NAME}/main")
ICONS = [Icon(src="data:image/png;base64,aWNvbg==", mime_type="image/png", sizes=["48x48"])]
TIMES = {"createdAt": "2026-07-28T00:00:00Z", "lastUpdatedAt": "2026-07-28T00:00:00Z"}


class TaskParams(RequestParams):
    """Params that name a task."""

    taskId: str  # noqa: N815 - the protocol's names
    inputResponses: dict[str, Any] = Field(default_factory=dict)  # noqa: N815


class TaskChanged(Notification[dict[str, Any], Literal["notifications/tasks"]]):
    """A task has changed."""

    method: Literal["notifications/tasks"] = "notifications/tasks"
    params: dict[str, Any]


class Tasks(Extension):
    """Tasks that wait for a word, and are done when they have it."""

    identifier = TASKS

    def __init__(self) -> None:
        self._streams: dict[int, tuple[list[str], MemoryObjectSendStream[dict[str, Any]]]] = {}

    async def intercept_tool_call(
        self,
        params: CallToolRequestParams,
        ctx: ServerRequestContext[Any, Any],
        call_next: CallNext,
    ) -> HandlerResult:
        capabilities = ctx.session.client_capabilities
        declared = (capabilities.extensions if capabilities else None) or {}
        if params.name != "build" or TASKS not in declared:
            return await call_next(ctx)
        task = {
            "taskId": FIXED_ID or f"{NAME}-{uuid.uuid4().hex}",
            "status": "input_required",
            "ttlMs": None,
            "pollIntervalMs": 1,
            **TIMES,
        }
        self._write(task)
        return {"resultType": "task", **task}

    def methods(self) -> list[MethodBinding]:
        return [
            MethodBinding("tasks/get", TaskParams, self.get),
            MethodBinding("tasks/update", TaskParams, self.update),
            MethodBinding("tasks/cancel", TaskParams, self.cancel),
        ]

    async def get(self, _: Any, params: TaskParams) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._path(params.taskId).read_text())
        return {"resultType": "complete", **found}

    async def update(self, _: Any, params: TaskParams) -> dict[str, Any]:
        said = [{"type": "text", "text": f"{NAME} heard {params.inputResponses['word']}"}]
        task = await self.get(_, params)
        self._write({**task, "status": "completed", "result": {"content": said}})
        return {"resultType": "complete"}

    async def cancel(self, _: Any, params: TaskParams) -> dict[str, Any]:
        self._write({**await self.get(_, params), "status": "cancelled"})
        return {"resultType": "complete"}

    async def listen(
        self, ctx: ServerRequestContext[Any, Any], params: SubscriptionsListenRequestParams
    ) -> SubscriptionsListenResult:
        """Serve a stream that tells of tasks, which the SDK's own handler does not know."""
        asked = (params.notifications.model_extra or {}).get("taskIds", [])
        known = [task for task in asked if self._path(task).exists()]
        mark: Any = {"io.modelcontextprotocol/subscriptionId": ctx.request_id}
        send, changed = anyio.create_memory_object_stream[dict[str, Any]](100)
        self._streams[id(send)] = (known, send)
        honoured = params.notifications.model_copy(update={"taskIds": known})
        try:
            await ctx.session.send_notification(
                SubscriptionsAcknowledgedNotification(
                    params=SubscriptionsAcknowledgedNotificationParams(
                        notifications=honoured, _meta=mark
                    )
                ),
                related_request_id=ctx.request_id,
            )
            async for task in changed:
                told: Any = TaskChanged(params={**task, "_meta": mark})
                await ctx.session.send_notification(told, related_request_id=ctx.request_id)
        finally:
            del self._streams[id(send)]
        return SubscriptionsListenResult(_meta=mark)

    def _write(self, task: dict[str, Any]) -> None:
        self._path(task["taskId"]).write_text(json.dumps(task))
        for known, stream in self._streams.values():
            if task["taskId"] in known:
                told = {key: value for key, value in task.items() if key != "resultType"}
                stream.send_nowait(told)

    def _path(self, task: str) -> Path:
        return FOLDER / f"{NAME}-{task}.json"


class Own(Extension):
    """An extension with settings and nothing else."""

    identifier = f"example.{NAME}/greeting"

    def settings(self) -> dict[str, Any]:
        return {"of": NAME}


apps = Apps()


@apps.tool(resource_uri=PAGE, icons=ICONS)
def show() -> str:
    """Show the board."""
    return f"{NAME} shows"


@apps.tool(resource_uri=PAGE, visibility=["app"])
def refresh(word: str = "") -> str:
    """Fetch the board again."""
    return f"{NAME} refreshes {word}".strip()


apps.add_html_resource(PAGE, f"<!doctype html><title>{NAME}</title>", title=NAME)
tasks = Tasks()
server = MCPServer(NAME, version="1", log_level="CRITICAL", extensions=[apps, tasks, Own()])
if "silent" not in OPTIONS:
    server._lowlevel_server.add_request_handler(
        "subscriptions/listen", SubscriptionsListenRequestParams, tasks.listen
    )


@server.tool()
def build() -> str:
    """Build something, which takes long."""
    return f"{NAME} built it at once"


@server.tool()
def heard(ctx: Context) -> dict[str, Any]:
    """Return the extensions that the client declared."""
    capabilities = ctx.client_capabilities
    return (capabilities.extensions if capabilities else None) or {}


@server.prompt(icons=ICONS)
def greet() -> str:
    """Greet."""
    return "hello"


@server.resource("note://one", icons=ICONS)
def note() -> str:
    """A note."""
    return NAME


@server.resource("note://of/{name}", icons=ICONS)
def note_of(name: str) -> str:
    """A note of somebody."""
    return name


server.run("stdio")
