"""Runs dependency scripts: only one run of each at a time, for all sessions that wait for it.

    requested ──> its check passes: present
         └──────> running ──> installed | failed
                     └── nobody waits any more ──> cancelled, its process tree ended

After a failure or a cancellation, the next request runs the script again.
"""

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import structlog
import trio

from capd.adapters.servers.installers import InstallFailedError, ensure_installed
from capd.core.taps.required_scripts import is_needed
from capd.runtime.boundary import contained
from capd.runtime.bus import Bus
from capd_protos import supervisor as messages
from capd_protos.types import SessionKey

_CANCELLED = "nobody waits for it any more"

log = structlog.get_logger(actor="supervisor")


@dataclass(slots=True, eq=False)
class _Wait:
    session: SessionKey
    name: str
    is_over: trio.Event = field(default_factory=trio.Event)


@dataclass(slots=True, eq=False)
class _Run:
    """One run of a script, until the script has ended, with the sessions that wait for it."""

    dependency: str
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    waits: set[_Wait] = field(default_factory=set)
    ended: trio.Event = field(default_factory=trio.Event)
    has_run: bool = False
    problem: str = "capd itself failed over it; its log says where"

    def leave(self, wait: _Wait) -> None:
        """Remove a waiting session. When the last one is removed, end the script."""
        self.waits.discard(wait)
        wait.is_over.set()
        if not self.waits:
            self.scope.cancel()


class Installs:
    """Runs dependency scripts. Sessions that need a script at the same time share one run."""

    def __init__(self, bus: Bus, cwd: Path) -> None:
        self._bus = bus
        self._cwd = cwd
        self._runs: dict[str, _Run] = {}

    async def ensure(
        self,
        request: messages.InstallDependencies,
        environment: Mapping[str, str],
        nursery: trio.Nursery,
    ) -> messages.DependenciesReady | messages.DependenciesFailed:
        """Run the dependency scripts in the request whose check fails.

        Return when all have succeeded or one has failed. If a dependency has no script, no script
        is run unless the request names commands and all of them are installed.
        """
        if request.lacking:
            found: frozenset[str] = frozenset()
            if request.commands:
                found = await trio.to_thread.run_sync(_found, request.commands, dict(environment))
            if is_needed(request.commands, found):
                text = "the tap has no script for it" + _where(request.commands, found)
                return messages.DependenciesFailed(request.lacking[0], text)
            log.warning("dependency_without_script", dependencies=request.lacking)
        installed: list[str] = []
        present: list[str] = []
        for dependency, script in request.scripts.items():
            run = await self._run_of(dependency, script, environment, nursery)
            problem = await self._wait_for(run, _Wait(request.session, request.wait))
            if problem:
                return messages.DependenciesFailed(dependency, problem)
            (installed if run.has_run else present).append(dependency)
        return messages.DependenciesReady(installed, present)

    def leave(self, session: SessionKey, name: str = "") -> None:
        """End the wait `name` of `session`, or all its waits if `name` is empty."""
        for run in list(self._runs.values()):
            for wait in list(run.waits):
                if wait.session == session and name in {"", wait.name}:
                    run.leave(wait)

    async def _run_of(
        self, dependency: str, script: str, environment: Mapping[str, str], nursery: trio.Nursery
    ) -> _Run:
        while (run := self._runs.get(script)) is not None:
            if not run.scope.cancel_called:
                return run
            # Two runs of one script at a time could disturb each other.
            await run.ended.wait()
        run = self._runs[script] = _Run(dependency)
        nursery.start_soon(self._contained, run, script, environment)
        return run

    async def _wait_for(self, run: _Run, wait: _Wait) -> str:
        """Wait until the run ends, or `leave` ends the wait.

        Return what went wrong; empty if nothing did.
        """
        run.waits.add(wait)
        try:
            await wait.is_over.wait()
        finally:
            run.leave(wait)
        return run.problem if run.ended.is_set() else _CANCELLED

    async def _contained(self, run: _Run, script: str, environment: Mapping[str, str]) -> None:
        await contained(f"script {script}", self._run, run, script, environment, log=log)

    async def _run(self, run: _Run, script: str, environment: Mapping[str, str]) -> None:
        began_at = trio.current_time()

        def seconds() -> float:
            return round(trio.current_time() - began_at, 1)

        def on_start() -> None:
            log.info("dependency_started", dependency=run.dependency)
            self._bus.publish(messages.InstallStarted(run.dependency))

        def on_line(line: str) -> None:
            self._bus.publish(messages.InstallOutput(run.dependency, line, seconds()))

        outcome: messages.InstallOutcome = "failed"
        try:
            with run.scope:
                try:
                    run.has_run = await ensure_installed(
                        Path(script), environment, self._cwd, on_start=on_start, on_line=on_line
                    )
                except InstallFailedError as error:
                    run.problem = str(error)
                else:
                    run.problem, outcome = "", "installed" if run.has_run else "present"
            if run.scope.cancelled_caught:
                run.problem, outcome = _CANCELLED, "cancelled"
        finally:
            del self._runs[script]
            run.ended.set()
            for wait in list(run.waits):
                wait.is_over.set()
            log.info(
                "dependency_ended",
                dependency=run.dependency,
                outcome=outcome,
                seconds=seconds(),
                reason=run.problem,
            )
            ended = messages.InstallEnded(run.dependency, outcome, seconds(), run.problem)
            self._bus.publish(ended)


def _found(commands: list[str], environment: Mapping[str, str]) -> frozenset[str]:
    path = environment.get("PATH", os.defpath)
    return frozenset(each for each in commands if shutil.which(each, path=path))


def _where(commands: list[str], found: frozenset[str]) -> str:
    lost = [each for each in commands if each not in found]
    return f", and {', '.join(lost)} is not on the PATH: install it" if lost else ""
