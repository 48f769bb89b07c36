"""What a person reads of the daemon's records: decisions with their reasons, and its log."""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import click

from capd_client.tables import printable, say

LEVELS = ("debug", "info", "warning", "error", "critical")
_FIRST = ("timestamp", "level", "event")
_COLOURS = {"warning": "yellow", "error": "red", "critical": "red", "debug": "bright_black"}


def print_why(result: Mapping[str, Any]) -> None:
    """Print decisions, the newest last, each with its reason and the way to another one."""
    decisions = result.get("decisions") or []
    for each in reversed(decisions):
        _print_decision(each)
    failed = [each for each in result.get("activations") or [] if _is_failure(each)]
    if failed:
        click.echo("\nnot switched on, though a model or a person asked for it")
        for each in reversed(failed):
            say(f"  {_when(each)}  {each.get('session', '?')}  {each.get('name')}: {each['why']}")
    if not decisions:
        click.echo("no decision yet: capd has heard no message of a user")
        click.echo("capd turn TEXT tries one; capd doctor says whether prompts reach capd")


def _is_failure(activation: Mapping[str, Any]) -> bool:
    return activation.get("action") == "failed"


def _print_decision(each: Mapping[str, Any]) -> None:
    name = f" {each['name']}" if each.get("name") else ""
    reason = f" ({each['reason']})" if each.get("reason") else ""
    say(
        f"{_when(each)}  {each.get('session', '?')}  message {each.get('fingerprint', '?')}  "
        f"{each.get('outcome', '?')}{name}{reason}"
    )
    scores = ", ".join(f"{top.get('name')} {top.get('score'):.2f}" for top in each.get("top") or [])
    for word, text in (
        ("scores", scores),
        ("why", each.get("why")),
        ("then", each.get("came")),
    ):
        if text:
            say(f"  {word + ':':8}{text}")
    for line in each.get("next") or []:
        say(f"  {'next:':8}{line}")


def _when(each: Mapping[str, Any]) -> str:
    at = each.get("at")
    return f"{datetime.fromtimestamp(at):%m-%d %H:%M:%S}" if isinstance(at, int | float) else "?"


class LogLine:
    """One line of the daemon's log."""

    def __init__(self, line: str) -> None:
        self.text = line
        self.facts: Mapping[str, Any] | None = _facts(line)

    def is_wanted(self, session: str, level: str) -> bool:
        """Tell whether it is of this session, where one is named, and of this level or above."""
        if self.facts is None:
            # What an interpreter or a library writes belongs to no session and has no level.
            return not session and not level
        if session and self.facts.get("session") != session:
            return False
        own = str(self.facts.get("level", ""))
        return not level or own not in LEVELS or LEVELS.index(own) >= LEVELS.index(level)

    def document(self) -> str:
        """Return it as JSON, in ASCII; empty where it is none."""
        return "" if self.facts is None else json.dumps(self.facts)

    def shown(self) -> str:
        """Return it as a person reads it."""
        if self.facts is None:
            return printable(self.text)
        level = str(self.facts.get("level", ""))
        rest = " ".join(
            f"{key}={_value(value)}" for key, value in self.facts.items() if key not in _FIRST
        )
        line = f"{_time(self.facts)} {level:8}{self.facts.get('event', '')} {rest}".rstrip()
        return click.style(printable(line), fg=_COLOURS.get(level))


def _facts(line: str) -> Mapping[str, Any] | None:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _time(facts: Mapping[str, Any]) -> str:
    said = str(facts.get("timestamp", ""))
    try:
        at = datetime.fromisoformat(said)
    except ValueError:
        return said
    return f"{at.astimezone():%m-%d %H:%M:%S}"


def _value(value: Any) -> str:
    return value if isinstance(value, str) and value and " " not in value else json.dumps(value)
