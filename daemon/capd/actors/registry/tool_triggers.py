"""Makes triggers from a server's first tool list, if the server's definition has few words.

A trigger is a phrase: a message that resembles one may switch the server's capability on.

    the catalog is loaded ──> lists that were saved earlier are used
    a server lists tools  ──> its triggers are saved, and the catalog is loaded again

`core/taps/tool_triggers.py` says which servers these are, and why only the first list counts.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence

import structlog
import trio

from capd.adapters.routing_files import background_messages
from capd.adapters.tool_lists import ToolList, ToolLists
from capd.adapters.tool_trigger_file import ToolTriggerFile
from capd.core.mcp_registry.proposals import proposed_triggers
from capd.core.taps.catalog import Tap
from capd.core.taps.tool_triggers import (
    presentable,
    servers_that_give_triggers,
    texts_of_tools,
    with_tool_triggers,
)
from capd.runtime.bus import Bus
from capd_protos.codec import MsgpackCodec
from capd_protos.supervisor import ToolListKept
from capd_protos.types import ServerIdentity

LISTED: MsgpackCodec[ToolListKept] = MsgpackCodec(ToolListKept)

log = structlog.get_logger(actor="registry")


class ToolTriggers:
    """The triggers that were made from servers' first tool lists."""

    def __init__(self, bus: Bus, lists: ToolLists, file: ToolTriggerFile) -> None:
        """Create it.

        `lists` are the saved tool lists; `file` has the triggers made from them so far.
        """
        self._bus = bus
        self._lists = lists
        self._file = file
        self._phrases: dict[ServerIdentity, tuple[str, ...]] = {}
        self._waiting: frozenset[ServerIdentity] = frozenset()

    async def load(self) -> None:
        """Load the triggers that an earlier daemon saved."""
        self._phrases = presentable(await self._file.load())

    async def added_to(self, taps: Sequence[Tap]) -> tuple[Tap, ...]:
        """Return `taps` with the triggers that come from tool lists.

        For servers that have none yet, triggers are first made from their saved tool lists.
        """
        servers = servers_that_give_triggers(taps)
        unknown = [identity for identity in servers if identity not in self._phrases]
        if unknown:
            found = await self._lists.load_all(unknown)
            if found:
                taken = await trio.to_thread.run_sync(_triggers_of, found)
                # Servers that were removed are dropped here: the file stays small.
                kept = {key: each for key, each in self._phrases.items() if key in servers}
                self._phrases = kept | taken
                await self._file.save(self._phrases)
                log.info(
                    "triggers_taken_from_tools", servers=sorted(servers[each] for each in taken)
                )
        self._waiting = frozenset(servers.keys() - self._phrases.keys())
        if not self._phrases:
            return tuple(taps)
        # The words of every trigger are compared: a catalog may have tens of thousands.
        return await trio.to_thread.run_sync(
            with_tool_triggers, taps, self._phrases, background_messages()
        )

    async def follow(self, load: Callable[[], Awaitable[object]]) -> None:
        """Until cancelled, call `load` when a server has listed its tools for the first time."""
        async with self._bus.subscribe(LISTED, "server.listed") as news:
            async for kept in news:
                if kept.identity in self._waiting:
                    await load()


def _triggers_of(lists: Mapping[ServerIdentity, ToolList]) -> dict[ServerIdentity, tuple[str, ...]]:
    return {
        identity: tuple(proposed_triggers(listed.name, "", "", texts_of_tools(listed.tools)))
        for identity, listed in lists.items()
    }
