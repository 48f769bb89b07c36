"""`capd install [CLIENT]...` and `capd uninstall [CLIENT]...`."""

import difflib
import json
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import click

from capd_client import tables
from capd_client.commands.shared import NoDaemon, fail
from capd_client.install import InstallError
from capd_client.install.edits import (
    FileChange,
    FileEdit,
    make,
    plan_install,
    plan_uninstall,
    unmake,
)
from capd_client.install.files import read, real_path
from capd_client.install.known_clients import KnownClient, known_client, known_clients
from capd_client.install.ledger import Ledger
from capd_protos.places import places

if TYPE_CHECKING:
    from capd_client.install.client import Client


class Vendor(Protocol):
    """A client that may have a command of its own for installing capd."""

    def edits(self) -> Iterable[FileEdit]:
        """Return the edits that put capd into the client's files."""
        ...

    def vendor_command(self, change: FileChange) -> list[str]:
        """Return the client's command for `change`; empty if there is none."""
        ...

    def run_vendor(self, command: list[str]) -> bytes | None:
        """Run `command`, which changes a file of the client.

        Return the file's new content, or None if that is not as expected.
        """
        ...


def make_with_vendor(ledger: Ledger, client: Vendor, change: FileChange) -> Path | None:
    """Make a change of an installation, by the client's own command if the client has one.

    If that command fails, capd edits the file itself. Return the path of the backup; None if the
    file did not exist before capd.

    Raises:
        InstallError: the file has changed since it was planned, or cannot be edited.
    """
    command = client.vendor_command(change)
    if not command:
        return make(ledger, change)
    # What the command will write is not known yet. Until it has run, the entry matches no file.
    ledger.note(change.path, original=change.original, left=None)
    left = client.run_vendor(command)
    if left is not None:
        return ledger.note(change.path, original=change.original, left=left)
    edits = [edit for edit in client.edits() if real_path(edit.path) == change.path]
    (again,) = plan_install(ledger, edits)
    return make(ledger, replace(again, original=change.original))


