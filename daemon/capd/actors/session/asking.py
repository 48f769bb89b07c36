"""How a session asks the other actors for what it cannot do without."""

from collections.abc import Iterator
from contextlib import contextmanager

from capd.core.sessions.session_place import NotActivatedError
from capd.runtime.bus import ActorUnavailableError
from capd_protos.types import ActorName


@contextmanager
def must_answer(actor: ActorName) -> Iterator[None]:
    """Run a block that asks `actor`; without its answer, nothing is switched on.

    Raises:
        NotActivatedError: the actor does not answer; the text is for the model.
    """
    try:
        yield
    except ActorUnavailableError as error:
        raise NotActivatedError(f"capd's {actor} does not answer: {error}. Try again.") from None
