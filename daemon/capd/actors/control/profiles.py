"""Methods on profiles: list them, show each session's profile, and choose one.

A profile decides which accounts a session uses. So only a person at a terminal may choose one, as
for trust in a project (docs/design/trust.md).
"""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from capd.actors.control import documents
from capd.actors.control.actors import Actors, accepted
from capd.actors.control.callers import check_person
from capd.adapters.clients.peers import Peer
from capd_protos import socket as frames
from capd_protos.types import SessionKey


class ProfileMethods:
    """The methods on profiles. The method that chooses one checks the calling process first."""

    def __init__(self, actors: Actors) -> None:
        self._actors = actors
        self.methods: dict[str, Callable[[Any], Awaitable[Any]]] = {"profiles": self._profiles}
        self.personal: dict[str, Callable[[Any, Peer], Awaitable[Any]]] = {"profile_use": self._use}

    async def _profiles(self, _: frames.NoParams) -> dict[str, Any]:
        listed = await self._actors.curator.profiles()
        return {"schema": documents.SCHEMA, **msgspec.to_builtins(listed)}

    async def _use(self, params: frames.UseProfileParams, peer: Peer) -> dict[str, Any]:
        await check_person("profile_use", peer, "capd profile use")
        session = SessionKey(params.session)
        answered = accepted(await self._actors.curator.use_profile(session, params.name))
        return {
            "schema": documents.SCHEMA,
            "session": answered.session,
            "ok": answered.is_ok,
            "text": answered.text,
        }
