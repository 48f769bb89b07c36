"""The values that clients sent for the keys that definitions ask for.

Secrets: they stay in this process's memory, each session's apart, and never travel on the bus,
to a log or into a state file (10-catalog, "Secrets and placeholders").
"""

from collections.abc import Mapping

from capd_protos.types import SessionKey


class SessionEnvironments:
    """Every live session's values."""

    def __init__(self) -> None:
        self._values: dict[SessionKey, dict[str, str]] = {}

    def __repr__(self) -> str:
        """Show no value."""
        return f"SessionEnvironments({len(self._values)} sessions)"

    def put(self, session: SessionKey, values: Mapping[str, str]) -> None:
        """Add values of `session`; an empty one counts as missing."""
        kept = {key: value for key, value in values.items() if value}
        self._values[session] = {**self._values.get(session, {}), **kept}

    def values(self, session: SessionKey) -> Mapping[str, str]:
        """Return the values of `session`."""
        return self._values.get(session, {})

    def keys(self, session: SessionKey) -> list[str]:
        """Return the keys for which `session` has a value, sorted."""
        return sorted(self._values.get(session, {}))

    def drop(self, session: SessionKey) -> None:
        """Forget `session`."""
        self._values.pop(session, None)
