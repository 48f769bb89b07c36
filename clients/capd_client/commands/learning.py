"""`capd learn`: a phrase of the user's own for a capability."""

import click

from capd_client import tables
from capd_client.commands import completing
from capd_client.commands.shared import ask, fail, this_places


@click.command()
@click.argument("phrase")
@click.argument("capability", shell_complete=completing.capabilities)
def learn(*, phrase: str, capability: str) -> None:
    """Have messages like PHRASE mean CAPABILITY."""
    from capd_client.learned import Learned  # noqa: PLC0415
    from capd_client.taps import meant  # noqa: PLC0415

    found = [each for each in ask("caps").get("capabilities") or [] if each.get("routable")]
    by_name = {f"{each['tap']}/{each['name']}": each for each in found}
    for each in reversed(found):
        # Of two taps the first that has the name is meant by it.
        by_name[str(each["name"])] = each
    chosen = by_name[meant(capability, list(by_name), f"no capability named {capability}")]
    if str(chosen["tap"]).startswith("project:"):
        fail(f"{chosen['name']} is the project's own\nWrite the phrase into its config.toml.")
    file = Learned(this_places().config).add(phrase, chosen["tap"], chosen["name"])
    name = f"{chosen['tap']}/{chosen['name']}"
    if file is None:
        tables.say(f"{name}: knows it already")
        return
    ask("reload")
    tables.say(f"{name}: learned ({file})")


COMMANDS = {"learn": learn}
