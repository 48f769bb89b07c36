"""Reads the settings again whenever one of their files changes, and answers requests about them.

    a file changes ──> read again ──> the new settings are in force, and an event is published
                          ├──may be half written──> read again when it is stable
                          └──has a mistake──> the last good ones stay, and the status says why

Other parts read `LiveSettings`. The event is only a hint that something has changed.
"""

from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import structlog
import trio

from capd.actor_clients.names import SETTINGS
from capd.adapters.client_table import NAME as CLIENTS_FILE
from capd.adapters.live_settings import CONFIG_FILE, LiveSettings
from capd.adapters.regular_files import is_folder
from capd.adapters.timed_reads import NoAnswerError
from capd.adapters.watched_files import Folders, Watch, WatchError
from capd.core.settings.known_keys import Path as KeyPath
from capd.core.settings.layers import key_path_text
from capd.core.settings.project_keys import FILE_NAME
from capd.runtime.boundary import contained
from capd.runtime.bus import Bus
from capd.runtime.mailbox import serve
from capd_protos import settings as messages
from capd_protos.codec import MsgpackCodec

REQUESTS: MsgpackCodec[messages.Request] = MsgpackCodec(messages.Request)
TRY_AGAIN = 10.0
MOST_LOOKS = 2

log = structlog.get_logger(actor="settings")


class SettingsWatcher:
    """The settings actor: reads settings files when they change, and answers requests."""

    def __init__(self, bus: Bus, settings: LiveSettings, *, is_watching: bool = True) -> None:
        """Create it. With `is_watching`, the files are read again whenever one of them changes."""
        self._is_watching = is_watching
        self._bus = bus
        self._settings = settings
        self._watch_error = ""
        self._reported: list[str] = []

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Answer requests, and follow changed files, until cancelled."""
        async with trio.open_nursery() as nursery:
            if self._is_watching:
                nursery.start_soon(self._follow)
            await serve(
                self._bus, SETTINGS, REQUESTS, self._replied, log=log, task_status=task_status
            )

    async def _replied(self, request: messages.Request) -> messages.Reply:
        if isinstance(request, messages.ReloadSettings):
            await self._reload()
            # A file without some of its lines may be half written, and counts only when it is
            # stable. Wait for that, so that the reply has the settings in force.
            for _ in range(MOST_LOOKS):
                if not self._settings.wait:
                    break
                await trio.sleep(self._settings.wait)
                await self._reload()
            return self._describe("", has_values=False)
        await self._settings.load_project(request.project)
        return self._describe(request.project)

    async def _reload(self) -> None:
        has_changed = await self._settings.reload()
        problems = self._settings.problems
        for problem in problems:
            if problem not in self._reported:
                log.error("configuration_problem", reason=problem)
        self._reported = problems
        if has_changed:
            log.info("settings_changed", needs_restart=self._settings.needs_restart)
            self._bus.publish(messages.SettingsChanged())

    def _describe(self, project: str, *, has_values: bool = True) -> messages.SettingsDescribed:
        found = described(self._settings, project, has_values=has_values)
        return msgspec.structs.replace(found, watch=self._watch_error)

    # Files that change

    async def _follow(self) -> None:
        while True:
            await contained("follow settings", self._follow_changes, log=log)
            await trio.sleep(TRY_AGAIN)

    async def _follow_changes(self) -> None:
        while True:
            self._settings.project_added = trio.Event()
            folders = await self._folders()
            try:
                async with Watch(folders) as watch, trio.open_nursery() as nursery:
                    self._watch_error = ""
                    # Read after the watch has begun; otherwise a change in between would be missed.
                    await self._reload()
                    if self._settings.wait:
                        nursery.start_soon(self._until_still)
                    nursery.start_soon(self._wait_ready, nursery.cancel_scope)
                    if self._settings.silent:
                        nursery.start_soon(self._cancel_later, nursery.cancel_scope)
                    await watch.changed()
                    nursery.cancel_scope.cancel()
            except* WatchError as errors:
                self._watch_error = f"changes of settings are not followed: {errors.exceptions[0]}"
                log.warning("settings_not_watched", reason=self._watch_error)
                await trio.sleep(TRY_AGAIN)

    async def _wait_ready(self, scope: trio.CancelScope) -> None:
        """Wait until another project is added, then cancel `scope`.

        `scope` watches files. The caller begins to watch again, with the new project.
        """
        await self._settings.project_added.wait()
        scope.cancel()

    async def _until_still(self) -> None:
        """Read the files again after each pause, as long as one of them may be half written."""
        while self._settings.wait:
            await trio.sleep(self._settings.wait)
            await self._reload()

    async def _cancel_later(self, scope: trio.CancelScope) -> None:
        """Wait, then cancel `scope`, which watches files; the caller begins to watch again.

        When watching began, a folder did not answer and so could not be watched.
        """
        await trio.sleep(TRY_AGAIN)
        scope.cancel()

    async def _folders(self) -> Folders:
        found: dict[Path, frozenset[str] | None] = {}
        # If the folder does not exist yet, watch the nearest existing folder above it.
        below = self._settings.folder
        names = frozenset({CONFIG_FILE, CLIENTS_FILE})
        while not is_folder(below) and below != below.parent:
            below, names = below.parent, frozenset({below.name})
        found[below] = names
        async with trio.open_nursery() as nursery:
            for project in self._settings.projects:
                nursery.start_soon(self._add_project, found, Path(project))
        return found

    async def _add_project(self, found: dict[Path, frozenset[str] | None], folder: Path) -> None:
        """Add a project's folder to the watched ones in `found`, if it exists and answers."""
        with suppress(NoAnswerError):
            if await self._settings.reads.of(str(folder), partial(is_folder, folder)):
                found[folder] = found.get(folder, frozenset()) or frozenset({FILE_NAME})


def described(
    settings: LiveSettings, project: str, *, has_values: bool = True
) -> messages.SettingsDescribed:
    """Return all settings in force, with those of `project` if it is given, and all problems.

    Without `has_values`, return the problems alone.
    """
    return messages.SettingsDescribed(
        settings.problems,
        [messages.ProjectProblems(*each) for each in settings.project_problems.items()],
        settings.needs_restart,
        values=_values(settings, project) if has_values else [],
    )


def _values(settings: LiveSettings, project: str) -> list[messages.SettingValue]:
    """Return every key with its value and the origin of the value."""
    effective = settings.of(project)
    whole = msgspec.to_builtins(effective.configuration)
    if effective.domain:
        whole = {"domain": effective.domain, **whole}
    return [
        messages.SettingValue(
            key_path_text(path), msgspec.json.encode(value), effective.merged.origins.get(path, "")
        )
        for path, value in _leaves(whole)
    ]


def _leaves(tables: Mapping[str, Any], above: KeyPath = ()) -> list[tuple[KeyPath, Any]]:
    found: list[tuple[KeyPath, Any]] = []
    for key, value in tables.items():
        path = (*above, key)
        if isinstance(value, Mapping) and value:
            found += _leaves(value, path)
        elif not isinstance(value, Mapping):
            found.append((path, value))
    return found
