"""Which sessions hold which instance, and when an instance without holders is stopped.

An instance is a running connection to a server. Each session that uses it holds a lease on it.
After the last lease the instance *lingers*: it is kept for some seconds, for the next session.

    state       event                       next state   effect
    absent      acquire                     starting     Start
    starting    ready                       ready
                failed                      absent       all leases are removed
                died                        down         holders keep their leases
                last release                stopping     Stop: nobody waits for this start
    ready       last release                lingering    the linger begins
                died                        down         holders keep their leases
    lingering   acquire                     ready
                due, end_unheld             stopping     Stop
                died                        absent
    stopping    stopped or died, unheld     absent
                stopped or died, held       starting     Start
    down        acquire                     starting     Start
                last release                absent
    starting, ready, lingering: restart     stopping     Stop

A refcount is the number of holders. However many sessions ask, an instance is started once. While
it has holders, only `restart` stops it.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field
from enum import Enum
from typing import Generic, TypeVar

from capd_protos.types import SessionKey

K = TypeVar("K", bound=Hashable)


class State(Enum):
    """The states of an instance between its start and its end.

    `DOWN` means that the instance died while sessions have a lease on it.
    """

    STARTING = "starting"
    READY = "ready"
    LINGERING = "lingering"
    STOPPING = "stopping"
    DOWN = "down"


@dataclass(frozen=True, slots=True)
class Start(Generic[K]):
    """An effect for the caller to carry out: start the instance, then call `ready` or `failed`."""

    key: K


@dataclass(frozen=True, slots=True)
class Stop(Generic[K]):
    """An effect for the caller to carry out: end the instance, then call `stopped`."""

    key: K


Effect = Start[K] | Stop[K]


@dataclass(slots=True)
class _Lease:
    state: State
    holders: dict[SessionKey, None] = field(default_factory=dict)
    due_at: float = 0.0


@dataclass(slots=True)
class Leases(Generic[K]):
    """Every lease of the daemon, by the key of its instance.

    `linger` is the number of seconds for which an instance without holders is kept. `now` is any
    monotonic clock in seconds. Methods return effects, which the caller carries out.
    """

    linger: float
    _leases: dict[K, _Lease] = field(default_factory=dict)

    def acquire(self, key: K, session: SessionKey) -> list[Effect[K]]:
        """Add a lease of `session` on the instance `key`; return what to start, if anything."""
        lease = self._leases.get(key)
        if lease is None:
            self._leases[key] = _Lease(State.STARTING, {session: None})
            return [Start(key)]
        lease.holders[session] = None
        if lease.state is State.LINGERING:
            lease.state = State.READY
        elif lease.state is State.DOWN:
            lease.state = State.STARTING
            return [Start(key)]
        return []

    def release(self, key: K, session: SessionKey, now: float) -> list[Effect[K]]:
        """Remove a session's lease on the instance `key`; return what to stop, if anything.

        When the last holder leaves a ready instance, the linger starts. An instance that is still
        starting is stopped at once.
        """
        lease = self._leases.get(key)
        if lease is None or session not in lease.holders:
            return []
        del lease.holders[session]
        if lease.holders:
            return []
        if lease.state is State.READY:
            lease.state, lease.due_at = State.LINGERING, now + self.linger
        elif lease.state is State.DOWN:
            del self._leases[key]
        elif lease.state is State.STARTING:
            # No session waits for this start, and a start that hangs would never end.
            lease.state = State.STOPPING
            return [Stop(key)]
        return []

    def end_unheld(self, key: K) -> list[Effect[K]]:
        """Return the effect that stops the instance `key` at once, if it lingers."""
        lease = self._leases.get(key)
        if lease is None or lease.state is not State.LINGERING:
            return []
        lease.state = State.STOPPING
        return [Stop(key)]

    def give_up(self, key: K, now: float) -> list[Effect[K]]:
        """Remove every lease on the instance `key`; return the effect that stops it, if it runs."""
        holders = self.holders(key)
        effects = [effect for each in holders for effect in self.release(key, each, now)]
        return [*effects, *self.end_unheld(key)]

    def restart(self, key: K) -> list[Effect[K]]:
        """Return the effect that stops the instance `key`, if it is up.

        Once it has stopped, `stopped` returns the effect that starts it again for its holders.
        """
        lease = self._leases.get(key)
        if lease is None or lease.state in {State.STOPPING, State.DOWN}:
            return []
        lease.state = State.STOPPING
        return [Stop(key)]

    def release_session(self, session: SessionKey, now: float) -> list[Effect[K]]:
        """Remove every lease of `session`; return what to stop."""
        held = [key for key, lease in self._leases.items() if session in lease.holders]
        return [effect for key in held for effect in self.release(key, session, now)]

    def ready(self, key: K) -> None:
        """Note that the instance `key` is ready."""
        lease = self._leases.get(key)
        if lease is not None and lease.state is State.STARTING:
            lease.state = State.READY

    def failed(self, key: K) -> list[SessionKey]:
        """Note that the instance `key` failed to start; remove its leases, return their holders."""
        lease = self._leases.pop(key, None)
        return list(lease.holders) if lease is not None else []

    def died(self, key: K) -> list[Effect[K]]:
        """Note that the instance `key` ended by itself; its holders keep their leases.

        An instance that was being stopped counts as stopped. If such an instance has holders, the
        effect that starts it again is returned.
        """
        lease = self._leases.get(key)
        if lease is None:
            return []
        if lease.state is State.STOPPING:
            return self.stopped(key)
        if lease.holders:
            lease.state = State.DOWN
        else:
            del self._leases[key]
        return []

    def stopped(self, key: K) -> list[Effect[K]]:
        """Note that the instance `key` was stopped.

        If it has holders, return the effect that starts it again.
        """
        lease = self._leases.get(key)
        if lease is None:
            return []
        if lease.holders:
            lease.state = State.STARTING
            return [Start(key)]
        del self._leases[key]
        return []

    def due(self, now: float) -> list[Effect[K]]:
        """Return the effects that stop the instances whose linger is over at `now`."""
        over = [
            key
            for key, lease in self._leases.items()
            if lease.state is State.LINGERING and lease.due_at <= now
        ]
        for key in over:
            self._leases[key].state = State.STOPPING
        return [Stop(key) for key in over]

    def next_due(self) -> float | None:
        """Return the time at which the next linger is over; None if no instance lingers."""
        times = [ls.due_at for ls in self._leases.values() if ls.state is State.LINGERING]
        return min(times, default=None)

    def holders(self, key: K) -> tuple[SessionKey, ...]:
        """Return the sessions with a lease on the instance `key`, in the order of their leases."""
        lease = self._leases.get(key)
        return tuple(lease.holders) if lease is not None else ()

    def state(self, key: K) -> State | None:
        """Return the state of the instance `key`; None if it is absent."""
        lease = self._leases.get(key)
        return lease.state if lease is not None else None

    def is_up(self, key: K) -> bool:
        """Tell whether the instance `key` runs or starts, and is not being stopped."""
        return self.state(key) not in {None, State.DOWN, State.STOPPING}

    def serves(self, key: K, session: SessionKey) -> bool:
        """Tell whether the instance `key` is ready, and `session` holds a lease on it."""
        return self.state(key) is State.READY and session in self.holders(key)

    def keys(self) -> tuple[K, ...]:
        """Return the keys of all instances that are not absent."""
        return tuple(self._leases)
