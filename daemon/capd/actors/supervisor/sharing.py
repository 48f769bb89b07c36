"""Decides which sessions share an instance, by the definition's scope and the server's generation.

The scope says whether all sessions share an instance, those of a project, or none. MCP has two
generations: with a handshake, and stateless. An instance of a stateless server may serve every
session. A server's generation is known after its first start, and is saved for the next daemon.
"""

import secrets
from collections.abc import Callable, Mapping

import msgspec

from capd.adapters.servers.generation_file import GenerationFile
from capd.adapters.servers.instance import Instance
from capd.core.protocol.generations import is_stateless
from capd.core.servers.generation_memory import GenerationMemory
from capd.core.servers.identity import InstanceKey, instance_keys
from capd.core.servers.leases import Leases
from capd.core.servers.sandbox import SandboxRequest
from capd.runtime.saver import Saver
from capd_protos import supervisor as messages
from capd_protos.types import ClientFacts, ServerSpec

SAVE_PAUSE = 0.1
"""Seconds from a handshake to the save, because several servers start together."""


class Sharing:
    """Chooses the instance for each session, and remembers the generations of servers."""

    def __init__(
        self,
        leases: Leases[InstanceKey],
        sandbox_request: Callable[[ServerSpec], SandboxRequest],
        file: GenerationFile | None,
    ) -> None:
        """Create it.

        `sandbox_request` returns a server's sandbox, which is part of an instance's key.
        """
        self._leases = leases
        self._sandbox_request = sandbox_request
        self._file = file
        self._saver = Saver(self._save, pause=SAVE_PAUSE)
        self._generations = GenerationMemory()
        # Keys contain a digest of secrets. With this random value, nobody else can guess a secret
        # and compare its digest.
        self._pepper = secrets.token_bytes(32)

    async def load(self) -> None:
        """Load which MCP generation each server speaks, as an earlier daemon saved it."""
        if self._file is not None:
            self._generations.restore(await self._file.load())

    async def run(self) -> None:
        """Save which MCP generation each server speaks, after changes, until cancelled."""
        await self._saver.run()

    def chosen(
        self, request: messages.AcquireServer, values: Mapping[str, str], account: str = ""
    ) -> tuple[InstanceKey, ServerSpec]:
        """Return the key of the instance for a session, and the definition that it runs by.

        The first of these that applies is chosen: the instance that the session has already, one
        that already runs by the definition's `scope`, and, for a server that is known to be
        stateless, the one that all sessions share. Otherwise it is a new instance by the
        definition's `scope`. `values` are the secrets for the server, and `account` is the
        login that the session uses there.
        """
        server, session = request.server, request.session
        keys = instance_keys(
            *(server, request.project, session, values, self._pepper),
            sandbox_request=self._sandbox_request(server),
            bridge=request.bridge,
            far_folder=request.far_folder,
            account=account,
        )
        shared, by_scope = keys["shared"], keys[server.scope]
        by_stateless = is_stateless(request.client)
        scope = self._generations.scope(server, shared.identity, by_stateless=by_stateless)
        is_held = session in self._leases.holders(shared)
        has_own = self._leases.is_up(by_scope) or session in self._leases.holders(by_scope)
        if is_held or (scope == "shared" and not has_own):
            return shared, msgspec.structs.replace(server, scope="shared")
        return by_scope, server

    def is_tried_stateless(
        self, key: InstanceKey, client: ClientFacts, *, has_failed: bool
    ) -> bool:
        """Tell whether to start a server in the stateless generation of MCP first.

        `has_failed` says that the server failed when it was started last.
        """
        by_stateless = is_stateless(client)
        return self._generations.is_tried_stateless(
            key.identity, by_stateless=by_stateless, has_failed=has_failed
        )

    def probe_patience(self, key: InstanceKey, transport: str) -> float:
        """Return for how many seconds a starting server may take to answer `server/discover`."""
        return self._generations.probe_patience(key.identity, transport)

    def on_started(self, key: InstanceKey, link: Instance, *, tried_stateless: bool) -> None:
        """Note which generation of MCP the started server `link` speaks, and save it soon.

        `tried_stateless` says that the stateless generation was tried first.
        """
        has_changed = self._generations.note_start(
            key.identity,
            tried_stateless=tried_stateless,
            is_stateless=link.server_connection.is_stateless,
        )
        if self._file is not None and has_changed:
            self._saver.changed("generations")

    async def _save(self, _: str) -> bool:
        return self._file is None or await self._file.save(self._generations.written())
