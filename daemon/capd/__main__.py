"""`python -m capd daemon run`: the daemon in the foreground; `main` has the other commands."""

import sys


def _main(arguments: list[str]) -> int:
    if len(arguments) == 3 and arguments[0] == "embedder":  # noqa: PLR2004 - address and seconds
        from capd import embedder_process  # noqa: PLC0415 - without the daemon, which costs 20 MB

        return embedder_process.main(arguments[1:])
    from capd.main import main  # noqa: PLC0415 - as above

    return main(arguments)


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
