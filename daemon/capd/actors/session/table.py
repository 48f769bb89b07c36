"""The open sessions, found by their keys, or by the facts that a prompt hook sends."""

import time
from collections.abc import Mapping
from dataclasses import dataclass

import structlog
import trio

from capd.actors.session.session import Session
from capd.actors.session.token_accounting import SessionTokenCount
from capd.adapters import platform
from capd.adapters.clients.client_connection import OpenConnection
from capd.adapters.step_boundary import boundary
from capd.core.sessions.client_traits import ClientTraits, traits_of
from capd.core.sessions.hook_linking import HookLink, HookRun, SessionCandidate, link
from capd_protos import curator as messages
from capd_protos.naming import Named, NameTable, advice
from capd_protos.types import SessionKey

log = structlog.get_logger(actor="curator")

MOST_CLIENTS = 32
"""How many client names are counted. It is bounded because a hook can send any name."""


class HookCounts:
    """Counts, for each client, how many hooks found their session; for `capd doctor`."""

    def __init__(self) -> None:
        self._counts: dict[str, messages.HookCount] = {}

    def note(self, client: str, found: HookLink) -> None:
        """Count a hook of `client`. `found` has the session, or why there is none."""
        if client not in self._counts and len(self._counts) >= MOST_CLIENTS:
            return
        count = self._counts.get(client) or messages.HookCount(client, 0, 0)
        is_linked = found.key is not None
        reason = count.reason
        if found.how == "none" or found.how == "ambiguous":  # noqa: PLR1714 - narrows the type
            reason = found.how
        self._counts[client] = messages.HookCount(
            client,
            count.linked + is_linked,
            count.unlinked + (not is_linked),
            reason,
        )

    def listed(self) -> list[messages.HookCount]:
        """Return, for each client, how many hooks found their session and how many did not."""
        return list(self._counts.values())


@dataclass(slots=True, eq=False)
class OpenSession:
    """A session that is connected, or has lost its connection within the last 30 s."""

    session: Session
    resume: str
    opened_at: float
    pid: int
    """The process at the other end of the socket, as the kernel reports it."""
    client_pid: int
    parent_pid: int
    """The parent of that process: the client itself, if the process is `capd mcp`."""
    is_ending: bool = False
    claim: int = 0
    """The number of the session's newest connection. An older one may not end the session."""
    process: str | None = None
    """The start time of process `pid`, so that a reused pid is noticed; None if it is gone."""
    opening: trio.CancelScope | None = None
    """The scope of tasks that go on while the session opens; None if there are none."""


class OpenSessions(dict[SessionKey, OpenSession]):
    """Every open session by key, in the order of opening."""

    def __init__(self) -> None:
        super().__init__()
        self._hooks = HookCounts()

    def find(self, key: SessionKey) -> Session | messages.CuratorRefused:
        """Return the session with a key, or a refusal.

        An empty key stands for the only open session of a client. It is refused if there are
        several or none.
        """
        conversations = self.conversations()
        if not key and len(conversations) == 1:
            return conversations[0].session
        known = ", ".join(self) or "none is open"
        if not key:
            text = f"which session? ({known}) Name one with --session."
            return messages.CuratorRefused("session_ambiguous", text)
        # Keys are not abbreviated: with `zed-1` gone, `zed-1` must not mean `zed-12`.
        meant = NameTable(self).find(key, is_call=True)
        if isinstance(meant, Named):
            return self[SessionKey(meant.name)].session
        hint = advice(meant) or f"Sessions: {known}."
        return messages.CuratorRefused("session_unknown", f"no session {key!r}. {hint}")

    def find_by_hook(
        self, request: messages.TakeHookTurn, table: Mapping[str, ClientTraits]
    ) -> Session | messages.CuratorRefused:
        """Return the session that a prompt hook belongs to, or a refusal.

        For each client, the hooks that find their session are counted, and those that do not.
        `table` has the known facts about clients.
        """
        # A hook of this machine never belongs to a client behind a bridge.
        candidates = [
            _candidate_of(each.session, each.parent_pid)
            for each in self.conversations()
            if not each.session.place.bridge
        ]
        found = link(_hook_of(request, table), candidates)
        self._hooks.note(request.client, found)
        log.info("hook_linked", client=request.client, session=found.key, how=found.how)
        if found.key is None:
            text = f"no one session belongs to this hook ({found.how}): name it with --session"
            return messages.CuratorRefused("unlinked", text)
        session = self[found.key].session
        session.connection.linked_by = found.how
        session.turns.on_client_session(request.client_session)
        return session

    def conversations(self) -> list[OpenSession]:
        """Return the sessions that clients have opened: all but those of sub-agents."""
        return [each for each in self.values() if not each.session.place.agent]

    def saved_keys(self) -> list[SessionKey]:
        """Return the keys of the sessions to save: clients opened them, and they are not ending."""
        return [each.session.place.key for each in self.conversations() if not each.is_ending]

    def of_agents(self, parent: SessionKey) -> list[OpenSession]:
        """Return the sessions of a session's sub-agents."""
        places = ((each.session.place, each) for each in self.values())
        return [each for place, each in places if place.agent and place.parent == parent]

    def sessions(self) -> list[Session]:
        """Return all open sessions."""
        return [each.session for each in self.values()]

    def count_over(self, bridge: str) -> int:
        """Return the number of sessions over a bridge, connected ones and lost ones."""
        return sum(each.session.place.bridge == bridge for each in self.values())

    def with_servers(self) -> list[Session]:
        """Return the open sessions that may hold servers. Changes of servers concern only these."""
        return [session for session in self.sessions() if session.may_hold_servers]

    def projects(self) -> set[str]:
        """Return the projects that have an open session."""
        return {each.session.place.project for each in self.values()}

    def token_counts(self) -> list[SessionTokenCount]:
        """Return the token count of each session."""
        return [each.session.tokens for each in self.values()]

    def has_prompts(self) -> bool:
        """Tell whether any client is connected whose prompt hook was linked to its session."""
        connections = (each.session.connection for each in self.values())
        return any(each.linked_by and each.upstream is not None for each in connections)

    def upstreams(self) -> list[OpenConnection]:
        """Return the open connection of each session that has one."""
        found = (each.session.connection.upstream for each in self.values())
        return [upstream for upstream in found if upstream is not None]

    def entries(self, problem: str) -> messages.SessionsListed:
        """Return the list of sessions; `problem` says why some state would be lost at a restart."""
        now = time.time()
        entries: list[messages.SessionEntry] = []
        for each in self.values():
            with boundary("session entry", log=log):
                entries.append(each.session.entry(now, each.opened_at, each.client_pid or each.pid))
        return messages.SessionsListed(entries, self._hooks.listed(), problem)


def _hook_of(request: messages.TakeHookTurn, table: Mapping[str, ClientTraits]) -> HookRun:
    """Return the facts about a hook's process by which its session is found."""
    line, _ = traits_of(table, [request.client])
    return HookRun(
        request.client,
        request.client_session,
        platform.ancestors(request.peer_pid),
        request.project,
        line,
    )


def _candidate_of(session: Session, parent_pid: int) -> SessionCandidate:
    """Return the facts about a session that are compared with those about a hook.

    `parent_pid` is the parent of the process at the other end of the session's socket.
    """
    place = session.place
    return SessionCandidate(
        place.key,
        place.client,
        frozenset(session.connection.client_sessions),
        parent_pid,
        place.project,
        session.view.line,
    )
