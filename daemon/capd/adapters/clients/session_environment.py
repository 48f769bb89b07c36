"""The values for the keys that definitions ask for: what clients sent, else what is stored.

Secrets: they stay in this process's memory, each session's apart, and never travel on the bus,
to a log or into a state file (docs/design/catalog.md).
"""

from collections.abc import Collection, Mapping
from typing import Protocol

import trio

from capd_protos.secret_places import SESSION
from capd_protos.types import SessionKey


class Stored(Protocol):
    """Where values come from that no client sent."""

    def values(self) -> Mapping[str, str]:
        """Return all that are known, by key."""
        ...

    def sources(self) -> dict[str, str]:
        """Return the name of the source of each."""
        ...

    def problems(self) -> list[str]:
        """Return what a person has to put right."""
        ...

    def notes(self) -> list[str]:
        """Return why a source gives nothing."""
        ...

    async def ask_again(self, keys: Collection[str]) -> None:
        """Ask for `keys` anew, within a bound."""
        ...


class NothingStored:
    """No source but the sessions themselves."""

    def values(self) -> Mapping[str, str]:
        """Return nothing."""
        return {}

    def sources(self) -> dict[str, str]:
        """Return nothing."""
        return {}

    def problems(self) -> list[str]:
        """Return nothing."""
        return []

    def notes(self) -> list[str]:
        """Return nothing."""
        return []

    async def ask_again(self, keys: Collection[str]) -> None:
        """Ask nobody."""
        del keys
        await trio.lowlevel.checkpoint()


class SessionEnvironments:
    """Every live session's values."""

    def __init__(self, stored: Stored | None = None) -> None:
        self.stored: Stored = stored or NothingStored()
        self._values: dict[SessionKey, dict[str, str]] = {}

    def __repr__(self) -> str:
        """Show no value."""
        return f"SessionEnvironments({len(self._values)} sessions)"

    def put(self, session: SessionKey, values: Mapping[str, str]) -> None:
        """Add values of `session`; an empty one counts as missing."""
        kept = {key: value for key, value in values.items() if value}
        self._values[session] = {**self._values.get(session, {}), **kept}

    def values(self, session: SessionKey) -> Mapping[str, str]:
        """Return the values of `session`: its own, and what is stored where it has none."""
        return {**self.stored.values(), **self._values.get(session, {})}

    def own(self, session: SessionKey) -> Mapping[str, str]:
        """Return the values that the client of `session` sent."""
        return self._values.get(session, {})

    def keys(self, session: SessionKey) -> list[str]:
        """Return the keys for which `session` has a value, sorted."""
        return sorted(self.values(session))

    def sources(self, session: SessionKey) -> dict[str, str]:
        """Return the name of the source of each value of `session`."""
        own = dict.fromkeys(self._values.get(session, {}), SESSION)
        return {**self.stored.sources(), **own}

    def all_values(self) -> list[str]:
        """Return every value of everybody, for whoever has to keep them out of a text."""
        # A copy: whoever logs may be in another thread.
        own = (value for values in list(self._values.values()) for value in values.values())
        return [*self.stored.values().values(), *own]

    def drop(self, session: SessionKey) -> None:
        """Forget `session`."""
        self._values.pop(session, None)
