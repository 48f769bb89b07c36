"""`capd learn`: adds the user's own phrases, and shows or forgets what routing learnt from use."""

import re
from pathlib import Path
from typing import Any

import click

from capd_client import tables
from capd_client.commands import completers
from capd_client.commands.records import learnt_of
from capd_client.commands.shared import ask, fail, json_option, print_json, this_places
from capd_client.taps import TapError
from capd_client.toml_files import load, store
from capd_protos.places import make_folders

LONGEST = 200
"""The most characters of a phrase. Messages are compared with the whole phrase."""
MOST = 100
"""The most phrases of one capability in an overlay."""
_ALL = "*"
"""The value of `--forget` without a name: everything."""
_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]+")


class Learned:
    """The phrases that the user has added, in overlays `learned-TAP` of one configuration folder.

    Adding a phrase rewrites the file, and keeps everything else in it.
    """

    def __init__(self, config: str) -> None:
        self._overlays = Path(config, "overlays")

    def add(self, phrase: str, tap: str, name: str) -> Path | None:
        """Save `phrase` as a trigger of the capability `name` in the tap `tap`.

        Return the file; None if the file has the phrase already, in upper or lower case.

        Raises:
            TapError: the phrase is empty or too long, or the file cannot be read or is full.
            EditError: the file cannot be edited; it is unchanged.
        """
        import tomlkit  # noqa: PLC0415 - 25 ms that most commands have no use for

        words = " ".join(phrase.split())
        if not words or not words.isprintable() or len(words) > LONGEST:
            raise TapError(f"a phrase is words that a user would say, {LONGEST} characters at most")
        folder = self._folder(tap)
        file = folder / "capabilities" / f"{name}.toml"
        document = self._read(file)
        triggers: Any = document.get("triggers")
        if triggers is None:
            triggers = document["triggers"] = tomlkit.array().multiline(multiline=True)
        if not isinstance(triggers, list):
            raise TapError(f"in {file} `triggers` is not a list\nCorrect it by hand.")
        if words.casefold() in {str(each).casefold() for each in triggers}:
            return None
        if len(triggers) >= MOST:
            raise TapError(f"{file} has {MOST} phrases already\nRemove one from the file first.")
        triggers.append(words)
        make_folders(file.parent)
        head = folder / "overlay.toml"
        if not head.exists():
            new = tomlkit.document()
            new["tap"] = tap
            store(head, new)
        store(file, document)
        return file

    def _folder(self, tap: str) -> Path:
        """Return the folder of the overlay for a tap, whether it exists or not."""
        base = f"learned-{_UNSAFE.sub('-', tap)}"
        for count in range(1, 100):
            folder = self._overlays / (base if count == 1 else f"{base}-{count}")
            head = folder / "overlay.toml"
            if not head.exists() or self._read(head).get("tap") == tap:
                return folder
        raise TapError(f"{self._overlays} has too many folders named {base}\nRemove some.")

    @staticmethod
    def _read(file: Path) -> Any:
        from tomlkit.exceptions import TOMLKitError  # noqa: PLC0415

        try:
            return load(file)
        except (TOMLKitError, UnicodeDecodeError) as error:
            raise TapError(f"{file} is not TOML: {error}\nCorrect it by hand.") from None


@click.command()
@click.argument("phrase", required=False)
@click.argument("capability", required=False, shell_complete=completers.capabilities)
@click.option(
    "--forget",
    metavar="[NAME]",
    is_flag=False,
    flag_value=_ALL,
    help="Forget what was learnt from use, about NAME or everything.",
)
@click.option("--undo", is_flag=True, help="Forget only what was learnt last.")
@json_option
def learn(
    *, phrase: str | None, capability: str | None, forget: str | None, undo: bool, as_json: bool
) -> None:
    """Show or forget what routing has learnt, or have messages like PHRASE switch CAPABILITY on."""
    if phrase is not None and capability is None:
        raise click.UsageError("a PHRASE needs the CAPABILITY that it means")
    is_forgetting = undo or forget is not None
    if is_forgetting and phrase is not None:
        raise click.UsageError("--forget and --undo cannot be combined with a PHRASE")
    if is_forgetting:
        name = "" if forget in {None, _ALL} else forget
        _show_forgotten(ask("learning_forget", name=name, last=undo or ""), as_json=as_json)
    elif phrase is None or capability is None:
        _show(ask("learning", project=str(Path.cwd())), as_json=as_json)
    else:
        _learn(phrase, capability)


def _show(result: dict[str, Any], *, as_json: bool) -> None:
    """Print what routing has learnt from use; `result` is the daemon's answer."""
    if as_json:
        print_json(result)
        return
    if result.get("problem"):
        click.echo(f"attention: {result['problem']}", err=True)
    if not result.get("on"):
        tables.say("switched off here: [routing] learn = false")
    entries = result.get("capabilities") or []
    if not entries:
        tables.say(
            "nothing yet: routing learns when you enable or disable something after a message"
        )
        return
    for each in entries:
        here = each.get("project_offset") or 0
        more = f", {here:+.2f} more in this project" if here else ""
        tables.say(f"{learnt_of(each)}{more}")
    tables.say(f"all capabilities {result.get('shared') or 0:+.2f}")
    tables.say("above 0 a capability is switched on sooner; capd learn --forget NAME undoes it")


def _show_forgotten(result: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(result)
        return
    count = int(result.get("forgotten") or 0)
    name = result.get("capability")
    what = f"{count} label{'' if count == 1 else 's'}" + (f" of {name}" if name else "")
    tables.say(f"forgotten: {what}" if count else "there is nothing of it to forget")


def _learn(phrase: str, capability: str) -> None:
    """Save `phrase` for `capability`, and have the daemon read it."""
    from capd_client.taps import find_name  # noqa: PLC0415

    found = [each for each in ask("caps").get("capabilities") or [] if each.get("routable")]
    by_name = {f"{each['tap']}/{each['name']}": each for each in found}
    for each in reversed(found):
        # A name without a tap means the first capability of that name.
        by_name[str(each["name"])] = each
    chosen = by_name[find_name(capability, list(by_name), f"no capability named {capability}")]
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
