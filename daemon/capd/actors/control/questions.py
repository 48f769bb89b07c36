"""What methods ask the actors: one bus, each actor's replies, and how long an answer may take."""

from typing import TypeVar

import msgspec

from capd.runtime.bus import Bus
from capd.runtime.peer import AskFailedError, AskTimeoutError, PeerUnreachableError
from capd_protos import curator, embedder, finder, index, ledger, registry, settings, supervisor
from capd_protos import socket as frames
from capd_protos.codec import MsgpackCodec
from capd_protos.types import ActorName

REGISTRY = ActorName("registry")
SUPERVISOR = ActorName("supervisor")
CURATOR = ActorName("curator")
EMBEDDER = ActorName("embedder")
FINDER = ActorName("finder")
LEDGER = ActorName("ledger")
SETTINGS = ActorName("settings")
INDEX = ActorName("index")

REGISTRY_REPLIES: MsgpackCodec[registry.Reply] = MsgpackCodec(registry.Reply)
SUPERVISOR_REPLIES: MsgpackCodec[supervisor.Reply] = MsgpackCodec(supervisor.Reply)
CURATOR_REPLIES: MsgpackCodec[curator.Reply] = MsgpackCodec(curator.Reply)
EMBEDDER_REPLIES: MsgpackCodec[embedder.Reply] = MsgpackCodec(embedder.Reply)
FINDER_REPLIES: MsgpackCodec[finder.Reply] = MsgpackCodec(finder.Reply)
LEDGER_REPLIES: MsgpackCodec[ledger.Reply] = MsgpackCodec(ledger.Reply)

INDEX_REPLIES: MsgpackCodec[index.Reply] = MsgpackCodec(index.Reply)
SETTINGS_REPLIES: MsgpackCodec[settings.Reply] = MsgpackCodec(settings.Reply)

ASK_TIMEOUT = 5.0
LEDGER_TIMEOUT = 2.0

UNANSWERED = (AskTimeoutError, PeerUnreachableError, AskFailedError)

T = TypeVar("T")


class MethodError(Exception):
    """A method's error answer."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Questions:
    """The actors, as a method of the control role asks them.

    Each of these raises what `UNANSWERED` names where the actor does not answer in time.
    """

    def __init__(self, bus: Bus) -> None:
        self.bus = bus

    async def sessions(self) -> curator.SessionsListed:
        """Return every session."""
        return await self.curator(curator.ListSessions(), curator.SessionsListed)

    async def servers(self) -> supervisor.ServersListed:
        """Return every server that is known to the supervisor."""
        return await self.supervisor(supervisor.ListServers(), supervisor.ServersListed)

    async def settings(
        self, request: settings.Request, timeout: float = ASK_TIMEOUT
    ) -> settings.SettingsDescribed:
        """Return what can be set, and what is."""
        return await self.bus.ask(SETTINGS, request, SETTINGS_REPLIES, timeout)

    async def registry(
        self, request: msgspec.Struct, expected: type[T], timeout: float = ASK_TIMEOUT
    ) -> T:
        """Return the registry's reply, which is an `expected`."""
        reply = await self.bus.ask(REGISTRY, request, REGISTRY_REPLIES, timeout)
        assert isinstance(reply, expected)
        return reply

    async def supervisor(
        self, request: msgspec.Struct, expected: type[T], timeout: float = ASK_TIMEOUT
    ) -> T:
        """Return the supervisor's reply.

        Raises:
            MethodError: a login failed.
        """
        reply = await self.bus.ask(SUPERVISOR, request, SUPERVISOR_REPLIES, timeout)
        if isinstance(reply, supervisor.LoginFailed):
            raise MethodError(frames.REFUSED, reply.message)
        assert isinstance(reply, expected)
        return reply

    async def curator(
        self, request: msgspec.Struct, expected: type[T], timeout: float = ASK_TIMEOUT
    ) -> T:
        """Return the curator's reply.

        Raises:
            MethodError: there is no such session, or it refuses.
        """
        reply = await self.bus.ask(CURATOR, request, CURATOR_REPLIES, timeout)
        if isinstance(reply, curator.CuratorRefused):
            raise MethodError(frames.NOT_FOUND, reply.message)
        assert isinstance(reply, expected)
        return reply

    async def index(
        self, request: index.Request, expected: type[T], timeout: float = ASK_TIMEOUT
    ) -> T:
        """Return the index's reply.

        Raises:
            MethodError: its file cannot be read or written.
        """
        reply = await self.bus.ask(INDEX, request, INDEX_REPLIES, timeout)
        if isinstance(reply, index.IndexRefused):
            raise MethodError(frames.REFUSED, reply.message)
        assert isinstance(reply, expected)
        return reply

    async def ledger(self, request: msgspec.Struct, expected: type[T]) -> T:
        """Return the ledger's reply.

        Raises:
            MethodError: its file cannot be read.
        """
        reply = await self.bus.ask(LEDGER, request, LEDGER_REPLIES, LEDGER_TIMEOUT)
        if isinstance(reply, ledger.LedgerRefused):
            raise MethodError(frames.UNAVAILABLE, reply.message)
        assert isinstance(reply, expected)
        return reply
