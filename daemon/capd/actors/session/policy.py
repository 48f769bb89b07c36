"""Which capabilities the session's policy leaves nothing of.

The finder says it, who knows what servers list; a session without rules asks nobody.
"""

from collections.abc import Iterable

from capd.actor_clients.finder import FinderClient
from capd.core.sessions.session_place import NotActivatedError
from capd.core.sessions.session_view import SessionView
from capd.runtime.peer import ActorUnavailableError
from capd_protos import finder
from capd_protos.types import CapabilityId

ASK_TIMEOUT = 10.0


class Denials:
    """The capabilities that one session may not name."""

    # Every idle session has one.
    __slots__ = ("_finder", "_view")

    def __init__(self, finder_client: FinderClient, view: SessionView) -> None:
        self._finder = finder_client
        self._view = view

    async def all(self) -> list[CapabilityId]:
        """Return the denied capabilities.

        Raises:
            NotActivatedError: nobody can say, so none may be named.
        """
        rules = rules_of(self._view)
        if not rules:
            return []
        try:
            reply = await self._finder.denied(rules, self._view.project, timeout=ASK_TIMEOUT)
        except ActorUnavailableError as error:
            raise NotActivatedError(f"capd's finder does not answer: {error}") from None
        if not reply.is_known:
            text = "capd is still reading what is installed, and what policy denies of it."
            raise NotActivatedError(f"{text} Try again in a moment.")
        return [each.id for each in reply.capabilities]

    async def permitted(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return the names of capabilities that may be named; none where nobody can say."""
        try:
            denied = {form for id_ in await self.all() for form in (str(id_.name), str(id_))}
        except NotActivatedError:
            return ()
        return tuple(name for name in names if name not in denied)


def rules_of(view: SessionView) -> list[finder.PolicyTable]:
    """Return a session's policy as it is told to the finder."""
    return [
        finder.PolicyTable(table.place, list(table.allow), list(table.deny))
        for table in view.policy.tables
    ]
