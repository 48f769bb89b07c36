"""Finds out which capabilities must not be named to the model of a session.

A capability must not be named if the session's profile switches it off, or if policy permits none
of its tools. The finder answers which capabilities policy denies, because it knows the tools of all
servers. A session without policy rules does not ask the finder.
"""

from collections.abc import Iterable

from capd.actor_clients.finder import FinderClient
from capd.actor_clients.names import FINDER, REGISTRY
from capd.actor_clients.registry import RegistryClient
from capd.actors.session.asking import must_answer
from capd.core.sessions.session_place import NotActivatedError
from capd.core.sessions.session_view import SessionView
from capd_protos import finder
from capd_protos.types import CapabilityId

ASK_TIMEOUT = 10.0


class Denials:
    """Finds out which capabilities must not be named to the model of one session."""

    # Slots save memory: every idle session has one of these objects.
    __slots__ = ("_finder", "_registry", "_view")

    def __init__(
        self, finder_client: FinderClient, registry_client: RegistryClient, view: SessionView
    ) -> None:
        self._finder = finder_client
        self._registry = registry_client
        self._view = view

    async def all(self) -> list[CapabilityId]:
        """Return the capabilities that policy denies or the session's profile switches off.

        Raises:
            NotActivatedError: that cannot be found out, so none may be named.
        """
        return [*await self._off(), *await self._denied()]

    async def _off(self) -> list[CapabilityId]:
        policy = self._view.policy
        if not policy.off:
            return []
        with must_answer(REGISTRY):
            known = await self._registry.capabilities(self._view.project, timeout=ASK_TIMEOUT)
        ids = (CapabilityId(each.tap, each.name) for each in known)
        return [id_ for id_ in ids if policy.restrict_capability(id_) is not None]

    async def _denied(self) -> list[CapabilityId]:
        rules = rules_of(self._view)
        if not rules:
            return []
        with must_answer(FINDER):
            reply = await self._finder.denied(rules, self._view.project, timeout=ASK_TIMEOUT)
        if not reply.is_known:
            text = "capd is still reading what is installed, and what policy denies of it."
            raise NotActivatedError(f"{text} Try again in a moment.")
        return [each.id for each in reply.capabilities]

    async def permitted(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return those of `names` that may be mentioned.

        Empty while it is not known which capabilities are denied.
        """
        try:
            denied = {form for id_ in await self.all() for form in (str(id_.name), str(id_))}
        except NotActivatedError:
            return ()
        return tuple(name for name in names if name not in denied)


def rules_of(view: SessionView) -> list[finder.PolicyTable]:
    """Return a session's policy as the tables that requests to the finder contain."""
    return [
        finder.PolicyTable(
            table.place,
            list(table.allow),
            list(table.deny),
            None if table.capabilities is None else list(table.capabilities),
        )
        for table in view.policy.tables
        if table.allow or table.deny or table.capabilities is not None
    ]
