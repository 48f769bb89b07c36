"""Finds the capabilities whose programs are not installed.

The search runs in the background, at most every half a minute: when a catalog is loaded, and when a
message comes. A turn uses the last result; a program that was never looked up counts as installed.
"""

from collections.abc import Callable, Iterable

import trio

from capd.core.taps.catalog import Tap
from capd.core.taps.required_scripts import missing_programs
from capd_protos.types import CapabilityId

REFRESH = 30.0


class Programs:
    """Looks up, in the background, which capabilities lack an installed program."""

    def __init__(
        self, taps: Callable[[], Iterable[Tap]], has_program: Callable[[str], bool] | None
    ) -> None:
        """Create it. `has_program` looks a command up on the PATH that servers get; it blocks.

        Without `has_program`, every program counts as installed.
        """
        self._taps = taps
        self._has_program = has_program
        self._is_wanted = trio.Event()
        self._found: dict[CapabilityId, tuple[str, ...]] = {}

    @property
    def missing(self) -> dict[CapabilityId, tuple[str, ...]]:
        """The missing programs by capability, from the last search.

        Reading this property starts another search.
        """
        self.look()
        return self._found

    def look(self) -> None:
        """Have missing programs searched for soon, in the background."""
        self._is_wanted.set()

    async def follow(self) -> None:
        """Search for missing programs whenever that was requested, until cancelled."""
        while (has_program := self._has_program) is not None:
            await self._is_wanted.wait()
            self._is_wanted = trio.Event()
            self._found = await trio.to_thread.run_sync(
                missing_programs, list(self._taps()), has_program
            )
            await trio.sleep(REFRESH)
