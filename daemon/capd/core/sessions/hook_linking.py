"""Finds the session that a prompt hook belongs to.

A prompt hook is a program that a client runs for each message of its user, and that passes the
message to capd. The shim is the process `capd mcp`, which a client starts as its MCP server. A
client starts both, and some clients give both the same conversation id. These rules are tried in
order, and the first that finds any session decides:

    session id      the client's own id of the conversation, from the shim or an earlier hook
    common parent   the nearest process above the hook that also started a shim; shims of other
                    clients do not count, because one editor may start several clients. If this
                    process started several shims, only those in the hook's project count, unless
                    there are none
    project         the only session of this client in this project

If a rule finds more than one session, the link is `ambiguous`, and the hook's prompt goes to none.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from capd_protos.types import SessionKey

LinkMethod = Literal["session id", "common parent", "project", "ambiguous", "none"]


@dataclass(frozen=True, slots=True)
class SessionCandidate:
    """One open session, with the facts by which a hook's session is found."""

    key: SessionKey
    client: str
    client_sessions: frozenset[str]
    """The ids that the client itself has given the session's conversations."""
    parent: int
    """The pid of the process that started the shim; 0 if unknown."""
    project: str
    line: str = ""
    """The key of the client's entry in `clients.toml`; empty if it has none."""


@dataclass(frozen=True, slots=True)
class HookRun:
    """One run of a prompt hook, with the facts by which its session is found."""

    client: str
    client_session: str
    ancestors: Sequence[int]
    """The pids of the hook's parent, of that process's parent, and so on."""
    project: str
    line: str = ""
    """The key of the entry of the hook's client in `clients.toml`; empty if it has none."""


@dataclass(frozen=True, slots=True)
class HookLink:
    """The session that a hook was linked to, or why it was linked to none."""

    key: SessionKey | None
    how: LinkMethod
    """`session id`, `common parent` or `project`; without a key `none` or `ambiguous`."""


def link(hook: HookRun, candidates: Sequence[SessionCandidate]) -> HookLink:
    """Return which of the sessions `candidates` the prompt hook `hook` belongs to, and how."""
    if hook.client_session:
        same = [c for c in candidates if hook.client_session in c.client_sessions]
        if same:
            return _only(same, "session id")
    for ancestor in hook.ancestors:
        # Process 1 is above every process, so it identifies none.
        children = [c for c in candidates if ancestor > 1 and c.parent == ancestor]
        children = [c for c in children if not (hook.line and c.line) or hook.line == c.line]
        if len(children) > 1:
            children = [c for c in children if c.project == hook.project] or children
        if children:
            return _only(children, "common parent")
    own = [c for c in candidates if c.client == hook.client or (c.line and c.line == hook.line)]
    here = [c for c in own if c.project == hook.project]
    return _only(here, "project") if here and hook.project else HookLink(None, "none")


def _only(found: Sequence[SessionCandidate], how: LinkMethod) -> HookLink:
    return HookLink(found[0].key, how) if len(found) == 1 else HookLink(None, "ambiguous")
