"""The values of the keys that servers' definitions name: clients sent some, others are stored.

A key is the name of an environment variable, such as GITHUB_TOKEN.

Values are secrets. They stay in this process's memory, separate for each session, and never appear
on the bus, in a log or in a state file (docs/design/trust.md, "Secrets").
"""

from collections.abc import Collection, Mapping
from typing import Protocol

import trio

from capd.core.sessions.profiles import values_of
from capd_protos.secret_places import SESSION
from capd_protos.types import SandboxLevel, SessionKey


class Stored(Protocol):
    """The source of the values of keys that no client sent, such as a keyring."""

    def values(self) -> Mapping[str, str]:
        """Return all known values, by key."""
        ...

    def sources(self) -> dict[str, str]:
        """Return the name of the source of each value, by key."""
        ...

    def problems(self) -> list[str]:
        """Return the problems that a person has to solve."""
        ...

    def notes(self) -> list[str]:
        """Return why a source has no values, in cases that may be intended."""
        ...

    async def ask_again(self, keys: Collection[str]) -> None:
        """Read `keys` again, within a time limit."""
        ...


class NothingStored:
    """Stands in for the stored values if there are none."""

    def values(self) -> Mapping[str, str]:
        """Return no values."""
        return {}

    def sources(self) -> dict[str, str]:
        """Return no sources."""
        return {}

    def problems(self) -> list[str]:
        """Return no problems."""
        return []

    def notes(self) -> list[str]:
        """Return no notes."""
        return []

    async def ask_again(self, keys: Collection[str]) -> None:
        """Do nothing."""
        del keys
        await trio.lowlevel.checkpoint()


class SessionEnvironments:
    """What each session supplies for its servers: values, a secrets namespace, a sandbox level."""

    def __init__(self, stored: Stored | None = None) -> None:
        self.stored: Stored = stored or NothingStored()
        self._values: dict[SessionKey, dict[str, str]] = {}
        self._namespaces: dict[SessionKey, str] = {}
        self._sandboxes: dict[SessionKey, SandboxLevel] = {}

    def __repr__(self) -> str:
        """Show no values."""
        return f"SessionEnvironments({len(self._values)} sessions)"

    def put(self, session: SessionKey, values: Mapping[str, str]) -> None:
        """Add values that the client of `session` sent; an empty value counts as missing."""
        kept = {key: value for key, value in values.items() if value}
        self._values[session] = {**self._values.get(session, {}), **kept}

    def values(self, session: SessionKey) -> Mapping[str, str]:
        """Return the values of `session`, by key.

        A stored value of the session's namespace overrides the value that its client sent, and
        that one overrides any other stored value.
        """
        stored = self.stored.values()
        values = {**stored, **self._values.get(session, {})}
        namespace = self._namespaces.get(session, "")
        return {**values, **values_of(stored, namespace)} if namespace else values

    def use_namespace(self, session: SessionKey, namespace: str) -> None:
        """Prefer the stored values of `namespace` in `session`; if it is empty, prefer none."""
        if namespace:
            self._namespaces[session] = namespace
        else:
            self._namespaces.pop(session, None)

    def namespace(self, session: SessionKey) -> str:
        """Return the namespace whose stored values `session` prefers; empty for none."""
        return self._namespaces.get(session, "")

    def use_sandbox(self, session: SessionKey, level: SandboxLevel) -> None:
        """Run servers for `session` at the sandbox level `level` or a stronger one.

        `off` requires nothing.
        """
        if level != "off":
            self._sandboxes[session] = level
        else:
            self._sandboxes.pop(session, None)

    def least_sandbox(self, session: SessionKey) -> SandboxLevel:
        """Return the weakest sandbox level at which servers may run for `session`."""
        return self._sandboxes.get(session, "off")

    def own(self, session: SessionKey) -> Mapping[str, str]:
        """Return the values that the client of `session` sent."""
        return self._values.get(session, {})

    def keys(self, session: SessionKey) -> list[str]:
        """Return the keys for which `session` has a value, sorted."""
        return sorted(self.values(session))

    def sources(self, session: SessionKey) -> dict[str, str]:
        """Return the name of the source of each value of `session`, by key."""
        own = dict.fromkeys(self._values.get(session, {}), SESSION)
        return {**self.stored.sources(), **own}

    def all_values(self) -> list[str]:
        """Return every value of every session, so that they can be removed from texts."""
        # A copy, because a log call in another thread may read this meanwhile.
        own = (value for values in list(self._values.values()) for value in values.values())
        return [*self.stored.values().values(), *own]

    def drop(self, session: SessionKey) -> None:
        """Forget the values, the namespace and the sandbox level of `session`."""
        self._values.pop(session, None)
        self._namespaces.pop(session, None)
        self._sandboxes.pop(session, None)
