"""Who may share an instance where a definition does not say so (80 section 5.5).

Servers that keep state between calls, such as browsers and shells, belong to one session. Other
stdio servers are shared within a project, where their working directory and roots are the same.
"""

import re
from collections.abc import Sequence

# One entry per family of servers whose state one session must not see of another.
_STATEFUL = re.compile(
    r"playwright|puppeteer|chrome-devtools|browser|selenium|(?:^|[-/@_])(?:shell|repl|ssh|terminal)",
    re.IGNORECASE,
)


def default_scope(command: str, args: Sequence[str], transport: str) -> str:
    """Return `session` for a known stateful server, else `project`."""
    if transport == "http":
        return "session"
    if any(_STATEFUL.search(part) for part in (command, *args)):
        return "session"
    return "project"
