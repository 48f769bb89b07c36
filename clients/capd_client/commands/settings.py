"""`capd config`: shows the settings, where each comes from, and what can be set."""

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from capd_client import tables
from capd_client.commands.shared import (
    EXIT_DEGRADED,
    ask,
    fail,
    json_option,
    print_json,
    this_places,
)
from capd_client.control import DaemonDownError

_PROJECT_FILE = ".capd.toml"


@click.group("config")
def config() -> None:
    """Show the settings, what can be set, and the files they are in."""


@config.command("show")
@click.option("--origin", is_flag=True, help="Say where each value is from.")
@click.option(
    "--project", metavar="PATH", default="", help="The values in sessions of this project."
)
@click.option("--all", "is_all", is_flag=True, help="Show defaults as well.")
@json_option
def show(*, origin: bool, project: str, is_all: bool, as_json: bool) -> None:
    """Show the settings in force, from the running daemon or else from the files."""
    project = os.path.abspath(project) if project else ""  # noqa: PTH100 - keeps symlinks
    is_running = True
    try:
        shown: Mapping[str, Any] = ask("config", project=project)
    except DaemonDownError:
        is_running = False
        shown = json.loads(_of_files("show", *([project] if project else [])))
    if as_json:
        print_json(shown)
    else:
        _print(shown, origin=origin, is_all=is_all, is_running=is_running)
    if shown.get("problems"):
        click.get_current_context().exit(EXIT_DEGRADED)


@config.command("schema")
def schema() -> None:
    """Print the JSON Schema of config.toml, with the meaning of each key."""
    click.echo(_of_files("schema"), nl=False)


@config.command("path")
@click.option("--project", metavar="PATH", default="", help="The file of this project as well.")
def path(*, project: str) -> None:
    """Print the paths of the configuration files, whether or not they exist."""
    tables.say(Path(this_places().config, "config.toml"))
    tables.say(Path(this_places().config, "clients.toml"))
    if project:
        tables.say(Path(project).absolute() / _PROJECT_FILE)


def _print(shown: Mapping[str, Any], *, origin: bool, is_all: bool, is_running: bool) -> None:
    if not is_running:
        tables.say("# no daemon runs: as the files and this environment have it")
    values = [each for each in shown["values"] if is_all or origin or each["origin"]]
    for each in values:
        line = f"{each['key']} = {json.dumps(each['value'], ensure_ascii=False)}"
        tables.say(f"{line}  # {each['origin'] or 'default'}" if origin else line)
    if not values:
        tables.say("# everything has its default: see them with --all")
    for key in shown.get("needs_restart") or []:
        tables.say(f"# {key} counts from the next start on: capd restart")
    for each in shown.get("problems") or []:
        click.echo(tables.printable(each), err=True)
    for project, lines in (shown.get("project_files") or {}).items():
        for line in lines:
            click.echo(tables.printable(f"{project}: {line}"), err=True)


def _of_files(*arguments: str) -> str:
    import subprocess  # noqa: PLC0415 - most commands do without

    command = [sys.executable, "-P", "-m", "capd", "config", *arguments]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        fail(done.stderr.strip() or "the files of the configuration cannot be read")
    return done.stdout


COMMANDS = {"config": config}
