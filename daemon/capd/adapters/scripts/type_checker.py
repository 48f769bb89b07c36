"""Checks the types of scripts, in a session that has read the standard library's types once.

A new session of the interpreter first reads the types of the standard library, which takes 10 ms;
checking a script then takes 1 ms. So one session is kept only for checking. It runs no script:
before each script, capd puts a statement that has no type error but fails when it runs. The types
of the whole input are checked; then this statement ends the run before the script's first line.
Failed input does not become part of the session, so no script sees the declarations of another.
"""

import contextlib
import re

import pydantic_monty as monty

from capd.core.lazy_patterns import lazy_pattern
from capd.core.scripts.stubs import COMMON_STUBS

SCRIPT_NAME = "script.py"
_STOP = "int('stop')\n"
"""A statement without type errors that fails when it runs."""
_CHECKS_OF_ONE_SESSION = 1_000
"""After this many, a new session is created: the old one may keep something of each script."""
_PLACE = lazy_pattern(rf"{re.escape(SCRIPT_NAME)}:(\d{{1,9}}):")
_OF_ARGUMENT = lazy_pattern(r"line \d+:(\d{1,9}): error\[invalid-argument-type\]")


class TypeChecker:
    """Checks the types of scripts in one session, which is created for the first check."""

    def __init__(self, pool: monty.Monty, limits: monty.ResourceLimits) -> None:
        self._pool = pool
        self._limits = limits
        self._session: monty.MontySession | None = None
        self._checks = 0

    def errors(self, stubs: str, code: str) -> list[str]:
        """Return the type errors in the script `code`, each with its line.

        `stubs` declare the functions of its tools.

        Raises:
            monty.MontyCrashedError: the check takes too long, or ends its process.
        """
        if self._checks >= _CHECKS_OF_ONE_SESSION:
            self.close()
        self._checks += 1
        head = _STOP + stubs
        try:
            self._entered().feed_run(head + code)
        except monty.MontyTypingError as error:
            return _of_script(error.display(), head.count("\n"), code)
        except (monty.MontyRuntimeError, monty.MontySyntaxError):
            # Either the statement `_STOP` has failed, as intended, or the script has a syntax
            # error. Running the script reports that error with the right line.
            return []
        except monty.MontyCrashedError:
            self.close()
            raise
        # The input ran to its end, so the session contains the script's names: end it.
        self.close()
        return []

    def close(self) -> None:
        """End the session in which types are checked."""
        session, self._session, self._checks = self._session, None, 0
        if session is not None:
            with contextlib.suppress(monty.MontyError):
                session.__exit__(None, None, None)

    def _entered(self) -> monty.MontySession:
        if self._session is None:
            session = self._pool.checkout(
                script_name=SCRIPT_NAME,
                limits=self._limits,
                type_check=True,
                type_check_stubs=COMMON_STUBS,
                type_check_format="concise",
            )
            self._session = session.__enter__()
        return self._session


def _of_script(display: str, head_lines: int, code: str) -> list[str]:
    """Return the errors in the script `code` itself, each with its line in the script.

    `display` has the checker's errors, `head_lines` is the number of lines before the script. False
    alarms about `**` are left out. If all other errors are the false alarm about tuples, return
    none.
    """
    found: list[str] = []
    code_lines = code.split("\n")
    for line in display.splitlines():
        place = _PLACE.match(line)
        at = int(place[1]) - head_lines if place else 0
        if place and at > 0:
            error = f"line {at}:{line[place.end() :]}"
            if not _is_about_unpacking(error, code_lines[at - 1] if at <= len(code_lines) else ""):
                found.append(error)
    return [] if all(map(_is_about_tuples, found)) else found


def _is_about_unpacking(line: str, code: str) -> bool:
    """Tell whether an error is about the type of an argument in a `**{...}`.

    For the checker, each value of the dict may become any argument that is not given otherwise. So
    it finds fault with `**{"max-count": 5}` if the function has an optional argument that is a
    text. `line` is the checker's error, and `code` the line of the script.
    """
    place = _OF_ARGUMENT.match(line)
    return place is not None and code[int(place[1]) - 1 :].startswith("**")


def _is_about_tuples(line: str) -> bool:
    """Tell whether an error is the false alarm about adding a list to a result of `asyncio.gather`.

    The checker's stubs say that `gather` returns a tuple. In fact it returns a list, here as in
    Python.
    """
    return "error[unsupported-operator]" in line and "`tuple[" in line
