"""Chooses which sessions share a server whose definition sets no scope.

Servers that keep state between calls, such as browsers and shells, and servers by URL serve one
session each. Other stdio servers are shared by the sessions of a project, which have the same
working directory and roots (docs/design/hostile-servers.md). A server that speaks the stateless
generation of MCP may be shared by all sessions (`core.servers.generation_memory`), unless
`is_scope_fixed`.
"""

import re
from collections.abc import Sequence

from capd.core.lazy_patterns import lazy_pattern
from capd_protos.types import Scope

# One entry for each family of servers that keep state which sessions must not share.
_STATEFUL = lazy_pattern(
    r"playwright|puppeteer|chrome-devtools|browser|selenium|(?:^|[-/@_])(?:shell|repl|ssh|terminal)",
    re.IGNORECASE,
)


# `.`, `./x`, `../x`, `--path=.`, and names of files that are not absolute paths.
_BY_PLACE = lazy_pattern(
    r"(?:^|[=:,])\.{1,2}(?:$|[/\\=:,])|(?:^|=)(?![-/@~]|[\w+.-]+://)[^=@]*\.[A-Za-z]\w{0,6}$"
)


def is_scope_fixed(command: str, args: Sequence[str], transport: str) -> bool:
    """Tell whether a server keeps its default scope, even if it speaks MCP's stateless generation.

    The scope says which sessions share the server. The result is true if the server keeps state, or
    if its command line names files relative to its folder. For a server by URL it is false.
    """
    if transport == "http":
        return False
    texts = (command, *args)
    return any(_STATEFUL.search(text) or _BY_PLACE.search(text) for text in texts)


def default_scope(command: str, args: Sequence[str], transport: str) -> Scope:
    """Return which sessions share a server: `session` or `project`.

    It is `session`, so that none share it, for a server by URL and for a known one that keeps
    state. Otherwise the sessions of one project share it.
    """
    if transport == "http":
        return "session"
    if any(_STATEFUL.search(part) for part in (command, *args)):
        return "session"
    return "project"