class ClientName(click.Choice[str]):
    """The type of an argument that names a client: its id or an alias, in upper or lower case."""

    def __init__(self) -> None:
        super().__init__(list(known_clients()))

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """Return the placeholder for a client's name in usage lines.

        It does not list the names: they would fill a screen.
        """
        del param, ctx
        return "CLIENT"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the id of the client that `value` names.

        If there is none, fail with the nearest name.
        """
        del param, ctx
        client = known_client(str(value))
        if client is None:
            near = difflib.get_close_matches(str(value).casefold(), self.choices, n=1)
            hint = f"Did you mean {near[0]}? " if near else ""
            self.fail(f"{value!r} is no client that capd knows. {hint}`capd install` lists them.")
        return client.id


_FIRST_START_TIMEOUT = 120.0

_CLIENTS = click.argument("names", metavar="[CLIENT]...", nargs=-1, type=ClientName())


_DRY_RUN = click.option("--dry-run", is_flag=True, help="Print what would change, as a diff.")


@click.command()
@_CLIENTS
@click.option("--all", "is_all", is_flag=True, help="Every client that is found here.")
@_DRY_RUN
@click.option("--trust-hooks", is_flag=True, help="Let Codex trust capd's hook without asking you.")
@click.option(
    "--check/--no-check",
    default=True,
    help="Start the daemon, and test that prompts reach it.  [default: check]",
)
def install(
    *, names: tuple[str, ...], is_all: bool, dry_run: bool, trust_hooks: bool, check: bool
) -> None:
    """Put capd into the configuration of each CLIENT; without one, list the clients."""
    if trust_hooks and not names:
        raise click.UsageError("--trust-hooks is for a CLIENT that you name")
    if not names and not is_all:
        _list_clients()
        return
    found = [each for each in known_clients().values() if each.is_detected(os.environ)]
    chosen = found if is_all else [known_clients()[name] for name in dict.fromkeys(names)]
    if not chosen:
        fail("no client was found here\n`capd install` lists those that capd knows.")
    if is_all:
        for known in found:
            if not known.is_edited:
                click.echo(f"{known.title}: by hand, as `capd install {known.id}` says")
        chosen = [known for known in found if known.is_edited]
    _each(chosen, lambda known: _install(known, is_found=known in found, dry_run=dry_run))
    if trust_hooks and not dry_run:
        # Only the clients that the person named: --all does not ask for trust in each.
        _each([known_clients()[name] for name in dict.fromkeys(names)], _trust_hooks)
    if check and not dry_run:
        _each([known for known in chosen if known.is_edited], _start_once)
        check_prompts(chosen)


def _start_once(known: KnownClient) -> None:
    """Have the client do its slow one-time work now, and print whether that succeeded.

    `Client.first_start` says what the work is.
    """
    from capd_client.install.installed_clients import client_of  # noqa: PLC0415
    from capd_client.waiting import Waiting  # noqa: PLC0415

    command = client_of(known, os.environ).first_start()
    if not command:
        return
    # Start it in an empty folder, so that it loads no project's plugins and settings.
    with (
        tempfile.TemporaryDirectory(prefix="capd-") as empty,
        Waiting(f"{known.title} fetches what its plugins may need"),
    ):
        try:
            done = subprocess.run(
                command,
                cwd=empty,
                stdin=subprocess.DEVNULL,
                # The client may print the user's keys.
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=_FIRST_START_TIMEOUT,
                check=False,
            )
            is_done = done.returncode == 0
        except (OSError, subprocess.TimeoutExpired):
            is_done = False
    if is_done:
        tables.say(
            f"{known.title}: what its plugins may need was fetched, so its next start is fast"
        )
    else:
        tables.say(f"{known.title}: its next start fetches what plugins may need, and takes longer")


def check_prompts(chosen: Sequence[KnownClient]) -> None:
    """Test for each client whether a prompt reaches capd, and print the result.

    The daemon is started if none runs. Clients that capd does not edit, or in which it is switched
    off, are skipped.
    """
    from capd_client.commands.scratch import is_daemon_up, start_daemon  # noqa: PLC0415
    from capd_client.install.installed_clients import client_of, state_of  # noqa: PLC0415
    from capd_client.install.launcher import launcher_path  # noqa: PLC0415
    from capd_client.install.prompt_check import check_prompt  # noqa: PLC0415

    tried = [each for each in chosen if each.is_edited]
    tried = [each for each in tried if not state_of(each, os.environ).is_off]
    if not tried:
        return
    problem = ""
    try:
        start_daemon()
    except NoDaemon as error:
        problem = error.message
    if not problem and not is_daemon_up():
        problem = "no daemon runs, and CAPD_NO_START forbids to start one"
    if problem:
        note = f"Not tried whether your prompts reach capd: {problem}"
        click.echo(tables.printable(note, keep_lines=True), err=True)
        return
    launcher = launcher_path(os.environ)
    for known in tried:
        check = check_prompt(client_of(known, os.environ), os.environ, os.getuid(), launcher)
        tables.say(check.lines(known.title), keep_lines=True)


@click.command()
@_CLIENTS
@click.option("--all", "is_all", is_flag=True, help="Every client that has capd.")
@_DRY_RUN
def uninstall(*, names: tuple[str, ...], is_all: bool, dry_run: bool) -> None:
    """Remove capd from the configuration of each CLIENT."""
    if not names and not is_all:
        raise click.UsageError("name a CLIENT, or give --all")
    chosen = [known_clients()[name] for name in dict.fromkeys(names)]
    if is_all:
        chosen = [known for known in known_clients().values() if _has_any(known)]
    if not chosen:
        click.echo("No client has capd: no change")
    _each(chosen, lambda known: _uninstall(known, dry_run=dry_run))


def _has_any(known: KnownClient) -> bool:
    """Tell whether `capd uninstall` would remove or report something about a client."""
    from capd_client.install.installed_clients import state_of  # noqa: PLC0415

    try:
        is_noted = bool(_ledger(known.id).entries())
    except InstallError:
        # The damaged ledger is reported when this client is uninstalled; the others go on.
        return True
    return is_noted or state_of(known, os.environ).has_capd


def _each(chosen: Sequence[KnownClient], act: Callable[[KnownClient], None]) -> None:
    """Call `act` for each of the `chosen` clients.

    If it fails for some, the others go on, and the command fails after the last.
    """
    if len(chosen) == 1:
        act(chosen[0])
        return
    failed = []
    for known in chosen:
        try:
            act(known)
        except (InstallError, OSError) as error:
            failed.append(known.title)
            click.echo(f"capd: {tables.printable(reason_of(error), keep_lines=True)}", err=True)
    if failed:
        fail(f"not done for {', '.join(failed)}\nThe reasons are above; the others are done.")


def reason_of(error: InstallError | OSError) -> str:
    """Return the text for a person why a client's files were not changed."""
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    return str(error)


