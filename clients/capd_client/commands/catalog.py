"""Commands on what is installed: check it, manage taps, measure how well it is found."""

import contextlib
import os
import sys
from pathlib import Path

import click

from capd_client import tables
from capd_client.commands import completers
from capd_client.commands.shared import (
    ask,
    check_folder,
    fail,
    json_option,
    print_json,
    this_places,
)
from capd_client.control import DaemonDownError
from capd_client.taps import TapError, TapList, find_name


@click.command()
@click.argument("path", required=False, type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def check(*, path: Path | None, as_json: bool) -> None:
    """Report errors in the configuration, taps and overlays, or in the tap at PATH."""
    import subprocess  # noqa: PLC0415 - as in `tap add`

    if path is not None and not path.is_absolute():
        check_folder()
    # -P, so that a folder `capd` in the working directory is not imported as the daemon.
    command = [sys.executable, "-P", "-m", "capd", "check", *([str(path)] if path else [])]
    command += ["--json"] if as_json else []
    # The daemon's own code checks the rules; no daemon has to run for it.
    done = subprocess.run(command, check=False)
    click.get_current_context().exit(done.returncode)


@click.group()
def tap() -> None:
    """Add, list, update and remove taps, the folders that hold capabilities."""


@tap.command("add")
@click.argument("where", metavar="PATH|URL")
@click.option("--name", default=None, help="The tap's name here.  [default: the folder's name]")
def tap_add(*, where: str, name: str | None) -> None:
    """Add the tap in the folder PATH, or clone it from the git repository at URL."""
    from capd_client import tap_git  # noqa: PLC0415 - subprocess, which most commands do without

    path = Path(where)
    if tap_git.is_url(where):
        path = Path(this_places().data, "taps", name or tap_git.name_of(where))
        TapList(this_places().config).check_free(path.name)
        tap_git.clone(where, path)
    added = TapList(this_places().config).add(path, name)
    try:
        result = ask("reload")
    except DaemonDownError:
        click.echo(f"{added['name']}: will be loaded when the daemon starts")
        return
    for each in result.get("taps") or []:
        if each.get("name") == added["name"]:
            click.echo(tables.tap_line(each))
            if each.get("error"):
                fail(f"{added['name']} is on the list, but was not loaded")
            return
    fail(f"{added['name']} is on the list, and the daemon has not loaded it: see capd status")


@tap.command("build")
@click.argument("path", type=click.Path(path_type=Path, file_okay=False, exists=True))
def tap_build(*, path: Path) -> None:
    """Write tools.json and vectors.bin into the tap at PATH, for those who install it.

    With tools.json, capd can find a server's tools before the server has ever run. With
    vectors.bin, the tap's phrases need not be embedded again. Add the tap first (capd tap add
    PATH): its servers are started once to list their tools.
    """
    import subprocess  # noqa: PLC0415 - as in `tap add`

    from capd_client.indexing import run_index  # noqa: PLC0415 - threads, as in `capd index`

    run_index(this_places().socket, "", show_progress=True, asks_servers=True)
    # -P, so that a folder `capd` in the working directory is not imported as the daemon.
    command = [sys.executable, "-P", "-m", "capd", "tap", "build", str(path)]
    click.get_current_context().exit(subprocess.run(command, check=False).returncode)


@tap.command("export")
@click.argument("folder", type=click.Path(path_type=Path))
def tap_export(*, folder: Path) -> None:
    """Write the servers that you added yourself to FOLDER as a tap for others, without secrets.

    The tap has the servers that you added, imported or took from a registry, with your triggers and
    your edits of their tools. Each secret is replaced by the name of its key.
    """
    import subprocess  # noqa: PLC0415 - as in `tap add`

    from capd_client.stored_secrets import SecretError  # noqa: PLC0415 - as few commands need it
    from capd_client.tap_export import TapExport  # noqa: PLC0415

    places = this_places()
    try:
        made = TapExport(places.config, places.data, os.environ).write(folder)
    except SecretError as error:
        fail(str(error))
    for name in made.names:
        keys = made.keys.get(name, ())
        needs = f" (needs {', '.join(keys)}: capd secret set KEY)" if keys else ""
        tables.say(f"{name}: exported{needs}")
    for name, reason in made.left_out.items():
        tables.say(f"{name}: left out: {reason}")
    for note in made.notes:
        tables.say(f"note: {note}")
    command = [sys.executable, "-P", "-m", "capd", "check", str(folder)]
    sys.stdout.flush()
    checked = subprocess.run(command, check=False).returncode
    if checked or made.left_out:
        fail(f"{folder} is written, with the problems that are listed above")


@tap.command("update")
@click.argument("names", metavar="[NAME]...", nargs=-1, shell_complete=completers.taps)
def tap_update(*, names: tuple[str, ...]) -> None:
    """Update taps that are git checkouts, all of them or those named."""
    from capd_client import tap_git  # noqa: PLC0415 - as above

    taps = TapList(this_places().config).read()
    known = sorted(each["name"] for each in taps)
    names = tuple(find_name(name, known, f"no tap named {name}") for name in names)
    failed = []
    for each in taps:
        if names and each["name"] not in names:
            continue
        try:
            revisions = tap_git.update(Path(each["path"]))
        except TapError as error:
            tables.say(f"{each['name']}: {error}", keep_lines=True)
            failed.append(each["name"])
            continue
        if revisions is None:
            tables.say(f"{each['name']}: no git checkout, left as it is")
        elif revisions[0] == revisions[1]:
            tables.say(f"{each['name']}: up to date at {revisions[1]}")
        else:
            tables.say(f"{each['name']}: {revisions[0]} -> {revisions[1]}")
    with contextlib.suppress(DaemonDownError):
        ask("reload")
    if failed:
        fail(f"not updated: {', '.join(failed)}")


@tap.command("list")
@json_option
def tap_list(*, as_json: bool) -> None:
    """List the taps that were added."""
    listed = TapList(this_places().config)
    if listed.repair():
        click.echo(f"{listed.path}: repaired; an earlier capd had written it wrongly", err=True)
        with contextlib.suppress(DaemonDownError):
            ask("reload")
    taps = listed.read()
    if as_json:
        print_json({"schema": 1, "taps": taps})
    else:
        tables.print_taps(taps)


@tap.command("remove")
@click.argument("name", shell_complete=completers.taps)
def tap_remove(*, name: str) -> None:
    """Remove the tap NAME from the list, and its clone if capd made it; your own folder stays."""
    from capd_client import tap_git  # noqa: PLC0415 - as above

    folder = TapList(this_places().config).remove(name)
    is_ours = folder.parent == Path(this_places().data, "taps")
    kept = ""
    if is_ours and folder.is_dir() and not tap_git.discard(folder):
        kept = f"; {folder} stays: it may have work that its origin lacks"
    try:
        ask("reload")
    except DaemonDownError:
        tables.say(f"{name}: will not be loaded when the daemon starts{kept}")
        return
    tables.say(f"{name}: removed{kept}")


@click.command(
    "eval",
    context_settings={"ignore_unknown_options": True, "help_option_names": []},
    add_help_option=False,
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def evaluate(*, arguments: tuple[str, ...]) -> None:
    """Measure routing and search on labelled data; needs no daemon."""
    check_folder()
    sys.stdout.flush()
    command = [sys.executable, "-P", "-m", "capd", "eval", *arguments]
    os.execv(sys.executable, command)  # noqa: S606 - our own program, no shell


COMMANDS = {"check": check, "eval": evaluate, "tap": tap}
