"""One run of a server, from its start (or its connection) to the end of its last process.

    spawned ──handshake, tools/list──> ready ──(its tools change)──> ready
       │ too slow, wrong, dead           │ dead, silent, noisy, or cancelled
       v                                 v
    StartFailedError                  ServerLostError, or the caller's cancellation

A server counts as dead when its own process has ended, even if a grandchild keeps its output open.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Literal, Protocol

import trio
from structlog.typing import FilteringBoundLogger

from capd.adapters.servers.instance import Instance
from capd.adapters.servers.listings import LONGEST_KEPT, list_tools
from capd.adapters.servers.negotiation import HandshakeError, negotiate
from capd.adapters.servers.server_connection import ServerConnection
from capd.adapters.spool import ServerSpool
from capd.core.errors import CapdError, leaves
from capd.core.servers.generation_memory import PROBE_PATIENCE
from capd.core.servers.membership import Membership
from capd.core.tools.tool_intake import AcceptedTool
from capd_protos.types import ClientFacts, ServerName, ToolDefinition, ToolName

START_TIMEOUT = 90.0
"""Seconds from spawn to tool list; a package runner may have to download the server first."""
STOP_GRACE = 2.0
CLOSED_OUTPUT_GRACE = 1.0
REFETCH_PAUSE = 2.0
STDERR_SHOWN = 10

CheckTools = Callable[[Sequence[AcceptedTool]], Awaitable[Collection[ToolName]]]
"""Takes the tools of a list; returns the names of those that must not be shown or called."""
CheckTrust = Callable[[], Awaitable[None]]
"""Raises if the started program is not trusted."""


class ServerEnd(Protocol):
    """The interface of a started server: a process, or a connection by URL."""

    @property
    def pid(self) -> int:
        """The pid of the server's process; 0 for a connection by URL."""
        ...

    @property
    def sandbox(self) -> str:
        """How the server is confined, for a person; empty for a connection by URL."""
        ...

    @property
    def cwd(self) -> str:
        """Its working directory; empty for a connection by URL."""
        ...

    @property
    def cwd_reason(self) -> str:
        """Why the server's launcher was restricted, for a person; empty if it was not."""
        ...

    @property
    def membership(self) -> Membership | Literal[""]:
        """How capd finds the processes of the server; empty for a connection by URL."""
        ...

    @property
    def stdin(self) -> trio.abc.SendStream:
        """The stream for lines to the server."""
        ...

    @property
    def stdout(self) -> trio.abc.ReceiveStream:
        """The stream of lines from the server."""
        ...

    @property
    def is_parked(self) -> bool:
        """Whether the server ended because a person has to do something first."""
        ...

    async def wait(self) -> object:
        """Wait for the end; return how it ended, as a text that continues a sentence after `it`."""
        ...

    def stderr_tail(self) -> list[str]:
        """Return the last lines that the server wrote to stderr, safe to print."""
        ...

    async def stop(self, grace: float) -> None:
        """End the server and every process that it started.

        The server gets `grace` seconds to end by itself.
        """
        ...


class StartFailedError(CapdError):
    """The server did not become ready; `stderr` has the last lines that it wrote there."""

    def __init__(self, reason: str, stderr: list[str], *, is_parked: bool = False) -> None:
        super().__init__(reason)
        self.stderr = stderr
        self.is_parked = is_parked
        """Whether a person has to do something first."""


class NotVettedError(CapdError):
    """capd could not find out which tools of a list may be used."""


class ServerLostError(CapdError):
    """The server was ready, and has ended without being stopped."""

    def __init__(self, reason: str, *, is_parked: bool = False) -> None:
        super().__init__(reason)
        self.is_parked = is_parked
        """Whether a person has to do something first."""


@dataclass(slots=True)
class RunFacts:
    """The facts about a run that the status shows. They outlive the run and its objects."""

    sandbox: str = ""
    """How the server is confined, in words for a person."""
    cwd: str = ""
    """Its working directory; empty for a connection by URL."""
    cwd_reason: str = ""
    """Why its launcher was restricted; empty if it was not."""
    membership: Membership | Literal[""] = ""
    """How capd knows which processes belong to it."""
    counts: Counter[str] = field(default_factory=Counter)
    """How many of the server's lines were dropped, by kind."""
    findings: dict[str, str] = field(default_factory=dict)
    """Why some entries of the server's lists are not shown to clients, by list."""


