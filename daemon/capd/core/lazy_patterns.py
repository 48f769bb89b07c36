"""Regular expressions that are compiled when they are first used.

Compiling 166 patterns took 6 % of the time of a daemon's imports, and most of these patterns are
not used before the first call is answered. A mistake in a pattern would be found late, so a test
compiles them all.
"""

import re
from typing import Any, AnyStr, cast


class LazyPattern:
    """Has the attributes of a compiled pattern, and compiles it when one of them is used.

    The functions of `re` do not accept it: call its methods.
    """

    def __init__(self, source: str | bytes, flags: int) -> None:
        self._source = source
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the compiled pattern, and keep it for the next use."""
        if name.startswith("_"):
            raise AttributeError(name)
        value = getattr(re.compile(self._source, self._flags), name)
        setattr(self, name, value)
        return value


def lazy_pattern(source: AnyStr, flags: int = 0) -> "re.Pattern[AnyStr]":
    """Return a stand-in for `re.compile(source, flags)` that compiles at its first use."""
    return cast("re.Pattern[AnyStr]", LazyPattern(source, flags))
