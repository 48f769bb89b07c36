"""A running connection to a server, in the form that the sessions which hold it use."""

from collections.abc import Callable, Iterable
from typing import NoReturn

import trio
from structlog.typing import FilteringBoundLogger

from capd.adapters.servers.callers import Peer
from capd.adapters.servers.listings import Listings
from capd.adapters.servers.server_connection import ServerConnection
from capd.adapters.servers.subscriptions import Subscriptions
from capd.adapters.spool import ServerSpool
from capd.adapters.step_boundary import boundary
from capd.core.back_references import weakly
from capd_protos.types import ServerName, SessionKey

FOLLOWED = ("prompts", "resources")
"""The lists whose changes are announced to sessions, besides the list of tools."""
GATHERED_FOR = 0.1
"""Changes within this many seconds are reported once. A server that changes many entries in a loop
needs less time, and two calls are usually further apart."""
PAUSE = 2.0
"""Seconds between two reports of one list. A server may announce a change for each entry."""


class ListChanges:
    """The list changes that one instance announces; `follow` them in a task of its own.

    `Listings.changed` drops a cached list at once, so that a session which lists meanwhile gets the
    current one. Only the notification of sessions is delayed.
    """

    def __init__(self, tell: Callable[[str], None]) -> None:
        """Start without changes.

        `tell` notifies the sessions that the list `prompts` or `resources` has changed.
        """
        self._tell = tell
        self._noted = {what: trio.Event() for what in FOLLOWED}

    def note(self, what: str) -> None:
        """Note that the server's list `what`, which is `prompts` or `resources`, has changed."""
        self._noted[what].set()

    async def follow(self) -> None:
        """Until cancelled, notify sessions of noted changes; several are reported as one."""
        async with trio.open_nursery() as nursery:
            for what in FOLLOWED:
                nursery.start_soon(self._follow, what)

    async def _follow(self, what: str) -> NoReturn:
        while True:
            await self._noted[what].wait()
            await trio.sleep(GATHERED_FOR)
            self._noted[what] = trio.Event()
            self._tell(what)
            await trio.sleep(PAUSE)


class Instance:
    """One instance: its server connection, its lists, and subscriptions to its resources."""

    def __init__(
        self,
        name: ServerName,
        stdin: trio.abc.SendStream,
        stdout: trio.abc.ReceiveStream,
        *,
        on_tools_changed: Callable[[], None],
        log: FilteringBoundLogger,
        project: str = "",
        redact: Callable[[str], str] = str,
        spool: ServerSpool | None = None,
    ) -> None:
        self._on_tools_changed = on_tools_changed
        self.server_connection = ServerConnection(
            name,
            stdin,
            stdout,
            on_list_changed=weakly(self._list_changed),
            log=log,
            project=project,
            redact=redact,
            spool=spool,
        )
        self.listings = Listings(self.server_connection, self._list_came_late)
        self.subscriptions = Subscriptions(self.server_connection)
        self._list_changes = ListChanges(weakly(self._tell_of_change))

    def join(self, peer: Peer, uris: Iterable[str] = (), tasks: Iterable[str] = ()) -> None:
        """Pass the server's messages on to a session that holds the instance; `peer` is its client.

        `uris` are the resources that the session had subscribed to at an earlier instance. `tasks`
        are the tasks that it listened for there.
        """
        self.server_connection.holders[peer.session] = peer
        self.subscriptions.join(peer, uris, tasks)

    def leave(self, session: SessionKey) -> None:
        """Stop passing messages on to a session."""
        self.server_connection.holders.pop(session, None)
        self.subscriptions.leave(session)

    async def follow(self) -> None:
        """Serve subscriptions and notifications until the server is gone."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._list_changes.follow)
            nursery.start_soon(self.listings.follow)
            await self.subscriptions.follow()
            nursery.cancel_scope.cancel()

    def _list_changed(self, what: str) -> None:
        if what == "tools":
            self._on_tools_changed()
            return
        self.listings.changed(what)
        self._list_changes.note(what)

    def _list_came_late(self, what: str) -> None:
        self._list_changes.note(what)

    def _tell_of_change(self, what: str) -> None:
        for peer in list(self.server_connection.holders.values()):
            with boundary("list change", log=self.server_connection.log):
                peer.tell(f"notifications/{what}/list_changed", b"")
