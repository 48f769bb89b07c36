"""The actors that control methods ask, and the errors that their refusals turn into."""

from typing import TypeVar

from capd.actor_clients.curator import CuratorClient
from capd.actor_clients.definitions import DefinitionsClient
from capd.actor_clients.embedder import EmbedderClient
from capd.actor_clients.finder import FinderClient
from capd.actor_clients.index import IndexClient
from capd.actor_clients.ledger import LedgerClient
from capd.actor_clients.registry import RegistryClient
from capd.actor_clients.settings import SettingsClient
from capd.actor_clients.supervisor import SupervisorClient
from capd.runtime.bus import Bus
from capd_protos import socket as frames
from capd_protos.curator import CuratorRefused
from capd_protos.finder import FinderRefused
from capd_protos.index import IndexRefused
from capd_protos.ledger import LedgerRefused
from capd_protos.registry import RegistryRefused
from capd_protos.supervisor import LoginFailed

ASK_TIMEOUT = 5.0
LEDGER_TIMEOUT = 2.0

R = TypeVar("R")

_REFUSAL_CODES = {
    CuratorRefused: frames.NOT_FOUND,
    FinderRefused: frames.INVALID_PARAMS,
    IndexRefused: frames.REFUSED,
    LedgerRefused: frames.UNAVAILABLE,
    LoginFailed: frames.REFUSED,
}
_REGISTRY_CODES = {
    "no_intent": frames.INVALID_PARAMS,
    "model_not_ready": frames.UNAVAILABLE,
    "changed": frames.REFUSED,
    "not_written": frames.REFUSED,
}


class MethodError(Exception):
    """A control method fails: the caller gets this JSON-RPC error code and message."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Actors:
    """One client of each actor that a control method asks."""

    def __init__(self, bus: Bus) -> None:
        self.curator = CuratorClient(bus)
        self.definitions = DefinitionsClient(bus)
        self.embedder = EmbedderClient(bus)
        self.finder = FinderClient(bus)
        self.index = IndexClient(bus)
        self.ledger = LedgerClient(bus)
        self.registry = RegistryClient(bus)
        self.settings = SettingsClient(bus)
        self.supervisor = SupervisorClient(bus)


def accepted(
    reply: R
    | CuratorRefused
    | FinderRefused
    | IndexRefused
    | LedgerRefused
    | LoginFailed
    | RegistryRefused,
) -> R:
    """Return `reply` if it is not a refusal.

    Raises:
        MethodError: it is a refusal; the error has the code and the message for the caller.
    """
    if isinstance(reply, RegistryRefused):
        raise MethodError(_REGISTRY_CODES.get(reply.code, frames.REFUSED), reply.message)
    if isinstance(reply, (CuratorRefused, FinderRefused, IndexRefused, LedgerRefused, LoginFailed)):
        raise MethodError(_REFUSAL_CODES[type(reply)], reply.message)
    return reply
