"""Methods on edited tools: list the edits, and show one tool before and after its edit."""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import trio

from capd.actors.control import documents
from capd.actors.control.actors import Actors, MethodError
from capd.core.servers.identity import server_identity
from capd.core.tools.names import wire_name
from capd.core.tools.tool_edits import changes, edited
from capd_protos import finder, registry
from capd_protos import socket as frames
from capd_protos.types import ServerSpec, ToolDefinition, ToolEdit

UNKNOWN = "no known tool is named {name!r}{near}: capd index asks servers that never ran for theirs"

FINDER_FOLLOWS_WITHIN = 5.0
LOOK_AGAIN = 0.05
"""Seconds between two checks whether the finder has followed a change of the catalog."""


async def edits_in_force(actors: Actors) -> list[dict[str, Any]]:
    """Return every tool edit that is in force, with the capability that defines its server."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for capability in await actors.registry.specs():
        for server in capability.servers:
            for edit in server.edits:
                key = server_identity(server), edit.tool
                found.setdefault(key, _edit_document(server, edit, str(capability.id)))
    return list(found.values())


class ToolEditMethods:
    """The methods on edited tools. They only read, because edits are made in files."""

    def __init__(self, actors: Actors) -> None:
        self._actors = actors
        self.methods: dict[str, Callable[[Any], Awaitable[Any]]] = {
            "tool": self._tool,
            "tool_edits": self._edits,
        }

    async def _edits(self, _: frames.NoParams) -> dict[str, Any]:
        return {"schema": documents.SCHEMA, "edits": await edits_in_force(self._actors)}

    async def _tool(self, params: frames.ToolParams) -> dict[str, Any]:
        # The finder follows a change of the catalog a moment later than the registry.
        give_up_at = trio.current_time() + FINDER_FOLLOWS_WITHIN
        while True:
            document, is_followed = await self._described(params.name)
            if is_followed or trio.current_time() >= give_up_at:
                return document
            await trio.sleep(LOOK_AGAIN)

    async def _described(self, name: str) -> tuple[dict[str, Any], bool]:
        """Return the answer to the method `tool`, and whether the finder is up to date.

        The finder, the actor that searches tools, follows a changed catalog a moment later than the
        registry. Until then it may have the tool without the catalog's edit, or with an older one.

        Raises:
            MethodError: no known tool has this name.
        """
        looked_up = await self._actors.finder.look_up(finder.LookUpTool(name))
        hit = looked_up.hit
        if hit is None or hit.via is None or hit.spec is None:
            near = f" (near names: {', '.join(looked_up.near)})" if looked_up.near else ""
            text = UNKNOWN.format(name=name[:100], near=near)
            raise MethodError(frames.NOT_FOUND, text)
        resolved = await self._actors.registry.resolve(str(hit.via))
        spec = hit.spec
        if isinstance(resolved, registry.CapabilityResolved):
            servers = resolved.capability.servers
            spec = next((s for s in servers if server_identity(s) == hit.identity), hit.spec)
        listed = ToolDefinition(hit.name, hit.listed or hit.definition)
        edit = next((each for each in spec.edits if each.tool == hit.name), None)
        made = edited(listed, edit) if edit is not None else None
        shown = made.definition if made is not None else listed
        document = {
            "schema": documents.SCHEMA,
            "tool": f"{spec.name}:{hit.name}",
            "name": wire_name(spec.name, hit.identity, shown.shown_name),
            "capability": str(hit.via),
            "edit": None if edit is None else _edit_document(spec, edit, str(hit.via)),
            "problems": [] if made is None else list(made.problems),
            "listed": msgspec.Raw(listed.json),
            "shown": msgspec.Raw(shown.json),
        }
        return document, hit.definition == shown.json


def _edit_document(server: ServerSpec, edit: ToolEdit, capability: str) -> dict[str, Any]:
    shown = ToolDefinition(edit.tool, b"", edit).shown_name
    return {
        "tool": f"{server.name}:{edit.tool}",
        "name": wire_name(server.name, server_identity(server), shown),
        "capability": capability,
        "disabled": edit.is_disabled,
        "changes": changes(edit),
        "file": edit.file,
    }
