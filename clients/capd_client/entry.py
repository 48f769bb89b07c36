"""The console script `capd`: decides how much of Python it takes to answer.

An editor starts `capd mcp` and waits for it, so that path imports the shim and nothing else.
"""

import sys


def main() -> int:
    """Run the `capd` command and return its exit code."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["mcp"] and not any(each.startswith("-") for each in arguments[1:]):
        from capd_client import shim  # noqa: PLC0415 - without click, which costs 40 ms

        return shim.main(arguments[1:])
    if arguments[:1] == ["hook"]:
        from capd_client import hook  # noqa: PLC0415 - it has 300 ms in all

        return hook.main(arguments[1:])
    from capd_client import commands  # noqa: PLC0415

    return commands.cli.main(arguments, prog_name="capd")


if __name__ == "__main__":
    sys.exit(main())
