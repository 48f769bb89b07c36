"""What the supervisor knows of one instance, and of the runs before its last."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import trio

from capd.adapters.servers.server_run import RunFacts, ServerRun
from capd.core.servers.attempts import Attempts
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
    """One run of a server, and what is remembered of the runs before it."""

    key: InstanceKey
    server: ServerSpec
    project: str
    values: Mapping[str, str] = field(repr=False)
    """The secrets that go in, equal for every holder by the key: a run that comes later must not
    take what its session, or the keyring, has by then."""
    client: ClientFacts
    """Whom the next run meets: the client of the session that asked last."""
    id: InstanceId = NOT_RUNNING
    """Another one for each run."""
    told: dict[SessionKey, InstanceId] = field(default_factory=dict)
    """The run that each holder knows: it hears of a restart at its own next call."""
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    changed: trio.Event = field(default_factory=trio.Event)
    ending: str = UNUSED
    """Why it is ended, where that is on purpose."""
    run: ServerRun | None = None
    """None where it does not run: a run holds all that the server listed."""
    facts: RunFacts = field(default_factory=RunFacts)
    """Of the last run."""
    ready_at: float | None = None
    runs: int = 0
    attempts: Attempts = field(default_factory=Attempts)
    refusal: messages.ServerRefused | None = None

    @property
    def pid(self) -> int:
        """Its process, 0 where none runs."""
        return self.run.pid if self.run is not None else 0

    @property
    def tools(self) -> list[ToolDefinition]:
        """What it lists, none where it does not run."""
        return self.run.tools if self.run is not None else []

    def tell(self) -> None:
        """Wake whoever waits for this instance to settle."""
        self.changed.set()
        self.changed = trio.Event()

    def entry(
        self, state: State | None, holders: Sequence[SessionKey], now: float
    ) -> messages.ServerEntry:
        """Return the instance as the status shows it."""
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
            project=self.project,
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
        )
