"""A running connection to a server, as a session that holds it uses it."""

from collections.abc import Callable, Iterable

import trio
from structlog.typing import FilteringBoundLogger

from capd.adapters.servers.callers import Peer
from capd.adapters.servers.lane import Lane
from capd.adapters.servers.list_changes import ListChanges
from capd.adapters.servers.listings import Listings
from capd.adapters.servers.subscriptions import Subscriptions
from capd.adapters.spool import ServerSpool
from capd.core.back_references import weakly
from capd_protos.types import ServerName, SessionKey


class Instance:
    """One instance: its lane, its lists, what sessions subscribe to there."""

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
        self.lane = Lane(
            name,
            stdin,
            stdout,
            on_list_changed=weakly(self._list_changed),
            log=log,
            project=project,
            redact=redact,
            spool=spool,
        )
        self.listings = Listings(self.lane, self._list_came_late)
        self.subscriptions = Subscriptions(self.lane)
        self._list_changes = ListChanges(weakly(self._tell_of_change))

    @property
    def is_alive(self) -> bool:
        """Whether a call has a chance."""
        return self.lane.is_alive

    def join(self, peer: Peer, uris: Iterable[str] = ()) -> None:
        """Let the server's words reach a session that holds the instance.

        `uris` are what it wants to hear of still, by what an instance before this one told.
        """
        self.lane.holders[peer.session] = peer
        self.subscriptions.join(peer, uris)

    def leave(self, session: SessionKey) -> None:
        """Let nothing more reach a session."""
        self.lane.holders.pop(session, None)
        self.subscriptions.leave(session)

    async def follow(self) -> None:
        """See to what sessions subscribe to, and hear of, until the server is gone."""
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
        for peer in list(self.lane.holders.values()):
            peer.tell(f"notifications/{what}/list_changed", b"")
