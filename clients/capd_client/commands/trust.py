"""`capd trust`: what a person trusts, one command a kind."""

from typing import Any

import click

from capd_client.commands.definitions import definitions

DEFAULT = "path"
"""The command that an argument which names none is for."""


class _Trust(click.Group):
    """The group whose first argument may be what its default command takes."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that `args` begin with, or the default one."""
        default: Any = self.commands.get(DEFAULT)
        if args and args[0] not in self.commands and default is not None:
            return DEFAULT, default, args
        return super().resolve_command(ctx, args)


@click.group(cls=_Trust)
def trust() -> None:
    """Look at what servers and projects bring, and say what is trusted."""


trust.add_command(definitions)

COMMANDS = {"trust": trust}
