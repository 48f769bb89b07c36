"""The scope of an instance if its definition does not set one (docs/design/hostile-servers.md).

Servers that keep state between calls, such as browsers and shells, belong to one session. Other
stdio servers are shared within a project, where their working directory and roots are the same. A
server that was seen to speak the stateless generation may be shared by all
(`core.servers.generation_memory`), unless it keeps state or its command line names files relative
to its working directory.
"""

import re
from collections.abc import Sequence

from capd_protos.types import Scope

# One entry per family of servers whose state one session must not see of another.
_STATEFUL = re.compile(
    r"playwright|puppeteer|chrome-devtools|browser|selenium|(?:^|[-/@_])(?:shell|repl|ssh|terminal)",
    re.IGNORECASE,
)


# `.`, `./x`, `../x`, `--path=.`, and names of files without a folder of the root before them.
_BY_PLACE = re.compile(
    r"(?:^|[=:,])\.{1,2}(?:$|[/\\=:,])|(?:^|=)(?![-/@~]|[\w+.-]+://)[^=@]*\.[A-Za-z]\w{0,6}$"
)


def is_scope_fixed(command: str, args: Sequence[str], transport: str) -> bool:
    """Tell whether the default scope holds in either generation."""
    if transport == "http":
        return False
    texts = (command, *args)
    return any(_STATEFUL.search(text) or _BY_PLACE.search(text) for text in texts)


def default_scope(command: str, args: Sequence[str], transport: str) -> Scope:
    """Return `session` for a known stateful server, otherwise `project`."""
    if transport == "http":
        return "session"
    if any(_STATEFUL.search(part) for part in (command, *args)):
        return "session"
    return "project"
