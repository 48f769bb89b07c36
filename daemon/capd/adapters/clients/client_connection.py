"""The client of a session: what capd knows about it, and how to reach it while it is connected.

A session has one `ClientConnection` for its whole life, so a client that connects again finds the
subscriptions and the log level of its earlier connection.
"""

from typing import Protocol

import msgspec
import trio

from capd.adapters.servers.callers import OnProgress
from capd.core.protocol.outcomes import RefusedError
from capd_protos.codec import JsonCodec
from capd_protos.types import ClientFacts, SessionKey


class _UriParams(msgspec.Struct):
    uri: str


class _TaskParams(msgspec.Struct, rename="camel"):
    task_id: str


_TASK: JsonCodec[_TaskParams] = JsonCodec(_TaskParams)
_URI: JsonCodec[_UriParams] = JsonCodec(_UriParams)


class OpenConnection(Protocol):
    """What a session needs of its client's connection while there is one."""

    is_draining: bool
    """Whether new calls are refused, because the daemon stops."""

    @property
    def is_busy(self) -> bool:
        """Whether requests of the client are in progress."""
        ...

    def close(self, reason: str, *, reconnect: bool) -> None:
        """Send the client the reason, and close the connection.

        With `reconnect`, the client is asked to connect again.
        """
        ...

    def list_changed(self, what: str) -> None:
        """Notify the client that its list of `tools`, `prompts` or `resources` has changed."""
        ...

    def resource_updated(self, uri: str, params: bytes) -> None:
        """Notify the client that the resource `uri` has changed, once for each subscription."""
        ...

    def task_changed(self, task: str, params: bytes) -> None:
        """Notify the client that a task has changed, once for each stream that listens for it."""
        ...

    def notify(self, method: str, params: bytes) -> None:
        """Send the client a notification with this method and these params."""
        ...

    async def ask(self, method: str, params: bytes, on_progress: OnProgress) -> bytes:
        """Send the client a server's request; return the result in the client's answer.

        `on_progress` receives the params of progress that the client reports.
        """
        ...

    def want_environment(self, keys: list[str]) -> None:
        """Ask the client for the values of the environment variables `keys`."""
        ...


_LISTED = trio.Event()
"""One event that is always set. All sessions whose client has listed its tools share it, which
saves an event for each."""
_LISTED.set()


class ClientConnection:
    """The client of a session, in the form in which servers and the session's parts reach it."""

    # Dictionaries without values in place of sets: an empty set is three times as large.

    __slots__ = (
        *("client", "client_sessions", "is_initialized", "linked_by", "log_level"),
        *("is_far", "may_be_servers"),
        *("_relisted", "session", "subscriptions", "upstream"),
    )

    def __init__(self, session: SessionKey) -> None:
        self.session = session
        self.client = ClientFacts()
        """The client info, as far as the client has sent any."""
        self.log_level = ""
        """The lowest level of log messages that the client wants; empty if it never set one."""
        self.subscriptions: dict[str, None] = {}
        """Resources to which a client of the handshake generation has subscribed."""
        self.may_be_servers = False
        """Whether the client may be a server's process. Such a client is not asked for approvals.
        """
        self.is_far = False
        """Whether the client is behind a bridge. Its paths are of another machine, and it is not
        asked for approvals."""
        self.is_initialized = False
        """Whether the client has completed its handshake. Before that it gets no notifications."""
        self.client_sessions: dict[str, None] = {}
        """The client's own ids of its conversations; `/clear` in a client starts another one."""
        self.linked_by = ""
        """How capd found that the client's last hook belongs to this session, such as `its key`;
        empty if no hook of the client has asked yet."""
        # Set when the client has listed its current tools. None if it has not, and no task waits.
        self._relisted: trio.Event | None = None
        self.upstream: OpenConnection | None = None
        """The open connection; None while the client is not connected."""

    @property
    def is_connected(self) -> bool:
        """Whether the client is connected."""
        return self.upstream is not None

    def on_listed(self) -> None:
        """Note that the client has listed its current tools."""
        if self._relisted is not None:
            self._relisted.set()
        self._relisted = _LISTED

    def on_list_changed(self) -> None:
        """Note that the list of tools has changed after the client listed it."""
        self._relisted = None

    async def until_listed(self) -> None:
        """Wait until the client has listed its current tools."""
        if self._relisted is None:
            self._relisted = trio.Event()
        await self._relisted.wait()

    async def ask(self, method: str, params: bytes, on_progress: OnProgress) -> bytes:
        """Send the client a server's request that belongs to no call; return the client's result.

        Raises:
            ServerError: the client answered with an error.
            RefusedError: the client cannot be asked, or did not answer.
        """
        if self.upstream is None:
            raise RefusedError("the client is not connected at this moment")
        return await self.upstream.ask(method, params, on_progress)

    def tell(self, method: str, params: bytes) -> None:
        """Send the client a notification that belongs to no call. If not connected, do nothing."""
        if self.upstream is None:
            return
        match method.removeprefix("notifications/").split("/"):
            case ["prompts" | "resources" as what, "list_changed"]:
                self.upstream.list_changed(what)
            case ["resources", "updated"]:
                self.upstream.resource_updated(_URI.decode(params).uri, params)
            case ["tasks"]:
                self.upstream.task_changed(_TASK.decode(params).task_id, params)
            case _ if self.is_initialized:
                self.upstream.notify(method, params)
