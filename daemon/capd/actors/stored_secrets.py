"""Reads the stored values of the secrets that definitions name, before a server needs them.

Routing does not wait for this. Until the keyring has answered, the secrets in it count as missing.
"""

import structlog
import trio

from capd.actor_clients.registry import RegistryClient
from capd.adapters.clients.session_environment import Stored
from capd.core.errors import CapdError
from capd.runtime.boundary import contained
from capd.runtime.bus import Bus
from capd_protos import registry
from capd_protos.codec import MsgpackCodec
from capd_protos.types import ActorName

NAME = ActorName("secrets")
HINTS: MsgpackCodec[registry.CatalogChanged] = MsgpackCodec(registry.CatalogChanged)
CATALOG_TIMEOUT = 30.0

log = structlog.get_logger(actor="secrets")


class SecretPreloader:
    """Reads stored secrets into the daemon's memory before anybody waits for them."""

    def __init__(self, bus: Bus, stored: Stored) -> None:
        self._bus = bus
        self._registry = RegistryClient(bus)
        self._stored = stored

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Read secrets now, and again whenever the catalog has changed."""
        async with self._bus.subscribe(HINTS, "registry.changed") as hints:
            task_status.started()
            try:
                described = await self._registry.describe(
                    all_projects=True, timeout=CATALOG_TIMEOUT
                )
            except CapdError as error:
                log.warning("secrets_not_asked_for", reason=str(error))
            else:
                await self._ask_contained(described.wanted_keys)
            async for hint in hints:
                await self._ask_contained(hint.wanted_keys)

    async def _ask_contained(self, keys: list[str]) -> None:
        await contained("secrets", self._ask, keys, log=log)

    async def _ask(self, keys: list[str]) -> None:
        await self._stored.ask_again(keys)
        sources = self._stored.sources()
        log.info(
            "secrets_asked_for",
            wanted=len(keys),
            found=sum(key in sources for key in keys),
            problems=self._stored.problems(),
            notes=self._stored.notes() if keys else [],
        )
