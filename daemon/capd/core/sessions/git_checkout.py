"""Parses the branch and the remotes of a git checkout from its files.

The input is the text of `.git/HEAD` and `.git/config`; git itself is not run. Strangers may have
written both files, so every length is bounded.
"""

import re
from dataclasses import dataclass

from capd.core.lazy_patterns import lazy_pattern

MOST_REMOTES = 16
LONGEST_NAME = 256
"""A branch or remote of more characters is ignored."""

_REF = "ref: refs/heads/"
_SECTION = lazy_pattern(r"\s*\[\s*([A-Za-z0-9.-]+)(?:\s+\"((?:[^\"\\]|\\.)*)\")?\s*\]")
_URL = lazy_pattern(r"\s*url\s*=\s*\"?([^\s\"#;]+)", re.IGNORECASE)
_SCP = lazy_pattern(r"(?:[^@/:\s]+@)?([^@/:\s]+):(?!//)(.+)")
_SCHEME = lazy_pattern(r"[a-z][a-z0-9+.-]*://(?:[^@/\s]*@)?([^/:\s]+)(?::\d+)?/(.*)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class GitCheckout:
    """The branch and the remotes of a checkout."""

    branch: str = ""
    """The branch that is checked out; empty if none is."""
    remotes: tuple[str, ...] = ()
    """The remotes, each as `host/path` without its scheme: `github.com/acme/boats`."""


NO_CHECKOUT = GitCheckout()


def branch_of(head: str) -> str:
    """Return the branch that the text of `HEAD` names; empty if a commit is checked out."""
    line = head.partition("\n")[0].rstrip()
    name = line.removeprefix(_REF) if line.startswith(_REF) else ""
    return name if len(name) <= LONGEST_NAME else ""


def remotes_of(config: str) -> tuple[str, ...]:
    """Return the remotes that the text of a checkout's `config` names, `origin` first."""
    found: dict[str, None] = {}
    origin: dict[str, None] = {}
    section, name = "", ""
    for line in config.splitlines():
        if line.lstrip().startswith("["):
            head = _SECTION.match(line[:1000])
            section, name = (head[1].lower(), head[2] or "") if head is not None else ("", "")
        elif section == "remote" and (url := _URL.match(line[:1000])) is not None:
            remote = shown_remote(url[1])
            if remote:
                (origin if name == "origin" else found)[remote] = None
    return tuple({**origin, **found})[:MOST_REMOTES]


def shown_remote(url: str) -> str:
    """Return a remote's URL as `host/path`, without scheme, user, port and `.git`.

    The result is empty if the remote is a folder, or has more than 256 characters.
    """
    parts = _SCHEME.fullmatch(url) or _SCP.fullmatch(url)
    if parts is None:
        return ""
    path = parts[2].strip("/").removesuffix(".git")
    remote = f"{parts[1].lower()}/{path}"
    return remote if len(remote) <= LONGEST_NAME else ""
