"""`capd help [COMMAND]`: what `capd COMMAND --help` prints."""

import click


@click.command("help")
@click.argument("words", metavar="[COMMAND]...", nargs=-1)
@click.pass_context
def help_(context: click.Context, words: tuple[str, ...]) -> None:
    """Show the help of COMMAND, or list all commands."""
    shown = context.find_root()
    for word in words:
        group = shown.command
        # The group's own error names the nearest command.
        name, command, _ = (
            group.resolve_command(shown, [word])
            if isinstance(group, click.Group)
            else (word, None, [])
        )
        if command is None:
            raise click.UsageError(f"`{shown.command_path}` has no command {word!r}", shown)
        shown = click.Context(command, info_name=name, parent=shown)
    click.echo(shown.get_help())


COMMANDS = {"help": help_}
