"""Removes, once a day, cached files of projects and servers that no longer exist."""

import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import structlog
import trio

from capd.actor_clients.supervisor import SupervisorClient
from capd.adapters.leftover_files import LeftoverFiles
from capd.core.errors import CapdError
from capd.core.records.leftovers import files_to_delete
from capd.core.records.retention import DAY
from capd.runtime.boundary import contained
from capd.runtime.bus import Bus

FIRST_AFTER = 60.0
"""Seconds after the start, so that the cleanup does not slow the start down."""
LONGEST = 300.0
"""The most seconds for one round, because a project's disk may not answer."""

log = structlog.get_logger(actor="sweeper")


class Sweeper:
    """Finds cached files that are no longer needed, as the core decides, and removes them."""

    def __init__(
        self,
        bus: Bus,
        files: LeftoverFiles,
        others: Sequence[Callable[[], Awaitable[object]]] = (),
        now: Callable[[], float] = time.time,
    ) -> None:
        """Create it. `others` are further removals to run once a day."""
        self._supervisor = SupervisorClient(bus)
        self._files = files
        self._others = others
        self._now = now

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Remove files a minute after the start, and then daily, until cancelled."""
        task_status.started()
        await trio.sleep(FIRST_AFTER)
        while True:
            with trio.move_on_after(LONGEST):
                await contained("sweep", self.sweep, log=log)
            await trio.sleep(DAY)

    async def sweep(self) -> None:
        """Run the other removals, then remove outdated files.

        If it cannot be found out which servers run, no outdated file is removed.
        """
        for other in self._others:
            await other()
        thread = partial(trio.to_thread.run_sync, abandon_on_cancel=True)
        try:
            projects = await thread(self._files.projects)
            found = await thread(self._files.found)
            # Ask for the running servers after the files were listed. A server that starts later
            # uses its files, and `remove` spares files that were used in the meantime.
            servers = await self._supervisor.servers()
        except (CapdError, OSError) as error:
            log.warning("not_swept", reason=str(error))
            return
        running = {str(entry.identity) for entry in servers}
        gone = files_to_delete(found, self._now(), projects=projects, running=running)
        if gone:
            await thread(self._files.remove, gone)
            log.info("leftovers_removed", files=[each.name for each in gone])
