"""A curator's part for the cascade: what one session is told of what it could switch on.

Policy, domain, project and what is on already decide; the words were made when the catalog was
read, and what they take was counted then.
"""

from collections.abc import Sequence
from contextlib import suppress

from capd.actors.session.index_cache import IndexDesk
from capd.actors.session.leases import NotActivatedError
from capd.actors.session.policy import Denials
from capd.core.index.summaries import Suggested, call_of, suggested
from capd.core.index.token_costs import TokenCosts
from capd.core.index.trigger_map import Mapped, trigger_map
from capd.core.sessions.domains import is_inside
from capd.core.sessions.policy import Policy
from capd.core.sessions.session import SessionState
from capd.core.sessions.session_place import SessionPlace
from capd.core.sessions.session_view import SessionView
from capd_protos.types import CapabilityBar, CapabilityId


class SessionIndex:
    """The index as one session has it."""

    __slots__ = (
        *("_denials", "_denied", "_desk", "_place", "_state", "_view"),
        *("left_out", "mapped", "met_as"),
    )

    def __init__(
        self,
        desk: IndexDesk,
        place: SessionPlace,
        state: SessionState,
        view: SessionView,
        denials: Denials,
    ) -> None:
        self._desk = desk
        self._place = place
        self._state = state
        self._view = view
        self._denials = denials
        self._denied: tuple[Policy, frozenset[CapabilityId]] | None = None
        """What policy denies, and which policy was asked about; None where nobody could say."""
        self.met_as: Policy | None = None
        """The policy that was asked about when a connection was last waiting for it."""
        self.mapped = Mapped()
        """The map as it was told last."""
        self.left_out = 0
        """Capabilities that fitted a message and had no room in its turn."""

    @property
    def costs(self) -> TokenCosts:
        """What texts take."""
        return self._desk.costs

    async def meet(self) -> None:
        """Have it at hand; where nobody can say what policy denies, nothing is named."""
        self.met_as = self._view.policy
        await self._desk.meet(self._place.project, self._view.called(self._view.enabler))
        with suppress(NotActivatedError):
            await self.denied()

    async def denied(self) -> list[CapabilityId]:
        """Return what policy denies, and name none of it from here on.

        Raises:
            NotActivatedError: nobody can say, so none may be named.
        """
        policy = self._view.policy
        try:
            denied = await self._denials.all()
        except NotActivatedError:
            self._denied = None
            raise
        self._denied = (policy, frozenset(denied))
        return denied

    def map(self) -> str:
        """Return the first level, without what is on; empty until it is known what is denied."""
        if self._denied is None or self._view.is_bare:
            return ""
        policy, denied = self._denied
        if policy != self._view.policy:
            return ""
        entries = [
            entry
            for entry in self._desk.entries(self._place.project)
            if entry.id not in denied
            and entry.id not in self._state.active
            and is_inside(self._place.domain, entry.domains)
        ]
        self.mapped = trigger_map(entries, self._desk.costs)
        return self.mapped.text

    def first_words(self) -> str:
        """Return the first level for a model whose client hands it no instructions."""
        return "" if self._view.traits.reads_instructions else self.map()

    def suggested(self, ids: Sequence[CapabilityId]) -> str:
        """Return the second level of what may be meant by a message."""
        entries = [self._desk.entry(self._place.project, id_) for id_ in ids]
        said: Suggested = suggested(
            entries, call_of(self._view.called(self._view.enabler)), self._desk.costs
        )
        self.left_out += said.left_out
        return said.text

    def entry(self) -> dict[str, int]:
        """Return what the list of sessions says of it."""
        return {
            "index_listed": self.mapped.listed,
            "index_left_out": self.mapped.left_out,
            "index_tokens": self.mapped.tokens,
            "suggestions_left_out": self.left_out,
        }

    def bars(self) -> list[CapabilityBar]:
        """Return what a person has set on switching capabilities on by themselves."""
        return [
            CapabilityBar(entry.id, entry.threshold, entry.is_automatic)
            for entry in self._desk.entries(self._place.project)
            if entry.threshold or not entry.is_automatic
        ]
