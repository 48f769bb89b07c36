"""The `capd` command except `capd mcp`: asks the daemon, and prints the answer.

Exit codes: 0 success, 1 failure, 2 wrong usage, 3 daemon not running, 4 degraded. With `--json` the
daemon's result object is printed unchanged. A command's module is imported only when the command is
run or completed, so that no command waits for another one's imports.
"""

import importlib
import io
import os
import sys
from typing import Any

import click
from click.shell_completion import CompletionItem

from capd_client import tables
from capd_client.commands import purposes
from capd_client.commands.shared import EXIT_INTERRUPTED, START_HINT, Failure, NoDaemon
from capd_client.control import ControlError, DaemonDownError
from capd_client.install import InstallError
from capd_client.taps import TapError
from capd_client.toml_files import EditError

_WHERE = {
    "agents": ("acp", "plugin"),
    "reading": (
        "caps",
        "discover",
        "events",
        "search",
        "servers",
        "sessions",
        "tools",
        "version",
    ),
    "acting": ("call", "disable", "enable", "login", "logout", "reload", "routing", "turn"),
    "approving": ("approve",),
    "bridges": ("bridge",),
    "catalog": ("check", "eval", "tap"),
    "completion": ("completion",),
    "help": ("help",),
    "doctor": ("doctor",),
    "importing": ("import",),
    "indexing": ("index",),
    "installing": ("install", "uninstall"),
    "profiles": ("profile",),
    "records": ("logs", "metrics", "why"),
    "mcp_registry": ("find", "update"),
    "memory": ("memory",),
    "learning": ("learn",),
    "own_servers": ("add", "remove"),
    "scripts": ("run",),
    "secrets": ("secret",),
    "settings": ("config",),
    "setup": ("setup",),
    "trust": ("trust",),
    "service": ("daemon", "mcp", "restart", "stop"),
    "skill": ("skill",),
    "status": ("status", "top"),
    "tool_edits": ("tool",),
}
_MODULES = {name: module for module, names in _WHERE.items() for name in names}
_UNLISTED = set(purposes.FOR_PROGRAMS)
_ALIASES = {"list": "caps"}
"""Other names that people type for a command."""


class _Capd(click.Group):
    """The top-level group of commands. It turns expected errors into messages and exit codes."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands that a person types (not `purposes.FOR_PROGRAMS`)."""
        del ctx
        return sorted(set(_MODULES) - _UNLISTED)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, importing its module; None for an unknown name."""
        del ctx
        cmd_name = _ALIASES.get(cmd_name, cmd_name)
        if cmd_name not in _MODULES:
            return None
        module = importlib.import_module(f"{__name__}.{_MODULES[cmd_name]}")
        found: click.Command = module.COMMANDS[cmd_name]
        purposes.complete_help(found, cmd_name)
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that `args` name, with its name and the remaining arguments.

        For an unknown name, the error suggests the nearest one.
        """
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from difflib import get_close_matches  # noqa: PLC0415 - for mistakes alone

            near = get_close_matches(args[0], self.list_commands(ctx), 2)
            if not near:
                raise
            text = f"{error.message} Did you mean {' or '.join(near)}?"
            raise click.UsageError(text, ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands to `formatter`, in groups by purpose; import none of them."""
        formatter.write("\n")
        for line in purposes.lines(self.list_commands(ctx)):
            formatter.write(f"{line}\n")

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the commands that begin with `incomplete`, without importing them."""
        names = [name for name in self.list_commands(ctx) if name.startswith(incomplete)]
        items = [CompletionItem(name, help=purposes.text_of(name)) for name in names]
        return items or click.Command.shell_complete(self, ctx, incomplete)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, and turn an expected error into a message and an exit code."""
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            # The same error, with its text as wide as the terminal.
            text = tables.fitting(f"Error: {error.format_message()}").removeprefix("Error: ")
            raise click.UsageError(text, error.ctx) from None
        except DaemonDownError as error:
            raise NoDaemon(f"{error}\n{START_HINT}") from None
        except ControlError as error:
            raise Failure(error.message) from None
        except (TapError, InstallError, EditError) as error:
            raise Failure(str(error)) from None
        except BrokenPipeError:
            raise
        except KeyboardInterrupt:
            # The exit code of an interrupted program; no message, as the person pressed Ctrl-C.
            ctx.exit(EXIT_INTERRUPTED)
        except OSError as error:
            if not error.filename and _is_folder_gone():
                raise Failure(
                    "the current folder does not exist any more\nGo to another one: cd"
                ) from None
            where = f"{error.filename}: " if error.filename else ""
            raise Failure(f"{where}{error.strerror or error}") from None


def _is_folder_gone() -> bool:
    """Tell whether somebody has removed the working directory."""
    try:
        os.getcwd()  # noqa: PTH109 - pathlib is not imported for every command
    except FileNotFoundError:
        return True
    return False


@click.group(
    cls=_Capd,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    subcommand_metavar="COMMAND [OPTIONS]",
    options_metavar="",
    epilog="Each has --help. Reading commands take --json. Editors start `capd mcp`.",
)
@click.version_option(None, "-V", "--version", package_name="capd", message="capd %(version)s")
def cli() -> None:
    """Every editor and agent gets the MCP tools it needs, when it needs them."""
