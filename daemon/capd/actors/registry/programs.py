"""Which capabilities wait for a program that is not installed, as far as is known.

Looked up beside all else: when a catalog is loaded, and with a message at most every half a minute.
A turn goes by what was found last; what was never looked up counts as installed.
"""

from collections.abc import Callable, Iterable

import trio

from capd.core.taps.catalog import Tap
from capd.core.taps.required_scripts import missing_programs
from capd_protos.types import CapabilityId

REFRESH = 30.0


class Programs:
    """The programs that capabilities of some taps lack."""

    def __init__(
        self, taps: Callable[[], Iterable[Tap]], has_program: Callable[[str], bool] | None
    ) -> None:
        """`has_program` blocks: it looks a command up on the PATH that servers get.

        Without it every program counts as installed.
        """
        self._taps = taps
        self._has_program = has_program
        self._is_wanted = trio.Event()
        self._found: dict[CapabilityId, tuple[str, ...]] = {}

    @property
    def missing(self) -> dict[CapabilityId, tuple[str, ...]]:
        """What was found last; it is looked up again soon."""
        self.look()
        return self._found

    def look(self) -> None:
        """Have the programs looked up soon."""
        self._is_wanted.set()

    async def follow(self) -> None:
        """Look the programs up whenever that is wanted, until cancelled."""
        while (has_program := self._has_program) is not None:
            await self._is_wanted.wait()
            self._is_wanted = trio.Event()
            self._found = await trio.to_thread.run_sync(
                missing_programs, list(self._taps()), has_program
            )
            await trio.sleep(REFRESH)
