"""Runs `python -m capd registry ...`, which works with public MCP registries without a daemon."""

import json
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import IO, Any

from capd_client.waiting import Waiting

_MOST_LINES = 20


class RegistryError(Exception):
    """The request failed; the text says why, and what would help."""


def command() -> list[str]:
    """Return the command that runs an action of the registry, without the action's name."""
    # -P, so that a folder `capd` in the working directory is not imported as the daemon.
    return [sys.executable, "-P", "-m", "capd", "registry"]


def ask(
    action: str, document: Mapping[str, Any] | None = None, *, more: Sequence[str] = (), what: str
) -> dict[str, Any]:
    """Run `action` with `document` as its input, and return its answer; show its progress.

    `more` are more arguments. `what` says for the person what is being done.

    Raises:
        RegistryError: the action refused or failed.
    """
    last_lines: list[str] = []
    with (
        Waiting(what) as waiting,
        subprocess.Popen(
            [*command(), action, *more],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        follower = threading.Thread(target=_follow, args=(process.stderr, waiting, last_lines))
        follower.start()
        try:
            # The document may contain secrets. Lists of processes would show them in an argument.
            process.stdin.write(json.dumps(document or {}).encode())
            process.stdin.close()
            answer = process.stdout.read()
        except BaseException:
            process.terminate()
            raise
        finally:
            follower.join()
    try:
        read = json.loads(answer)
    except ValueError:
        read = {}
    if "error" in read:
        raise RegistryError(str(read["error"]))
    if process.returncode != 0 or not isinstance(read, dict):
        reason = last_lines[-1] if last_lines else f"exit code {process.returncode}"
        raise RegistryError(f"the registry could not be asked: {reason}")
    return read


def _follow(stream: IO[bytes], waiting: Waiting, last_lines: list[str]) -> None:
    for line in stream:
        text = line.decode(errors="replace").strip()
        last_lines.append(text)
        del last_lines[:-_MOST_LINES]
        waiting.say(text)
