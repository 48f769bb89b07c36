"""Tells which sub-agent of a conversation makes a call, from what the client's hooks report.

A client has one MCP connection for a conversation and all its sub-agents, and a call on it names no
agent. The client's hooks, which are programs that it runs at certain events, name the agent:

    SubagentStart(agent) ──> runs ──SubagentStop(agent)──> is over
                              ^
    PreToolUse(agent, use) ───┘   the call with this id of a tool use is the agent's

A call that no hook has announced is the conversation's own. A hook may be lost. So an agent also
starts with its first announced call. If there are too many agents, the one that was idle longest
counts as over.
"""

from typing import NewType

import msgspec

from capd.core.lazy_patterns import lazy_pattern
from capd_protos.codec import JsonCodec, MalformedError
from capd_protos.types import SessionKey

AgentId = NewType("AgentId", str)
"""The client's own id of a sub-agent; empty for the conversation itself."""

MOST_AGENTS = 32
"""The most sub-agents of one conversation that run at a time. The number is limited because a
client that ends one may run no hook."""
MOST_CALLS = 1000
"""The most announced calls that are remembered. The oldest are forgotten first."""

_AGENT = lazy_pattern(r"[A-Za-z0-9._-]{1,64}")
_LONGEST_USE = 256
_LONGEST_KEY = 128
_NO_AGENT = AgentId("")


class _Meta(msgspec.Struct):
    tool_use: str = msgspec.field(name="claudecode/toolUseId", default="")


_META: JsonCodec[_Meta] = JsonCodec(_Meta)


def agent_of(text: str) -> AgentId:
    """Return the id of a sub-agent in a hook's message; empty if it has none, or no valid one."""
    return AgentId(text) if _AGENT.fullmatch(text) else _NO_AGENT


def agent_key(conversation: SessionKey, agent: AgentId) -> SessionKey:
    """Return the key of a sub-agent's session."""
    return SessionKey(f"{conversation[: _LONGEST_KEY - len(agent) - 1]}:{agent}")


class SubAgents:
    """The running sub-agents of one conversation, and the calls announced for them."""

    def __init__(self) -> None:
        # In the order of their last use.
        self._running: dict[AgentId, None] = {}
        self._calls: dict[str, AgentId] = {}

    def __contains__(self, agent: AgentId) -> bool:
        """Tell whether an agent runs."""
        return agent in self._running

    def __bool__(self) -> bool:
        """Tell whether any agent runs."""
        return bool(self._running)

    def start(self, agent: AgentId) -> list[AgentId]:
        """Note that a sub-agent runs.

        Return the agents that count as over from now on, because there are too many.
        """
        self._running.pop(agent, None)
        self._running[agent] = None
        over = list(self._running)[:-MOST_AGENTS]
        for each in over:
            self.stop(each)
        return over

    def announce(self, tool_use: str, agent: AgentId) -> list[AgentId]:
        """Note that a sub-agent is about to make the call with the client's id `tool_use`.

        Return the agents that count as over from now on, because there are too many.
        """
        if not 0 < len(tool_use) <= _LONGEST_USE:
            return []
        over = self.start(agent)
        self._calls.pop(tool_use, None)
        self._calls[tool_use] = agent
        while len(self._calls) > MOST_CALLS:
            del self._calls[next(iter(self._calls))]
        return over

    def stop(self, agent: AgentId) -> bool:
        """Note that an agent has ended, and drop its calls; return whether it was running."""
        self._calls = {use: each for use, each in self._calls.items() if each != agent}
        if agent not in self._running:
            return False
        del self._running[agent]
        return True

    def caller(self, meta: bytes) -> AgentId:
        """Return the sub-agent that makes a call with this `_meta`; empty for the conversation."""
        if not self._calls or not meta:
            return _NO_AGENT
        try:
            return self._calls.get(_META.decode(meta).tool_use, _NO_AGENT)
        except MalformedError:
            return _NO_AGENT
