"""The `capd` command beyond `capd mcp`: asks the daemon, and says what it answered.

Exit codes: 0 fine, 1 failed, 2 usage, 3 daemon not running, 4 degraded. With `--json` the
daemon's result object is printed as it came. A command's module is imported when the command is
run (or listed), so that one does not wait for what another one needs.
"""

import importlib
import io
import sys
from typing import Any

import click

from capd_client.commands.shared import START_HINT, Failure, NoDaemon
from capd_client.control import ControlError, DaemonDownError
from capd_client.install import InstallError
from capd_client.taps import TapError

_WHERE = {
    "reading": (
        "caps",
        "discover",
        "events",
        "search",
        "servers",
        "sessions",
        "status",
        "tools",
        "version",
    ),
    "acting": ("call", "disable", "enable", "index", "login", "reload", "turn"),
    "catalog": ("check", "eval", "tap"),
    "doctor": ("doctor",),
    "installing": ("install", "uninstall"),
    "secrets": ("secret",),
    "service": ("daemon", "mcp", "restart", "stop"),
    "trust": ("trust",),
}
_MODULES = {name: module for module, names in _WHERE.items() for name in names}


class _Capd(click.Group):
    """The group that turns what can go wrong into one line for a person."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        del ctx
        return sorted(_MODULES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, importing its module; None for an unknown name."""
        del ctx
        if cmd_name not in _MODULES:
            return None
        module = importlib.import_module(f"{__name__}.{_MODULES[cmd_name]}")
        found: click.Command = module.COMMANDS[cmd_name]
        return found

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")
        try:
            return super().invoke(ctx)
        except DaemonDownError as error:
            raise NoDaemon(f"{error}\n{START_HINT}") from None
        except ControlError as error:
            raise Failure(error.message) from None
        except (TapError, InstallError) as error:
            raise Failure(str(error)) from None
        except BrokenPipeError:
            raise
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            raise Failure(f"{where}{error.strerror or error}") from None


@click.group(cls=_Capd, context_settings={"help_option_names": ["-h", "--help"]})
def cli() -> None:
    """Every editor and agent gets the MCP tools it needs, when it needs them."""
