"""The starts in progress of one session: which leases they hold, and what becomes of each start.

    begin ──> acquired ──> verdict ──commit──> held by the session's state ──> end
                              └──again, over, on already──> held by nobody ──> end: released

A *start* switches a capability on, and wants each server of it. A *lease* keeps the instance, the
running connection to a server, alive for the session. Starts of one session run at the same time,
and share one lease on an instance. So if one start releases a server that another start wants, the
lease is set aside. When the last start that wants the server ends, `end` returns the leases to
release.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

from capd_protos.types import InstanceId, ServerIdentity

Verdict = Literal["commit", "on already", "again", "over"]


def verdict(*, is_over: bool, is_on: bool, has_changed: bool) -> Verdict:
    """Return what to do when the servers of a capability that is being switched on are ready.

    `is_over` says that the start was withdrawn, `is_on` that the capability came on meanwhile.
    `has_changed` says that policy, or the trust in a project, has changed since the start was
    checked: `again` means to check the capability again and start it anew.
    """
    if is_over:
        return "over"
    if is_on:
        return "on already"
    return "again" if has_changed else "commit"


@dataclass(slots=True)
class PendingStarts:
    """The servers that the starts in progress of one session want, and the leases for them.

    A start is the switching on of a capability.
    """

    _wanted: Counter[ServerIdentity] = field(default_factory=Counter)
    _loose: dict[ServerIdentity, dict[InstanceId, None]] = field(default_factory=dict)

    def begin(self, server: ServerIdentity) -> None:
        """Note that a start, the switching on of a capability, wants a server until `end`."""
        self._wanted[server] += 1

    def is_wanted(self, server: ServerIdentity) -> bool:
        """Tell whether a start in progress wants a server."""
        return server in self._wanted

    def acquired(self, server: ServerIdentity, instance: InstanceId) -> None:
        """Note a lease that a start has acquired, and that nothing else holds yet."""
        self._loose.setdefault(server, {})[instance] = None

    def set_aside(self, server: ServerIdentity, instance: InstanceId) -> bool:
        """Keep a lease that the session gives up, if a start in progress wants its server.

        Return whether the lease was kept. If it was not, the caller has to release it.
        """
        if server not in self._wanted:
            return False
        self.acquired(server, instance)
        return True

    def end(self, server: ServerIdentity, held: InstanceId | None) -> list[InstanceId]:
        """End one start of `server`; return the instances whose leases are to be released.

        Nothing is returned while another start wants the server. `held` is the instance that the
        session itself leases at this moment, whose lease stays.
        """
        self._wanted[server] -= 1
        if self._wanted[server]:
            return []
        del self._wanted[server]
        return [each for each in self._loose.pop(server, {}) if each != held]
