"""`capd completion SHELL`: prints the script for completion of `capd` commands."""

import click
from click.shell_completion import get_completion_class

_VARIABLE = "_CAPD_COMPLETE"
_HOW = {
    "bash": 'eval "$(capd completion bash)"     in ~/.bashrc',
    "zsh": 'eval "$(capd completion zsh)"      in ~/.zshrc, after compinit',
    "fish": "capd completion fish | source      in ~/.config/fish/config.fish",
}


@click.command(epilog="\b\n" + "\n".join(_HOW.values()))
@click.argument("shell", type=click.Choice(tuple(_HOW)))
def completion(*, shell: str) -> None:
    """Print the script that completes commands, sessions, capabilities and taps."""
    from capd_client.commands import cli  # noqa: PLC0415 - which imports this module

    script = get_completion_class(shell)
    assert script is not None
    click.echo(script(cli, {}, "capd", _VARIABLE).source())


COMMANDS = {"completion": completion}
