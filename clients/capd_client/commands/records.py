"""Commands that tell what has happened: why, logs, metrics."""

from collections import deque
from itertools import chain

import click

from capd_client import told
from capd_client.commands.shared import ask, fail, json_option, print_json

_SEEN = 4000


@click.command()
@click.option("--session", metavar="KEY", default="", help="Of this session alone.")
@click.option(
    *("--limit", "-n"),
    default=10,
    show_default=True,
    type=click.IntRange(1, 1000),
    help="How many decisions.",
)
@json_option
def why(*, session: str, limit: int, as_json: bool) -> None:
    """Say why something was switched on, or was not: the last decisions, the newest last."""
    result = ask("why", session=session, limit=limit)
    if as_json:
        print_json(result)
        return
    if result.get("problem"):
        click.echo(f"from memory, since the daemon began: {result['problem']}", err=True)
    told.print_why(result)


@click.command()
@json_option
def metrics(*, as_json: bool) -> None:
    """Print the daemon's numbers in Prometheus' text format."""
    result = ask("metrics")
    if as_json:
        print_json(result)
    else:
        click.echo(result.get("text", ""), nl=False)


@click.command()
@click.option("--follow", "-f", is_flag=True, help="Go on as lines come, until interrupted.")
@click.option("--lines", "-n", default=50, show_default=True, type=click.IntRange(min=0))
@click.option("--session", metavar="KEY", default="", help="Lines of this session alone.")
@click.option("--level", default=None, type=click.Choice(told.LEVELS), help="This and above.")
@click.option("--json", "as_json", is_flag=True, help="Print one document a line.")
def logs(*, follow: bool, lines: int, session: str, level: str | None, as_json: bool) -> None:
    """Show the daemon's log."""
    from capd_client import log_lines  # noqa: PLC0415 - other commands do without
    from capd_client.commands.service import the_manager  # noqa: PLC0415
    from capd_client.service.manager import ServiceError  # noqa: PLC0415

    manager = the_manager()
    seen: deque[str] = deque(maxlen=_SEEN)
    last: deque[told.LogLine] = deque(maxlen=lines)
    try:
        is_all = session or level
        for text in log_lines.there(manager, log_lines.ALL if is_all else lines + _SEEN):
            seen.append(text)
            line = told.LogLine(text)
            if line.is_wanted(session, level or ""):
                last.append(line)
        news = log_lines.coming(manager, seen) if follow else iter(())
        wanted = (each for each in map(told.LogLine, news) if each.is_wanted(session, level or ""))
        for line in chain(last, wanted):
            text = line.document() if as_json else line.shown()
            if text:
                click.echo(text)
    except ServiceError as error:
        fail(str(error))
    except KeyboardInterrupt:
        return


COMMANDS = {"logs": logs, "metrics": metrics, "why": why}
