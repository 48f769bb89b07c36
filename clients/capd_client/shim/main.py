"""Starts one session from the command line: `capd mcp [SOCKET]`."""

import posix

from capd_client.shim.link import EXIT_FAILED, Shim
from capd_client.shim.starting import absolute, socket_path, write_stderr

EXIT_USAGE = 2


def _environment() -> "dict[str, str]":
    return {
        key.decode("utf-8", "surrogateescape"): value.decode("utf-8", "surrogateescape")
        for key, value in posix.environ.items()
    }


def main(arguments: "list[str]") -> int:
    """Serve the host on stdin and stdout; return the exit code. `arguments` may name the socket."""
    if len(arguments) > 1 or any(each.startswith("-") for each in arguments):
        write_stderr("usage: capd mcp [SOCKET]")
        return EXIT_USAGE
    env = _environment()
    try:
        path = arguments[0] if arguments else socket_path(env, posix.getuid())
        is_named = bool(arguments) or not path.startswith("/")
        path = path if path.startswith("/") else absolute(path)
    except OSError as error:
        write_stderr(f"capd: the working directory is gone: {error.strerror}\nSet CAPD_SOCKET.")
        return EXIT_FAILED
    return Shim(path, env, is_named=is_named).run()
