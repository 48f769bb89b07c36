"""Commands that show what has happened: decisions, logs, numbers."""

from collections import deque
from collections.abc import Mapping
from datetime import datetime
from itertools import chain
from typing import Any

import click

from capd_client import log_lines
from capd_client.commands.shared import ask, fail, json_option, print_json
from capd_client.status_text import script_words
from capd_client.tables import say
from capd_client.terminal import width, wrapped

WHOLE = 100
"""The percentage at which the whole catalog is embedded."""
_SEEN = 4000
"""Log lines that are remembered, so that `--follow` does not print them twice."""
_MOST_EDITS = 10
ACTS = {"enabled": "switched on", "disabled": "switched off", "called": "called"}
"""Words for the acts of users and models that routing learns from."""


@click.command()
@click.option("--session", metavar="KEY", default="", help="Only of this session.")
@click.option(
    *("--limit", "-n"),
    default=10,
    show_default=True,
    type=click.IntRange(1, 1000),
    help="How many decisions.",
)
@json_option
def why(*, session: str, limit: int, as_json: bool) -> None:
    """Explain why something was switched on, or was not: the last decisions, newest last."""
    result = ask("why", session=session, limit=limit)
    if as_json:
        print_json(result)
        return
    if result.get("problem"):
        click.echo(f"from memory, since the daemon began: {result['problem']}", err=True)
    _print_why(result)


@click.command()
@json_option
def metrics(*, as_json: bool) -> None:
    """Print the daemon's counters in Prometheus' text format."""
    result = ask("metrics")
    if as_json:
        print_json(result)
    else:
        click.echo(result.get("text", ""), nl=False)


@click.command()
@click.option("--follow", "-f", is_flag=True, help="Keep printing new lines until Ctrl-C.")
@click.option("--lines", "-n", default=50, show_default=True, type=click.IntRange(min=0))
@click.option("--session", metavar="KEY", default="", help="Only lines of this session.")
@click.option(
    "--level",
    default=None,
    type=click.Choice(log_lines.LEVELS),
    help="Only lines of this level and above.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
def logs(*, follow: bool, lines: int, session: str, level: str | None, as_json: bool) -> None:
    """Show the daemon's log."""
    from capd_client.commands.service import the_manager  # noqa: PLC0415
    from capd_client.service.manager import ServiceError  # noqa: PLC0415

    manager = the_manager()
    seen: deque[str] = deque(maxlen=_SEEN)
    lines = min(lines, log_lines.ALL)
    last: deque[log_lines.LogLine] = deque(maxlen=lines)
    try:
        is_all = session or level
        for text in log_lines.existing_lines(manager, log_lines.ALL if is_all else lines + _SEEN):
            seen.append(text)
            line = log_lines.LogLine(text)
            if line.is_wanted(session, level or ""):
                last.append(line)
        news = log_lines.new_lines(manager, seen) if follow else iter(())
        wanted = (
            each for each in map(log_lines.LogLine, news) if each.is_wanted(session, level or "")
        )
        for line in chain(last, wanted):
            text = line.document() if as_json else line.shown()
            if text:
                click.echo(text)
    except ServiceError as error:
        fail(str(error))
    except KeyboardInterrupt:
        return


def _print_why(result: Mapping[str, Any]) -> None:
    """Print the decisions in `result`, the newest last.

    Each has its reason, and how to get another outcome.
    """
    decisions = result.get("decisions") or []
    for each in reversed(decisions):
        _print_decision(each)
    failed = [each for each in result.get("activations") or [] if _is_failure(each)]
    if failed:
        click.echo("\nnot switched on, though a model or a person asked for it")
        for each in reversed(failed):
            say(f"  {_when(each)}  {each.get('session', '?')}  {each.get('name')}: {each['why']}")
    if scripts := result.get("scripts"):
        click.echo("\nscripts, and what they called")
        for each in reversed(scripts):
            say(f"  {_when(each)}  {each.get('session', '?')}  {script_words(each)}")
    if edits := result.get("edits"):
        click.echo("\ntools that were edited (capd tool show NAME has the original)")
        for each in edits[:_MOST_EDITS]:
            say(f"  {edit_line(each)}")
        if len(edits) > _MOST_EDITS:
            say(f"  and {len(edits) - _MOST_EDITS} more: capd tool list")
    if not decisions:
        say("no decision yet: no message of a user has reached capd")
        say("capd turn TEXT tries one; capd doctor says whether prompts reach capd")


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
    percent = each.get("percent", WHOLE)
    partly = f"{percent} % of the catalog were ready; the rest counted by its letters alone"
    learnt = "; ".join(learnt_of(entry) for entry in each.get("learnt") or [])
    for word, text in (
        ("scores", scores),
        ("why", each.get("why")),
        ("partly", partly if percent < WHOLE else ""),
        ("learnt", learnt),
        ("then", each.get("came")),
    ):
        if text:
            _say_wrapped(word, text)
    for line in each.get("next") or []:
        _say_wrapped("next", line)


def edit_line(each: Mapping[str, Any]) -> str:
    """Return one line that says what an edit of an overlay changes in a tool."""
    changes = ", ".join(map(str, each.get("changes") or ()))
    return f"{each.get('name')}  is {each.get('tool')}: {changes}"


def _say_wrapped(word: str, text: object) -> None:
    first = f"  {word + ':':8}"
    for line in wrapped(str(text), width(), first=first, further=" " * len(first)):
        say(line)


def learnt_of(entry: Mapping[str, Any]) -> str:
    """Return one line that says what routing has learnt about a capability, and from which acts."""
    acts = ", ".join(
        f"{word} {entry[act]}" for act, word in ACTS.items() if isinstance(entry.get(act), int)
    )
    since = datetime.fromtimestamp(entry.get("since") or 0)
    return f"{entry.get('name')} {entry.get('offset') or 0:+.2f} since {since:%Y-%m-%d} ({acts})"


def _when(each: Mapping[str, Any]) -> str:
    at = each.get("at")
    return f"{datetime.fromtimestamp(at):%m-%d %H:%M:%S}" if isinstance(at, int | float) else "?"


COMMANDS = {"logs": logs, "metrics": metrics, "why": why}
