"""Commands that are planned and not there: each says so, and what does the work meanwhile."""

import click

from capd_client.commands.shared import fail

_INSTEAD = {
    "learn": "write the phrase into the capability's `triggers` (docs/taps.md)",
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