def _install(known: KnownClient, *, is_found: bool, dry_run: bool) -> None:
    # Imported here, because no other command uses them.
    from capd_client.install.installed_clients import client_of, state_of  # noqa: PLC0415
    from capd_client.install.launcher import launcher_path, write_launcher  # noqa: PLC0415

    if not known.is_edited:
        if not dry_run and write_launcher(os.environ):
            tables.say(f"{launcher_path(os.environ)}: written")
        _say_by_hand(known, launcher_path(os.environ))
        return
    made, ledger = client_of(known, os.environ), _ledger(known.id)
    if dry_run:
        _print_plan(made, ledger)
        return
    with ledger.locked():
        changes = plan_install(ledger, made.edits())
        if write_launcher(os.environ):
            tables.say(f"{launcher_path(os.environ)}: written")
        for change in changes:
            if not change.is_none:
                _say_backup(change.path, "changed", make_with_vendor(ledger, made, change))
    if all(change.is_none for change in changes):
        click.echo(f"{made.title} has capd already: no change")
    else:
        where = "" if is_found else ", once it is here: it was not found"
        tables.say(f"{made.title} has capd from its next start on{where}")
        if known.after:
            tables.say_lines(known.after)
    if state_of(known, os.environ).is_off:
        (key, value), *_ = known.off.items()
        click.echo(f"It is switched off there: {made.config} has {key} = {json.dumps(value)}")


def _trust_hooks(known: KnownClient) -> None:
    from capd_client.install.installed_clients import client_of  # noqa: PLC0415
    from capd_client.install.launcher import launcher_path  # noqa: PLC0415
    from capd_client.install.prompt_hooks import trust_edits  # noqa: PLC0415

    ledger = _ledger(known.id)
    with ledger.locked():
        trust = trust_edits(known.id, os.environ, launcher_path(os.environ))
        # Planned with all other edits, so that the original in the ledger has nothing of capd.
        edits = [*client_of(known, os.environ).edits(), *trust]
        changes = [change for change in plan_install(ledger, edits) if not change.is_none]
        for change in changes:
            make(ledger, change)
            tables.say(f"{change.path}: {known.title} trusts capd's hook from its next start on")


