"""JSON paths (RFC 9535), evaluated in a process of their own.

A path of a few characters can take hours (`$..*..*..*`, or a filter whose pattern backtracks), and
neither Python nor its regular expressions can be interrupted. So the library `jsonpath` runs
in a process that can be ended, with the kernel's limits on its time and memory. The daemon does not
import the library.

    python -E -P -X utf8 -m capd.adapters.json_paths PATH ROOM <value >{"count":…,"values":[…]}

ROOM is about how many characters the printed values may have.
"""

import json
import os
import resource
import sys
from itertools import islice
from typing import Any

import msgspec
import trio

from capd.adapters.platform.limits import limit_to
from capd.core.errors import CapdError
from capd_protos.codec import JsonCodec, MalformedError

TIMEOUT = 10.0
MOST_VALUES = 10_000
LONGEST_PATH = 2_000
_CPU_SECONDS = 10
_MEMORY_BYTES = 2 << 30
_BAD_PATH = 3


class BadPathError(CapdError):
    """The path cannot be evaluated; the text says why."""


class Values(msgspec.Struct, frozen=True):
    """How many values a JSON path matches, and the first of them as JSON."""

    count: int
    """How many values the path matches; at most `MOST_VALUES`."""
    values: list[msgspec.Raw]


_VALUES: JsonCodec[Values] = JsonCodec(Values)


async def find(data: bytes, path: str, room: int) -> Values:
    """Return how many values the JSON path `path` matches in `data`, and the first of them.

    The returned values have about `room` characters together.

    Raises:
        BadPathError: the path is invalid, takes too much time or memory, or `data` is not JSON.
    """
    if len(path) > LONGEST_PATH:
        raise BadPathError(f"The JSON path is longer than {LONGEST_PATH:,} characters.")
    # -E -P: neither PYTHONPATH nor the working directory is searched for modules.
    argv = [sys.executable, "-E", "-P", "-X", "utf8", "-m", __name__, path, str(room)]
    kept = {key: os.environ[key] for key in ("PATH", "HOME") if key in os.environ}
    with trio.move_on_after(TIMEOUT):
        done = await trio.run_process(
            argv,
            stdin=data,
            capture_stdout=True,
            capture_stderr=True,
            check=False,
            env=kept,
            start_new_session=True,
        )
        if done.returncode == 0:
            try:
                return _VALUES.decode(done.stdout)
            except MalformedError:
                pass
        if done.returncode == _BAD_PATH:
            raise BadPathError(done.stderr.decode(errors="replace").strip())
    raise BadPathError(
        f"The JSON path {path[:200]!r} takes too much time or memory here. Use one without `..`, "
        "or name the members on the way."
    )


def main(path: str, room: int) -> int:
    """Print how many values the JSON path `path` matches in the JSON on standard input.

    The first values are printed too, up to the one that fills `room` characters. Returns the exit
    code.
    """
    limit_to(resource.RLIMIT_CPU, _CPU_SECONDS)
    limit_to(resource.RLIMIT_AS, _MEMORY_BYTES)
    # Imported here, because the daemon itself does not use it.
    import jsonpath  # noqa: PLC0415

    try:
        value: Any = json.loads(sys.stdin.buffer.read())
    except ValueError:
        return _refused("This part is not JSON: read it by offset or query, or name another part.")
    try:
        # `strict` switches the library's extensions of RFC 9535 off.
        found = jsonpath.JSONPathEnvironment(strict=True).finditer(path, value)
        return _write(islice((match.obj for match in found), MOST_VALUES), room)
    except (jsonpath.JSONPathError, RecursionError) as error:
        said = " ".join(str(error).split("\n")[0].split()) or "nested too deeply"
        return _refused(
            f"The JSON path {path[:200]!r} is wrong: {said}. A right one: $.items[0:9].name"
        )


def _write(values: Any, room: int) -> int:
    count = 0
    shown: list[str] = []
    for value in values:
        count += 1
        if room > 0:
            shown.append(json.dumps(value, ensure_ascii=False, separators=(",", ":")))
            room -= len(shown[-1])
    sys.stdout.write(f'{{"count":{count},"values":[{",".join(shown)}]}}')
    return 0


def _refused(text: str) -> int:
    sys.stderr.write(text)
    return _BAD_PATH


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
