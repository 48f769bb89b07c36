"""Finds the session that a prompt hook belongs to. It never guesses between two.

A hook and the shim of one conversation are started by the same program, and some programs give
both the same id. In this order, the first rule that finds anything decides:

    session id      the client's own id of the conversation, known from the hello or an earlier hook
    common parent   the nearest process above the hook that started a shim; not that of another
                    client, which may have been started by the same editor
    project         the only session of this client in this project

If a rule finds more than one session, the link is `ambiguous`, and the hook's prompt goes to none.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from capd_protos.types import SessionKey

How = Literal["session id", "common parent", "project", "ambiguous", "none"]


@dataclass(frozen=True, slots=True)
class Candidate:
    """What is known of a session."""

    key: SessionKey
    client: str
    client_sessions: frozenset[str]
    """Ids that the client itself gives the conversation."""
    parent: int
    """The process that started the shim; 0 if unknown."""
    project: str
    line: str = ""
    """The client's entry in the table of clients, if it has one."""


@dataclass(frozen=True, slots=True)
class Hook:
    """What is known of a hook."""

    client: str
    client_session: str
    ancestors: Sequence[int]
    """The processes above the hook, the nearest first."""
    project: str
    line: str = ""
    """The same for the hook's client."""


@dataclass(frozen=True, slots=True)
class Link:
    """The session, or the reason why there is none."""

    key: SessionKey | None
    how: How
    """`session id`, `common parent` or `project`; without a key `none` or `ambiguous`."""


def link(hook: Hook, candidates: Sequence[Candidate]) -> Link:
    """Return the session that `hook` belongs to."""
    if hook.client_session:
        same = [c for c in candidates if hook.client_session in c.client_sessions]
        if same:
            return _only(same, "session id")
    for ancestor in hook.ancestors:
        # Process 1 is a parent of every process, so it identifies none.
        children = [c for c in candidates if ancestor > 1 and c.parent == ancestor]
        children = [c for c in children if not (hook.line and c.line) or hook.line == c.line]
        if len(children) > 1:
            children = [c for c in children if c.project == hook.project] or children
        if children:
            return _only(children, "common parent")
    own = [c for c in candidates if c.client == hook.client or (c.line and c.line == hook.line)]
    here = [c for c in own if c.project == hook.project]
    return _only(here, "project") if here and hook.project else Link(None, "none")


def _only(found: Sequence[Candidate], how: How) -> Link:
    return Link(found[0].key, how) if len(found) == 1 else Link(None, "ambiguous")
