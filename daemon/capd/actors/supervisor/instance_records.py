"""What the supervisor knows about one instance: its present run, and facts from earlier runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import trio

from capd.adapters.servers.server_run import RunFacts, ServerRun
from capd.core.servers.addresses import Addresses
from capd.core.servers.attempts import Attempts
from capd.core.servers.far_starts import FarPlace
from capd.core.servers.identity import InstanceKey
from capd.core.servers.leases import State
from capd_protos import supervisor as messages
from capd_protos.types import ClientFacts, InstanceId, ServerSpec, SessionKey, ToolDefinition

NOT_RUNNING = InstanceId("")
_SHOWN: Mapping[State, messages.ServerState] = {
    State.STARTING: "starting",
    State.READY: "ready",
    State.LINGERING: "lingering",
    State.STOPPING: "stopping",
}


UNUSED = "unused"


@dataclass(slots=True, eq=False)
class InstanceRecord:
    """One instance of a server: its present run, and facts from earlier runs."""

    key: InstanceKey
    server: ServerSpec
    project: str
    values: Mapping[str, str] = field(repr=False)
    """The secret values for the next run. `key` has a digest of them, so every holder has the same
    values. A restart uses them even if the values of a session or of the keyring have changed."""
    client: ClientFacts
    """The client info for the handshake of the next run: that of the client whose session asked
    last."""
    far: FarPlace | None = None
    """Where it runs on the far side of a bridge, on another host or in a container. None if it runs
    on this machine."""
    account: str = ""
    """The account of the login at a server by URL; empty for the usual one."""
    id: InstanceId = NOT_RUNNING
    """The id of the current run; each run has another."""
    known_runs: dict[SessionKey, InstanceId] = field(default_factory=dict)
    """The run that each holder knows. A holder learns of a restart at its next call."""
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    changed: trio.Event = field(default_factory=trio.Event)
    ending: str = UNUSED
    """The reason in the log if the run is ended on purpose."""
    run: ServerRun | None = None
    """The running server; None if it is not running."""
    facts: RunFacts = field(default_factory=RunFacts)
    """Facts about the last run."""
    ready_at: float | None = None
    """When the current run became ready, by trio's clock; None if it has not."""
    runs: int = 0
    attempts: Attempts = field(default_factory=Attempts)
    refusal: messages.ServerRefused | None = None
    addresses: Addresses = field(init=False)
    """Which of its server's URLs failed in earlier runs, and when each may be tried again."""

    def __post_init__(self) -> None:
        """Start with addresses that have never failed."""
        self.addresses = Addresses(1 + len(self.server.further_urls))

    @property
    def pid(self) -> int:
        """The pid of the server's process; 0 if none is running."""
        return self.run.pid if self.run is not None else 0

    @property
    def tools(self) -> list[ToolDefinition]:
        """The tools that the running server lists; none if it is not running."""
        return self.run.tools if self.run is not None else []

    def wake(self) -> None:
        """Wake every task that waits for this instance to become ready or to fail."""
        self.changed.set()
        self.changed = trio.Event()

    def entry(
        self, state: State | None, holders: Sequence[SessionKey], now: float
    ) -> messages.ServerEntry:
        """Return the instance's entry in the list of servers.

        `state` is the state of its lease, `holders` are the sessions with a lease on it, and `now`
        is by trio's clock.
        """
        name = _SHOWN.get(state) if state is not None else None
        if name is None:
            is_waiting = self.attempts.wait(now) > 0 and not self.attempts.is_failed
            name = "backing_off" if is_waiting else "failed"
            name = "parked" if self.attempts.is_parked else name
        return messages.ServerEntry(
            name=self.key.name,
            identity=self.key.identity,
            instance=self.id,
            scope=self.server.scope,
            project=self.project if self.far is None else self.far.folder,
            state=name,
            pid=self.pid,
            leases=list(holders),
            tools=len(self.tools),
            restarts=max(0, self.runs - 1),
            uptime=now - self.ready_at if self.ready_at is not None else 0.0,
            last_error=self.attempts.last_error,
            counts=dict(self.facts.counts),
            findings=[each for each in self.facts.findings.values() if each],
            sandbox=self.facts.sandbox,
            cwd=self.facts.cwd,
            cwd_reason=self.facts.cwd_reason,
            membership=self.facts.membership,
            bridge=self.far.bridge if self.far is not None else "",
        )
