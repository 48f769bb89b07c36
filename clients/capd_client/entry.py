"""The console script `capd`: starts the shim or the command line, importing only what that needs.

An editor starts `capd mcp` and waits for it, so this command imports the shim and nothing else.
"""

import os
import sys

EXIT_FAILED = 1
EXIT_INTERRUPTED = 130


def main() -> int:
    """Run `capd` with the arguments of this process; return the exit code.

    `capd daemon run` replaces this process and does not return.
    """
    arguments = sys.argv[1:]
    if arguments[:1] == ["mcp"] and not any(each.startswith("-") for each in arguments[1:]):
        from capd_client.shim.main import main as run_shim  # noqa: PLC0415 - without click: 40 ms

        return run_shim(arguments[1:])
    if arguments[:2] == ["daemon", "run"] and "--help" not in arguments:
        # Nothing else is imported: a PYTHONPATH could replace other modules (`daemon_process`).
        from capd_client import daemon_process  # noqa: PLC0415

        command = daemon_process.daemon_arguments(arguments[2:])
        environment = daemon_process.daemon_environment(os.environ)
        os.execve(sys.executable, command, environment)  # noqa: S606 - our own program, no shell
    if arguments[:1] == ["hook"]:
        if os.environ.get("CAPD_ACP"):
            # The agent runs under `capd acp`, which itself sends the prompts to the daemon.
            return 0
        from capd_client import hook  # noqa: PLC0415 - it has 300 ms in all

        _open_closed_streams()
        return hook.main(arguments[1:])
    _open_closed_streams()
    try:
        return _typed(arguments)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        return EXIT_FAILED
    except OSError as error:
        sys.stderr.write(f"capd: {error.strerror or error}\n")
        return EXIT_FAILED
    finally:
        _end_output()


def _open_closed_streams() -> None:
    """Open /dev/null for each standard stream that was closed when this process was started.

    Python has None in place of such a stream, and a socket that is opened later would get the
    stream's descriptor number.
    """
    if sys.stdin is None:
        sys.stdin = open(os.devnull)  # noqa: PTH123, SIM115 - until the end, without pathlib
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: PTH123, SIM115


def _end_output() -> None:
    """Write what is left of the output, or drop it if nobody can take it.

    Python would try that again at its end, and report the failure.
    """
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _typed(arguments: list[str]) -> int:
    """Run a command that a person typed."""
    if arguments[:1] == ["status"]:
        from capd_client import status  # noqa: PLC0415 - without click

        if status.is_plain(arguments[1:]):
            return status.main(arguments[1:])
    from capd_client import commands  # noqa: PLC0415

    exit_code: int = commands.cli.main(arguments, prog_name="capd")
    return exit_code


if __name__ == "__main__":
    sys.exit(main())
