"""Commands that are planned and not there: each says so, and what does the work meanwhile."""

import click

from capd_client.commands.shared import fail

_INSTEAD = {
    "acp": "give the agent `capd mcp` as an MCP server, and `capd turn` its user's words",
    "import": "copy each server's command: capd add NAME -- COMMAND [ARGUMENT]...",
    "memory": "put what shall be known into a skill of a tap of your own (docs/skills.md)",
}


def _missing(name: str, instead: str) -> click.Command:
    @click.command(
        name,
        context_settings={"ignore_unknown_options": True},
        help=f"Not there yet. Meanwhile: {instead}.",
    )
    @click.argument("anything", nargs=-1, type=click.UNPROCESSED)
    def command(*, anything: tuple[str, ...]) -> None:
        del anything
        fail(f"`capd {name}` is not there yet\nMeanwhile: {instead}")

    return command


COMMANDS = {name: _missing(name, instead) for name, instead in _INSTEAD.items()}
