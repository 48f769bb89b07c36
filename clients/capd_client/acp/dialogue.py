"""Reads the messages between an editor and its agent, and adds capd to them.

A new session of the agent gets capd as an MCP server. This module makes a key for the capd session
and puts it into the server's environment, so it knows to which capd session a prompt belongs. The
daemon gets the user's words from a prompt, and may return a text for the model, which becomes
another block of the prompt. Any other line passes unchanged: a line is encoded again only if
something is added to it.
"""

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]

NAME = "capd"
"""capd's name in a list of MCP servers; `capd install` uses the same name."""

_OPENING = frozenset({"session/new", "session/load", "session/resume", "session/fork"})
_ENDING = frozenset({"session/close", "session/delete"})
_PROMPT = "session/prompt"
_KEY = "CAPD_SESSION"
_SILENCE = "CAPD_ACP"
"""A variable of the shim. If it is set, the shim answers the agent's own prompt hook with an empty
text, because `capd acp` sends the prompt to the daemon."""
_SHARING = ("opencode",)
"""Agents that connect to a folder's servers only once. All their sessions in one folder share a
key."""
_MOST_OPENING = 1000
"""How many unanswered requests to open a session are remembered. Some agents leave one unanswered.
"""


@dataclass(frozen=True, slots=True)
class Prompt:
    """The text of a user's prompt, and the key of the capd session that the prompt belongs to."""

    session: str
    text: str


@dataclass(frozen=True, slots=True)
class AgentLine:
    """A line to send to the agent.

    `prompt` is set if the line is a prompt with text, in a session that has capd.
    """

    line: bytes
    prompt: Prompt | None = None
    message: Json = field(default_factory=dict, repr=False)

    def with_context(self, context: str) -> bytes:
        """Return the line of a prompt with `context` as its last block; unchanged without one."""
        if not context:
            return self.line
        block = {"type": "text", "text": context}
        params = self.message["params"]
        extended = {**params, "prompt": [*params["prompt"], block]}
        return _line({**self.message, "params": extended})


class Dialogue:
    """Follows the messages of one editor and one agent, and keeps the keys of their capd sessions.

    `command` starts capd's shim, with the environment `env`.
    """

    def __init__(self, command: Sequence[str], env: Mapping[str, str]) -> None:
        self._command = list(command)
        self._env = dict(env)
        self._opening: dict[str, str] = {}
        """The key of each session that is being opened, by the request's id."""
        self._keys: dict[str, str] = {}
        """The key of each open session, by the agent's id of the session."""
        self._initialize = ""
        self._names_transport = False
        self._is_sharing = False
        self._shared: dict[str, str] = {}
        """The key of each folder whose sessions share one connection."""

    def from_editor(self, line: bytes) -> AgentLine:
        """Return the line to send to the agent in place of `line`, which the editor sent."""
        message = _parsed(line)
        method, params = message.get("method"), message.get("params")
        if method == "initialize":
            self._initialize = _id(message)
        if not isinstance(params, dict):
            return AgentLine(line)
        if method in _OPENING:
            return AgentLine(self._opened(message, params) or line)
        if method == _PROMPT:
            key = self._keys.get(str(params.get("sessionId")), "")
            text = _words(params.get("prompt"))
            return AgentLine(line, Prompt(key, text) if key and text else None, message)
        if method in _ENDING:
            self._keys.pop(str(params.get("sessionId")), None)
        return AgentLine(line)

    def expects(self) -> bool:
        """Tell whether the agent still owes an answer that `from_agent` needs."""
        return bool(self._opening or self._initialize)

    def from_agent(self, line: bytes) -> None:
        """Learn what an answer of the agent says: who the agent is, or its id of a new session."""
        message = _parsed(line)
        key = _id(message)
        if "method" in message or not key:
            return
        result = message.get("result")
        if key == self._initialize:
            self._initialize = ""
            self._on_agent_info(result if isinstance(result, dict) else {})
        session = self._opening.pop(key, "")
        if session and isinstance(result, dict) and result.get("sessionId"):
            self._keys[str(result["sessionId"])] = session

    def _on_agent_info(self, result: Json) -> None:
        version, agent = result.get("protocolVersion"), result.get("agentInfo")
        self._names_transport = isinstance(version, int) and version > 1
        name = agent.get("name") if isinstance(agent, dict) else ""
        self._is_sharing = isinstance(name, str) and name.lower() in _SHARING

    def _new_key(self, folder: str) -> str:
        key = f"acp-{uuid.uuid4().hex}"
        return self._shared.setdefault(folder, key) if self._is_sharing else key

    def _opened(self, message: Json, params: Json) -> bytes:
        """Return the line of a request that opens a session, with capd added to its MCP servers.

        `message` is the request, and `params` are its params. The line is empty if capd cannot be
        added.
        """
        servers = params.get("mcpServers", [])
        if not isinstance(servers, list):
            return b""
        ours = next((each for each in servers if _is_capd(each)), None)
        key = self._new_key(str(params.get("cwd")))
        if ours is None:
            ours = {"name": NAME, "command": self._command[0], "args": self._command[1:]}
            ours["env"] = [{"name": name, "value": value} for name, value in self._env.items()]
            if self._names_transport:
                ours = {"type": "stdio", **ours}
            servers = [*servers, ours]
        # If the entry is the editor's own, its key is dropped: the editor's session uses that key.
        ends = [{"name": _KEY, "value": key}, {"name": _SILENCE, "value": "1"}]
        env = [*_env_without_key(ours), *ends]
        servers = [{**ours, "env": env} if each is ours else each for each in servers]
        if message["method"] in {"session/load", "session/resume"}:
            self._keys[str(params.get("sessionId"))] = key
        elif len(self._opening) < _MOST_OPENING:
            self._opening[_id(message)] = key
        return _line({**message, "params": {**params, "mcpServers": servers}})


def _is_capd(server: object) -> bool:
    """Tell whether an entry of a list of MCP servers is capd's shim, whoever added it."""
    if not isinstance(server, dict) or not isinstance(server.get("command"), str):
        return False
    program = server["command"].rpartition("/")[2]
    return server.get("name") == NAME or program in {"capd", "capd-mcp"}


def _env_without_key(server: Json) -> list[Any]:
    env = server.get("env")
    entries = env if isinstance(env, list) else []
    return [each for each in entries if not isinstance(each, dict) or each.get("name") != _KEY]


def _words(blocks: object) -> str:
    """Return the user's texts in the blocks of a prompt, without those that an editor added."""
    texts = []
    for block in blocks if isinstance(blocks, list) else []:
        if not isinstance(block, dict) or block.get("type") != "text":
            continue
        notes = block.get("annotations")
        audience = notes.get("audience") if isinstance(notes, dict) else None
        is_users = not isinstance(audience, list) or not audience or "user" in audience
        if is_users and isinstance(block.get("text"), str):
            texts.append(block["text"])
    return "\n".join(texts).strip()


def _parsed(line: bytes) -> Json:
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return message if isinstance(message, dict) else {}


def _id(message: Json) -> str:
    """Return a message's id as JSON text, in which 1 and "1" differ; empty if it has no id."""
    key = message.get("id")
    return "" if key is None else json.dumps(key)


def _line(message: Json) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"
