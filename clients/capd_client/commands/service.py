"""Commands that start and stop the daemon, and `capd mcp`, which runs the shim."""

import os
import sys
from collections.abc import Callable
from typing import TypeVar

import click

from capd_client import tables
from capd_client.commands.shared import (
    START_HINT,
    NoDaemon,
    fail,
    json_option,
    print_json,
    this_places,
)
from capd_client.daemon_process import daemon_arguments, daemon_environment
from capd_client.log_lines import check_log
from capd_client.service.detection import this_manager
from capd_client.service.manager import Manager, ServiceError

_T = TypeVar("_T")


@click.command()
@json_option
def stop(*, as_json: bool) -> None:
    """Stop the daemon, wait until it has ended, and keep it from starting again."""
    manager = the_manager()
    if not _tried(manager.stop):
        raise NoDaemon(f"no daemon at {this_places().socket}\n{START_HINT}")
    if as_json:
        print_json({"schema": 1, "stopping": True})
    else:
        _say_stopped(manager)


@click.group()
def daemon() -> None:
    """Run the daemon: in the foreground, in the background, or as a service."""


@daemon.command(
    "run",
    context_settings={"ignore_unknown_options": True},
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def daemon_run(*, arguments: tuple[str, ...]) -> None:
    """Run the daemon in the foreground."""
    sys.stdout.flush()
    environment = daemon_environment(os.environ)
    command = daemon_arguments(arguments)
    os.execve(sys.executable, command, environment)  # noqa: S606 - our own program, no shell


@daemon.command("install")
@click.option("--hardened", is_flag=True, help="Add the directives that imply NoNewPrivileges.")
def daemon_install(*, hardened: bool) -> None:
    """Install the daemon as a service of systemd or launchd."""
    _say(this_manager(os.environ), lambda manager: manager.install(is_hardened=hardened))


@daemon.command("uninstall")
def daemon_uninstall() -> None:
    """Remove the service; configuration and state stay."""
    _say(this_manager(os.environ), lambda manager: manager.uninstall())


@daemon.command("start")
def daemon_start() -> None:
    """Start the daemon."""
    _did(the_manager().start, "capd is started")


@daemon.command("stop")
def daemon_stop() -> None:
    """Stop the daemon, wait until it has ended, and keep it from starting again."""
    manager = the_manager()
    _tried(manager.stop)
    _say_stopped(manager)


@daemon.command("restart")
def daemon_restart() -> None:
    """Stop the daemon and start it again; clients reconnect automatically."""
    _did(the_manager().restart, "capd is restarted")


@daemon.command("logs")
@click.option("--follow", "-f", is_flag=True, help="Keep printing new lines until Ctrl-C.")
@click.option("--lines", "-n", default=50, show_default=True, type=click.IntRange(min=0))
def daemon_logs(*, follow: bool, lines: int) -> None:
    """Show the daemon's log."""
    command = the_manager().logs(follow=follow, lines=lines)
    if not follow:
        _tried(lambda: check_log(command))
    sys.stdout.flush()
    os.execvp(command[0], command)  # noqa: S606 - journalctl or tail, no shell


def the_manager() -> Manager:
    """Return the service manager, if its installed service is the daemon of this environment.

    Otherwise return `Plain`, which controls the daemon as a process.
    """
    from capd_client.service.plain import Plain  # noqa: PLC0415 - most commands do without

    manager = this_manager(os.environ)
    is_ours = manager.is_installed() and manager.serves()
    return manager if is_ours else Plain(os.environ)


def _say(manager: Manager, act: Callable[[Manager], list[str]]) -> None:
    try:
        lines = act(manager)
    except ServiceError as error:
        fail(str(error))
    for line in lines:
        tables.say(line)


def _did(act: Callable[[], None], text: str) -> None:
    _tried(act)
    click.echo(text)


def _say_stopped(manager: Manager) -> None:
    click.echo(f"capd is stopped; {manager.when_stopped}")


def _tried(act: Callable[[], _T]) -> _T:
    try:
        return act()
    except ServiceError as error:
        fail(str(error))


@click.command()
@click.argument("socket", required=False)
def mcp(*, socket: str | None) -> None:
    """Run the MCP shim on standard input and output; editors start this."""
    from capd_client.shim.main import main  # noqa: PLC0415

    click.get_current_context().exit(main([socket] if socket else []))


@click.command()
def restart() -> None:
    """Stop the daemon and start it again."""
    _did(the_manager().restart, "capd is restarted")


COMMANDS = {"daemon": daemon, "mcp": mcp, "restart": restart, "stop": stop}
