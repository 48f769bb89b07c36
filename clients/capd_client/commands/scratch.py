"""Lets commands for a session work without one, in a scratch session of the current folder.

A command uses the first of these:

- the session of `--session` or `CAPD_SESSION`
- the only open session
- if none is open, a scratch session, which ends with the command. The next command in the same
  folder restores it, so the same capabilities are active.

If no daemon answers, one is started first, unless `CAPD_NO_START` is set.
"""

import hashlib
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from capd_client.commands.shared import Failure, NoDaemon, ask, this_places
from capd_client.control import Control, ControlError, DaemonDownError
from capd_client.waiting import Waiting

_T = TypeVar("_T")
_MODEL_PATIENCE = 60.0
_POLL = 0.2
_COLD_PATIENCE = 3.0
"""Seconds to wait while the model's state is `cold`: a new daemon is cold until it begins to load
the model, or for ever if it has none."""
_NOT_LOADED = frozenset({"cold", "loading"})
_READY_TRIES = 10
"""How often to ask a daemon that has its model and still answered too early. On a busy machine
the first text takes longer than the quarter of a second that the daemon waits for its vector."""


def scratch_key(folder: str) -> str:
    """Return the key of the scratch session of `folder`, which is the same each time."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(folder).name)[:40] or "root"
    return f"scratch-{name}-{hashlib.sha256(os.fsencode(folder)).hexdigest()[:8]}"


def start_daemon() -> bool:
    """Start the daemon unless one answers or `CAPD_NO_START` is set; return whether it was started.

    Raises:
        NoDaemon: it could not be started.
    """
    if os.environ.get("CAPD_NO_START", "") not in {"", "0"}:
        return False
    if is_daemon_up():
        return False
    from capd_client.agent.address import address  # noqa: PLC0415 - most commands do without

    click.echo("Starting the daemon...", err=True)
    with Waiting("starting the daemon"):
        why = address("", os.environ, may_start=True).start()
    if why:
        raise NoDaemon(f"the daemon cannot be started: {why}\nSee what is wrong with: capd doctor")
    return True


def is_daemon_up() -> bool:
    """Tell whether anything answers at the daemon's socket."""
    try:
        with Control(this_places().socket):
            return True
    except ControlError:
        # Something listens. The command's own request will report what is wrong with it.
        return True
    except DaemonDownError:
        return False


def wait_for_model() -> str:
    """Wait while the daemon loads its embedding model; return the model's state at the end.

    The state is `ready` or `unusable`; `cold` if the daemon has no model; or `loading` if a minute
    was not enough.
    """
    began_at = time.monotonic()
    is_announced = False
    with Waiting("loading the model"):
        while True:
            state = _model_state()
            elapsed = time.monotonic() - began_at
            is_over = elapsed > (_COLD_PATIENCE if state == "cold" else _MODEL_PATIENCE)
            if is_over or state not in _NOT_LOADED:
                return state
            if not is_announced:
                click.echo("Loading the model...", err=True)
                is_announced = True
            time.sleep(_POLL)


def once_the_model_is_there(
    act: Callable[[], dict[str, Any]], is_too_early: Callable[[dict[str, Any]], bool]
) -> dict[str, Any]:
    """Call `act`, and call it again while its result is too early; return the last result.

    Before each repetition the command waits for the model. It gives up if there is no model, or if
    `_READY_TRIES` results in a row were too early although the model was loaded.
    """
    result = act()
    for _ in range(_READY_TRIES):
        if not is_too_early(result) or wait_for_model() != "ready":
            break
        time.sleep(_POLL)
        result = act()
    return result


def ask_started(method: str, **params: Any) -> dict[str, Any]:
    """Return the daemon's result of `method`; start the daemon if none runs.

    If the daemon refuses and its model is not loaded, wait for the model and ask once more.

    Raises:
        NoDaemon: it could not be started.
        DaemonDownError: none runs, and `CAPD_NO_START` is set.
        ControlError: the daemon refused.
    """
    if start_daemon():
        wait_for_model()
    try:
        return ask(method, **params)
    except ControlError:
        if _model_state() not in _NOT_LOADED:
            raise
    wait_for_model()
    return ask(method, **params)


def _model_state() -> str:
    return str((ask("status").get("embedder") or {}).get("state"))


def in_session(session: str, act: Callable[[str], _T]) -> _T:
    """Return `act(key)`, where `key` is that of the session in which the command works.

    `session` is the key that the person gave. If it is empty, the first call has an empty key,
    which stands for the only open session. If no session is open, that call fails, and `act` is
    called again with the key of a scratch session. The daemon is started if none runs.

    Raises:
        NoDaemon: it could not be started.
        DaemonDownError: none runs, and `CAPD_NO_START` is set.
        Failure: no scratch session could be opened.
        ControlError: the daemon refused.
    """
    if start_daemon():
        wait_for_model()
    try:
        return act(session)
    except ControlError:
        # If no session is open, the daemon can only have refused because it needs one.
        if session or ask("sessions").get("sessions"):
            raise
    return _in_scratch_session(act)


def _in_scratch_session(act: Callable[[str], _T]) -> _T:
    from importlib.metadata import version  # noqa: PLC0415 - as in start_daemon

    from capd_client.agent import CapdError, connect  # noqa: PLC0415

    folder = os.path.realpath(Path.cwd())
    try:
        opened = connect(
            client="capd",
            version=version("capd"),
            project=folder,
            session=scratch_key(folder),
            start=False,
        ).open()
    except CapdError as error:
        raise Failure(f"no scratch session could be opened: {error}") from None
    with opened:
        click.echo(
            f"No session is open: using {opened.key}, a scratch session of this folder.", err=True
        )
        return act(opened.key)
