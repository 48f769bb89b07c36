"""`capd trust`: what a person trusts, one command a kind."""

import click

from capd_client.commands.definitions import definitions
from capd_client.commands.trusting import project

DEFAULT = "project"
"""The command that arguments are for which name none."""


class _Trust(click.Group):
    """The group whose arguments may be those of its default command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read `args`, as the default command's where they do not begin with a command."""
        is_named = bool(args) and (args[0] in self.commands or args[0] in ctx.help_option_names)
        return super().parse_args(ctx, args if is_named else [DEFAULT, *args])


@click.group(cls=_Trust)
def trust() -> None:
    """Look at what projects and servers bring, and say what is trusted.

    Without a command: `capd trust [PATH]` is `capd trust project [PATH]`.
    """


trust.add_command(definitions)
trust.add_command(project)

COMMANDS = {"trust": trust}
