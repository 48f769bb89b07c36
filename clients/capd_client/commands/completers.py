"""Shell completion of names that the running daemon knows; without a daemon it offers nothing."""

import os
import signal
from collections.abc import Iterable, Mapping
from types import FrameType
from typing import Any, NoReturn

import click
from click.shell_completion import CompletionItem

from capd_client.control import Control, ControlError, DaemonDownError
from capd_protos.places import places

PATIENCE = 0.1
"""Seconds to wait for the daemon: after a longer wait, a person thinks that the key did nothing."""
PATIENCE_VARIABLE = "CAPD_COMPLETION_PATIENCE"

Context = click.Context
Parameter = click.Parameter


def session_keys(ctx: Context, param: Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the key of a session."""
    del ctx, param
    entries = asked("sessions").get("sessions") or []
    return _items(((e.get("key"), e.get("project")) for e in entries), incomplete)


def capabilities(ctx: Context, param: Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete a capability as `name`, or as `tap/name` if the typed text has a slash."""
    del ctx, param
    entries = [each for each in asked("caps").get("capabilities") or [] if each.get("routable")]
    is_whole = "/" in incomplete
    named = (
        (f"{e.get('tap')}/{e.get('name')}" if is_whole else e.get("name"), e.get("description"))
        for e in entries
    )
    return _items(named, incomplete)


def active_capabilities(ctx: Context, param: Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the name of a capability that is active in any session."""
    del ctx, param
    sessions = asked("sessions").get("sessions") or []
    active = [each for session in sessions for each in session.get("active") or []]
    return _items(((each.get("name"), "") for each in active), incomplete)


def tools(ctx: Context, param: Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the name of a tool that the session of `--session` sees."""
    del param
    session = ctx.params.get("session") or os.environ.get("CAPD_SESSION", "")
    entries = asked("tools", **({"session": session} if session else {})).get("tools") or []
    return _items(((e.get("name"), e.get("description")) for e in entries), incomplete)


def taps(ctx: Context, param: Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the name of a tap that was added; `starter` cannot be removed or updated."""
    del ctx, param
    entries = asked("status").get("taps") or []
    added = ((e.get("name"), e.get("path")) for e in entries if e.get("name") != "starter")
    return _items(added, incomplete)


def servers(ctx: Context, param: Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the name of a server of any capability."""
    del ctx, param
    named = {name for e in asked("caps").get("capabilities") or [] for name in e.get("servers", ())}
    return _items(((name, "") for name in sorted(named)), incomplete)


def secrets(ctx: Context, param: Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the key of a secret that a definition asks for, or that is stored."""
    del ctx, param
    entries = asked("secrets").get("secrets") or []
    return _items(((e.get("name"), e.get("source")) for e in entries), incomplete)


def asked(method: str, **params: str) -> Mapping[str, Any]:
    """Return the daemon's answer to the request `method` with these params.

    It is an empty mapping if the daemon refuses, or does not answer within `PATIENCE` seconds (or
    as many as the variable `PATIENCE_VARIABLE` says).
    """
    before = signal.signal(signal.SIGALRM, _give_up)
    signal.setitimer(signal.ITIMER_REAL, _patience())
    try:
        with Control(places(os.environ, os.getuid()).socket, client="completion") as control:
            return control.call(method, params)
    except (DaemonDownError, ControlError, OSError):
        return {}
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _patience() -> float:
    try:
        return min(60.0, max(0.001, float(os.environ[PATIENCE_VARIABLE])))
    except (KeyError, ValueError):
        return PATIENCE


def _give_up(number: int, frame: FrameType | None) -> NoReturn:
    del number, frame
    raise TimeoutError


def _items(named: Iterable[tuple[Any, Any]], incomplete: str) -> list[CompletionItem]:
    """Return completions for the names in `named` that begin with `incomplete`, each once.

    `named` has pairs of a name and a description, of which one line is shown.
    """
    found = {
        str(name): str(text or "").strip().partition("\n")[0] for name, text in reversed([*named])
    }
    # The shells' scripts read one item a line, and texts of servers must not steer a terminal.
    return [
        CompletionItem(name, help=text if text.isprintable() else None)
        for name, text in sorted(found.items())
        if name.startswith(incomplete) and name.isprintable()
    ]
