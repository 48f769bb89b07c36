"""The log of a daemon without a journal: `capd.log`, and the files that it was rotated to.

The daemon renames a full `capd.log` to `capd.log.1`, the older `capd.log.1` to `capd.log.2`, and so
on.
"""

from pathlib import Path

_GENERATIONS = 9
"""Number of older files that are looked for; another version of capd may keep more."""


def log_command(log: Path, *, follow: bool, lines: int) -> list[str]:
    """Return the command that prints the last `lines` lines of `log` and its older files.

    With `follow` it goes on printing new lines until it is killed.
    """
    older = [log.with_name(f"{log.name}.{number}") for number in range(_GENERATIONS, 0, -1)]
    files = [str(each) for each in older if each.is_file()]
    missing = lines - _count(log, lines) if files else 0
    if missing <= 0:
        return ["tail", "-n", str(lines), *(["-F"] if follow else []), str(log)]
    # Paths are passed as arguments of the script, because a path in it would be parsed as code.
    last = "tail -n +1 -F" if follow else "cat"
    script = f'log=$1 n=$2; shift 2; cat "$@" | tail -n "$n"; exec {last} "$log"'
    return ["sh", "-c", script, "sh", str(log), str(missing), *files]


def _count(log: Path, enough: int) -> int:
    """Return the number of lines in the file `log`, at most `enough`."""
    try:
        with log.open("rb") as file:
            return sum(1 for _ in zip(file, range(enough), strict=False))
    except OSError:
        return enough