def _uninstall(known: KnownClient, *, dry_run: bool) -> None:
    from capd_client.install.installed_clients import client_of, needed_by_others  # noqa: PLC0415

    if not known.is_edited:
        click.echo(f"{known.title}: nothing was changed; remove by hand what you added by hand")
        return
    made, ledger = client_of(known, os.environ), _ledger(known.id)
    needed = needed_by_others(made, os.environ)
    removals = made.removals(ledger.entries())
    edits = [edit for edit in removals if real_path(edit.path) not in needed]
    if dry_run:
        _print_removal(known, ledger, edits)
        return
    _put_back_imported(known)
    whole = {real_path(path) for path in made.whole_files}
    with ledger.locked():
        changes = plan_uninstall(ledger, edits)
        for change in changes:
            backup = unmake(ledger, change)
            if not change.is_none:
                is_exact = change.after == change.original
                what = "as it was before" if is_exact else "capd is taken out, the rest is as it is"
                _say_backup(change.path, what, backup)
            elif change.before is not None and change.path in whole:
                tables.say(f"{change.path}: was edited and stays; remove it by hand")
        for path in made.leftovers() if any(not change.is_none for change in changes) else ():
            _remove(path)
        for path, other in needed.items():
            ledger.hand_over(path, _ledger(other.id))
    if all(change.is_none for change in changes):
        click.echo(f"{made.title} does not have capd: no change")
        return
    for path, other in needed.items():
        tables.say(f"{path}: stays, because {other.title} uses it and has capd")


def _remove(path: Path) -> None:
    """Remove a file or folder that the client created because of capd's plugin."""
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    tables.say(f"{path}: removed, as only capd's plugin needed it")


def _print_removal(known: KnownClient, ledger: Ledger, edits: list[FileEdit]) -> None:
    from capd_client.importing.replacing import Replacements  # noqa: PLC0415

    kept = Replacements(Path(places(os.environ, os.getuid()).state))
    back = {change.path: change for change in kept.planned_back(known.id)}
    changes = plan_uninstall(
        ledger, edits, lambda path: back[path].after if path in back else read(path)
    )
    rest = {**back, **{change.path: change for change in changes}}
    for path, change in rest.items():
        click.echo(replace(change, before=read(path)).diff(), nl=False)


def _put_back_imported(known: KnownClient) -> None:
    """Restore the servers that `capd import --replace` removed from a client's files."""
    from capd_client.importing.replacing import Replacements  # noqa: PLC0415

    for path in Replacements(Path(places(os.environ, os.getuid()).state)).put_back(known.id):
        tables.say(f"{path}: the imported servers were restored")


def _list_clients() -> None:
    from capd_client.install.installed_clients import state_of  # noqa: PLC0415

    rows = []
    for known in known_clients().values():
        file = known.user_file(os.environ)
        state = state_of(known, os.environ)
        is_here = known.is_detected(os.environ)
        words = state.words if is_here or state.has_capd else "not found here"
        row = (known.id, known.title, words, "" if file is None else _short(file.path))
        rows.append((not is_here, row))
    tables.print_clients([row for _, row in sorted(rows, key=lambda each: each[0])])
    tables.say("An agent with a shell and no MCP: `capd skill` prints what it has to know.")


def _short(path: Path) -> str:
    """Return a path with `~` for the home folder."""
    home = Path(os.environ.get("HOME") or Path.home())
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)


def _print_plan(made: "Client", ledger: Ledger) -> None:
    for change in plan_install(ledger, made.edits()):
        if change.is_none:
            continue
        command = made.vendor_command(change)
        if command:
            click.echo(f"# by: {shlex.join([Path(command[0]).name, *command[1:]])}")
        click.echo(change.diff(), nl=False)


def _say_by_hand(known: KnownClient, launcher: Path) -> None:
    # In strings of JSON, Lua and Lisp, a quote and a backslash are escaped in the same way.
    written = json.dumps(str(launcher), ensure_ascii=False)[1:-1]
    click.echo(f"{known.title}: nothing was changed, as capd cannot edit its configuration safely")
    click.echo(known.by_hand.strip("\n").replace("{launcher}", written))


def _ledger(name: str) -> Ledger:
    return Ledger(Path(places(os.environ, os.getuid()).state), name)


def _say_backup(path: Path, what: str, backup: Path | None) -> None:
    tables.say(f"{path}: {what}" + (f" (backup: {backup})" if backup is not None else ""))


COMMANDS = {"install": install, "uninstall": uninstall}
