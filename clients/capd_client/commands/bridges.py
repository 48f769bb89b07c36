"""`capd bridge`: editors in containers and on other hosts use this user's daemon."""

import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any, TypeVar

import click

from capd_client import tables
from capd_client.commands.shared import ask, fail, json_option, print_json, this_places
from capd_client.status_text import bridge_line

_F = TypeVar("_F", bound=Callable[..., Any])


@click.group()
def bridge() -> None:
    """Let editors and agents of another host or a container use this daemon.

    Your configuration sets what they may use: `[bridges.NAME]`. A session over a bridge does not
    have your rights: it cannot control capd, grant trust or approve calls.
    """


@bridge.command("list")
@json_option
def list_(*, as_json: bool) -> None:
    """Show the open bridges."""
    listed = ask("bridges")
    if as_json:
        print_json(listed)
        return
    found = listed.get("bridges") or []
    for each in found:
        tables.say(bridge_line(each, time.time()))
    if not found:
        tables.say("No bridge is open.")
    closed = set(listed.get("configured") or []) - {each.get("name") for each in found}
    if closed:
        tables.say(f"Configured, and not open: {', '.join(sorted(map(str, closed)))}")


@bridge.command("revoke")
@click.argument("name")
@json_option
def revoke(*, name: str, as_json: bool) -> None:
    """End the bridge NAME at once, with its sessions and their saved records.

    Its credential becomes invalid. Whoever holds the bridge open has to open it again.
    """
    answer = ask("bridge_revoke", name=name)
    if as_json:
        print_json(answer)
    else:
        tables.say(f"The bridge {answer.get('revoked')} is revoked.")


_INSTALL_OPTION = click.option(
    "--install", type=click.Choice(["claude-code"]), help="Add capd to an editor there."
)
_REMOVE_OPTION = click.option(
    "--remove", is_flag=True, help="Remove the files of a bridge there, and exit."
)


def _name_option(source: str) -> Callable[[_F], _F]:
    """Return a decorator that adds the option `--name` to a command.

    Its default is made from the command's argument `source`.
    """
    return click.option("--name", default="", help=f"The bridge's name.  [default: from {source}]")


@bridge.command("ssh")
@click.argument("host")
@_name_option("HOST")
@_INSTALL_OPTION
@_REMOVE_OPTION
@click.option("-p", "port", type=click.IntRange(1, 65535), help="The port of HOST's sshd.")
@click.option("-i", "identity", metavar="FILE", default="", help="The key to log in with.")
@click.option(
    "-F", "config", metavar="FILE", default="", help="Another configuration file for ssh."
)
@click.option("-o", "options", metavar="OPTION", multiple=True, help="An option for ssh.")
def ssh(
    *,
    host: str,
    name: str,
    install: str | None,
    remove: bool,
    port: int | None,
    identity: str,
    config: str,
    options: tuple[str, ...],
) -> None:
    """Let editors on HOST use this daemon, over OpenSSH, until Ctrl-C.

    HOST is as for ssh. Your configuration sets what the editors may use: `[bridges.NAME]`. A file
    with capd's client is copied to the host, and removed at the end.
    """
    # Only for these commands: others start without it.
    from capd_client.bridge.opened import FarSideError  # noqa: PLC0415
    from capd_client.bridge.ssh import SshBridge, name_of, remove_files  # noqa: PLC0415

    if host.startswith("-"):
        raise click.UsageError("HOST is written as for ssh, and cannot begin with a dash")
    name = name or name_of(host)
    own = [
        *(["-p", str(port)] if port else []),
        *(["-i", identity] if identity else []),
        *(["-F", config] if config else []),
        *(word for each in options for word in ("-o", each)),
    ]
    try:
        if remove:
            remove_files(name, host, own)
            tables.say(f"Nothing of the bridge {name} is left on {host}.")
            return
        SshBridge(
            this_places().socket,
            name,
            host,
            options=own,
            is_installed=install is not None,
            say=print_report,
            wake=ended_by_signal(),
        ).run()
    except FarSideError as error:
        fail(str(error))


@bridge.command("container")
@click.argument("container")
@_name_option("CONTAINER")
@click.option("--engine", type=click.Choice(["podman", "docker"]), help="The container's engine.")
@click.option("--user", default="", help="The editor's user there.  [default: the container's]")
@_INSTALL_OPTION
@_REMOVE_OPTION
def container(
    *,
    container: str,
    name: str,
    engine: str | None,
    user: str,
    install: str | None,
    remove: bool,
) -> None:
    """Let editors in CONTAINER use this daemon, until Ctrl-C.

    CONTAINER is the name or id of a running container of podman or Docker. Your configuration sets
    what the editors may use: `[bridges.NAME]`. A file with capd's client is put into the container,
    and removed at the end.
    """
    # Only for these commands: others start without it.
    from capd_client.bridge.container import ContainerBridge, remove_files  # noqa: PLC0415
    from capd_client.bridge.opened import FarSideError  # noqa: PLC0415
    from capd_client.bridge.ssh import name_of  # noqa: PLC0415

    if container.startswith("-"):
        raise click.UsageError("CONTAINER is a name or id, and begins with no dash")
    name = name or name_of(container)
    try:
        if remove:
            remove_files(name, container, engine or "", user)
            tables.say(f"Nothing of the bridge {name} is left in {container}.")
            return
        ContainerBridge(
            this_places().socket,
            name,
            container,
            engine=engine or "",
            user=user,
            is_installed=install is not None,
            say=print_report,
            wake=ended_by_signal(),
        ).run()
    except FarSideError as error:
        fail(str(error))


def print_report(line: str) -> None:
    """Print a line and flush it: a program may be reading."""
    tables.say(line)
    sys.stdout.flush()


def ended_by_signal() -> int:
    """Return a descriptor that becomes readable when a signal asks this process to end."""
    readable, writable = os.pipe()
    os.set_blocking(writable, False)
    signal.set_wakeup_fd(writable)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda _number, _frame: None)
    return readable


COMMANDS = {"bridge": bridge}