class ServerRun:
    """One run; call `serve` in a task, and cancel that task to end it."""

    def __init__(
        self,
        name: ServerName,
        client: ClientFacts,
        log: FilteringBoundLogger,
        redact: Callable[[str], str] = str,
        *,
        project: str = "",
        wants_stateless: bool = False,
        probe_patience: float = PROBE_PATIENCE,
        longest_call: float = 0.0,
        spool: ServerSpool | None = None,
        vet: CheckTools | None = None,
        check_trust: CheckTrust | None = None,
        start_timeout: float | None = None,
    ) -> None:
        """Create the run of the server `name`, which `serve` starts.

        `client` is the client info for the handshake. `redact` removes the server's secrets from a
        text. `wants_stateless` says which generation of MCP to try first, and `probe_patience` how
        many seconds that attempt may stay unanswered. `longest_call` is the number of seconds after
        which a call ends despite progress; 0 for no limit. Large results are written to `spool`.
        `check_trust` is called once more after the handshake. `vet` returns which listed tools to
        withhold. `start_timeout` is in seconds; None for the usual one.
        """
        self._start_timeout = start_timeout
        self._vet = vet
        self._check_trust = check_trust
        self._redact = redact
        self._project = project
        self._wants_stateless = wants_stateless
        self._probe_patience = probe_patience
        self._longest_call = longest_call
        self._spool = spool
        self.pid = 0
        self.facts = RunFacts()
        self.tools: list[ToolDefinition] = []
        """The tools that the server lists, without withheld ones."""
        self._name = name
        self._client = client
        self._log = log
        self._listed: list[AcceptedTool] = []
        self._is_stale = False
        self._woken = trio.Event()
        self._is_ending = trio.Event()
        self._end_reason = ""

    def vet_again(self) -> None:
        """Have the tools compared with the trusted definitions again, after a person's decision."""
        self._woken.set()

    def end(self, reason: str) -> None:
        """End the run at once.

        Callers get `reason`, which continues a sentence that begins with `it`.
        """
        self._end_reason = reason
        self._is_ending.set()

    async def serve(
        self,
        opened: AbstractAsyncContextManager[ServerEnd],
        *,
        on_ready: Callable[[Instance], None],
        on_tools: Callable[[], None],
    ) -> None:
        """Start the server, report it ready, and wait until it is lost or this is cancelled.

        `opened` starts the server and ends it. `on_ready` is called with the instance. `on_tools`
        is called each time that `tools` changes later.

        Raises:
            StartFailedError, ServerLostError: the server did not become ready, or was lost
                afterwards.
            CommandNotFoundError, SpawnFailedError: no process could be started.
        """
        async with opened as process:
            self.pid = process.pid
            facts = self.facts
            facts.sandbox, facts.membership = process.sandbox, process.membership
            facts.cwd, facts.cwd_reason = process.cwd, process.cwd_reason
            instance = Instance(
                self._name,
                process.stdin,
                process.stdout,
                on_tools_changed=self._note_change,
                log=self._log,
                project=self._project,
                redact=self._redact,
                spool=self._spool,
            )
            server_connection = instance.server_connection
            server_connection.longest_call = self._longest_call
            facts.counts, facts.findings = server_connection.counts, server_connection.findings
            is_ready = False
            lost: BaseExceptionGroup[CapdError] | None = None
            try:
                try:
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(self._run_connection, server_connection, process)
                        nursery.start_soon(self._watch_death, server_connection, process)
                        nursery.start_soon(self._stop_when_ending, process)
                        await self._make_ready(server_connection)
                        is_ready = True
                        on_ready(instance)
                        nursery.start_soon(instance.follow)
                        await self._follow_tools(server_connection, on_tools)
                except* CapdError as errors:
                    # Raised below: Python before 3.11.4 puts an error raised here into a group.
                    lost = errors
                if lost is not None:
                    reason = str(await self._clearest_error(lost, process))
                    if is_ready:
                        raise ServerLostError(reason, is_parked=process.is_parked)
                    if facts.cwd_reason:
                        # The restriction of its launcher may be the cause.
                        reason += f"; {facts.cwd_reason}"
                    raise StartFailedError(
                        reason, self._stderr(process), is_parked=process.is_parked
                    )
            finally:
                server_connection.close("was stopped")
                await process.stop(STOP_GRACE)

    def _stderr(self, process: ServerEnd) -> list[str]:
        return [self._redact(line) for line in process.stderr_tail()[-STDERR_SHOWN:]]

    async def _death(self, process: ServerEnd) -> str:
        """Wait until the process has ended; return how it ended, with its last line on stderr."""
        status = await process.wait()
        if self._end_reason:
            return self._end_reason
        tail = self._stderr(process)[-1:]
        return f"{status} (last on stderr: {tail[0]})" if tail else str(status)

    async def _clearest_error(
        self, errors: BaseExceptionGroup[CapdError], process: ServerEnd
    ) -> CapdError:
        """Return the error in `errors` that explains most.

        The death of the process explains all other errors.
        """
        everything = list(leaves(errors))
        for error in everything:
            if isinstance(error, _ServerDeadError):
                return error
        # A broken pipe is noticed a moment before the end of its process.
        with trio.move_on_after(CLOSED_OUTPUT_GRACE):
            return _ServerDeadError(f"it {await self._death(process)}")
        return everything[0]

    def _note_change(self) -> None:
        self._is_stale = True
        self._woken.set()

    async def _make_ready(self, server_connection: ServerConnection) -> None:
        timeout = self._start_timeout or START_TIMEOUT
        with trio.move_on_after(timeout) as patience:
            await negotiate(
                server_connection,
                self._client,
                wants_stateless=self._wants_stateless,
                timeout=timeout,
                probe_patience=self._probe_patience,
            )
            if self._check_trust is not None:
                # The server has loaded its files by now, so a file that was replaced after the
                # last check is noticed.
                await self._check_trust()
            self._listed = await list_tools(server_connection)
            self.tools = await self._vetted(server_connection)
        if patience.cancelled_caught:
            raise CapdError(f"it was not ready within {timeout:g} s")

    async def _run_connection(
        self, server_connection: ServerConnection, process: ServerEnd
    ) -> None:
        await server_connection.run()
        # A server without output is useless. Usually its process exits at the same time, and then
        # `_watch_death` gives the better reason.
        with trio.move_on_after(CLOSED_OUTPUT_GRACE):
            await process.wait()
            await trio.sleep_forever()
        why = "closed its standard output"
        server_connection.close(why)
        raise _ServerDeadError(f"it {why}")

    async def _watch_death(self, server_connection: ServerConnection, process: ServerEnd) -> None:
        death = await self._death(process)
        server_connection.close(death)
        raise _ServerDeadError(f"it {death}")

    async def _stop_when_ending(self, process: ServerEnd) -> None:
        await self._is_ending.wait()
        await process.stop(0)

    async def _follow_tools(
        self, server_connection: ServerConnection, on_tools: Callable[[], None]
    ) -> None:
        while True:
            # A list is fetched again after this time, however long the server says that it is valid
            # (docs/design/hostile-servers.md).
            with trio.move_on_after(
                LONGEST_KEPT if server_connection.is_stateless else float("inf")
            ) as kept:
                await self._woken.wait()
            is_stale = self._is_stale or kept.cancelled_caught
            self._woken, self._is_stale = trio.Event(), False
            try:
                self._listed = await list_tools(server_connection) if is_stale else self._listed
            except HandshakeError as error:
                # Keep the last list: calls may still work, and the end of a server is noticed
                # elsewhere.
                self._log.warning("tools_not_listed", reason=str(error))
            try:
                tools = await self._vetted(server_connection)
            except NotVettedError as error:
                # Try again after a pause: no further event comes for this list or this decision.
                self._log.warning("tools_not_vetted", reason=str(error))
                self._woken.set()
                await trio.sleep(REFETCH_PAUSE)
                continue
            if tools != self.tools:
                self.tools = tools
                on_tools()
            if is_stale:
                # A storm of notifications costs one list in two seconds
                # (docs/design/hostile-servers.md).
                await trio.sleep(REFETCH_PAUSE)

    async def _vetted(self, server_connection: ServerConnection) -> list[ToolDefinition]:
        """Return the tools that the server lists, without those that are withheld."""
        withheld = await self._vet(self._listed) if self._vet is not None else ()
        server_connection.withholds_tools = bool(withheld)
        return [each.definition for each in self._listed if each.definition.name not in withheld]


class _ServerDeadError(CapdError):
    """The process has ended, which explains all other errors of that moment."""
