"""Marks that a server's processes inherit, by which the daemon and its guards recognise them.

The guard of a server is the small process above it. The guard starts the server with two marks,
which every process below the server inherits:

    environment                 CAPD_INSTANCE=HOME.LIFE.server
    hard limit of file locks    0x4350 | HOME | LIFE

HOME stands for the daemon's state folder, LIFE for one run of the daemon. A process that replaces
its environment loses the first mark. The second stays: an ordinary user can lower a hard limit, but
never raise it. Linux has not enforced this limit since 2.4.25. In the environment of guards and of
the daemon's own helper processes, `own` stands in place of `server`. Guards have the limit, and
helper processes have not.
"""

import hashlib
import os
from typing import NamedTuple

VARIABLE = "CAPD_INSTANCE"
LIMIT = 10
"""RLIMIT_LOCKS of Linux, which the module `resource` does not name."""
LIMIT_LINE = b"Max file locks"
"""The beginning of the line of that limit in `/proc/PID/limits`."""
_MAGIC = 0x4350 << 48
_HOME_BITS, _LIFE_BITS = 32, 16


class MarkPattern(NamedTuple):
    """A pattern that matches processes by their hard limit of file locks or by `CAPD_INSTANCE`."""

    low: int
    high: int
    """The lowest and the highest limit, both inclusive."""
    prefix: str
    """The beginning of the variable's value."""

    def matches(self, limit: int | None, value: str) -> bool:
        """Tell whether a process has one of the two marks.

        `limit` is its hard limit of file locks (None for none), `value` its variable
        `CAPD_INSTANCE`.
        """
        is_limited = limit is not None and self.low <= limit <= self.high
        return is_limited or value.startswith(self.prefix)


class Mark(NamedTuple):
    """The mark on the processes that one run of one daemon has started."""

    home: str
    """Eight hexadecimal digits."""
    life: str
    """Sixteen hexadecimal digits, made at random; the limit holds the first four."""

    def limit(self, ceiling: int | None) -> int:
        """Return the hard limit of file locks that marks a server's processes.

        `ceiling` is the daemon's own hard limit; None for none. A daemon that was itself started by
        a server of another capd has such a limit. Then the result is below the ceiling, and names
        no daemon; only the variable does.
        """
        limit = _MAGIC | int(self.home, 16) << _LIFE_BITS | int(self.life[: _LIFE_BITS // 4], 16)
        return limit if ceiling is None else max(0, min(limit, ceiling - 1))

    @property
    def of_server(self) -> str:
        """The value of the variable `CAPD_INSTANCE` for the processes of a server."""
        return f"{self.home}.{self.life}.server"

    @property
    def of_helper(self) -> str:
        """The value of `CAPD_INSTANCE` for a guard or another helper process of the daemon."""
        return f"{self.home}.{self.life}.own"

    @property
    def this_life(self) -> MarkPattern:
        """Return the pattern for the processes that this run of the daemon has started."""
        limit = self.limit(None)
        return MarkPattern(limit, limit, f"{self.home}.{self.life}.")


def home_mark(state: str) -> str:
    """Return the eight hexadecimal digits that stand for the state folder `state` in marks."""
    digest = hashlib.sha256(os.fsencode(os.path.realpath(state))).hexdigest()
    return digest[: _HOME_BITS // 4]


def any_life(home: str) -> MarkPattern:
    """Return the pattern for the processes that any run of a daemon has started.

    `home` stands for the daemon's state folder, as `home_mark` returns it.
    """
    low = _MAGIC | int(home, 16) << _LIFE_BITS
    return MarkPattern(low, low | (1 << _LIFE_BITS) - 1, f"{home}.")
