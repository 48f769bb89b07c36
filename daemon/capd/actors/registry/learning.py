"""What routing learns from use: receives labels, computes score offsets, and saves the labels.

A label records that a routing decision was right or wrong. For example, it was wrong if a person
then switched the capability off. A label arrives as an event; if the event is lost, nothing is
learnt from it. The work for one label is bounded, because the number of labels is bounded
(`core.routing.learning`). A turn only looks up an offset.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from capd.core.routing.learning import NOTHING, History, Learnt, project_mark
from capd.runtime.bus import Bus
from capd.runtime.saver import Saver, not_saved
from capd_protos import registry as messages
from capd_protos.codec import MsgpackCodec
from capd_protos.curator import RoutingTaught
from capd_protos.types import RoutingLabel

TAUGHT: MsgpackCodec[RoutingTaught] = MsgpackCodec(RoutingTaught)
SAVE_PAUSE = 2.0
"""Seconds from a label to its save."""


class LabelStore(Protocol):
    """Saves and loads labels, each of which says that a routing decision was right or wrong."""

    @property
    def problem(self) -> str:
        """Why the saved labels of an earlier daemon cannot be used; empty if they can."""
        ...

    async def load(self) -> Sequence[RoutingLabel]:
        """Return the saved labels."""
        ...

    async def save(self, labels: Sequence[RoutingLabel], /) -> bool:
        """Save the labels; return whether that worked."""
        ...


class Learning:
    """What routing has learnt. Without a store it is lost when the daemon ends."""

    def __init__(self, bus: Bus, store: LabelStore | None, is_on: Callable[[str], bool]) -> None:
        """Create it. `is_on(project)` tells whether learning is on in a project.

        If it is off there, routing learns nothing from the project's sessions, and what it has
        learnt does not apply to them.
        """
        self._bus = bus
        self._store = store
        self._is_on = is_on
        self._history = History()
        self._saver = Saver(self._save, pause=SAVE_PAUSE)

    async def load(self) -> None:
        """Load the labels that an earlier daemon saved, and compute what they teach."""
        if self._store is not None:
            self._history = History(await self._store.load())

    async def run(self) -> None:
        """Save changes of the labels until cancelled, and once more at the end."""
        await self._saver.run()

    async def follow(self) -> None:
        """Add the labels that sessions publish, until cancelled.

        A label says that a routing decision was right or wrong.
        """
        async with self._bus.subscribe(TAUGHT, "session.routing_taught") as news:
            async for taught in news:
                if self._history.add(taught.label):
                    self._changed()

    def known(self, project: str) -> Learnt:
        """Return how much routing adds to the score of each capability in a project.

        It adds nothing if learning is off there.
        """
        return self._history.learnt if self._is_on(project) else NOTHING

    @property
    def capabilities(self) -> frozenset[str]:
        """The capabilities that routing has learnt something about, as `tap/name`."""
        return frozenset(label.capability for label in self._history.labels)

    def reply(
        self, request: messages.DescribeLearning | messages.ForgetLearning
    ) -> messages.LearningDescribed | messages.LearningForgotten:
        """Describe what was learnt, or forget a part of it; return the reply."""
        if isinstance(request, messages.DescribeLearning):
            return self._describe(request.project)
        return self._forget(request)

    def _describe(self, project: str) -> messages.LearningDescribed:
        problem = self._store.problem if self._store is not None else ""
        if self._saver.refused:
            problem = not_saved("what use has taught")
        return messages.LearningDescribed(
            self._history.progress(project_mark(project)),
            round(self._history.learnt.shared, 4),
            len(self._history.labels),
            self._is_on(project),
            problem,
        )

    def _forget(self, request: messages.ForgetLearning) -> messages.LearningForgotten:
        if request.is_last:
            last = self._history.undo()
            forgotten = messages.LearningForgotten(
                int(last is not None), last.capability if last is not None else ""
            )
        else:
            forgotten = messages.LearningForgotten(self._history.forget(request.name))
        if forgotten.labels:
            self._changed()
        return forgotten

    def _changed(self) -> None:
        if self._store is not None:
            self._saver.changed("labels")

    async def _save(self, _: str) -> bool:
        return self._store is None or await self._store.save(self._history.labels)
