"""`capd acp` runs an agent for editors with ACP; `capd plugin` finds an editor's plugin."""

import os
import sys
from pathlib import Path

import click

import capd_client
from capd_client.commands.shared import fail, this_places

_PLACES = ("CAPD_HOME", "CAPD_SOCKET", "XDG_RUNTIME_DIR", "CAPD_NO_START")
"""Variables by which the shim finds the daemon. Not every agent passes them to its servers."""
_NOT_FOUND = 127


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("agent", metavar="AGENT [ARGUMENT]...", nargs=-1, required=True, type=str)
@click.pass_context
def acp(ctx: click.Context, *, agent: tuple[str, ...]) -> None:
    """Run AGENT with capd, for an editor that speaks the Agent Client Protocol."""
    from capd_client.acp import proxy  # noqa: PLC0415 - one command needs it
    from capd_client.acp.dialogue import Dialogue  # noqa: PLC0415
    from capd_client.acp.turns import Turns  # noqa: PLC0415

    launch = Path(capd_client.__file__).absolute().parent / "launch.py"
    shim = [sys.executable, "-I", "-S", str(launch)]
    env = {name: os.environ[name] for name in _PLACES if os.environ.get(name)}
    turns = Turns(this_places().socket)
    dialogue = Dialogue(shim, env)
    sys.stdout.flush()
    try:
        served = proxy.Proxy(agent, dialogue, turns)
    except FileNotFoundError:
        click.echo(
            f"capd: there is no program {agent[0]}\nName it as your shell finds it.", err=True
        )
        ctx.exit(_NOT_FOUND)
    except OSError as error:
        fail(f"{agent[0]} cannot be run: {error.strerror}")
    ctx.exit(served.run())


@click.command()
@click.argument("editor", type=click.Choice(["emacs", "nvim"]))
def plugin(*, editor: str) -> None:
    """Print the folder of the plugin for EDITOR."""
    click.echo(Path(capd_client.__file__).absolute().parent / editor)


COMMANDS = {"acp": acp, "plugin": plugin}
